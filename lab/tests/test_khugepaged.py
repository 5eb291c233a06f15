# SPDX-License-Identifier: GPL-2.0-only
"""What is made of the records of khugepaged's scan."""

import unittest
from typing import Any

from lab.checks.khugepaged import Side, collect, gates, tables
from lab.errors import LabError


def _records(before: bool, passes: int, idle: int, cold: str) -> list[dict[str, Any]]:
    ranges = [{"page_pmd_mapped": 4}, {cold: 64}, {"no_pte_table": 127, "succeeded": 1}, {"succeeded": 64}]
    huge = [{"ranges": {"page_pmd_mapped": 64}, "progress": 102}] * 3
    return [
        {"name": "khugepaged_hot2", "passes": passes, "scans": [{"ranges": one, "progress": 9} for one in ranges]},
        {"name": "khugepaged_full_scan", "passes": idle, "scans": huge},
        {"name": "khugepaged_full_scan_time", "before": before, "scan_sleep_millisecs": 100, "full_scan_ms": 100 * idle,
         "cpu_ns": 70_000},
    ]  # fmt: skip


def _side(before: bool, passes: int, idle: int, cold: str) -> Side:
    return collect("7.0.13" if before else "7.3.4", _records(before, passes, idle, cold))


class KhugepagedTest(unittest.TestCase):
    """Two kernels beside each other."""

    def test_tables_and_gates(self) -> None:
        """The improvement, and a kernel without it in its place."""
        before, after = _side(True, 33, 24, "lack_referenced_page"), _side(False, 9, 1, "page_lazyfree")
        shown = tables(before, after)
        self.assertRegex(shown, r"passes until it is huge \| 33 +\| 9 +\| -73% ")
        self.assertRegex(shown, r"cold: page_lazyfree +\| 0 +\| 64 ")
        self.assertRegex(shown, r"total progress, pages +\| not reported +\| 306 ")
        self.assertTrue(all(one.ok for one in gates(before, after)))
        self.assertEqual(
            [one.ok for one in gates(before, before)],
            [False, False, True, False, True],
        )

    def test_what_is_missing_is_told(self) -> None:
        """A guest that ended early."""
        with self.assertRaisesRegex(LabError, "khugepaged_full_scan_time"):
            collect("7.3.4", _records(False, 9, 1, "page_lazyfree")[:2])
