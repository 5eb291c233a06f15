# SPDX-License-Identifier: GPL-2.0-only
"""What the lab makes of the selftest and of the soak of 1 GiB pages."""

import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from lab.checks import pud
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit
from lab.kernel.series import ROOT, load
from lab.vm import Outcome, Verdict


def _suite(**tests: Status) -> Suite:
    return Suite("pud", [Test(f"pud_thp.{name}", status) for name, status in tests.items()])


class Skips(unittest.TestCase):
    """A test that was skipped has found nothing."""

    def _ended(self, *guests: Suite) -> tuple[int, list[list[str]]]:
        """The exit code where these are what the guests say, one after the other, and what each was asked for."""
        asked: list[list[str]] = []

        def run(_: object, names: list[str]) -> Suite:
            asked.append(list(names))
            return guests[len(asked) - 1]

        with (
            mock.patch.object(pud, "run", run),
            mock.patch.object(pud, "plain", return_value=Suite("plain", [Test("no_directory", Status.PASSED)])),
            mock.patch("lab.setup.ensure"),
            mock.patch("lab.kernel.build.ensure"),
            mock.patch("builtins.print"),
        ):
            return pud.main(), asked

    def test_all_skipped_is_no_success(self) -> None:
        """Although the processor without the size and the silent log pass whatever happens."""
        skipped = [_suite(a=Status.SKIPPED, silent_log=Status.PASSED) for _ in range(3)]
        self.assertEqual(self._ended(*skipped), (Exit.TESTS, [[], ["a"], ["a"]]))

    def test_a_race_that_was_lost_is_tried_again(self) -> None:
        """By itself, and then it counts."""
        for later, code in (
            ([Status.PASSED], Exit.OK),
            ([Status.FAILED], Exit.TESTS),
            ([Status.SKIPPED, Status.PASSED], Exit.OK),
            ([Status.SKIPPED, Status.SKIPPED], Exit.TESTS),
        ):
            with self.subTest(later=later):
                first = _suite(a=Status.PASSED, split_undone=Status.SKIPPED)
                ended = self._ended(first, *(_suite(split_undone=status) for status in later))
                self.assertEqual(ended, (code, [[], *(["split_undone"] for _ in later)]))

    def test_what_the_second_guest_complains_of_counts(self) -> None:
        """Such as its kernel log."""
        second = _suite(b=Status.PASSED)
        second.fail("(the guest's kernel log)", "BUG")
        self.assertEqual(self._ended(_suite(a=Status.PASSED, b=Status.SKIPPED), second)[0], Exit.TESTS)

    def test_a_reason_that_is_known(self) -> None:
        """Is not tried again."""
        with mock.patch.object(pud, "MAY_SKIP", {"a": "why"}):
            self.assertEqual(self._ended(_suite(a=Status.SKIPPED, b=Status.PASSED)), (Exit.OK, [[]]))


class Soak(unittest.TestCase):
    """What a soak is judged by."""

    OPERATIONS = tuple(f"operation {number}" for number in range(27))

    def _missed(self, minutes: float, swapped: int | None = 5, *, without: str = "") -> list[str]:
        sums = [*(f"sum {number}" for number in range(8)), *(self.OPERATIONS if minutes >= 5 else ())]
        records: list[dict[str, Any]] = [
            {"type": "sum", "name": name, "got": 1, "wanted": 1} for name in sums if name != without
        ]
        records.append({"type": "end", "seconds": 1} | ({} if swapped is None else {"swapped out": swapped}))
        path = Path("/dev/null")
        outcome = Outcome(Verdict.PASSED, 0, records, path, path, 1.0)
        return [gate.name for gate in pud.soak_gates(outcome, minutes, self.OPERATIONS) if not gate.ok]

    def test_the_sums_of_operations_must_be_there(self) -> None:
        """In a long run; a short one has no time for each."""
        self.assertEqual(self._missed(1), [])
        self.assertEqual(self._missed(30), [])
        self.assertEqual(self._missed(30, without="operation 3"), ["operations that have a sum"])
        self.assertEqual(self._missed(1, without="sum 3"), ["sums taken"])

    def test_a_long_run_has_swapped(self) -> None:
        """A soak whose swap could not be switched on says so only in its log."""
        self.assertEqual(self._missed(30, 0), ["pages swapped out"])
        self.assertEqual(self._missed(30, None), ["pages swapped out"])
        self.assertEqual(self._missed(1, 0), [])

    def test_the_operations_are_those_of_the_source(self) -> None:
        """As the series has it: a patch of it adds the program."""
        [text] = [
            patch.content.decode()
            for patch in load(ROOT / "pud")
            if b"b/tools/testing/selftests/mm/pud_thp_soak.c" in patch.content
        ]
        names = pud.operations("\n".join(line[1:] for line in text.splitlines()))
        self.assertLessEqual({"fresh", "fork write", "pageout all"}, set(names))
        self.assertGreaterEqual(len(names), 20)


if __name__ == "__main__":
    unittest.main()
