# SPDX-License-Identifier: GPL-2.0-only
"""Figures on pages are those of the results that they name."""

import json
import tempfile
import unittest
from pathlib import Path

from lab.checks import figures
from lab.checks.expression import BadFigureError, Results, evaluate, written
from lab.checks.figures import RESULTS, parse, problems
from lab.paths import REPO

_DEMO = {
    "workload": {},
    "cells": {
        "none": {
            "always": {"rps": {"median": 118029.4, "min": 1, "max": 2}, "avg_ms": None, "runs": [1]},
            "never": {"rps": {"median": 108696, "min": 108000, "max": 109000}},
            "mthp_ext": {"rps": {"median": 117371}, "huge": 0.861},
        },
        "max": {"always": {"finished": False}, "idle": 0},
    },
}
_BENCH = {"worlds": {"a/b-c/classic": {"arms": {"small-services": {"p99": {"median": 37.85}}}}}}


class _WithResults(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.results = Results(Path(directory.name))
        for date, name, metrics in (
            ("2026-11-22", "demo", _DEMO),
            ("2026-11-22", "bench", _BENCH),
            ("2025-01-31", "demo", {"cells": {"none": {"always": {"rps": 5}}}}),
            # A day need not have both.
            ("2026-11-23", "khugepaged", {"before": {"scans": 7}}),
        ):
            path = Path(directory.name) / date / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"metrics": metrics}))


class ExpressionTest(_WithResults):
    def test_values(self) -> None:
        for text, number in (
            ("demo none.always.rps", 118029.4),
            ("demo none.never.rps.max", 109000),
            ('bench "a/b-c/classic".arms.small-services.p99', 37.85),
            ("2025-01-31/demo none.always.rps", 5),
            ("khugepaged before.scans", 7),
            ("demo none.mthp_ext.huge * 100", 86.1),
            ("( 1 - demo none.mthp_ext.rps / none.mthp_ext.rps ) * 100 + 2 - 1", 1),
            ("100 * (demo none.never.rps - none.never.rps)", 0),
            ("demo none.never.rps / khugepaged before.scans", 108696 / 7),
        ):
            self.assertAlmostEqual(evaluate(text, self.results).number, number, msg=text)

    def test_only_a_quotient_is_one(self) -> None:
        for text, wanted in (
            ("demo none.never.rps / none.always.rps", True),
            ("demo none.never.rps", False),
            ("demo none.never.rps / none.always.rps - 1", False),
            ("(demo none.never.rps / none.always.rps)", False),
        ):
            self.assertEqual(evaluate(text, self.results).is_quotient, wanted, text)

    def test_what_has_no_value(self) -> None:
        for text, wanted in (
            ("demo none.allways.rps", "no 'allways' below none; there is: always"),
            ("demo nothing", "no 'nothing' below the top"),
            ("demo none.always.rps.median.x", "no 'x' below"),
            ("demo none.always.avg_ms", "is no number: None"),
            ("demo none.always", "is no number: None"),
            ("demo max.always.finished", "is no number: False"),
            ("demo none.always.runs", "is no number"),
            ("none.always.rps", "names no file"),
            ("dmeo none.always.rps", "holds no results named dmeo"),
            ("2024-01-01/demo none.always.rps", "there is no 2024-01-01/demo.json"),
            ('bench "a/b', "a quotation without its end"),
            ("demo none..rps", "is no key"),
            ("demo", "is no key"),
            ("demo none.never.rps /", "ends too early"),
            ("demo none.never.rps / max.idle", "a division by 0"),
            ("(demo none.never.rps", "a parenthesis without its end"),
            ("demo none.never.rps 5", "what is '5'?"),
            ("* 5", "is missing before '*'"),
        ):
            with self.assertRaises(BadFigureError, msg=text) as caught:
                evaluate(text, self.results)
            self.assertIn(wanted, str(caught.exception))

    def test_no_results(self) -> None:
        with self.assertRaisesRegex(BadFigureError, "holds no results"):
            evaluate("demo none.always.rps", Results(Path("/nonexistent")))


class WrittenTest(_WithResults):
    def test_rounding(self) -> None:
        rate, quotient = "demo none.always.rps", "demo none.never.rps / none.always.rps"
        for text, source, agrees, corrected in (
            ("118,029", rate, True, "118,029"),
            ("118,030", rate, False, "118,029"),
            ("118029.4", rate, True, "118,029.4"),
            ("118 k", rate, True, "118 k"),
            ("118k requests/s", rate, True, "118k requests/s"),
            ("119 k", rate, False, "118 k"),
            ("118.0 k", rate, True, "118.0 k"),
            ("0.92", quotient, True, "0.92"),
            ("0.921", quotient, True, "0.921"),
            ("0.93", quotient, False, "0.92"),
            ("92 %", quotient, True, "92 %"),
            ("92.1%", quotient, True, "92.1%"),
            ("-8 %", quotient, True, "-8 %"),
            ("\u22127.9 %", quotient, True, "\u22127.9 %"),
            ("+8 %", quotient, False, "-8 %"),
            ("-92 %", quotient, False, "-8 %"),
            ("86 %", "demo none.mthp_ext.huge * 100", True, "86 %"),
            ("37.9 ms", 'bench "a/b-c/classic".arms.small-services.p99', True, "37.9 ms"),
            ("37.8 ms", 'bench "a/b-c/classic".arms.small-services.p99', True, "37.9 ms"),
            ("37.7 ms", 'bench "a/b-c/classic".arms.small-services.p99', False, "37.9 ms"),
        ):
            value = evaluate(source, self.results)
            self.assertEqual(written(text).agrees(value), agrees, text)
            if not agrees or text == corrected:
                self.assertEqual(written(text).corrected(value), corrected, text)

    def test_no_figure(self) -> None:
        for text in ("fast", "", "about 5"):
            with self.assertRaises(BadFigureError):
                written(text)


class PageTest(_WithResults):
    def found(self, text: str) -> list[str]:
        return problems(parse("page.md", text), self.results)

    def test_a_page_in_order(self) -> None:
        text = """\
# 3 ms of Linux 7.3 <!-- 5 s -->

It serves 118,029 requests/s at `100 ms`, on Rust 1.85, [92 %](a/5%20s.md) of
`always`; x86_64, 1-2 s.

<!-- figures: 118,029 = demo none.always.rps;
     92 % = demo none.never.rps / none.always.rps;
     not measured: 2 s -->
<!-- figures: not measured on this page: 3 ms -->

| limit | 5 |
|-------|---|
| none  | 118 k |
| `max` | 109 k and 7 |
| **86.1** | -8 % |
<!-- figures: 118 k = demo none.always.rps; 109 k = demo none.never.rps; 86.1 = demo none.mthp_ext.huge * 100;
-8 % = demo none.never.rps / none.always.rps -->

```console guest
# sleep 5 s
took 5 s
```

```text
rps 118,029
```
<!-- figures: 118,029 = demo none.always.rps -->
"""
        self.assertEqual(self.found(text), [])

    def test_what_is_wrong(self) -> None:
        source = "demo none.always.rps"
        twice = "| a |\n|---|\n| 118 k |\n| 118 k |\n"
        stale = f"page.md:3: 118,030 = {source}: stale: 118,029 is written 118,029"
        for text, wanted in (
            ("It takes 5 ms.\n", "page.md:1: '5 ms' in 'It takes 5 ms.' has no source"),
            ("It serves 118,029 of them.\n", "'118,029' in"),
            ("a\n\nIt has 0.92 of it.\n", "page.md:3: '0.92' in"),
            ("a share of 92% there\n", "'92%' in"),
            ("3 times as many\n", "'3 times' in"),
            ("| a |\n|---|\n| 5 |\n", "'5' in"),
            ("| a | 5 |\n|---|---|\n| b | **0.5** |\n", "'0.5' in"),
            ("```text\nrps 118,029\n```\n", "'118,029' in"),
            (f"118,030\n\n<!-- figures: 118,030 = {source} -->\n", stale),
            ("118,029\n\n<!-- figures: 118,029 = demo none.rps -->\n", "no 'rps' below none"),
            (f"118,029\n\n<!-- figures: 118 k = {source} -->\n", "118 k = demo none.always.rps: it does not occur"),
            (f"2118,029.5\n<!-- figures: 118,029 = {source} -->\n", "it does not occur"),
            (f"+118 k\n<!-- figures: 118 k = {source} -->\n", "it does not occur"),
            (f"118 %\n<!-- figures: 118 = {source} / 1000 -->\n", "it does not occur"),
            (f"<!-- figures: 118,029 = {source} -->\n", "page.md:1: figures of nothing"),
            ("a\n<!-- figures: 118,029 -->\n", "page.md:2: '118,029' is not `FIGURE = SOURCE`"),
            (f"{twice}<!-- figures: 118 k = {source} -->\n", "2 cells read 118 k, 1 have a source"),
            ("a\n<!-- figures: not measured: 5 ms -->\n", "page.md: not measured: '5 ms', which does not occur"),
            ("5 ms\n\nb\n<!-- figures: not measured: 5 ms -->\n", "page.md:1: '5 ms' in"),
        ):  # fmt: skip
            found = self.found(text)
            self.assertTrue(any(wanted in one for one in found), f"{wanted}: {found}")


class RepositoryTest(unittest.TestCase):
    def test_every_figure_is_that_of_its_source(self) -> None:
        pages = figures.pages()
        self.assertLessEqual(
            {"README.md", "docs/results.md", "docs/policies/default.md"}, {page.name for page in pages}
        )
        self.assertGreater(sum(len(block.entries) for page in pages for block in page.blocks), 30)
        self.assertEqual([one for page in pages for one in problems(page, RESULTS)], [])

    def test_results_are_kept_as_they_are_looked_for(self) -> None:
        self.assertEqual(RESULTS.directory, REPO / "results")
        for name in ("demo", "bench"):
            self.assertTrue(RESULTS.file(name), name)
