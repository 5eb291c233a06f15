# SPDX-License-Identifier: GPL-2.0-only
"""The demo's cells, figures, tables, gates and page, on made-up records."""

import dataclasses
import io
import threading
import unittest
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from lab import proc, programs
from lab.bench import execute, scenarios
from lab.bench.cell import Cell
from lab.bench.run import Run, read
from lab.bench.spec import MIB
from lab.bench.spec import Scale as SuiteScale
from lab.demo import cells, gates, metrics, outcome, page, text
from lab.demo.cells import ARM, LIMITS, SCALES, plan
from lab.demo.outcome import Table
from lab.errors import Exit, LabError
from lab.tests import bench_runs
from lab.vm import Mode

SCALE = SCALES["demo"]
ENVIRONMENT: dict[str, Any] = {"kernel": "7.3.4", "qemu_mode": "icount", "cpu": "<b>&"}
FATES = ("killed_s", "stopped_s", "cut_s")
"""What ends a run before its end: the server's death, the deadline, the clock of the host."""


def records(
    limit: str, rps: float = 50_000.0, p99: float = 12.0, served: int | None = None, kills: int = 0, **fate: float
) -> list[dict[str, Any]]:
    """What a guest sends; `fate`: one of FATES and when, in seconds."""
    assert fate.keys() <= set(FATES)
    [(how, end_s)] = fate.items() or [("", 4.0)]
    count = SCALE.size.requests if served is None else served
    made = bench_runs.records(cells.case(SCALE, limit), rps=rps, p99=p99, killed=how == "killed_s", swapped_out=20)
    end_ms = 1000 + round(1000 * end_s)

    def out(task: str, line: str) -> dict[str, Any]:
        return {"type": "out", "task": task, "t_ms": end_ms, "text": line}

    # A server that is gone does not say what it served; a benchmark that is stopped makes no report.
    mine = {
        "": [out("info", f"cmdstat_set:calls={count},usec=1")],
        "killed_s": [out("load", f"SET: rps=1.0 (overall: {count / end_s}) avg_msec=1.0 (overall: 1.0)")],
    }
    sent = []
    for record in made:
        if fate and record["type"] == "out":
            continue
        if fate and record["type"] == "task" and not record["stopped"]:
            record = {**record, "ended_ms": end_ms, "stopped": how != "killed_s"}
        if record["type"] == "end":
            vmstat = {**record["vmstat"], "oom_kill": record["vmstat"]["oom_kill"] + kills}
            bounds = {"bounded": how in ("stopped_s", "cut_s"), "by_host": how == "cut_s"}
            record = {**record, "t_ms": max(end_ms, 5000), "vmstat": vmstat, **bounds}
        sent.append(record)
    return [*sent[:-1], *mine.get(how, mine[""]), sent[-1]]


KILLED: dict[str, Any] = {"killed_s": 1.0, "served": 30_000}
STOPPED: dict[str, Any] = {"stopped_s": 60.0, "served": 60_000}
CUT: dict[str, Any] = {"cut_s": 60.0, "served": 60_000}


def cell(limit: str, arm: str, repeat: int = 0) -> Cell:
    return Cell(cells.case(SCALE, limit), ARM[arm], "classic", repeat)


def run(limit: str, arm: str, repeat: int = 0, **result: Any) -> Run:
    return read(cell(limit, arm, repeat), records(limit, **result), 20.0)


def everything(change: Run | None = None) -> Table:
    """A run of all cells that meets every gate, but for `change`."""
    always = run("high", "always", rps=1_000.0)
    runs = [run(limit, arm, repeat) for limit in LIMITS for arm in ARM for repeat in range(2)]
    runs = [one for one in runs if (one.cell.case.key, one.cell.arm.key) != ("high", "always")]
    runs.append(always)
    if change:
        runs = [one for one in runs if one.cell.name != change.cell.name]
        runs.append(change)
    return Table(runs)


class ReadTest(unittest.TestCase):
    def test_whole_run(self) -> None:
        one = run("high", "mthp_ext")
        self.assertTrue(outcome.finished(one))
        found = {name: outcome.FIGURES[name](one) for name in ("rps", "flips", "pages_in", "pages_out", "served")}
        wanted = {"rps": 50_000.0, "flips": 1, "pages_in": 10, "pages_out": 20, "served": SCALE.size.requests}
        self.assertEqual(found, wanted)
        latencies = {name: outcome.FIGURES[name](one) for name in outcome.LATENCIES}
        self.assertEqual(latencies, {"avg_ms": 3.565, "p50_ms": 3.271, "p95_ms": 5.711, "p99_ms": 12.0, "max_ms": 40.0})
        self.assertAlmostEqual(outcome.decisions(one)[0].t_s, 0.5)
        memory = {name: outcome.FIGURES[name](one) for name in ("memory_peak", "anon_mean", "huge_peak", "oom_kills")}
        wanted = {"memory_peak": 96 * MIB, "anon_mean": 100 * MIB, "huge_peak": 40 * MIB, "oom_kills": 0}
        self.assertEqual(memory, wanted)
        stall = [outcome.FIGURES[name](one) for name in ("stall_some_s", "stall_full_s")]
        self.assertEqual(stall, [2.0, 1.0])

    def test_bounded_run_is_rated_by_what_was_served(self) -> None:
        one = run("high", "always", stopped_s=50.0, served=100_000)
        self.assertEqual((outcome.rate(one), outcome.finished(one)), (2_000.0, False))
        self.assertEqual([outcome.FIGURES[name](one) for name in outcome.LATENCIES], [None] * 5)

    def test_a_server_that_does_not_say_what_it_served_is_rated_by_the_benchmark(self) -> None:
        one = run("high", "always", **STOPPED)
        one.output.clear()
        self.assertEqual((outcome.served(one), outcome.rate(one)), (0, 0.0))
        one.output["load"] = [(10.0, "SET: rps=1.0 (overall: 700.0)"), (30.0, "SET: rps=9.0 (overall: 900.0)")]
        self.assertEqual((outcome.served(one), outcome.rate(one)), (27_000, 450.0))

    def test_what_served_nothing_has_no_score(self) -> None:
        one = run("high", "always", **CUT)
        [score] = one.cell.case.scores
        self.assertEqual(score.of(one), 1_000.0)
        one.output.clear()
        self.assertIsNone(score.of(one))
        one.output["load"] = [(30.0, "SET: rps=9.0 (overall: 900.0)")]
        self.assertEqual(score.of(one), 450.0)

    def test_killed_run(self) -> None:
        one = run("max", "always", **KILLED)
        self.assertEqual((outcome.killed_s(one), outcome.rate(one), outcome.finished(one)), (1.0, 30_000.0, False))
        self.assertIn("OOM-killed after 1.00 s, 30,000 of 200,000 served", text.fate([one]))

    def test_a_run_cut_short_by_the_host_is_rated_and_says_so(self) -> None:
        one = run("high", "always", **CUT)
        self.assertEqual((outcome.rate(one), one.by_host), (1_000.0, True))
        said = "stopped by the clock of this machine after 60.0 s of guest time"
        self.assertIn(f"{said}, 60,000 of 200,000 served", text.fate([one]))
        self.assertIn(said, execute.summary(one))

    def test_a_full_report_of_too_few_requests_is_doubted(self) -> None:
        self.assertIn("only 5 of 200000 requests", outcome.doubt(run("none", "always", served=5)))
        self.assertEqual(outcome.doubt(run("none", "always")), "")
        self.assertEqual(outcome.doubt(run("high", "always", **STOPPED)), "")
        self.assertEqual(outcome.doubt(run("max", "always", **KILLED)), "")

    def test_an_end_without_a_report_is_doubted(self) -> None:
        one = run("none", "always")
        one.output["load"] = one.output["load"][:1]
        self.assertIn("without a full report", outcome.doubt(one))

    def test_missing_and_doubled_records_are_refused(self) -> None:
        sent = records("none")
        for broken in (sent[1:], sent[:-1], [*sent, sent[-1]]):
            with self.assertRaises(ValueError):
                read(cell("none", "always"), broken, 1.0)


class PlanTest(unittest.TestCase):
    def test_all_cells_interleaved_and_the_slow_one_once_and_first(self) -> None:
        planned = plan(SCALE, list(LIMITS), list(ARM), 2)
        self.assertEqual(len(planned), 23)
        self.assertEqual((planned[0].case.key, planned[0].arm.key), ("high", "always"))
        self.assertEqual([one.arm.key for one in planned[1:5]], list(ARM))

    def test_the_cells_are_the_suites_but_for_the_deadline(self) -> None:
        for limit in LIMITS:
            [theirs] = scenarios.cases(SuiteScale.CI, [f"redis/set-{limit}"])
            for arm in ARM.values():
                jobs = [Cell(case, arm, "classic", 1).job({}, "/m") for case in (theirs, cells.case(SCALE, limit))]
                self.assertEqual([job.pop("deadline_ms") for job in jobs], [30_000, 60_000])
                self.assertEqual(*jobs)

    def test_the_workload_as_it_is_published(self) -> None:
        self.assertEqual(
            cells.describe(SCALE),
            {
                "name": "demo",
                "keys": 200_000,
                "requests": 200_000,
                "limit_bytes": 96 * MIB,
                "memory_mib": 768,
                "swap_bytes": 512 * MIB,
                "deadline_s": 60,
                "stop_s": 1500,
                "repeats": 2,
                "command": "redis-benchmark -t set -r 200000 -n 200000 -d 1024 -c 16 -P 32",
                "min_free_kbytes": 2048,
                "sample_ms": 50,
            },
        )


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

    def test_without_reclaim_the_proposal_is_not_judged_by_what_it_let_in(self) -> None:
        for arm, judged in (("reactive", False), ("mthp_ext", True)):
            slow = everything(run("high", arm, 1, rps=9_000.0))
            found = {one.name: one for one in gates.check(slow, counted=True, reclaim=False)}
            one = found[f"memory.high: rps of {arm} / never"]
            self.assertEqual((one.judged, one.missed), (judged, judged), arm)

    def test_latency(self) -> None:
        failed = self.check(run("high", "mthp_ext", 1, p99=40.0))
        self.assertIn("memory.high: p99 of mthp_ext / never", failed)

    def test_kill_and_lost_requests(self) -> None:
        killed = run("max", "mthp_ext", 1, **{**KILLED, "served": 9})
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
        checked = self.judged(run("high", "always", served=60_000, cut_s=10.0))
        self.assertEqual(checked.pop(name), (False, False))
        self.assertTrue(all(judged for judged, _ in checked.values()))
        # In guest time it is a property of the cell, and is judged.
        self.assertEqual(self.judged(run("high", "always", served=60_000, stopped_s=10.0))[name], (True, False))

    def test_an_arm_cut_short_is_not_judged_by_what_it_served_first(self) -> None:
        for limit, arm, count in (("high", "mthp_ext", 4), ("max", "mthp_ext", 4), ("high", "never", 2)):
            checked = self.judged(run(limit, arm, 1, **CUT))
            left = {name for name, (judged, _) in checked.items() if not judged}
            self.assertEqual(len(left), count, left)
            self.assertTrue(all(ok for judged, ok in checked.values() if judged))
        self.assertFalse(gates.check(everything(run("max", "mthp_ext", 1, **CUT)), counted=False)[0].missed)

    def test_a_kill_counts_before_the_clock_as_well(self) -> None:
        checked = self.judged(run("max", "mthp_ext", 1, **CUT, kills=1))
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
        late = [run("max", "always", repeat, killed_s=1.47 - 0.01 * repeat, served=9 - repeat)
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
        bounded = run("high", "always", stopped_s=50.0, served=100)
        lines = text.limit_table(everything(bounded), "high", SCALE.limit_bytes)
        self.assertIn("not measured", next(line for line in lines if "p99" in line))
        self.assertIn("always: stopped after", lines[-1])


class InterruptTest(unittest.TestCase):
    def test_ctrl_c_keeps_what_is_done_and_does_not_wait_for_the_rest(self) -> None:
        planned = [cell("none", arm) for arm in ("always", "never", "reactive", "mthp_ext")]
        begun, ended = threading.Event(), threading.Event()

        def one(of: Cell, *_: Any) -> Run:
            if of is planned[0]:
                return run("none", "always")
            if of is planned[1]:
                begun.wait(60)
                raise KeyboardInterrupt
            begun.set()
            ended.wait(60)
            raise LabError(Exit.GUEST_DIED, "killed")

        with (
            mock.patch.object(execute, "run_cell", one),
            mock.patch.object(programs, "guest"),
            mock.patch.object(proc, "stop_all", ended.set),
            redirect_stdout(io.StringIO()),
        ):
            world = execute.World(Path(), Mode.ICOUNT, Path(), Path(), None)
            finished = execute.run_all(planned, world, 3)
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
        table = everything(run("max", "always", 1, **{**KILLED, "served": 9}))
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
