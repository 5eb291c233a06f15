# SPDX-License-Identifier: GPL-2.0-only
"""The suite's plans, scenarios, arms and variants."""

import fnmatch
import re
import sqlite3
import unittest
from typing import Any
from unittest import mock

from lab.bench import (
    compare,
    judging,
    markdown,
    page,
    scenarios,
    software,
    text,
    variants,
)
from lab.bench.arms import ARM, ARMS, SIZES_KIB, USUAL
from lab.bench.cell import Cell
from lab.bench.plan import plan
from lab.bench.scenarios import database
from lab.bench.spec import MIB, Role, Scale
from lab.bench.table import Table
from lab.checks import bench as bench_tests
from lab.errors import LabError
from lab.paths import REPO, documents
from lab.tests.bench_runs import CI, ENVIRONMENT, FREE, GROWN, HIGH, THREADS, case_of, one
from lab.tests.test_docs_commands import defaults_of_options, table_of_options
from lab.vm.schedule import Finished


class PlanTest(unittest.TestCase):
    def test_arms_are_interleaved_and_slow_ones_run_once(self) -> None:
        cells = plan([HIGH, FREE], ARMS, ["classic"], 2)
        arms = [key for key, arm in ARM.items() if arm.meant_for(HIGH.name)]
        self.assertEqual([c.arm.key for c in cells[: len(arms)]], arms)
        free = [arm for arm in ARMS if arm.meant_for(FREE.name)]
        self.assertEqual(len(cells), 2 * (len(arms) + len(free)) - len(HIGH.slow))
        self.assertEqual(set(ARM) - set(arms), {"oracle", "mthp_madvise", "madvise", "shrinker"})

    def test_what_takes_half_an_hour_has_to_be_named(self) -> None:
        self.assertFalse([one for one in scenarios.cases(Scale.CI) if one.named])
        named = scenarios.cases(Scale.CI, ["larger/high-*"])
        self.assertEqual([judging.runs(one) for one in named], [1, 1, 1])
        limits = [int(str(one.groups[0].settings["memory.high"])) // MIB for one in named]
        self.assertEqual(limits, [384, 1536, 4096])
        # K is to each limit what it is to the largest.
        for case, arm in variants.LIKE_4G.items():
            [factor] = {int(word) for word in arm.policy or () if word.isdigit()}
            [world] = scenarios.cases(Scale.CI, [case])
            self.assertEqual(factor, 1024 * int(str(world.groups[0].settings["memory.high"])) // MIB // 4096)
            self.assertTrue(arm.meant_for(case))

    def test_lru_flavours_that_make_no_sense_are_left_out(self) -> None:
        self.assertEqual({c.lru for c in plan([THREADS], [ARM["never"]], ["classic", "mglru"], 1)}, {"classic"})

    def test_a_policy_for_one_use_runs_beside_the_default_in_the_case_made_for_it(self) -> None:
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
                self.assertTrue({*filter(None, [case.made_for]), *case.slow} <= set(ARM), case.name)
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

    def test_what_make_test_leaves_out_has_a_twin_that_it_runs(self) -> None:
        ran = {cell.case.name for cell in bench_tests._cells([])}
        left = {*bench_tests._ONLY_IN_BENCH, *bench_tests._NOT_HERE}
        self.assertEqual(left & ran, set())
        self.assertEqual(left | ran, set(CI))
        self.assertLessEqual(set(bench_tests._ONLY_IN_BENCH.values()), ran)

    def test_the_last_part_of_make_test_judges_every_cell(self) -> None:
        def judged(_kernel: object, _cells: object, finished: Finished[mock.Mock], *_: object) -> list[str]:
            return [run.cell.name for run in finished.runs]

        with (
            mock.patch.object(bench_tests, "_world"),
            mock.patch("lab.bench.execute.run_cell", side_effect=lambda cell, *_: mock.Mock(cell=cell, kept=False)),
            mock.patch.object(bench_tests, "_suite", side_effect=judged),
        ):
            found = [part() for part in bench_tests.parts(mock.Mock())]
        self.assertEqual(found, [*([[]] * (len(found) - 1)), [[cell.name for cell in bench_tests._cells(())]]])

    def test_the_sorts_of_the_database_are_sorts(self) -> None:
        base = sqlite3.connect(":memory:")
        base.execute(database.TABLE)
        explained = {row[1] for row in base.execute(f"EXPLAIN {database.SORT}")}
        self.assertIn("SorterOpen", explained)
        self.assertIn(database.SORT, " ".join(word for task in CI["database/sort-high"].tasks for word in task.argv))

    def test_rows_in_which_nothing_is_reclaimed_run_under_one_lru(self) -> None:
        for case in CI.values():
            if case.roomy and case.key != "files":
                self.assertEqual(case.lrus, ("classic",), case.name)


class ArmTest(unittest.TestCase):
    def test_each_names_every_size(self) -> None:
        for arm in ARMS:
            sizes = [value for file, value in arm.settings() if "/hugepages-" in file]
            self.assertEqual(len(sizes), len(SIZES_KIB))
        only = dict(ARM["only64"].settings())
        self.assertEqual([v for f, v in only.items() if "-64kB" in f], ["inherit"])
        self.assertEqual({v for f, v in only.items() if "/hugepages-" in f and "-64kB" not in f}, {"never"})

    def test_every_policy_has_an_arm_and_all_but_the_default_run_on_request_only(self) -> None:
        names = {path.stem for path in (REPO / "policies").glob("*.toml")}
        extra = [arm.key for arm in ARMS if arm.extra]
        named = [key for key in extra if key not in ("splits", "from-swap", "splits-swapin")]
        # As a policy, it answers reclaim alone, and with base pages.
        self.assertEqual(ARM["splits"].policy, ("--policy", "fixed", "--cap", "reclaim=4K"))
        self.assertEqual({*named, "default"}, names)
        self.assertEqual([(ARM[name].policy or ())[:2] for name in named], [("--policy", name) for name in named])
        self.assertEqual([arm.key for arm in ARMS if arm.key not in USUAL], extra)
        self.assertEqual(len(ARM), len(ARMS), "a policy has the name of another arm")

    def test_each_pattern_of_an_arm_is_of_some_case(self) -> None:
        names = [case.name for case in scenarios.cases(Scale.CI)]
        patterns = {pattern for arm in ARMS for pattern in arm.cases}
        self.assertEqual([one for one in sorted(patterns) if not fnmatch.filter(names, one)], [])

    def test_cases_and_arms_that_pages_name_exist(self) -> None:
        named = [
            found for path in documents() for found in re.findall(r"\b(SCENARIO|ARM)=([\w/*,=-]+)", path.read_text())
        ]
        for what, value in named:
            words = [word for word in value.split(",") if word != "NAME"]
            with self.subTest(what, value=value):
                self.assertTrue(
                    not words or (scenarios.cases(Scale.CI, words) if what == "SCENARIO" else variants.named(words))
                )
        self.assertLessEqual({"SCENARIO", "ARM"}, {what for what, _ in named})


class VariantTest(unittest.TestCase):
    def test_names(self) -> None:
        self.assertEqual([arm.key for arm in variants.named([])], USUAL)
        self.assertEqual([arm.key for arm in variants.named(["never", "always", "never"])], ["always", "never"])
        removed = [arm.key for arm in variants.named(["ablation"])]
        self.assertEqual(removed, ["mthp_ext", *(f"no-{rule}" for rule in variants.WITHOUT)])
        self.assertEqual(variants.named(["limit-share=25"])[0].policy, ("--limit-share", "25"))
        self.assertEqual(variants.named(["sample-every=64"])[0].policy, ("--set", "sample-every=64"))
        for bad in ("no-rule", "limit-share=26", "nothing"):
            with self.assertRaises(LabError):
                variants.named([bad])

    def test_cases_and_options_exist(self) -> None:
        options, measured = table_of_options() | {"set"}, set()
        for arm in (*variants.ABLATION.values(), *(a for values in variants.SWEPT.values() for a in values.values())):
            self.assertTrue(arm.cases and set(arm.cases) <= set(CI), arm.key)
            self.assertRegex(Cell(HIGH, arm, "classic", 0).name, r"^[A-Za-z0-9_.-]+$")
            for option in (word for word in arm.policy or () if word.startswith("--")):
                self.assertIn(option[2:], options)
            measured |= {word.partition("=")[0] for word in arm.policy or () if "=" in word}
        # Each of the others is there to be measured, and is.
        self.assertEqual(measured, table_of_options(measured=True))

    def test_sweeps_know_the_defaults_of_the_table(self) -> None:
        defaults = defaults_of_options()
        self.assertGreater(len(variants.SWEEPS), 7)
        for option, sweep in variants.SWEEPS.items():
            self.assertEqual(sweep.default, defaults[option], option)
            self.assertNotIn(sweep.default, sweep.values, option)

    def test_a_rule_that_changes_nothing_is_found_out(self) -> None:
        case = CI["roomy/files"]
        same = Table([case_of(case, "mthp_ext"), case_of(case, "no-cache")])
        self.assertEqual(compare.ablation(same)[1][:3], ["cache", "roomy/files/classic", "nothing"])
        worse = Table([case_of(case, "mthp_ext"), case_of(case, "no-cache", rps=25_000.0)])
        self.assertEqual(
            compare.ablation(worse)[1:], [["cache", "roomy/files/classic", "requests/s", "50,000", "25,000"]]
        )
        self.assertEqual(compare.ablation(Table([case_of(case, "mthp_ext")])), [])

    def test_what_equal_runs_differ_by_is_no_change(self) -> None:
        case = CI["roomy/files"]
        for figure, value, changes in (("p99", 12.9, False), ("p99", 14.0, True), ("rps", 49_500.0, False)):
            changed: dict[str, Any] = {figure: value}
            it = Table([case_of(case, "mthp_ext"), case_of(case, "no-cache", **changed)])
            self.assertEqual(compare.ablation(it)[1][2] != "nothing", changes, changed)
        mine = [case_of(case, "mthp_ext", repeat, rps=rps) for repeat, rps in enumerate((50_000.0, 45_000.0))]
        self.assertEqual(compare.ablation(Table([*mine, case_of(case, "no-cache", rps=46_000.0)]))[1][2], "nothing")

    def test_a_sweep_is_in_the_order_of_its_values(self) -> None:
        case = CI["roomy/x2"]
        table = Table([case_of(case, key) for key in ("mthp_ext", "limit-share=100", "limit-share=25")])
        [(option, world, rows)] = compare.sweeps(table)
        self.assertEqual((option, world.key), ("limit-share", "roomy/x2/classic"))
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
