# SPDX-License-Identifier: GPL-2.0-only
"""The time line of a server's rate: what is drawn of counters, and the demo's scene made of it."""

import unittest
from typing import Any

from lab.bench import page
from lab.bench.scenarios import late
from lab.bench.served import panels
from lab.bench.table import Table
from lab.demo import arrival
from lab.demo.cells import SCALES
from lab.report.rateline import Line, Mark, as_svg, as_text, counted, rates, top
from lab.tests.bench_runs import CI, ENVIRONMENT, one
from lab.tests.test_demo import _Checker

LATE = CI["late/load"]


def steady(rate: int, seen_s: float, **more: Any) -> Line:
    """So many a second, read ten times a second."""
    return Line("a", "never", [(n / 10, n * rate // 10) for n in range(round(seen_s * 10) + 1)], **more)


class RatesTest(unittest.TestCase):
    def test_between_two_readings_counts_grow_evenly(self) -> None:
        counts = [(1.0, 10), (3.0, 30)]
        self.assertEqual([counted(counts, t) for t in (0.5, 1.0, 2.0, 3.0, 3.5)], [None, 10.0, 20.0, 30.0, None])

    def test_a_steady_server(self) -> None:
        self.assertEqual({round(rate or 0) for rate in rates(steady(1000, 4.0), 4.0, 16)}, {1000})

    def test_the_last_reading_is_a_moment_before_the_end(self) -> None:
        self.assertEqual([round(rate or 0) for rate in rates(steady(1000, 3.9), 4.0, 40)], [1000] * 40)

    def test_a_server_that_stops_answering_serves_nobody(self) -> None:
        found = rates(steady(1000, 2.0), 4.0, 8)
        self.assertEqual([round(rate or 0) for rate in found], [1000] * 4 + [0] * 4)
        self.assertNotIn(None, found)

    def test_an_answer_that_comes_late_is_spread_over_the_stall(self) -> None:
        line = Line("a", "x", [(0.0, 0), (1.0, 100), (3.0, 140), (4.0, 240)])
        self.assertEqual(rates(line, 4.0, 4), [100.0, 20.0, 20.0, 100.0])

    def test_of_a_dead_server_nothing_is_known(self) -> None:
        found = rates(steady(1000, 2.0, ended_s=2.0), 4.0, 8)
        self.assertEqual(found[4:], [None] * 4)
        self.assertNotIn(None, found[:4])

    def test_a_server_that_lives_and_answered_once_serves_nobody(self) -> None:
        self.assertEqual(rates(Line("a", "x", [(0.0, 5)]), 1.0, 2), [0.0, 0.0])
        self.assertEqual(rates(Line("a", "x", []), 1.0, 2), [None, None])

    def test_after_its_own_end_nothing_is_drawn_of_a_run(self) -> None:
        found = rates(steady(1000, 2.0, until_s=2.0), 4.0, 8)
        self.assertEqual([rate and round(rate) for rate in found], [1000] * 4 + [None] * 4)
        # Silence before it is.
        found = rates(steady(1000, 2.0, until_s=3.0), 4.0, 8)
        self.assertEqual([rate and round(rate) for rate in found], [1000] * 4 + [0, 0, None, None])

    def test_the_scale_is_round_and_above_all(self) -> None:
        self.assertEqual([top([[value]]) for value in (0.0, 99.0, 119_000.0, 500.0)], [1.0, 100.0, 150_000.0, 500.0])


class TextTest(unittest.TestCase):
    def test_full_collapsed_and_silent_look_different(self) -> None:
        full, low = steady(1000, 4.0), Line("b", "x", [(0.0, 0), (2.0, 2000), (4.0, 2020)])
        lines = as_text([full, low], 4.0, [Mark(2.0, "limit")], columns=8, rows=4)
        self.assertEqual(lines[1:5], ["1k |########", "   |########", "   |########", " 0 |########"])
        self.assertEqual(lines[6:10], ["1k |####:", "   |####:", "   |####:", " 0 |####:..."])
        self.assertEqual(lines[10], "        ^")
        self.assertIn("limit at 2.0 s of 4.0 s", lines[11])

    def test_plain_characters_only(self) -> None:
        text = "\n".join(as_text([steady(1000, 4.0, note="1,000/s")], 4.0, [Mark(3.9, "memory.high = 96M")]))
        self.assertTrue(text.isascii())
        self.assertLessEqual(max(map(len, text.splitlines())), 100)


class SvgTest(unittest.TestCase):
    def test_it_is_well_formed_and_escaped(self) -> None:
        dead = steady(1000, 2.0, ended_s=2.0, note="<killed>")
        drawing = as_svg("Rate", [steady(1000, 4.0), dead], 4.0, [Mark(1.0, "a & b")])
        checker = _Checker()
        checker.feed(drawing)
        checker.close()
        self.assertEqual((checker.open, checker.wrong), ([], []))
        self.assertNotIn("<killed>", drawing)
        self.assertIn("a &amp; b", drawing)
        self.assertEqual((drawing.count("<polygon"), drawing.count('class="event"')), (2, 1))

    def test_the_higher_rate_is_drawn_higher(self) -> None:
        drawing = as_svg("Rate", [steady(1000, 4.0), steady(10, 4.0)], 4.0, [])
        tops = [float(points.split()[1].split(",")[1]) for points in drawing.split('points="')[1:]]
        self.assertAlmostEqual(tops[1] - tops[0], 0.99 * 64 + 84, delta=1.0)


class SceneTest(unittest.TestCase):
    def runs(self, **mine: Any) -> list[Any]:
        return [one(LATE, "always", slow=0.01), one(LATE, "never"), one(LATE, "mthp_ext", **mine)]

    def test_rates_before_and_with_the_limit(self) -> None:
        run = one(LATE, "never")
        self.assertEqual(late.limit_s(run), 2.0)
        self.assertAlmostEqual(late.free_rate(run) or 0, 50_000, delta=1)
        self.assertAlmostEqual(late.limited_rate(run) or 0, 12_500, delta=1)

    def test_a_server_that_never_answered_again_has_a_rate_of_zero(self) -> None:
        run = one(LATE, "always")
        run.meters["served"] = [reading for reading in run.meters["served"] if reading[0] < 2.0]
        self.assertEqual(late.limited_rate(run), 0.0)

    def test_of_a_dead_server_there_is_no_rate(self) -> None:
        self.assertIsNone(late.limited_rate(one(LATE, "always", killed=True)))

    def test_the_gate_can_fail_and_is_left_open_where_the_clock_decided(self) -> None:
        self.assertTrue(all(g.ok for g in arrival.check(self.runs(), counted=True)))
        self.assertEqual(len(arrival.check(self.runs(), counted=True)), 1)
        self.assertTrue(arrival.check(self.runs(slow=0.88), counted=True)[0].missed)
        self.assertTrue(arrival.check(self.runs(slow=0.92), counted=True)[0].ok)
        self.assertTrue(arrival.check(self.runs(killed=True), counted=True)[0].missed)
        self.assertFalse(arrival.check(self.runs(by_host=True), counted=True)[0].judged)
        unjudged, floor = arrival.check(self.runs(slow=0.5), counted=True, reclaim=False)
        self.assertEqual((unjudged.judged, floor.ok), (False, True))
        self.assertTrue(arrival.check(self.runs(slow=0.005), counted=True, reclaim=False)[1].missed)
        self.assertTrue(arrival.check(self.runs(killed=True), counted=True, reclaim=False)[0].missed)
        self.assertEqual(arrival.check(self.runs(), counted=False), [])
        self.assertEqual(arrival.check(self.runs()[:2], counted=True), [])

    def test_text_page_and_json_show_every_arm(self) -> None:
        runs = self.runs()
        text, document, body = "\n".join(arrival.text(runs)), arrival.section(runs), arrival.collect(runs)
        for label in ("always", "never", "always+mthp_ext"):
            self.assertIn(label, text)
            self.assertIn(label, document)
        self.assertIn("memory.high = 96M", text)
        self.assertIn("50,000/s before, 125/s with the limit", text)
        self.assertEqual(list(body), list(arrival.ARMS))
        self.assertEqual(len(body["never"]["served"]), 40)
        self.assertEqual([*arrival.text([]), arrival.section([])], [""])

    def test_each_line_ends_with_its_run_and_the_title_says_what_is_counted(self) -> None:
        shown, read = panels(self.runs()), panels([one(CI["zipf/high"], "never")])
        assert shown and read
        self.assertEqual([line.until_s for line in shown.lines], [4.0] * 3)
        self.assertEqual(shown.title, "SET per second, by the server's own count")
        self.assertIn("GET per second", read.svg())

    def test_a_death_is_named_and_marked(self) -> None:
        runs = [one(LATE, "always", killed=True), one(LATE, "never")]
        self.assertIn("OOM-killed after 1.00 s", "\n".join(arrival.text(runs)))
        self.assertIn('class="event"', arrival.section(runs))

    def test_the_plan_has_the_wanted_arms(self) -> None:
        self.assertEqual([cell.arm.key for cell in arrival.plan(SCALES["demo"], ["never", "reactive"])], ["never"])
        self.assertEqual([cell.arm.key for cell in arrival.plan(SCALES["smoke"], arrival.ARMS)], list(arrival.ARMS))

    def test_the_suites_page_draws_it_too(self) -> None:
        document = page.render(Table(self.runs()), [], ENVIRONMENT)
        self.assertEqual(document.count('<svg class="rates"'), 1)
        self.assertIsNone(panels([one(CI["redis/set-high"], "never")]))
