# SPDX-License-Identifier: GPL-2.0-only
"""What is published, and what is not."""

import contextlib
import functools
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from lab import results
from lab.bench import gates, judging, output, scenarios
from lab.bench.spec import Scale
from lab.bench.table import Table
from lab.checks import publish
from lab.demo import arrival
from lab.demo.cells import ARM, LIMITS
from lab.errors import LabError
from lab.tests.bench_runs import HIGH, one

WHOLE: dict[str, Any] = {"qemu_mode": "icount", "scale": "ci", "revision": "1f89d70", "complete": True}

_ROWS = sum(len(case.lrus) for case in scenarios.cases(Scale.CI))


def bench(directory: Path, rows: list[str] | None = None, changed_runs: dict[str, int] | None = None,
          behind: tuple[str, ...] = (), **changed: Any) -> None:  # fmt: skip
    """Leaves a run of the suite there: figures of one case, which stand for those of all."""
    write = functools.partial(results.write, directory=directory)
    with mock.patch.object(output, "RESULTS", directory), mock.patch.object(results, "write", write):
        output.write("bench", Table([one(HIGH, "never"), one(HIGH, "always", killed=True)]), [], {**WHOLE, **changed})
    body = json.loads((directory / "bench.json").read_text())
    figures = body["metrics"]["worlds"]["redis/set-high/classic"]
    worlds = {}
    for case in scenarios.cases(Scale.CI):
        counts = {arm: 1 if arm in case.slow else judging.runs(case) for arm in gates.judged_arms(case)}
        counts |= (changed_runs or {}) if case.name == HIGH.name else {}
        known = {arm: figures["arms"].get(arm, figures["arms"]["never"]) for arm in counts}
        arms = {arm: {**known[arm], "runs": count} for arm, count in counts.items() if count}
        for lru in case.lrus:
            worlds[f"{case.name}/{lru}"] = {**figures, "arms": arms, "behind": list(behind)}
    body["metrics"]["worlds"] = {key: worlds[key] for key in (worlds if rows is None else rows)}
    body["when"] = "2026-11-22T23:59:00+00:00"
    (directory / "bench.json").write_text(json.dumps(body))


class PublishTest(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.source = Path(self._directory.name) / "from"
        self.target = Path(self._directory.name) / "to"
        self.source.mkdir()

    def publish(self, *names: str, date: str | None = None) -> set[str]:
        with contextlib.redirect_stdout(io.StringIO()):
            publish.main(names, date, self.source, self.target)
        return {str(path.relative_to(self.target)) for path in self.target.rglob("*.*") if path.is_file()}

    def refused(self, why: str, *names: str) -> None:
        with self.assertRaisesRegex(LabError, why):
            self.publish(*names)
        self.assertFalse(self.target.exists())

    def test_a_whole_run_is_copied_under_its_day(self) -> None:
        bench(self.source)
        self.assertEqual(
            self.publish("bench"), {f"2026-11-22/{name}" for name in ("bench.json", "report.html", "tables.md")}
        )
        copied = json.loads((self.target / "2026-11-22" / "bench.json").read_text())
        self.assertEqual(copied, json.loads((self.source / "bench.json").read_text()))
        self.assertIn("<h2>Regret", (self.target / "2026-11-22" / "report.html").read_text())

    def test_what_became_of_an_arm_is_in_the_json(self) -> None:
        bench(self.source)
        self.publish("bench", date="2027-01-01")
        arms = json.loads((self.target / "2027-01-01" / "bench.json").read_text())["metrics"]["worlds"][
            "redis/set-high/classic"
        ]["arms"]
        self.assertEqual((arms["never"]["fates"], arms["always"]["rps"]), ([], None))
        self.assertEqual(arms["always"]["fates"], ["server OOM-killed after 1.00 s"])

    def test_what_is_not_whole_is_refused(self) -> None:
        for why, changed in (
            ("are missing", {"complete": False}),
            ("are missing", {"complete": None}),
            ("2 rows lack an arm, or", {"changed_runs": {"never": 4}}),
            ("2 rows lack an arm, or", {"changed_runs": {"never": 6}}),
            ("2 rows lack an arm, or", {"changed_runs": {"mthp_ext": 0}}),
            ("set-high/classic for one", {"changed_runs": {"only32": 0}}),
            ("2 rows lack an arm, or", {"changed_runs": {"only16": 1}}),
            ("2 rows lack an arm, or", {"changed_runs": {"only16": 2}, "behind": ("only16",)}),
            ("scale smoke", {"scale": "smoke"}),
            ("commit first", {"revision": "1f89d70-dirty"}),
            ("commit first", {"revision": None}),
            (f"it lacks {_ROWS - 1} of {_ROWS} rows, ", {"rows": ["redis/set-high/classic"]}),
        ):
            bench(self.source, **changed)
            self.refused(why, "bench")

    def test_an_arm_that_is_far_behind_may_run_once(self) -> None:
        bench(self.source, changed_runs={"only16": 1}, behind=("only16", "only32"))
        self.assertEqual(len(self.publish("bench")), 3)

    def test_without_a_run_or_with_half_of_its_files(self) -> None:
        self.refused("run `make bench` first")
        bench(self.source)
        (self.source / "bench.html").unlink()
        self.refused("bench.html is missing", "bench")
        self.refused("no run that can be published", "soak")

    def test_no_page_says_that_it_is_not_complete(self) -> None:
        bench(self.source, complete=False)
        for name in ("bench.html", "bench.md"):
            self.assertNotIn("Not complete", (self.source / name).read_text(), name)


class CompactTest(unittest.TestCase):
    def test_same_values_on_fewer_lines(self) -> None:
        body = {"a": {"b": {"median": 1.5, "interval": [1, 2]}, "c": None, "d": {}, "e": []}, "f": [{"g": 1}, {}]}
        text = publish.compact(body)
        self.assertEqual(json.loads(text), body)
        self.assertIn('"b": {"median": 1.5, "interval": [1, 2]},', text)
        self.assertLess(len(text.splitlines()), len(json.dumps(body, indent=2).splitlines()))

    def test_a_demo_without_a_cell_is_refused(self) -> None:
        every: dict[str, dict[str, Any]] = {limit: {arm: {} for arm in ARM} for limit in LIMITS}
        every[arrival.KEY] = {arm: {} for arm in arrival.ARMS}
        body = {"environment": {**WHOLE, "workload": "demo"}, "metrics": {"cells": every}}
        self.assertEqual(publish.objections("demo", body), [])
        del every["max"]["never"]
        self.assertEqual(publish.objections("demo", body), ["it lacks max/never"])
        del every[arrival.KEY]["always"]
        self.assertEqual(publish.objections("demo", body), ["it lacks max/never, late/always"])
