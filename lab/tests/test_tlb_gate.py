# SPDX-License-Identifier: GPL-2.0-only
"""The gate of the TLB model against computed values."""

import random
import unittest
from dataclasses import replace
from typing import Any

from lab.bench.run import Run
from lab.checks.tlb import TOLERANCE, Guest, Reads, accesses, clock, expected, judge, judge_cells, rows, script, wrong
from lab.tests.bench_runs import FREE, one
from lab.tests.tlb_records import TLB, counted, modelled
from lab.tlb.geometry import Geometry


class GateTest(unittest.TestCase):
    """The gate itself: it must fail for a model that is wrong."""

    guest = Guest("g", (Reads(4, ("random",)),), ("off",), 5)
    count = accesses("random", 4, ["off"])

    def failed(self, guest: Guest, programs: list[dict[str, Any]]) -> list[str]:
        found = judge(guest, Geometry(), [{"type": "tlb", "window": 0, "programs": programs}])
        return [one.name.rpartition(", ")[2].partition(": ")[2].partition(":")[0] for one in found if not one.ok]

    def judged(self, **changed: Any) -> list[str]:
        walked = round(self.count * 0.9687)
        right = {**counted(0, accesses=self.count + 18, l1_misses=self.count - 180),
                 "references": round(walked * 1.5), "walks": {"4": walked}}  # fmt: skip
        program = {"name": "lab-walks", "group": 9, "user": {**right, **changed}, "kernel": counted(0)}
        return self.failed(self.guest, [program])

    def test_it_holds_and_each_part_can_fail(self) -> None:
        self.assertEqual(self.judged(), [])
        self.assertEqual(self.judged(accesses=self.count + 51), ["accesses beside the reads"])
        self.assertEqual(len(self.judged(accesses=self.count - 1)), 1)
        self.assertEqual(self.judged(l1_misses=round(self.count * 0.9964)), ["misses of L1"])
        self.assertEqual(self.judged(lost=1), ["accesses that no table maps"])
        self.assertEqual(self.judged(references=round(self.count * 0.9687 * 1.47)), ["references a walk"])
        self.assertEqual(self.judged(walks={"4": round(self.count * 0.9664)})[0], "walks")
        self.assertEqual(len([one for one in judge(self.guest, Geometry(), []) if not one.ok]), 1)

    def test_an_empty_window_fails_where_nothing_is_to_be_counted(self) -> None:
        large = Guest("g", (Reads(2048, ("sequential",)),), ("off",), 5)
        for programs in ([], [{"name": "lab-walks", "group": 9, "user": {**counted(0), "accesses": 0, "walks": {}},
                               "kernel": counted(0)}]):  # fmt: skip
            self.assertTrue(self.failed(large, programs), programs)

    def test_what_must_not_walk_may_hardly_walk(self) -> None:
        large = Guest("g", (Reads(2048, ("random",)),), ("off",), 5)
        count = accesses("random", 2048, ["off"])
        for walked, failed in ((count // 4000, []), (count // 1000, ["walks"])):
            mine = {**counted(0, accesses=count + 18, l1_misses=round(count * 0.75)), "walks": {"2048": walked}}
            program = {"name": "lab-walks", "group": 9, "user": mine, "kernel": counted(0)}
            self.assertEqual(self.failed(large, [program]), failed)

    def test_the_kernel_and_flushes_are_held_against_what_is_computed(self) -> None:
        for order, walked, failed in (
            ("kernel", 0.9687, []),
            ("kernel", 0.95, ["walks to 4 KiB"]),
            ("kernel", 0.0, ["walks to 4 KiB"]),
            ("dropped", 1.0, []),
            ("dropped", 0.0, ["misses of L1", "walks"]),
        ):
            guest = Guest("g", (Reads(4, (order,)),), ("off",), 5)
            count = accesses(order, 4, ["off"])
            mine = {**counted(0, l1_misses=round(count * walked)), "walks": {"4": round(count * walked)}}
            none = {**counted(0), "walks": {"4": 0}}
            modes = {"user": none, "kernel": mine} if order == "kernel" else {"user": mine, "kernel": none}
            self.assertEqual(self.failed(guest, [{"name": "lab-walks", "group": 9, **modes}]), failed, order)

    def test_accesses_suffice_for_the_tolerance(self) -> None:
        self.assertEqual(accesses("random", 64, ["off", "64K"]), 1_000_000)
        self.assertEqual(accesses("random", 64, ["off", "16K"]), 437_500)
        self.assertEqual(accesses("random", 4, ["off", "64K"]), 121_094)
        # In order: each line of 256 MiB; and more than L2 maps, 2,048 pages of 64 lines.
        self.assertEqual([accesses("sequential", kib, ["off"]) for kib in (4, 2048)], [256 << 14] * 2)
        self.assertGreater(accesses("sequential", 64, ["off"]), 2048 * 64)
        # Deviations of a share that is drawn so often.
        draw = random.Random(1)
        count = accesses("random", 64, ["off", "16K"])
        for _ in range(3):
            share = sum(draw.random() < 0.875 for _ in range(count)) / count
            self.assertLess(abs(share - 0.875), TOLERANCE)

    def test_folios_must_have_been_made(self) -> None:
        text = script(Guest("g", (Reads(4), Reads(64)), ("off",), 5), "/p")
        self.assertEqual(text.count("anon_fault_alloc"), 2)
        self.assertIn("-ge 4096 ]", text)

    def test_the_control_comes_before_the_model(self) -> None:
        guest = Guest("g", (Reads(4, ("random",), control=True),), ("off",), 4)
        self.assertIn(f"- random:{self.count} arm random:{self.count} >", script(guest, "/p"))
        self.assertIn("! grep -q ' la57'", script(guest, "/p"))
        self.assertEqual(len(rows(guest)), 1, "the control has no window")

    def test_the_clock(self) -> None:
        def ok(*times: int) -> bool:
            said = [{"type": "walks", "seen": number > 0, "ns": ns} for number, ns in enumerate(times)]
            return all(one.ok for one in clock(said))

        self.assertTrue(ok(2_058_000, 2_060_000))
        self.assertFalse(ok(2_058_000, 2_058_000 + 117_000), "a nanosecond for each walk")
        self.assertFalse(ok(2_058_000))
        self.assertFalse(ok())

    def test_a_model_for_another_kernel_differs_in_one_word(self) -> None:
        layout = ("current=0x10", "leader=0x48", "comm=0x8", "mm=0x0", "context=0x20")
        found = wrong(replace(TLB.model, layout=layout))
        self.assertEqual(len(found), 6)
        self.assertEqual(found["wrong-leader"][0].layout, (*layout, "leader=0x20"))
        self.assertEqual(found["wrong-mm"][0].layout, (*layout, "mm=0x8"))

    def test_cells_of_the_suite(self) -> None:
        def failed(runs: list[Run]) -> list[str]:
            return [one.name for one in judge_cells(runs) if not one.ok]

        self.assertEqual(len(failed([])), 2, "nothing ran")
        # 2 programs in 2 modes of 4,000 instructions each.
        right = replace(modelled(FREE, "never", 200_000), elapsed_s=16e-6)
        plain = replace(one(FREE, "never"), elapsed_s=16e-6)
        self.assertTrue(failed([plain]))
        self.assertTrue(all("instructions" not in name for name in failed([right, plain])))
        slow = replace(right, elapsed_s=32e-6)
        self.assertEqual(len([name for name in failed([slow, plain]) if "instructions" in name]), 1)

    def test_what_is_computed(self) -> None:
        off, zen, arm = (Geometry(join=join) for join in ("off", "16K", "64K"))
        self.assertEqual(expected("random", 4, off)[1], 1 - 2048 / 65536)
        self.assertEqual(expected("random", 64, off), expected("random", 4, off))
        self.assertEqual(expected("dependent", 64, zen)[1], 0.875)
        self.assertEqual(expected("random", 64, arm)[1], 0.5)
        self.assertEqual(expected("random", 2048, off), (0.75, 0.0))
        self.assertEqual(expected("sequential", 4, off), (1 / 64, 1 / 64))
