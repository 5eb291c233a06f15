# SPDX-License-Identifier: GPL-2.0-only
"""What is made of the records of the benchmark of 1 GiB pages."""

import unittest
from typing import Any

from lab.checks.pudbench import ARMS, COUNT, MEASURED, Arm, collect, collect_walks, expected, gates, settings, tables
from lab.errors import LabError
from lab.tlb.counts import Counts

_COUNTERS = ("faults", "had_1g", "fallback_1g", "had_2m", "fallback_2m", "tables_kib", "resident_kib")
_TOUCH = {
    "never": {"faults": 1 << 20},
    "2M": {"faults": 2048, "had_2m": 2048},
    "1G": {"faults": 4, "had_1g": 4, "tables_kib": 8208},
}


def _counters(**grown: int) -> dict[str, Any]:
    names = (*_COUNTERS, "split_pud", "split_pmd")
    return {"before": dict.fromkeys(names, 5), "after": {name: 5 + grown.get(name, 0) for name in names}}


def _records(arm: str, ns: int = 1000) -> list[dict[str, Any]]:
    def one(row: str, more: dict[str, Any] | None) -> dict[str, Any]:
        return {"type": "chase", "row": row, "count": COUNT, "ns": ns, "more": more}

    faults = {"fault_ns": [ns, 3 * ns, 3 * ns, 4 * ns], **_counters(**_TOUCH[arm])}
    split = _counters(split_pud=int(arm == "1G"), split_pmd=int(arm == "2M"))
    return [
        one("first touch", faults),
        *(one(row, None) for row in MEASURED),
        one("mprotect of a page", split),
        one("random read after that", None),
    ]


def _arm(name: str, walks: dict[str, float], *ns: int) -> Arm:
    seen = {row: Counts(walks={4: round(walks.get(row, 0) * COUNT)}, references=COUNT) for row in MEASURED}
    return Arm(name, [collect(_records(name, one), name) for one in ns or (1000, 1005)], [seen])


def _arms(**wrong: Arm) -> list[Arm]:
    return [wrong.get(name, _arm(name, {row: expected(name, row) for row in MEASURED})) for name in ARMS]


class PudBenchTest(unittest.TestCase):
    """Three arms beside each other."""

    def test_what_can_be_computed(self) -> None:
        """Walks of 4 GiB with 1,536 entries for 4 KiB and 2 MiB."""
        self.assertAlmostEqual(expected("never", "random read"), 1 - 1536 / (1 << 20))
        self.assertAlmostEqual(expected("never", "sequential write"), 1 / 64)
        self.assertAlmostEqual(expected("2M", "random write"), 0.25)
        self.assertAlmostEqual(expected("2M", "sequential read"), 1 / 32768)
        self.assertEqual([expected("1G", row) for row in MEASURED], [0.0] * 4)

    def test_tables_have_all_arms_and_the_mail(self) -> None:
        """A fault is the median of all runs' first ones."""
        shown = tables(_arms())
        self.assertRegex(shown, r"page faults +\| 1,048,576 +\| 2,048 +\| 4 ")
        self.assertRegex(shown, r"page tables, KiB.* \| 8,208 ")
        self.assertRegex(shown, r"random read +\| 0\.9985 +\| 0\.2500 +\| 0\.0000 ")
        self.assertIn("34 % less", shown)
        self.assertEqual(_arm("1G", {}, 1000).fault_ns(), 3000)

    def test_gates_see_what_is_wrong(self) -> None:
        """Other pages than the arm is about, runs that differ, walks that are not those computed."""
        self.assertTrue(all(one.ok for one in gates(_arms())))
        spread = _arm("never", {row: expected("never", row) for row in MEASURED}, 1000, 1011)
        [missed] = [one.name for one in gates(_arms(never=spread)) if not one.ok]
        self.assertIn("equal runs", missed)
        [missed] = [one.name for one in gates(_arms(**{"1G": _arm("1G", {"random read": 0.2})})) if not one.ok]
        self.assertIn("1G, random read: 0.2000 walks", missed)
        small = _arm("1G", {})
        small.runs[0]["first touch"]["more"]["after"]["had_1g"] -= 1
        [missed] = [one.name for one in gates(_arms(**{"1G": small})) if not one.ok]
        self.assertEqual(missed, "1G: pages of 1 GiB had")

    def test_gates_look_at_each_run(self) -> None:
        """One of three that is no better than another arm is not hidden by the first."""
        for arm, row, name, gate in (
            ("never", "first touch", "faults", "never: faults"),
            ("2M", "first touch", "had_2m", "2M: pages of 2 MiB had"),
            ("1G", "first touch", "had_1g", "1G: pages of 1 GiB had"),
            ("1G", "mprotect of a page", "split_pud", "1G: splits by mprotect"),
        ):
            with self.subTest(arm=arm, name=name):
                later = _arm(arm, {one: expected(arm, one) for one in MEASURED}, 1000, 1000, 1000)
                later.runs[2][row]["more"]["after"][name] -= 1
                missed = [one.name for one in gates(_arms(**{arm: later})) if not one.ok]
                self.assertEqual([one.startswith(gate) for one in missed], [True], missed)

    def test_a_fallback_from_2_mib_is_seen(self) -> None:
        """In any run."""
        small = _arm("2M", {row: expected("2M", row) for row in MEASURED})
        small.runs[1]["first touch"]["more"]["after"]["fallback_2m"] += 1
        missed = [one.name for one in gates(_arms(**{"2M": small})) if not one.ok]
        self.assertEqual(missed, ["2M: fallbacks to smaller pages, the most of the runs"])

    def test_what_is_missing_is_said(self) -> None:
        """A guest that ended early, and a model that saw less."""
        with self.assertRaisesRegex(LabError, "never: the guest did not record 'random read'"):
            collect([one for one in _records("never") if one["row"] != "random read"], "never")
        with self.assertRaisesRegex(LabError, "counted 0 rows, not 4"):
            collect_walks([], "2M")

    def test_each_arm_leaves_one_size(self) -> None:
        """And 2 MiB where 1 GiB is not to be had."""
        on = [settings(arm).count("echo always > /sys/kernel/mm/transparent_hugepage/hugepages") for arm in ARMS]
        self.assertEqual(on, [0, 1, 2])
