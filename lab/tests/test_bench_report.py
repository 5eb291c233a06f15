# SPDX-License-Identifier: GPL-2.0-only
"""What the suite's reports show, on made-up records."""

import dataclasses
import json
import math
import unittest

from lab.bench import (
    gates,
    markdown,
    output,
    page,
    published,
    style,
    text,
    timeline,
)
from lab.bench.arms import ARM
from lab.bench.spec import MIB
from lab.bench.table import Table
from lab.tests.bench_runs import CI, ENVIRONMENT, HIGH, often, one, table
from lab.tests.test_demo import _Checker


class ReportTest(unittest.TestCase):
    def test_page_is_well_formed_self_contained_and_escaped(self) -> None:
        it = table(one(HIGH, "always", 1, killed=True))
        document = page.render(it, gates.check(it, counted=True), ENVIRONMENT)
        checker = _Checker()
        checker.feed(document)
        checker.close()
        self.assertEqual((checker.open, checker.wrong), ([], []))
        self.assertTrue(all(reference == "a href" for reference in checker.references))
        self.assertNotIn("href='http", document)
        self.assertNotIn("url(", document)
        self.assertIn("&lt;b&gt;&amp;", document)
        self.assertIn(page.anchor(it.worlds[0]), document)

    def test_published_figures_have_ours_beside_them(self) -> None:
        it = Table([*often(HIGH, "always", rps=5_000.0), *often(HIGH, "never"), *often(HIGH, "reactive")])
        row = next(one for one in published.beside(it, "classic") if one.published.metric == "rps")
        self.assertEqual((row.never, row.reactive, row.policy), (10.0, 10.0, None))
        self.assertAlmostEqual(row.agreement or 0, 976610.893 / 885337.250)
        # Nothing is a multiple of a run that was stopped or killed.
        for values in ({"by_host": True}, {"killed": True}):
            it = Table([*often(HIGH, "always", rps=5_000.0, **values), *often(HIGH, "never"),
                        *often(HIGH, "reactive")])  # fmt: skip
            row = next(one for one in published.beside(it, "classic") if one.published.metric == "rps")
            self.assertEqual((row.base, row.never, row.reactive), ("never", 1.0, 1.0))
        names = {case.name for case in CI.values()}
        self.assertTrue({one.case for one in published.PUBLISHED} <= names)

    def test_colours_tell_good_from_bad(self) -> None:
        self.assertTrue(page.heat_colour(0.98).startswith("hsl(150"))
        self.assertFalse(page.heat_colour(0.979).startswith("hsl(150"))
        self.assertTrue(page.heat_colour(0.0).startswith("hsl(8 "))

    def test_every_arm_has_a_colour_and_a_new_policy_one_of_its_own(self) -> None:
        for arm in ARM:
            for use in (f".dot.{arm} ", f"rect.{arm}[ ,]", f".rate.{arm} "):
                self.assertRegex(style.CSS, use)
        self.assertEqual(style.colours("database"), ("#2f8f9d", "#55b3c0"))
        self.assertEqual(len({style.colours(name) for name in ("web", "build", "database")}), 3)

    def test_limit_of_a_wave_and_of_a_cgroup(self) -> None:
        self.assertEqual(timeline.limits(one(HIGH, "never")), [(0.0, 96.0 * MIB)])
        moved = dataclasses.replace(one(HIGH, "never"), waves=[(0.0, "redis", "max"), (2.0, "redis", "7")])
        self.assertEqual(timeline.limits(moved), [(0.0, math.inf), (2.0, 7.0)])

    def test_tables_are_aligned(self) -> None:
        it = table()
        lines = [line for line in [*text.case_table(it, it.worlds[0])] if line.startswith("|")]
        self.assertEqual(len({len(line) for line in lines}), 1)

    def test_markdown_and_json(self) -> None:
        it = table(*often(HIGH, "mthp_ext", rps=40_000.0))
        document = markdown.render(it, gates.check(it, counted=True), ENVIRONMENT)
        self.assertIn("**missed**", document)
        self.assertIn("0.800", document)
        body = output.collect(it)["worlds"]["redis/set-high/classic"]
        self.assertEqual({arm["cut_short"] for arm in body["arms"].values()}, {0})
        self.assertEqual(body["regret"]["rps"]["mthp_ext"]["value"], 0.8)
        json.dumps(body, allow_nan=False)
