# SPDX-License-Identifier: GPL-2.0-only
"""The suite's reading of records, its statistics, and what keeps runs, on made-up records."""

import dataclasses
import errno
import io
import json
import random
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from lab import vm
from lab.bench import execute, judging, readers, run
from lab.bench.arms import ARM
from lab.bench.cell import Cell, digest
from lab.bench.common import COVER_2M, COVER_64K
from lab.bench.journal import Journal
from lab.bench.payload import Payload
from lab.bench.scenarios import memcached, mixed, square, store
from lab.bench.spec import MIB
from lab.errors import Exit, LabError
from lab.report.stats import ENOUGH, median_interval, pair_interval
from lab.tests.bench_runs import CI, HIGH, THREADS, one, records, report
from lab.vm import Mode, qemu, schedule


class ReadTest(unittest.TestCase):
    def test_whole_run(self) -> None:
        it = one(HIGH, "mthp_ext")
        self.assertEqual((it.elapsed_s, it.flips("redis"), it.died, execute.fate(it)), (4.0, 1, {}, ""))
        self.assertAlmostEqual(it.samples[0].stall["redis"], 0.2)
        self.assertAlmostEqual(it.coverage(64) or 0, 0.4)
        self.assertEqual(it.ends["load"].ended_s, 4.0)

    def test_coverage_counts_sizes_from_the_least_on(self) -> None:
        sample = dataclasses.replace(one(HIGH, "always").samples[0], folios={16: 100, 64: 16, 2048: 1}, anon=4 * MIB)
        it = dataclasses.replace(one(HIGH, "always"), samples=[sample])
        self.assertEqual((COVER_64K.of(it), COVER_2M.of(it)), (0.75, 0.5))

    def test_killed_run_has_no_rate(self) -> None:
        it = one(HIGH, "always", killed=True)
        self.assertEqual((it.died, HIGH.scores[0].of(it)), ({"server": 1.0}, None))
        self.assertIn("OOM-killed after 1.00 s", execute.fate(it))

    def test_a_meter_and_what_it_comes_to(self) -> None:
        it = one(CI["late/load"], "never")
        self.assertEqual(it.meters["served"][:2], [(0.0, 0), (0.1, 5000)])
        self.assertAlmostEqual(readers.counted_rate(it, "served", 0.0, 2.0) or 0, 50_000)
        self.assertAlmostEqual(readers.known_s(it, "served"), 3.9)
        self.assertAlmostEqual(readers.counted_rate(it, "served", 2.0, 3.9) or 0, 12_500)
        # Silence at the end counts, were it as short as two readings.
        del it.meters["served"][-2:]
        self.assertLess(readers.counted_rate(it, "served", 2.0, 3.9) or 0, 12_000)
        it = one(CI["late/load"], "never")
        self.assertIsNone(readers.counted_rate(it, "served", 2.0, 2.0))
        self.assertIsNone(readers.counted_rate(one(HIGH, "never"), "served", 0.0, 2.0))
        # Silent from 1 s on: half of the time nothing is served.
        it.meters["served"][:] = [reading for reading in it.meters["served"] if reading[0] <= 1.0]
        self.assertAlmostEqual(readers.counted_rate(it, "served", 0.0, 2.0) or 0, 25_000)

    def test_a_wait_begins_with_what_it_waits_for(self) -> None:
        it = one(CI["late/load"], "never")
        # Nobody answers for the second after the limit; what was served in it is known behind it.
        it.meters["served"][:] = [reading for reading in it.meters["served"] if not 1.95 < reading[0] < 2.95]
        rates = [(0.0, 2.0), (2.0, 3.9)]
        before, after = (readers.counted_rate(it, "served", *edges) or 0 for edges in rates)
        self.assertAlmostEqual(before, 50_000)
        self.assertAlmostEqual(after, 12_500)
        without = dataclasses.replace(it, waves=[])
        self.assertLess(readers.counted_rate(without, "served", 0.0, 2.0) or 0, 49_000)
        # As much as that was not served by the next reading.
        it.meters["served"][:] = [(t_s, min(count, 97_000)) for t_s, count in it.meters["served"]]
        self.assertAlmostEqual(readers.counted_rate(it, "served", 0.0, 2.0) or 0, 48_500)

    def test_a_job_that_sleeps_over_its_limit_is_judged_by_time_too(self) -> None:
        case = CI["tree/follows"]
        it = one(case, "never")
        [score], [paced] = case.scores, case.more
        mib = mixed.CHUNK_MIB
        for said, worked, pace in (
            ("worked 100 in 4.000 of 8.000", 25.0 * mib, 12.5 * mib),
            ("worked 1 in 0.040 of 9.500", 25.0 * mib, mib / 9.5),
            # One piece has slept the half away.
            ("worked 0 in 0.000 of 8.100", 0.0, 0.0),
        ):
            it.output["load"] = [(16.0, said)]
            self.assertAlmostEqual(score.of(it) or 0, worked)
            self.assertAlmostEqual(paced.of(it) or 0, pace)
        it.output["load"].clear()
        self.assertEqual((score.of(it), paced.of(it)), (None, None))
        self.assertEqual(judging.floors(case), [("paced", ">= 0.95")])

    def test_the_client_of_zipfs_law(self) -> None:
        case = CI["zipf/high"]
        said = ["zipf: served=1200 rps=20.0 avg=1.500 p50=1.250 p95=2.000 p99=3.250 max=40.000"]
        self.assertEqual(store.report(said)["p99"], 3.25)
        self.assertEqual(store.report(["lab-guest zipf: talk to /s: closed"]), {})
        it = one(case, "never")
        it.output["load"] = [(4.0, said[0])]
        self.assertEqual((case.scores[0].of(it), case.tail and case.tail.of(it)), (20.0, 3.25))
        # Stopped before its end: by what the server has counted.
        it.output["load"].clear()
        self.assertAlmostEqual(case.scores[0].of(it) or 0, it.meters["got"][-1][1] / 0.9 / 4.0)
        self.assertIsNone(case.scores[0].of(one(case, "always", killed=True)))

    def test_a_limit_that_stays_and_one_that_comes_and_goes(self) -> None:
        waves = [Cell(CI[name], ARM["never"], "classic", 0).job({}, "/m")["waves"][0] for name in
                 ("late/load", "square/high")]  # fmt: skip
        self.assertEqual([wave["again"] for wave in waves], [False, True])
        self.assertEqual(waves[0]["values"], ["max", str(96 * MIB)])

    def test_settings_of_a_case_decide_what_is_measured(self) -> None:
        case = CI["swap/zswap"]
        job = Cell(case, ARM["never"], "classic", 0).job({}, "/m")
        self.assertIn(("/sys/module/zswap/parameters/enabled", "Y"), job["writes"])
        self.assertEqual(Cell(CI["swap/off"], ARM["never"], "classic", 0).job({}, "/m")["swap_bytes"], 0)
        threads = CI["cpus/threads"]
        argv = next(task.argv for task in threads.tasks if task.name == "server")
        self.assertEqual(argv[argv.index("-t") + 1], "32")

    def test_stories_with_holes_are_refused(self) -> None:
        whole = records(HIGH)
        for gone in ("begin", "end", "group", "task"):
            with self.assertRaises(ValueError, msg=gone):
                run.read(Cell(HIGH, ARM["never"], "classic", 0), [r for r in whole if r["type"] != gone], 1.0)

    def test_a_run_of_which_lines_are_missing_is_refused(self) -> None:
        cut = {"type": "cut", "task": "load", "t_ms": 2000, "lines": 200_000}
        with self.assertRaisesRegex(ValueError, "load printed more than 200000 lines"):
            run.read(Cell(HIGH, ARM["never"], "classic", 0), [*records(HIGH), cut], 1.0)

    def test_a_kill_before_the_measured_time_counts(self) -> None:
        before = [{**r, "oom_kills": 1} if r["type"] == "begin" else r for r in records(HIGH)]
        it = run.read(Cell(HIGH, ARM["always"], "classic", 0), before, 1.0)
        self.assertEqual((it.oom_kills, execute.fate(it)), (1, "1 processes OOM-killed"))

    def test_a_preparation_that_the_host_cut_short_is_no_failure_of_a_program(self) -> None:
        case = CI["redis/read-max"]
        cut = [{**r, "code": None, "stopped": True} if r.get("task") == "fill" else r
               for r in records(case, by_host=True)]  # fmt: skip
        with self.assertRaisesRegex(ValueError, "stopped it before the measured time began"):
            run.read(Cell(case, ARM["never"], "classic", 0), cut, 1.0)

    def test_a_failed_program_is_refused(self) -> None:
        case = CI["redis/read-max"]
        for name in ("fill", "load"):
            broken = [{**r, "code": 1} if r.get("task") == name else r for r in records(case)]
            with self.assertRaises(ValueError):
                run.read(Cell(case, ARM["never"], "classic", 0), broken, 1.0)

    def test_a_server_that_dies_for_no_lack_of_memory_is_refused(self) -> None:
        dead = [{**r, "ended_ms": 2000, "signal": 11, "stopped": False} if r.get("task") == "server" else r
                for r in records(HIGH)]  # fmt: skip
        with self.assertRaisesRegex(ValueError, "server was killed: server said so"):
            run.read(Cell(HIGH, ARM["always"], "classic", 0), dead, 1.0)

    def test_a_program_beside_the_load_that_ends_by_itself_is_refused(self) -> None:
        case = CI["redis/read-max"]
        gone = [{**r, "code": 0, "stopped": False} if r.get("task") == "writes" else r for r in records(case)]
        with self.assertRaisesRegex(ValueError, "writes ended with exit code 0: writes said so"):
            run.read(Cell(case, ARM["never"], "classic", 0), gone, 1.0)

    def test_a_program_that_fails_for_lack_of_memory_is_a_result(self) -> None:
        broken = [{**r, "code": 2} if r.get("task") == "load" else r for r in records(THREADS, killed=True)]
        it = run.read(Cell(THREADS, ARM["always"], "classic", 0), broken, 1.0)
        self.assertEqual(execute.fate(it), "1 processes OOM-killed")


class ReadersTest(unittest.TestCase):
    def test_report_cut_anywhere_is_no_report(self) -> None:
        whole = report(83647.01, 7.087)
        self.assertEqual(readers.benchmark_summary(whole)["p99"], 7.087)
        for lines in range(len(whole)):
            self.assertEqual(readers.benchmark_summary(whole[:lines]), {})
        text = "\n".join(whole)
        for end in range(text.rindex("40.000")):
            self.assertEqual(readers.benchmark_summary(text[:end].splitlines()), {}, text[:end])

    def test_calls(self) -> None:
        lines = ["cmdstat_setex:calls=5,usec=1", "cmdstat_set:calls=126,usec=9,usec_per_call=1"]
        self.assertEqual((readers.calls(lines, "set"), readers.calls(lines, "get")), (126, None))

    def test_stopped_run_is_rated_by_what_was_served(self) -> None:
        it = one(HIGH, "always")
        output = {"load": [], "info": [(5.0, "cmdstat_set:calls=8000,usec=1")]}
        # At the moment the server was asked, which is after the measured time.
        self.assertEqual(HIGH.scores[0].of(dataclasses.replace(it, output=output)), 1600.0)

    def test_memaslap(self) -> None:
        lines = ["Get Statistics (2 events)", "   Avg:         9", "Total Statistics (5 events)", "   Max:     56328",
                 "   Avg:       274", "Run time: 0.9s Ops: 50000 TPS: 54514 Net_rate: 56.5M/s"]  # fmt: skip
        it = dataclasses.replace(one(CI["memcached/max"], "never"), output={"load": [(1.0, line) for line in lines]})
        self.assertEqual((memcached.rate(it), memcached.latency(it, "Avg")), (54514.0, 0.274))
        self.assertIsNone(memcached.latency(dataclasses.replace(it, output={}), "Max"))

    def test_memaslap_histogram(self) -> None:
        # 98 operations from 256 us on, 2 from 1024 us on: the 99th is the first of these two.
        lines = ["Get Statistics (9 events)", "       4:        0        0        0        9",
                 "Total Statistics (100 events)", "   Log2 Dist:", "       8:        0       98        0        2",
                 "      12:        0"]  # fmt: skip
        self.assertAlmostEqual(memcached.p99(lines) or 0, 1.024 * 2**0.5, places=3)
        self.assertIsNone(memcached.p99(lines[:2]))
        self.assertAlmostEqual(
            memcached.p99([*lines[2:4], "       8:        0      100"]) or 0, 0.256 * 2**0.99, places=3
        )

    def test_recovery_and_time_without_an_answer(self) -> None:
        # 100/s, nothing under a limit, then half of it for a second and 95 from there on.
        steps = [(0.5, 100), (1.0, 100), (1.5, 0), (2.0, 0), (2.5, 50), (3.0, 50), (3.5, 95), (4.0, 95)]
        lines = [(t, f"SET: rps={rate}.0 (overall: 9.0) avg") for t, rate in steps]
        waves = [(0.0, "redis", "max"), (1.0, "redis", "1"), (2.0, "redis", "max"), (4.0, "redis", "1")]
        it = dataclasses.replace(one(HIGH, "never"), output={"load": lines}, waves=waves)
        self.assertAlmostEqual(square.recovery(it) or 0, 1.5)
        self.assertAlmostEqual(square.unserved(it) or 0, 1.0)
        never = dataclasses.replace(it, output={"load": lines[:6]})
        self.assertAlmostEqual(square.recovery(never) or 0, 2.0, msg="the whole phase")

    def test_rate_between_is_of_that_time_alone(self) -> None:
        # 100/s for two seconds, then 300/s; the overall rate does not count.
        lines = [
            (t, f"SET: rps={100 if t <= 2 else 300}.0 (overall: 9.0) avg") for t in (0.5, 1, 1.5, 2, 2.6, 3, 3.5, 4)
        ]
        # A line that is cut, and one of the end.
        lines += [(1.2, "SET: rps=5"), (1.3, "  10 requests completed in 1.3 seconds")]
        it = dataclasses.replace(one(HIGH, "never"), output={"load": sorted(lines)})
        self.assertAlmostEqual(readers.rate_between(it, "load", 0, 2) or 0, 100)
        self.assertAlmostEqual(readers.rate_between(it, "load", 2, 4) or 0, 300)
        self.assertIsNone(readers.rate_between(it, "load", 9, 10))
        waves = [(0.0, "redis", "max"), (1.0, "redis", "1"), (2.0, "redis", "max"), (4.0, "redis", "1")]
        it = dataclasses.replace(it, waves=waves)
        self.assertAlmostEqual(square.phase_rate(it, limited=True) or 0, 100)
        self.assertAlmostEqual(square.phase_rate(it, limited=False) or 0, 300)


class StatisticsTest(unittest.TestCase):
    def test_intervals_hold_the_median_and_repeat(self) -> None:
        values = [10.0, 11.0, 11.5, 12.5, 13.0, 30.0]
        self.assertEqual(len(values), ENOUGH)
        found = median_interval(values)
        assert found
        self.assertTrue(10 <= found.low <= 12 <= found.high <= 30)
        self.assertEqual(found, median_interval(values))

    def test_few_runs_have_a_range(self) -> None:
        found = median_interval([3.0, 1.0, 2.0])
        self.assertEqual(found and (found.low, found.high), (1.0, 3.0))

    def test_one_run_knows_no_spread(self) -> None:
        self.assertIsNone(median_interval([1.0]))
        for few in ((1, 3), (2, 5), (1, 1)):
            self.assertIsNone(pair_interval([1.0] * few[0] * few[1], *few), few)

    def test_ranks_are_those_of_the_tables(self) -> None:
        # Least and greatest of nine; the fifth of 25 (critical U of 4), and the eighth of 36 (7).
        for runs, rank in ((3, 1), (4, 2), (5, 5), (6, 8)):
            found = pair_interval([float(n) for n in range(1, runs * runs + 1)], runs, runs)
            self.assertEqual(found and (found.low, found.high), (rank, runs * runs + 1 - rank), runs)

    def test_an_interval_by_ranks_errs_as_often_as_it_says(self) -> None:
        draw = random.Random(1)
        for mine, theirs in ((3, 3), (5, 5), (3, 6)):
            above = 0
            for _ in range(4000):
                a, b = ([draw.lognormvariate(0, 0.1) for _ in range(count)] for count in (mine, theirs))
                found = pair_interval([x / y for x in a for y in b], mine, theirs)
                above += bool(found and found.low > 1)
            self.assertLess(above / 4000, 0.06, (mine, theirs))
            self.assertGreater(above / 4000, 0.03, (mine, theirs))

    def test_a_dead_run_widens_the_interval_and_is_no_error(self) -> None:
        found = pair_interval([x / y for x in (0.0, 1.0, 1.0, 1.0, 1.0) for y in (1.0, 1.0, 1.0, 1.0, 1.0)], 5, 5)
        self.assertEqual(found and (found.low, found.high), (0.0, 1.0))


def _world(directory: Path) -> execute.World:
    """With one file for all programs, QEMU among them, and a journal beside it."""
    binary = directory / "mthp_ext"
    binary.write_bytes(b"one")
    emulator = qemu.Emulator(str(binary))
    return execute.World(binary, Mode.ICOUNT, binary, binary, Journal(directory), emulator=emulator)


class JournalTest(unittest.TestCase):
    def test_round_trip_and_damage(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            journal = Journal(Path(directory))
            self.assertIsNone(journal.get("a"))
            journal.put("a", "label", records(HIGH), 3.5)
            kept = journal.get("a")
            assert kept
            self.assertEqual((kept.records, kept.wall_s), (json.loads(json.dumps(records(HIGH))), 3.5))
            path = Path(directory) / "a.json.gz"
            whole = path.read_bytes()
            path.write_bytes(whole[:-20])
            self.assertIsNone(journal.get("a"))
            for at in range(12, len(whole), 7):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
                # Gzip's own header holds a name that nobody reads.
                self.assertIn(journal.get("a"), (None, kept), at)

    def test_no_room_is_an_error_that_names_the_file(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            full = OSError(errno.ENOSPC, "No space left on device")
            with (
                mock.patch("lab.bench.journal.json.dump", side_effect=full),
                self.assertRaisesRegex(LabError, "a.json.gz: No space"),
            ):
                Journal(Path(directory)).put("a", "label", [], 1.0)
            self.assertEqual(list(Path(directory).iterdir()), [])

    def test_a_kept_run_that_makes_no_sense_is_measured_again(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            world = _world(Path(directory))
            cell = Cell(HIGH, ARM["never"], "classic", 0)
            payload = Payload(dict.fromkeys(("redis-server", "redis-benchmark", "redis-cli"), world.mthp_ext))
            with (
                mock.patch("lab.bench.execute.software.merge", return_value=payload),
                mock.patch("lab.bench.execute.vm.run", side_effect=LabError(Exit.QEMU, "booted")),
                self.assertRaisesRegex(LabError, "booted"),
            ):
                assert world.journal
                world.journal.put(execute._prepare(cell, world)[2], "label", records(HIGH)[1:], 1.0)
                self.assertFalse(execute.is_kept(cell, world))
                execute.run_cell(cell, world, schedule.Progress(1, live=False))

    def run_cell(self, world: execute.World, cell: Cell, sent: list[dict[str, Any]]) -> list[vm.Job]:
        """Runs a cell whose guest sends these records; the jobs that were booted."""
        payload = Payload(dict.fromkeys(("redis-server", "redis-benchmark", "redis-cli"), world.mthp_ext))
        jobs: list[vm.Job] = []

        def boot(job: vm.Job, _: object) -> vm.Outcome:
            jobs.append(job)
            return vm.Outcome(vm.Verdict.PASSED, 0, sent, Path("/output"), Path("/console"), 20.0)

        with (
            mock.patch("lab.bench.execute.software.merge", return_value=payload),
            mock.patch("lab.bench.execute.vm.run", boot),
            redirect_stdout(io.StringIO()),
        ):
            execute.run_cell(cell, world, schedule.Progress(1, live=False))
        return jobs

    def test_what_the_clock_of_the_host_cut_short_is_not_kept(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            world = _world(Path(directory))
            cell = Cell(HIGH, ARM["never"], "classic", 0)
            for sent in (records(HIGH, by_host=True), records(HIGH)):
                self.assertEqual(len(self.run_cell(world, cell, sent)), 1)
            self.assertEqual(self.run_cell(world, cell, []), [], "the whole run was kept")

    def test_the_host_bounds_a_run_too(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            cell = Cell(HIGH, ARM["never"], "classic", 0)
            world = dataclasses.replace(_world(Path(directory)), journal=None)
            [usual] = self.run_cell(world, cell, records(HIGH))
            [short] = self.run_cell(dataclasses.replace(world, stop_s=77.0), cell, records(HIGH, by_host=True))
            self.assertEqual((usual.stop_s, short.stop_s), (HIGH.stop_s, 77.0))
            self.assertGreater(short.timeout_s, 77.0 + 60.0)

    def test_a_bound_before_there_is_a_figure_is_an_error(self) -> None:
        nothing = [r for r in records(HIGH, by_host=True) if r["type"] != "out"]
        with tempfile.TemporaryDirectory() as directory:
            world, cell = _world(Path(directory)), Cell(HIGH, ARM["never"], "classic", 0)
            with self.assertRaises(LabError) as caught:
                self.run_cell(world, cell, nothing)
            self.assertEqual(caught.exception.code, Exit.GUEST_TIMEOUT)
            self.assertIn("before there was anything to rate", caught.exception.cause)

    def test_a_program_that_fails_is_quoted(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            world, cell = _world(Path(directory)), Cell(HIGH, ARM["never"], "classic", 0)
            broken = [{**r, "code": 1} if r.get("task") == "load" else r for r in records(HIGH)]
            with self.assertRaises(LabError) as caught:
                self.run_cell(world, cell, broken)
            self.assertEqual(caught.exception.cause, "load ended with exit code 1: load said so")

    def test_a_hash_for_all_that_decides(self) -> None:
        cell = Cell(HIGH, ARM["mthp_ext"], "classic", 0)
        job = cell.job({"redis-server": "/r", "redis-benchmark": "/b", "redis-cli": "/c"}, "/m")
        base = digest(cell, job, {"kernel": "1"})
        self.assertEqual(base, digest(cell, job, {"kernel": "1"}))
        self.assertNotEqual(base, digest(cell, job, {"kernel": "2"}))
        self.assertNotEqual(base, digest(cell, {**job, "deadline_ms": 1}, {"kernel": "1"}))
        self.assertNotEqual(base, digest(dataclasses.replace(cell, repeat=1), job, {"kernel": "1"}))

    def test_a_changed_policy_repeats_its_own_arms_only(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            world = _world(Path(directory))
            mine = world.parts(Cell(HIGH, ARM["mthp_ext"], "classic", 0), Payload())
            theirs = world.parts(Cell(HIGH, ARM["never"], "classic", 0), Payload())
            self.assertIn("mthp_ext", mine)
            self.assertNotIn("mthp_ext", theirs)

    def test_another_machine_repeats_all(self) -> None:
        cell = Cell(HIGH, ARM["never"], "classic", 0)
        with tempfile.TemporaryDirectory() as directory:
            world = _world(Path(directory))
            before = world.parts(cell, Payload())
            for what, other in (("_MACHINE", "pc"), ("_CPU", "max"), ("line", lambda *_: "quiet")):
                with self.subTest(what), mock.patch.object(qemu, what, other):
                    self.assertNotEqual(world.parts(cell, Payload()), before)
            for key, value in (("memory_mib", 2 * HIGH.machine.memory_mib), ("nodes", 2), ("cpus", 2)):
                machine = dataclasses.replace(HIGH.machine, **{key: value})
                case = dataclasses.replace(HIGH, machine=machine)
                with self.subTest(key):
                    self.assertNotEqual(world.parts(dataclasses.replace(cell, case=case), Payload()), before)


class ScheduleTest(unittest.TestCase):
    def test_what_the_host_fails_is_an_error_and_the_others_go_on(self) -> None:
        def work(item: int) -> int:
            if item == 1:
                raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")
            return item

        finished = schedule.run_all([0, 1, 2], work, lambda *_: None, 2)
        self.assertEqual((finished.runs, finished.interrupted), ([0, 2], False))
        self.assertEqual([error.code for error in finished.errors], [Exit.SPACE])
        self.assertIn("/somewhere", str(finished.errors[0]))
