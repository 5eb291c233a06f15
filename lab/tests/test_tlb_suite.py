# SPDX-License-Identifier: GPL-2.0-only
"""Walks in the suite's tables, page and JSON."""

import re
import unittest
from dataclasses import replace
from html import unescape
from pathlib import Path

from lab.bench import compare, execute, markdown, page, scenarios, walks
from lab.bench.arms import ARM
from lab.bench.cell import Cell
from lab.bench.main import main as bench_main
from lab.bench.output import collect
from lab.bench.plan import plan
from lab.bench.spec import Scale
from lab.bench.table import Table, World
from lab.bench.text import case_table, not_modelled
from lab.errors import LabError
from lab.paths import REPO
from lab.tests.bench_runs import CI, ENVIRONMENT, FREE, case_of, one
from lab.tests.tlb_records import TLB, modelled, modelled_slow
from lab.tlb.geometry import Geometry
from lab.vm import Mode


class SuiteTest(unittest.TestCase):
    def table(self) -> Table:
        runs = [modelled(FREE, "never", 200_000), modelled(FREE, "always", 20_000)]
        return Table([one(FREE, "never"), one(FREE, "always"), *runs], TLB)

    def test_no_figure_but_walks_comes_from_a_modelled_run(self) -> None:
        table = self.table()
        slow = Table([*table.all, modelled_slow(FREE, "never")], TLB)
        [world] = slow.worlds
        for metric in slow.metrics(world):
            if metric not in walks.WALKS:
                self.assertEqual(slow.values(world, "never", metric), table.values(world, "never", metric), metric.key)
        self.assertEqual(len(slow.values(world, "never", walks.PER_OPERATION)), 2)

    def test_a_plain_cell_knows_nothing_of_the_model(self) -> None:
        cell = Cell(FREE, ARM["never"], "classic", 0)
        world = execute.World(Path("/k"), Mode.ICOUNT, Path("/m"), Path("/g"), None)
        self.assertIsNone(replace(world, tlb=TLB).model(cell))
        self.assertIsNotNone(replace(world, tlb=TLB).model(replace(cell, modelled=True)))
        self.assertNotEqual(cell.name, replace(cell, modelled=True).name)

    def test_several_processors_are_not_modelled(self) -> None:
        cases = scenarios.cases(Scale.CI)
        several = {case.name for case in cases if case.machine.cpus not in (None, 1)}
        self.assertIn("cpus/x4", several)
        for case in cases:
            self.assertEqual(TLB.of(case) is None, case.name in several, case.name)
            if case.name in several:
                self.assertIn("several processors", TLB.line(case))
        cells = plan(cases, [ARM["never"]], ["classic"], 2)
        twins = walks.plan(cells, 1)
        self.assertEqual({cell.case.name for cell in cells} - {cell.case.name for cell in twins}, several)
        self.assertTrue(all(cell.modelled and cell.repeat == 0 for cell in twins))
        self.assertEqual(walks.plan(cells, 0), [])

    def test_a_server_that_was_not_seen_has_no_figure(self) -> None:
        run = modelled(FREE, "never", 200_000)
        ends = {name: replace(end, pid=end.pid + 50) for name, end in run.ends.items()}
        lost = replace(run, ends=ends)
        self.assertIsNone({metric.key: metric.of(lost) for metric in walks.WALKS}["walks_op_servers"])

    def test_what_cannot_be_modelled_is_refused_before_anything_is_built(self) -> None:
        for words, why in (
            (["--coalesce", "16K"], "say --walks 1"),
            (["--walks", "1", "--mode", "tcg"], "needs mode icount"),
            (["--walks", "1", "--kernel", str(REPO / "LICENSE")], "vmlinux is missing"),
            (["--walks", "1", "--tlb-stands-for", "9G"], "170 MiB cannot stand for 9 GiB"),
            (["--walks", "-1"], "WALKS must be from 1"),
        ):
            with self.assertRaisesRegex(LabError, why):
                bench_main([*words, "--scenario", "redis/set-none", "--list"])

    def test_small_differences_of_walks_are_not_notable(self) -> None:
        for change, notable in ((1.04, False), (1.2, True)):
            runs = [modelled(FREE, "mthp_ext", 200_000), modelled(FREE, "never", round(200_000 * change))]
            table = Table([one(FREE, "mthp_ext"), one(FREE, "never"), *runs], TLB)
            self.assertEqual(compare._differs(table, table.worlds[0], ARM["never"], walks.PER_OPERATION), notable)

    def test_walks_per_operation_and_per_instruction(self) -> None:
        run = modelled(FREE, "never", 200_000)
        # 50,000 requests/s for 4 s; two programs in two modes have 12 walks of large pages.
        self.assertEqual(walks.operations(run), 200_000)
        self.assertAlmostEqual(walks.PER_OPERATION.of(run) or 0, 11 + 12 / 200_000)
        by_key = {metric.key: metric.of(run) for metric in walks.WALKS}
        self.assertAlmostEqual(by_key["walks_op_4k"] or 0, 11)
        self.assertAlmostEqual(by_key["walks_op_servers"] or 0, 1 + 6 / 200_000)
        self.assertAlmostEqual(by_key["walks_ki_4k"] or 0, 2_200_000 / 16)
        self.assertIsNone(by_key["walks_op_joined"], "nothing was to be joined")
        self.assertIsNone(walks.PER_OPERATION.of(one(FREE, "never")), "not modelled")

    def test_without_a_rate_the_run_is_the_operation(self) -> None:
        self.assertEqual(walks.operations(one(CI["bloat/threads"], "never")), 1)
        self.assertEqual(walks.operations(one(CI["vmhost/fragmented"], "never")), 1, "its requests come before")
        self.assertIsNone(walks.operations(one(FREE, "never", killed=True)))

    def test_the_table_has_them_and_says_what_the_tlb_stands_for(self) -> None:
        table = self.table()
        text = "\n".join(case_table(table, table.worlds[0]))
        self.assertRegex(text, r"walks per operation +\| 1.1 +\| 11 ")
        self.assertIn("L2 96", text)
        self.assertIn("170 MiB stand for 3.4 GiB; full size: reach 8.38 MiB", text)
        plain = Table([one(FREE, "never")])
        self.assertNotIn("walks per", "\n".join(case_table(plain, plain.worlds[0])))

    def test_the_page_and_the_markdown_have_them(self) -> None:
        table, environment = self.table(), {**ENVIRONMENT, "tlb": "L1"}
        shown = page.render(table, [], environment)
        self.assertIn('aria-label="walks per operation"', shown)
        self.assertIn("<th>walks per 1,000 instructions, 2M</th>", shown)
        text = markdown.render(table, [], environment)
        self.assertIn("| walks per operation, 4K ", text)
        for document in (shown, text):
            self.assertIn("170 MiB stand for 3.4 GiB", document)

    def test_json_has_them_by_program(self) -> None:
        world = collect(self.table())["worlds"]["redis/set-none/classic"]
        self.assertEqual(world["arms"]["never"]["walks_by_program"]["load"], {"user": 2_000_003, "kernel": 3})
        self.assertEqual((world["arms"]["never"]["modelled"], world["arms"]["never"]["lost"]), (1, 0.0))
        self.assertIn("stand for", world["tlb"])
        # With the sizes of this case, which are not the full ones.
        self.assertIn("l2=6x16", world["model"])

    def test_a_constant_that_is_varied_has_all_rows_as_well(self) -> None:
        keys = ("mthp_ext", "min-memory=2M")
        runs = [case_of(FREE, key) for key in keys] + [modelled(FREE, key, 200_000) for key in keys]
        table = Table(runs, TLB)
        world = collect(table)["worlds"]["redis/set-none/classic"]
        self.assertEqual((list(world["arms"]), list(world["variants"])), (["mthp_ext"], ["min-memory=2M"]))
        mine, theirs = world["arms"]["mthp_ext"], world["variants"]["min-memory=2M"]
        self.assertEqual(list(mine), list(theirs))
        for metric in (walks.PER_OPERATION, walks.SERVERS, walks.PER_INSTRUCTION):
            self.assertEqual(mine[metric.key], theirs[metric.key])
            self.assertGreater(theirs[metric.key]["median"], 0)
        [(_, _, rows)] = compare.sweeps(table)
        for label in ("walks per operation", "walks per operation, servers", "walks per 1,000 instructions"):
            self.assertIn(label, rows[0])

    def variants(self, tlb: walks.Tlb | None) -> list[str]:
        """What the documents have of rules taken away and constants varied, in two cases."""
        keys = {"redis/set-none": "min-memory=2M", "bloat/threads": "no-small"}
        runs = [run for name, key in keys.items() for arm in ("mthp_ext", key)
                for run in (case_of(CI[name], arm), modelled(CI[name], arm, 200_000))]  # fmt: skip
        table = Table(runs, tlb)
        documents = markdown.render(table, [], ENVIRONMENT), page.render(table, [], ENVIRONMENT)
        return [re.split(r"(?:##|<h2>) ?Scenarios", unescape(one))[0] for one in documents]

    def test_what_the_tlb_stands_for_is_said_under_variants_too(self) -> None:
        for document in self.variants(TLB):
            removed, varied = document.partition("Rules taken away")[2].split("Constants varied")
            self.assertEqual(removed.count("TLB, in runs of its own"), 1)
            self.assertIn("as this case's data stands for nothing else", removed)
            self.assertEqual(varied.count("170 MiB stand for 3.4 GiB"), 1)
        for document in self.variants(None):
            self.assertIn("Rules taken away", document)
            self.assertNotIn("TLB, in runs of its own", document)

    def test_rows_that_stand_for_different_data_are_named(self) -> None:
        worlds = [World(CI[name], "classic") for name in ("redis/set-none", "bloat/threads", "redis/set-high")]
        table = Table([], TLB)
        first, second = compare.tlb_lines(table, worlds)
        self.assertTrue(first.startswith("redis/set-none/classic, redis/set-high/classic: TLB"), first)
        self.assertTrue(second.startswith("bloat/threads/classic: TLB"), second)
        self.assertEqual(compare.tlb_lines(table, worlds[:1]), [TLB.line(worlds[0].case)])
        self.assertEqual(compare.tlb_lines(Table([]), worlds), [])

    def test_readers_learn_whether_there_was_a_model(self) -> None:
        self.assertIn("TLB misses", not_modelled(ENVIRONMENT)[0])
        self.assertIn("the time of a TLB miss", not_modelled({**ENVIRONMENT, "tlb": "L1"})[0])

    def test_a_case_without_data_is_not_scaled(self) -> None:
        self.assertIn("at its full size", TLB.line(CI["bloat/threads"]))
        self.assertEqual(TLB.geometry(CI["bloat/threads"]), Geometry())
        identities = {one.identity() for one in (TLB.of(FREE), TLB.of(CI["bloat/threads"])) if one}
        self.assertEqual(len(identities), 2)
