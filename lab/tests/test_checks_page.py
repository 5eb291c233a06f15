# SPDX-License-Identifier: GPL-2.0-only
"""docs/internals/checks.md says where the checks of the first version are: those of today exist."""

import re
import unittest
from collections.abc import Callable

from lab.paths import REPO

_PAGE = REPO / "docs" / "internals" / "checks.md"


def tests_of(place: str) -> set[str] | None:
    """Names of the tests in `model/caps` of src/, or in `tests/room_test.c`; None if there is no such file."""
    files = [REPO / place] if place.endswith(".c") else [REPO / "src" / f"{place}{end}" for end in (".rs", "/tests.rs")]
    texts = [file.read_text() for file in files if file.exists()]
    if not texts:
        return None
    test = r"^\tTEST\((\w+)\)" if place.endswith(".c") else r"#\[test\]\n(?:\s*#\[[^\n]*\]\n)*\s*fn (\w+)"
    return {name for text in texts for name in re.findall(test, text, re.MULTILINE)}


def named(page: str) -> list[tuple[str, str]]:
    """Place and test. Names of the first version have no slash."""
    return re.findall(r"`([a-z]\w*/[\w./]+)::(\w+)`", page)


def problems(page: str, tests: Callable[[str], set[str] | None]) -> list[str]:
    """What the page names and is not there."""
    return sorted({f"{place}::{test}" for place, test in named(page) if test not in (tests(place) or set())})


class ChecksPageTest(unittest.TestCase):
    def test_what_is_there_now_exists(self) -> None:
        page = _PAGE.read_text()
        self.assertGreater(len(named(page)), 30)
        self.assertEqual(problems(page, tests_of), [])

    def test_names_are_read(self) -> None:
        page = "| `cli::gone` | `model/caps::one`; `tests/x_test.c::two`, `three` | of `e2e_x::four`, src/a.rs:1 |"
        self.assertEqual(named(page), [("model/caps", "one"), ("tests/x_test.c", "two")])

    def test_a_test_or_file_that_is_gone_is_found(self) -> None:
        self.assertIsNone(tests_of("model/nobody"))
        self.assertIn("one_size_is_for_all_reasons", tests_of("model/caps") or set())
        page = "`model/caps::one` `model/caps::two` `model/x::one`"
        found = problems(page, lambda place: {"one"} if place == "model/caps" else None)
        self.assertEqual(found, ["model/caps::two", "model/x::one"])
