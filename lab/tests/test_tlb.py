# SPDX-License-Identifier: GPL-2.0-only
"""Sizes of the TLB model, and what its records say."""

import json
import tempfile
import unittest
from pathlib import Path

from lab.errors import LabError
from lab.tests.tlb_records import TLB, counted, record
from lab.tlb import model
from lab.tlb.counts import Counts, Window, read
from lab.tlb.geometry import Geometry, Shape, size


class GeometryTest(unittest.TestCase):
    def test_reach_follows_the_data(self) -> None:
        full = Geometry()
        small = full.standing_for(3400 << 20, 170 << 20)
        self.assertEqual((small.l2, small.pde, small.pdpte), (Shape(6, 16), Shape(1, 3), Shape(1, 1)))
        self.assertEqual((small.l1_small, small.l1_large), (Shape(1, 5), Shape(1, 2)), "below L2, as they were")
        self.assertEqual(full.reach, "8.38 MiB in base pages, 4,160 MiB in 2 MiB")
        self.assertEqual(small.reach, "0.395 MiB in base pages, 196 MiB in 2 MiB", "a twentieth")
        self.assertEqual(full.standing_for(1 << 20, 170 << 20), full, "never larger than it is")
        self.assertEqual(Shape(16, 4).scaled(1e-9), Shape(1, 1))

    def test_sizes(self) -> None:
        self.assertEqual((size("3.4G"), size("512M"), size("1T")), (3650722202, 512 << 20, 1 << 40))
        for bad in ("3.4", "G", "-1G", "0G", "3,4G", "3.4g", ""):
            with self.assertRaisesRegex(LabError, "is not a size"):
                size(bad)

    def test_every_size_reaches_the_plugin(self) -> None:
        words = Geometry(join="16K").words()
        usual = ["l1-small=16x6", "l1-large=8x4", "l2=128x16", "pde=16x4", "pdpte=4x4"]
        self.assertEqual(words, [*usual, "coalesce=2"])
        giants = Geometry(giants=(Shape(1, 4), Shape(4, 4)))
        self.assertEqual(giants.words(), [*usual, "l1-giant=1x4", "l2-giant=4x4", "coalesce=0"])
        self.assertIn(", 4 and 16 of 1 GiB; reach", giants.text)


class CountsTest(unittest.TestCase):
    def test_programs_and_modes_are_apart_and_add_up(self) -> None:
        [window] = read([{"type": "sample"}, record(server=30, client=10), {"type": "tlb", "refused": "no"}])
        self.assertEqual(window.counts().walks, {4: 40, 2048: 4, 1 << 20: 8})
        self.assertEqual(window.counts([100], ["user"]).walked, 33)
        self.assertEqual(window.counts([100, 7]).instructions, 8000)
        self.assertEqual(Window(0, {}).counts(), Counts())

    def test_processes_of_one_name_are_apart(self) -> None:
        both = record(python3=30, other=10)
        both["programs"][1]["name"] = "python3"
        [window] = read([both])
        self.assertEqual(window.counts([101], ["user"]).walked, 13)
        self.assertEqual((window.program("python3") or {})["user"].walked, 46)
        self.assertIsNone(window.program("nobody"))

    def test_lost_accesses_are_a_refusal(self) -> None:
        for lost, why in ((1, ""), (2, "of its misses of L1 0.20% came to nothing")):
            one = record(a=1)
            one["programs"][0]["user"] = counted(1, l1_misses=1000, lost=lost)
            self.assertEqual(model.refusal([one])[: len(why) or None], why)

    def test_a_record_that_is_cut_off_is_a_refusal(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            out = Path(name) / "out"
            out.write_text(json.dumps(record(a=1))[:-9])
            self.assertIn("is cut off", model.refusal(TLB.model.records(out)))
            self.assertIn("named no time", model.refusal(TLB.model.records(Path(name) / "none")))

    def test_a_refusal_is_an_error_with_its_reason(self) -> None:
        with self.assertRaisesRegex(LabError, "reports nothing: boot with nokaslr"):
            model.check([{"type": "tlb", "refused": "boot with nokaslr"}], "a run", Path("/log"))
        with self.assertRaisesRegex(LabError, "no record"):
            model.check([], "a run", Path("/log"))
        model.check([record(a=1)], "a run", Path("/log"))
