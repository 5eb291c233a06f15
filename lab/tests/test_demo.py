# SPDX-License-Identifier: GPL-2.0-only
"""The demo's reading of records, its tables, gates and page, on made-up records."""

import dataclasses
import io
import threading
import unittest
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from lab import proc, programs, vm
from lab.demo import gates, metrics, outcome, page, schedule, text
from lab.demo.cells import ARM, LIMITS, SCALES, Cell, plan
from lab.demo.outcome import Run, Table
from lab.errors import Exit, LabError
from lab.vm import Mode
from lab.vm.schedule import Progress

SCALE = SCALES["demo"]
ENVIRONMENT: dict[str, Any] = {"kernel": "7.3.4", "qemu_mode": "icount", "cpu": "<b>&"}


def records(**result: Any) -> list[dict[str, Any]]:
    """What a guest sends for a run that came to its end."""
    whole = {
        "type": "result",
        "t_ms": 5000,
        "elapsed_ms": 4000,
        "served": SCALE.requests,
        "bounded": False,
        "by_host": False,
        "server_died_ms": None,
        "server_said": "Ready to accept connections unix",
        "pswpin": 10,
        "pswpout": 20,
        "oom_kills": 0,
        "memory_peak": 100 << 20,
        "psi_some_us": 2_000_000,
        "psi_full_us": 1_000_000,
        "rps": 50_000.0,
        "avg_ms": 5.0,
        "p50_ms": 4.0,
        "p95_ms": 9.0,
        "p99_ms": 12.0,
        "max_ms": 40.0,
    }
    whole.update(result)
    whole = {name: value for name, value in whole.items() if value != "absent"}
    samples = [
        {
            "type": "sample",
            "t_ms": 1000 + 50 * i,
            "psi_some_us": 0,
            "psi_full_us": 10_000 * i,
            "current": i << 20,
            "anon": i << 20,
            "anon_thp": i << 19,
        }
        for i in range(40)
    ]
    decision = {"type": "policy", "event": "decision", "t_ms": 1500, "to": "4K", "why": "headroom"}
    return [
        {"type": "begin", "t_ms": 1000, "release": "7.3.4"},
        *samples,
        {**decision, "cgroup": "/redis", "orders": {"fault": 0}},
        {**decision, "cgroup": "/", "orders": {"fault": 0}},
        whole,
    ]


NOT_FINISHED: dict[str, Any] = dict.fromkeys(("rps", *outcome.LATENCIES), "absent")
KILLED: dict[str, Any] = {"server_died_ms": 2000, "oom_kills": 1, "served": 30_000, **NOT_FINISHED}
STOPPED: dict[str, Any] = {"bounded": True, "served": 60_000, "elapsed_ms": 60_000, **NOT_FINISHED}
CUT: dict[str, Any] = {**STOPPED, "by_host": True}


def run(limit: str, arm: str, repeat: int = 0, **result: Any) -> Run:
    return outcome.read(Cell(limit, ARM[arm], SCALE, repeat), records(**result), 20.0)


def everything(change: Run | None = None) -> Table:
    """A run of all cells that meets every gate, but for `change`."""
    always = run("high", "always", rps=1_000.0)
    runs = [run(limit, arm, repeat) for limit in LIMITS for arm in ARM for repeat in range(2)]
    runs = [one for one in runs if (one.cell.limit, one.cell.arm.key) != ("high", "always")]
    runs.append(always)
    if change:
        runs = [one for one in runs if one.cell != change.cell]
        runs.append(change)
    return Table(runs)


class ReadTest(unittest.TestCase):
    def test_whole_run(self) -> None:
        one = run("high", "mthp_ext")
        self.assertEqual((one.rps, one.flips, one.finished, one.pages_in), (50_000.0, 1, True, 10))
        self.assertAlmostEqual(one.samples[0].stall, 0.2)
        self.assertAlmostEqual(one.decisions[0].t_s, 0.5)
        self.assertEqual(one.huge_peak, 39 << 19)

    def test_bounded_run_is_rated_by_what_was_served(self) -> None:
        one = run("high", "always", bounded=True, served=100_000, elapsed_ms=50_000, **NOT_FINISHED)
        self.assertEqual((one.rps, one.latency, one.finished), (2_000.0, None, False))

    def test_killed_run(self) -> None:
        one = run("max", "always", server_died_ms=2000, oom_kills=1, served=30_000, **NOT_FINISHED)
        self.assertEqual((one.killed_s, one.rps, one.finished), (1.0, 30_000.0, False))
        self.assertIn("OOM-killed after 1.00 s, 30,000 of 200,000 served", text.fate([one]))

    def test_a_server_that_died_of_something_else_is_quoted(self) -> None:
        one = run("max", "always", **{**KILLED, "oom_kills": 0, "server_said": "Guru Meditation"})
        self.assertIn("server died after 1.00 s, 30,000 of 200,000 served; its last words: Guru", text.fate([one]))

    def test_a_run_cut_short_by_the_host_is_rated_and_says_so(self) -> None:
        one = run("high", "always", **CUT)
        self.assertEqual((one.rps, one.by_host), (1_000.0, True))
        said = "stopped by the clock of this machine after 60.0 s of guest time"
        self.assertIn(f"{said}, 60,000 of 200,000 served", text.fate([one]))
        self.assertIn(said, schedule.outcome_line(one))

    def test_a_full_report_of_too_few_requests_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            run("none", "always", served=5)

    def test_missing_and_doubled_records_are_refused(self) -> None:
        cell = Cell("none", ARM["always"], SCALE, 0)
        for broken in (records()[1:], records()[:-1], [*records(), records()[-1]]):
            with self.assertRaises(ValueError):
                outcome.read(cell, broken, 1.0)


class PlanTest(unittest.TestCase):
    def test_all_cells_interleaved_and_the_slow_one_once_and_first(self) -> None:
        cells = plan(SCALE, list(LIMITS), list(ARM), 2)
        self.assertEqual(len(cells), 23)
        self.assertEqual((cells[0].limit, cells[0].arm.key), ("high", "always"))
        self.assertEqual([c.arm.key for c in cells[1:5]], list(ARM))


class GateTest(unittest.TestCase):
    def check(self, change: Run | None) -> set[str]:
        return {one.name for one in gates.check(everything(change), counted=True) if not one.ok}

    def test_all_hold(self) -> None:
        checked = gates.check(everything(), counted=True)
        self.assertEqual([one for one in checked if not one.ok], [])
        self.assertEqual(len(checked), 9 + len(gates.STEADY))

    def test_each_can_fail(self) -> None:
        slow = {
            ("none", "reactive"): 40_000.0,
            ("none", "mthp_ext"): 40_000.0,
            ("high", "reactive"): 9_000.0,
            ("high", "mthp_ext"): 40_000.0,
            ("max", "mthp_ext"): 40_000.0,
        }
        for (limit, arm), rps in slow.items():
            failed = self.check(run(limit, arm, 1, rps=rps))
            self.assertTrue(any(arm in name and "rps" in name for name in failed), (limit, arm, failed))
        fast = everything(run("high", "always", rps=5_000.0))
        self.assertIn(
            "memory.high: rps of mthp_ext / always", {g.name for g in gates.check(fast, counted=True) if not g.ok}
        )

    def test_latency(self) -> None:
        failed = self.check(run("high", "mthp_ext", 1, p99_ms=40.0))
        self.assertIn("memory.high: p99 of mthp_ext / never", failed)

    def test_kill_and_lost_requests(self) -> None:
        killed = run("max", "mthp_ext", 1, server_died_ms=2000, oom_kills=1, served=9, **NOT_FINISHED)
        failed = self.check(killed)
        self.assertIn("memory.max: mthp_ext, out-of-memory kills", failed)
        self.assertIn("memory.max: mthp_ext serves every request (share of requests)", failed)

    def test_spread(self) -> None:
        self.assertIn("high/never: rps repeats (spread)", self.check(run("high", "never", 1, rps=47_000.0)))

    def judged(self, change: Run) -> dict[str, tuple[bool, bool]]:
        return {one.name: (one.judged, one.ok) for one in gates.check(everything(change), counted=True)}

    def test_always_cut_short_is_a_lower_bound(self) -> None:
        name = "memory.high: rps of mthp_ext / always until it was stopped"
        self.assertEqual(self.judged(run("high", "always", **CUT))[name], (True, True))
        fast = {**CUT, "elapsed_ms": 10_000}
        checked = self.judged(run("high", "always", **fast))
        self.assertEqual(checked.pop(name), (False, False))
        self.assertTrue(all(judged for judged, _ in checked.values()))
        # In guest time it is a property of the cell, and is judged.
        self.assertEqual(self.judged(run("high", "always", **{**fast, "by_host": False}))[name], (True, False))

    def test_an_arm_cut_short_is_not_judged_by_what_it_served_first(self) -> None:
        for limit, arm, count in (("high", "mthp_ext", 4), ("max", "mthp_ext", 4), ("high", "never", 2)):
            checked = self.judged(run(limit, arm, 1, **CUT))
            left = {name for name, (judged, _) in checked.items() if not judged}
            self.assertEqual(len(left), count, left)
            self.assertTrue(all(ok for judged, ok in checked.values() if judged))
        self.assertFalse(gates.check(everything(run("max", "mthp_ext", 1, **CUT)), counted=False)[0].missed)

    def test_a_kill_counts_before_the_clock_as_well(self) -> None:
        checked = self.judged(run("max", "mthp_ext", 1, **{**CUT, "oom_kills": 1}))
        self.assertEqual(checked["memory.max: mthp_ext, out-of-memory kills"], (True, False))

    def test_without_counted_time_only_events_are_judged(self) -> None:
        self.assertEqual(len(gates.check(everything(), counted=False)), 2)


class TextTest(unittest.TestCase):
    def test_change_is_positive_when_better(self) -> None:
        self.assertEqual(text.change(110.0, 100.0, +1), "(+10.0%)")
        self.assertEqual(text.change(110.0, 100.0, -1), "(-10.0%)")

    def test_table_is_aligned_and_fits(self) -> None:
        table = everything()
        for limit in LIMITS:
            lines = [line for line in text.limit_table(table, limit, SCALE.limit_bytes) if line.startswith("|")]
            self.assertEqual(len({len(line) for line in lines}), 1)
            self.assertLessEqual(len(lines[0]), 120)

    def test_spread_leaves_killed_cells_out_and_those_cut_short(self) -> None:
        for fate in (KILLED, CUT):
            self.assertIn("at most 0.0%", text.spread_line(everything(run("max", "always", 1, **fate))))

    def short(self, change: Run) -> dict[str, list[str]]:
        rows = [[field.strip() for field in line.strip("|").split("|")] for line in
                text.short_table(everything(change), SCALE.limit_bytes)]  # fmt: skip
        self.assertEqual(rows[0], ["requests/s", "always", "never", "mthp_ext"])
        return {row[0]: row[1:] for row in rows[2:]}

    def test_the_short_table_comes_first(self) -> None:
        table = everything()
        first = text.report(table, [], SCALE.limit_bytes, "icount").splitlines()[:5]
        self.assertEqual(first, text.short_table(table, SCALE.limit_bytes))
        self.assertEqual(list(self.short(run("high", "always", **STOPPED))),
                         ["no limit", "memory.high = 96M", "memory.max = 96M"])  # fmt: skip

    def test_the_short_table_says_what_became_of_always(self) -> None:
        whole = ["50,000"] * 2
        for change, limit, shown in (
            (run("high", "always", **STOPPED), "memory.high = 96M", "does not finish (1,000/s when stopped)"),
            (run("high", "always", **CUT), "memory.high = 96M", "cut short (1,000/s until then)"),
            (run("max", "always", 1, **KILLED), "memory.max = 96M", "OOM-killed"),
        ):
            self.assertEqual(self.short(change)[limit], [shown, *whole])

    def test_the_short_table_of_some_cells(self) -> None:
        rows = text.short_table(Table([run("high", "never")]), SCALE.limit_bytes)
        self.assertEqual(rows[2].replace(" ", ""), "|memory.high=96M|notrun|50,000|notrun|")
        self.assertEqual(text.short_table(Table([run("high", "reactive")]), SCALE.limit_bytes), [])

    def test_one_death_has_one_time(self) -> None:
        late = [run("max", "always", repeat, **{**KILLED, "server_died_ms": 2470 - 10 * repeat, "served": 9 - repeat})
                for repeat in range(2)]  # fmt: skip
        runs = [*late, run("max", "never")]
        lines = text.limit_table(Table(runs), "max", SCALE.limit_bytes)
        self.assertIn("OOM-killed after 1.46 s", lines[2])
        self.assertIn("OOM-killed after 1.46 s, 8 of 200,000 served (2 of 2 runs ended so, this one first)", lines[-1])
        document = page.render(Table(runs), [], SCALE, ENVIRONMENT)
        self.assertNotIn("1.47", document)
        self.assertGreaterEqual(document.count("OOM-killed after 1.46 s"), 3)

    def test_no_ratio_to_a_run_that_was_stopped(self) -> None:
        for change in (run("high", "always", **STOPPED), run("high", "always", **CUT)):
            table = everything(change)
            lines = text.limit_table(table, "high", SCALE.limit_bytes)
            self.assertFalse(any("%" in line for line in lines), lines)
            self.assertTrue(any("%" in line for line in text.limit_table(table, "none", SCALE.limit_bytes)))
            document = page.render(table, [], SCALE, ENVIRONMENT)
            self.assertNotIn("50x", document)
        self.assertIn("50x", page.render(everything(), [], SCALE, ENVIRONMENT))
        stopped = page.render(everything(run("high", "always", **STOPPED)), [], SCALE, ENVIRONMENT)
        self.assertIn("<b>does not finish</b><span>always over memory.high", stopped)

    def test_the_report_says_what_the_clock_cut_short(self) -> None:
        table = everything(run("high", "always", **CUT))
        self.assertIn("The clock of this machine stopped: memory.high, always.",
                      text.report(table, [], SCALE.limit_bytes, "icount"))  # fmt: skip
        self.assertNotIn("The clock", text.report(everything(), [], SCALE.limit_bytes, "icount"))

    def test_what_was_not_measured_is_not_invented(self) -> None:
        bounded = run("high", "always", bounded=True, served=100, elapsed_ms=50_000, **NOT_FINISHED)
        lines = text.limit_table(everything(bounded), "high", SCALE.limit_bytes)
        self.assertIn("not measured", next(line for line in lines if "p99" in line))
        self.assertIn("always: stopped after", lines[-1])


class CellTest(unittest.TestCase):
    """What comes of a guest, however it ended."""

    def run_cell(self, cell: Cell, sent: list[dict[str, Any]], stop_s: float = 1500.0) -> tuple[Run, vm.Job]:
        jobs: list[vm.Job] = []

        def boot(job: vm.Job, _: object) -> vm.Outcome:
            jobs.append(job)
            return vm.Outcome(vm.Verdict.PASSED, 0, sent, Path("/output"), Path("/console"), 20.0)

        with mock.patch.object(vm, "run", boot), redirect_stdout(io.StringIO()):
            progress = Progress(1, live=False)
            tools = schedule.Programs(Path("/m"), Path("/s"), Path("/b"))
            return schedule.run_cell(cell, Path(), Mode.ICOUNT, tools, progress, stop_s), jobs[0]

    def test_the_host_bounds_it_too(self) -> None:
        cell = Cell("high", ARM["always"], SCALE, 0)
        one, job = self.run_cell(cell, records(**CUT), 77.0)
        self.assertTrue(one.by_host)
        self.assertEqual(job.stop_s, 77.0)
        self.assertGreater(job.timeout_s, 77.0 + 60.0)

    def test_a_bound_before_anything_was_served_is_an_error(self) -> None:
        cell = Cell("high", ARM["always"], SCALE, 0)
        with self.assertRaises(LabError) as caught:
            self.run_cell(cell, records(**{**CUT, "served": 0}))
        self.assertEqual(caught.exception.code, Exit.GUEST_TIMEOUT)
        self.assertIn("before a request was served", caught.exception.cause)

    def test_records_that_make_no_sense(self) -> None:
        cell = Cell("high", ARM["always"], SCALE, 0)
        with self.assertRaises(LabError) as caught:
            self.run_cell(cell, records()[1:])
        self.assertTrue(caught.exception.cause.startswith("its records make no sense"))


class InterruptTest(unittest.TestCase):
    def test_ctrl_c_keeps_what_is_done_and_does_not_wait_for_the_rest(self) -> None:
        cells = [Cell("none", ARM[arm], SCALE, 0) for arm in ("always", "never", "reactive", "mthp_ext")]
        ended = threading.Event()

        def one(cell: Cell, *_: Any) -> Run:
            if cell is cells[0]:
                return run("none", "always")
            if cell is cells[1]:
                raise KeyboardInterrupt
            ended.wait(60)
            raise LabError(Exit.GUEST_DIED, "killed")

        with (
            mock.patch.object(schedule, "run_cell", one),
            mock.patch.object(programs, "guest"),
            mock.patch.object(proc, "stop_all", ended.set),
        ):
            tools = schedule.Programs(Path(), Path(), Path())
            finished = schedule.run_all(cells, Path(), Mode.ICOUNT, tools, 3)
        self.assertTrue(finished.interrupted and ended.is_set())
        self.assertEqual([one.cell.arm.key for one in finished.runs], ["always"])
        self.assertEqual(finished.errors, [])


class _Checker(HTMLParser):
    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


class PageTest(unittest.TestCase):
    def test_well_formed_self_contained_and_escaped(self) -> None:
        table = everything(run("max", "always", 1, server_died_ms=2000, oom_kills=1, served=9, **NOT_FINISHED))
        document = page.render(table, gates.check(table, counted=True), SCALE, ENVIRONMENT)
        checker = _Checker()
        checker.feed(document)
        checker.close()
        self.assertEqual((checker.open, checker.wrong, checker.references), ([], [], []))
        self.assertNotIn("url(", document)
        self.assertNotIn("<b>&<", document)
        self.assertIn("&lt;b&gt;&amp;", document)

    def test_one_cell_is_enough(self) -> None:
        table = Table([dataclasses.replace(run("high", "never"), samples=[])])
        self.assertIn("memory.high = 96M", page.render(table, [], SCALE, ENVIRONMENT))
        self.assertEqual(list(metrics.collect(table, SCALE)["cells"]), ["high"])


if __name__ == "__main__":
    unittest.main()
