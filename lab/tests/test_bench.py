# SPDX-License-Identifier: GPL-2.0-only
"""The suite's reading of records, statistics, regret, gates, journal and report, on made-up records."""

import dataclasses
import json
import math
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any

from lab.bench import (
    compare,
    execute,
    gates,
    markdown,
    output,
    page,
    published,
    readers,
    run,
    scenarios,
    software,
    text,
    variants,
)
from lab.bench.arms import ARM, ARMS, SIZES_KIB, USUAL
from lab.bench.cell import Cell, digest
from lab.bench.common import COVER_2M, COVER_64K
from lab.bench.journal import Journal
from lab.bench.plan import plan
from lab.bench.run import Run
from lab.bench.scenarios import memcached, square
from lab.bench.spec import MIB, Case, Role, Scale
from lab.bench.table import Table
from lab.errors import LabError
from lab.paths import REPO
from lab.report.stats import median_interval, ratio_interval
from lab.tests.test_demo import _Checker
from lab.vm import Mode

CI = {case.name: case for case in scenarios.cases(Scale.CI)}
HIGH, FREE, THREADS = CI["redis/set-high"], CI["redis/set-none"], CI["bloat/threads"]
GROWN = CI["services/grown"]
ENVIRONMENT: dict[str, Any] = {"kernel": "7.3.4", "qemu_mode": "icount", "cpu": "<b>&", "scale": "ci"}


def report(rps: float, p99: float) -> list[str]:
    """redis-benchmark's, cut to what is read."""
    return [
        f"SET: rps={rps} (overall: {rps}) avg_msec=1.0 (overall: 1.0)",
        "Summary:",
        f"  throughput summary: {rps:.2f} requests per second",
        "  latency summary (msec):",
        "          avg       min       p50       p95       p99       max",
        f"        3.565     0.592     3.271     5.711     {p99:.3f}    40.000",
    ]


def records(
    case: Case, rps: float = 50_000.0, p99: float = 12.0, peak_mib: int = 96, large: int = 20, killed: bool = False
) -> list[dict[str, Any]]:
    """What a guest sends for a run of 4 s."""
    zero = dict.fromkeys(("pswpin", "pswpout"), 10) | {"oom_kill": int(killed)}
    groups = {group.name: [peak_mib * MIB // 2, 0, 0] for group in case.groups}
    samples = [
        {"type": "sample", "t_ms": 1000 + 50 * i, "free": 1, "anon": 100 * MIB,
         "folios": {str(kib): large if kib == 2048 else 0 for kib in SIZES_KIB},
         "groups": {name: [v[0], 0, 10_000 * i] for name, v in groups.items()}}
        for i in range(40)
    ]  # fmt: skip
    total = {"current": 1, "peak": peak_mib * MIB, "swap": 0, "oom_kills": int(killed), "psi_some_us": 2_000_000,
             "psi_full_us": 1_000_000, "user_us": 5, "system_us": 6, "stat": {"anon": 1, "anon_thp": 0}}  # fmt: skip
    decision = {"type": "policy", "event": "decision", "t_ms": 1500, "to": "4K", "why": "headroom"}
    out = [{"type": "out", "task": "load", "t_ms": 4900, "text": line} for line in ([] if killed else report(rps, p99))]
    ends = []
    for task in case.tasks:
        lives = task.role in (Role.SERVER, Role.BESIDE)
        dead = killed and task.role is Role.SERVER
        ends.append({"type": "task", "task": task.name, "started_ms": 1000, "ended_ms": 2000 if dead else 5000,
                     "code": None if lives else 0, "signal": 9 if lives else None,
                     "stopped": lives and not dead})  # fmt: skip
    return [
        {"type": "begin", "t_ms": 1000, "release": "7.3.4", "oom_kills": 0},
        *samples,
        {**decision, "cgroup": f"/{case.main}", "orders": {"fault": 0}},
        {**decision, "cgroup": "/", "orders": {"fault": 0}},
        *out,
        *({"type": "group", "group": group.name, **total} for group in case.groups),
        *ends,
        {"type": "end", "t_ms": 5000, "bounded": False, "vmstat": zero},
    ]


def one(case: Case, arm: str, repeat: int = 0, lru: str = "classic", **values: Any) -> Run:
    return run.read(Cell(case, ARM[arm], lru, repeat), records(case, **values), 20.0)


def table(*changed: Run, case: Case = HIGH) -> Table:
    """All arms of a case three times, alike but for `changed`."""
    runs = [one(case, arm.key, repeat) for repeat in range(3) for arm in ARMS]
    cells = {(r.cell.arm.key, r.cell.repeat) for r in changed}
    return Table([r for r in runs if (r.cell.arm.key, r.cell.repeat) not in cells] + list(changed))


def thrice(case: Case, arm: str, **values: Any) -> list[Run]:
    return [one(case, arm, repeat, **values) for repeat in range(3)]


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

    def test_a_failed_program_is_refused(self) -> None:
        case = CI["redis/read-none"]
        for name in ("fill", "load"):
            broken = [{**r, "code": 1} if r.get("task") == name else r for r in records(case)]
            with self.assertRaises(ValueError):
                run.read(Cell(case, ARM["never"], "classic", 0), broken, 1.0)

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

    def test_rate_between_is_of_that_time_alone(self) -> None:
        # 100/s for two seconds, then 300/s; the overall rate does not count.
        lines = [
            (t, f"SET: rps={100 if t <= 2 else 300}.0 (overall: 9.0) avg") for t in (0.5, 1, 1.5, 2, 2.6, 3, 3.5, 4)
        ]
        it = dataclasses.replace(one(HIGH, "never"), output={"load": lines})
        self.assertAlmostEqual(readers.rate_between(it, "load", 0, 2) or 0, 100)
        self.assertAlmostEqual(readers.rate_between(it, "load", 2, 4) or 0, 300)
        self.assertIsNone(readers.rate_between(it, "load", 9, 10))
        waves = [(0.0, "redis", "max"), (1.0, "redis", "1"), (2.0, "redis", "max"), (4.0, "redis", "1")]
        it = dataclasses.replace(it, waves=waves)
        self.assertAlmostEqual(square.phase_rate(it, limited=True) or 0, 100)
        self.assertAlmostEqual(square.phase_rate(it, limited=False) or 0, 300)


class StatisticsTest(unittest.TestCase):
    def test_intervals_hold_the_median_and_repeat(self) -> None:
        values = [10.0, 11.0, 12.0, 13.0, 30.0]
        found = median_interval(values)
        assert found
        self.assertTrue(10 <= found.low <= 12 <= found.high <= 30)
        self.assertEqual(found, median_interval(values))
        ratio = ratio_interval(values, [10.0, 10.0, 10.0])
        assert ratio
        self.assertTrue(1.0 <= ratio.low <= 1.2 <= ratio.high <= 3.0)

    def test_one_run_knows_no_spread(self) -> None:
        self.assertIsNone(median_interval([1.0]))
        self.assertIsNone(ratio_interval([1.0, 2.0], [1.0]))


class RegretTest(unittest.TestCase):
    def test_more_is_better(self) -> None:
        it = table(*thrice(HIGH, "never", rps=60_000.0), *thrice(HIGH, "mthp_ext", rps=57_000.0))
        found = it.regret(it.worlds[0], "mthp_ext", HIGH.scores[0])
        assert found
        self.assertEqual((round(found.value, 3), found.best), (0.95, "never"))

    def test_less_is_better(self) -> None:
        it = table(*thrice(THREADS, "mthp_ext", peak_mib=192), case=THREADS)
        found = it.regret(it.worlds[0], "mthp_ext", THREADS.scores[0])
        assert found
        self.assertAlmostEqual(found.value, 0.5)

    def test_policies_are_not_best_static(self) -> None:
        it = table(*thrice(HIGH, "mthp_ext", rps=90_000.0))
        self.assertNotEqual(it.best_static(it.worlds[0], HIGH.scores[0]), "mthp_ext")

    def test_one_killed_run_is_enough_to_lose(self) -> None:
        it = table(one(HIGH, "mthp_ext", 1, killed=True))
        found = it.regret(it.worlds[0], "mthp_ext", HIGH.scores[0])
        assert found
        self.assertEqual(found.value, 0.0)
        self.assertEqual(text.regret_field(it, it.worlds[0], "mthp_ext", HIGH.scores[0]), "killed")

    def test_nothing_static_nothing_to_compare(self) -> None:
        it = Table([one(HIGH, "mthp_ext")])
        self.assertIsNone(it.regret(it.worlds[0], "mthp_ext", HIGH.scores[0]))


class GateTest(unittest.TestCase):
    def failed(self, it: Table, *, counted: bool = True) -> str:
        return " | ".join(g.name for g in gates.check(it, counted=counted) if not g.ok)

    def test_all_hold(self) -> None:
        for case in (HIGH, FREE, THREADS):
            checked = gates.check(table(case=case), counted=True)
            self.assertEqual([g for g in checked if not g.ok], [])
            self.assertGreaterEqual(len(checked), 4)

    def test_each_can_fail(self) -> None:
        for case, values, name in (
            (HIGH, {"rps": 48_000.0}, "requests/s / best static"),
            (HIGH, {"p99": 14.0}, "p99 latency / always"),
            (HIGH, {"killed": True}, "nothing is killed"),
            (HIGH, {"peak_mib": 99}, "peak resident / always"),
            (FREE, {"large": 17}, "2M folios / always"),
            (THREADS, {"peak_mib": 102}, "peak resident / never"),
        ):
            self.assertIn(name, self.failed(table(*thrice(case, "mthp_ext", **values), case=case)))

    def test_without_counted_time_only_events_are_judged(self) -> None:
        slow = table(*thrice(HIGH, "mthp_ext", rps=1.0))
        self.assertEqual(self.failed(slow, counted=False), "")
        killed = table(one(HIGH, "mthp_ext", 1, killed=True))
        self.assertIn("nothing is killed", self.failed(killed, counted=False))

    def test_a_preset_is_judged_in_the_case_made_for_it_beside_the_default(self) -> None:
        for arm, name in (("small-services", ", small-services"), ("mthp_ext", "")):
            failed = self.failed(table(*thrice(GROWN, arm, peak_mib=110), case=GROWN))
            self.assertIn(f"services/grown/classic{name}: peak resident / never", failed)
        failed = self.failed(table(*thrice(HIGH, "small-services", p99=99.0)))
        self.assertEqual(failed, "")

    def test_what_no_static_arm_survives_is_not_asked_of_the_policy(self) -> None:
        runs = [one(HIGH, arm.key, killed=True) for arm in ARMS]
        self.assertEqual(gates.check(Table(runs), counted=False), [])


class PlanTest(unittest.TestCase):
    def test_arms_are_interleaved_and_slow_ones_run_once(self) -> None:
        cells = plan([HIGH, FREE], ARMS, ["classic"], 2)
        self.assertEqual([c.arm.key for c in cells[: len(ARM)]], list(ARM))
        self.assertEqual(len(cells), 4 * len(ARM) - len(HIGH.slow))

    def test_lru_flavours_that_make_no_sense_are_left_out(self) -> None:
        self.assertEqual({c.lru for c in plan([THREADS], [ARM["never"]], ["classic", "mglru"], 1)}, {"classic"})

    def test_a_preset_runs_beside_the_default_in_the_case_made_for_it(self) -> None:
        both = [ARM["never"], ARM["mthp_ext"]]
        for arms, ran in ((both, ["never", "mthp_ext", "small-services"]), ([ARM["never"]], ["never"])):
            self.assertEqual([c.arm.key for c in plan([GROWN], arms, ["classic"], 1)], ran)

    def test_variants_run_in_their_cases_only(self) -> None:
        cells = plan(list(CI.values()), variants.named(["no-cache"]), ["classic"], 1)
        self.assertEqual([c.case.name for c in cells], ["roomy/files"])


class ScenarioTest(unittest.TestCase):
    def test_every_case_is_sound(self) -> None:
        for scale in Scale:
            cases = scenarios.cases(scale)
            self.assertEqual(len({case.name for case in cases}), len(cases))
            for case in cases:
                groups = [group.name for group in case.groups]
                self.assertIn(case.main, groups)
                self.assertEqual(len({task.name for task in case.tasks}), len(case.tasks), case.name)
                self.assertTrue(any(task.role is Role.LOAD for task in case.tasks), case.name)
                self.assertTrue({task.group for task in case.tasks} <= {None, *groups}, case.name)
                self.assertTrue({wave.group for wave in case.waves} <= set(groups), case.name)
                self.assertTrue({*filter(None, [case.preset]), *case.slow} <= set(ARM), case.name)
                self.assertTrue(set(case.software) <= set(software.NAMES), case.name)
                for name in groups:
                    self.assertTrue("/" not in name or name.rpartition("/")[0] in groups, name)

    def test_every_figure_is_computed_of_a_whole_run_and_of_a_killed_one(self) -> None:
        for case in CI.values():
            for killed in (False, True):
                it = Table([one(case, arm.key, killed=killed) for arm in ARMS])
                self.assertIn(case.name, "\n".join(text.case_table(it, it.worlds[0])))

    def test_selection(self) -> None:
        self.assertEqual({c.scenario for c in scenarios.cases(Scale.CI, ["redis"])}, {"redis"})
        self.assertEqual([c.name for c in scenarios.cases(Scale.CI, ["redis/set-high"])], ["redis/set-high"])
        with self.assertRaises(LabError):
            scenarios.cases(Scale.CI, ["radish"])


class ArmTest(unittest.TestCase):
    def test_each_names_every_size(self) -> None:
        for arm in ARMS:
            sizes = [value for file, value in arm.settings() if "/hugepages-" in file]
            self.assertEqual(len(sizes), len(SIZES_KIB))
        only = dict(ARM["only64"].settings())
        self.assertEqual([v for f, v in only.items() if "-64kB" in f], ["inherit"])
        self.assertEqual({v for f, v in only.items() if "/hugepages-" in f and "-64kB" not in f}, {"never"})

    def test_every_preset_has_an_arm_that_is_run_on_request_only(self) -> None:
        document = (REPO / "docs" / "policies" / "presets.md").read_text()
        presets = re.findall(r"^## ([a-z-]+)$", document, re.MULTILINE)
        self.assertTrue(presets)
        self.assertEqual([arm.key for arm in ARMS if arm.extra], presets)
        self.assertEqual([ARM[name].policy for name in presets], [("--preset", name) for name in presets])
        self.assertEqual([arm.key for arm in ARMS if arm.key not in USUAL], presets)
        for name in re.findall(r"SCENARIO=(\S+)", document):
            self.assertTrue(scenarios.cases(Scale.CI, name.split(",")))
        for names in re.findall(r"ARM=([a-z0-9_,-]+)", document):
            self.assertTrue(set(names.split(",")) <= set(ARM), names)


class VariantTest(unittest.TestCase):
    def test_names(self) -> None:
        self.assertEqual([arm.key for arm in variants.named([])], USUAL)
        self.assertEqual([arm.key for arm in variants.named(["never", "always", "never"])], ["always", "never"])
        removed = [arm.key for arm in variants.named(["ablation"])]
        self.assertEqual(removed, ["mthp_ext", *(f"no-{rule}" for rule in variants.WITHOUT)])
        self.assertEqual(variants.named(["limit-share=25"])[0].policy, ("--limit-share", "25"))
        for bad in ("no-rule", "limit-share=26", "nothing"):
            with self.assertRaises(LabError):
                variants.named([bad])

    def test_cases_and_options_exist(self) -> None:
        options = (REPO / "src" / "cli.rs").read_text()
        for arm in (*variants.ABLATION.values(), *(a for values in variants.SWEPT.values() for a in values.values())):
            self.assertTrue(arm.cases and set(arm.cases) <= set(CI), arm.key)
            self.assertRegex(Cell(HIGH, arm, "classic", 0).name, r"^[A-Za-z0-9_.-]+$")
            for option in (word for word in arm.policy or () if word.startswith("--")):
                self.assertIn(f"    pub {option[2:].replace('-', '_')}:", options)

    def test_a_rule_that_changes_nothing_is_found_out(self) -> None:
        case = CI["roomy/files"]
        same = Table([case_of(case, "mthp_ext"), case_of(case, "no-cache")])
        self.assertEqual(compare.ablation(same)[1][:3], ["cache", "roomy/files/classic", "nothing"])
        worse = Table([case_of(case, "mthp_ext"), case_of(case, "no-cache", rps=25_000.0)])
        self.assertEqual(
            compare.ablation(worse)[1:], [["cache", "roomy/files/classic", "requests/s", "50,000", "25,000"]]
        )
        self.assertEqual(compare.ablation(Table([case_of(case, "mthp_ext")])), [])

    def test_a_sweep_is_in_the_order_of_its_values(self) -> None:
        case = CI["roomy/x2"]
        table = Table([case_of(case, key) for key in ("mthp_ext", "limit-share=100", "limit-share=25")])
        [(option, key, rows)] = compare.sweeps(table)
        self.assertEqual((option, key), ("limit-share", "roomy/x2/classic"))
        self.assertEqual([row[0] for row in rows], ["--limit-share", "25", "**50**", "100"])
        document = page.render(table, [], ENVIRONMENT) + markdown.render(table, [], ENVIRONMENT)
        self.assertEqual(document.count("Constants varied"), 2)
        # The other tables know the default policy only.
        self.assertEqual([arm.key for arm in table.arms(table.worlds[0])], ["mthp_ext"])

    def test_every_sweep_can_be_shown(self) -> None:
        for option, sweep in variants.SWEEPS.items():
            case = CI[sweep.cases[0]]
            table = Table([case_of(case, key) for key in ("mthp_ext", *(f"{option}={one}" for one in sweep.values))])
            [(_, _, rows)] = compare.sweeps(table)
            self.assertEqual(len(rows), 2 + len(sweep.values), option)


def case_of(case: Case, key: str, **values: Any) -> Run:
    """A run of any arm, a variant too."""
    return run.read(Cell(case, variants.named([key])[0], "classic", 0), records(case, **values), 20.0)


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
            path.write_bytes(path.read_bytes()[:-20])
            self.assertIsNone(journal.get("a"))

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
            binary = Path(directory, "mthp_ext")
            binary.write_bytes(b"one")
            world = execute.World(binary, Mode.ICOUNT, binary, binary, Journal(Path(directory)), False)
            mine = world.parts(Cell(HIGH, ARM["mthp_ext"], "classic", 0), software.Payload())
            theirs = world.parts(Cell(HIGH, ARM["never"], "classic", 0), software.Payload())
            self.assertIn("mthp_ext", mine)
            self.assertNotIn("mthp_ext", theirs)


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
        it = Table([*thrice(HIGH, "always", rps=5_000.0), *thrice(HIGH, "never"), *thrice(HIGH, "reactive")])
        row = next(one for one in published.beside(it, "classic") if one.published.metric == "rps")
        self.assertEqual((row.never, row.reactive, row.policy), (10.0, 10.0, None))
        self.assertAlmostEqual(row.agreement or 0, 976610.893 / 885337.250)
        names = {case.name for case in CI.values()}
        self.assertTrue({one.case for one in published.PUBLISHED} <= names)

    def test_colours_tell_good_from_bad(self) -> None:
        self.assertTrue(page.heat_colour(0.98).startswith("hsl(150"))
        self.assertFalse(page.heat_colour(0.979).startswith("hsl(150"))
        self.assertTrue(page.heat_colour(0.0).startswith("hsl(8 "))

    def test_limit_of_a_wave_and_of_a_cgroup(self) -> None:
        self.assertEqual(page.limits(one(HIGH, "never")), [(0.0, 96.0 * MIB)])
        moved = dataclasses.replace(one(HIGH, "never"), waves=[(0.0, "redis", "max"), (2.0, "redis", "7")])
        self.assertEqual(page.limits(moved), [(0.0, math.inf), (2.0, 7.0)])

    def test_tables_are_aligned(self) -> None:
        it = table()
        lines = [line for line in [*text.case_table(it, it.worlds[0])] if line.startswith("|")]
        self.assertEqual(len({len(line) for line in lines}), 1)

    def test_markdown_and_json(self) -> None:
        it = table(*thrice(HIGH, "mthp_ext", rps=40_000.0))
        document = markdown.render(it, gates.check(it, counted=True), ENVIRONMENT)
        self.assertIn("**missed**", document)
        self.assertIn("0.800", document)
        body = output.collect(it)["worlds"]["redis/set-high/classic"]
        self.assertEqual(body["regret"]["rps"]["mthp_ext"]["value"], 0.8)
        json.dumps(body, allow_nan=False)


if __name__ == "__main__":
    unittest.main()
