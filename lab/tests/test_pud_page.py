# SPDX-License-Identifier: GPL-2.0-only
"""docs/internals/pud.md and the letter say which test shows what: those tests exist."""

import re
import unittest

from lab.kernel import series
from lab.paths import REPO

_PAGE = REPO / "docs" / "internals" / "pud.md"
_LETTER = REPO / "docs" / "upstream" / "letters" / "h-pud.md"
_HEADS = ("test", "tests, or why none", "the mail's test", "what shows it")
"""Columns that name tests."""
_OTHERS = {"no_directory_without_pdpe1gb"}
"""Of the guest without such a processor, not of the selftest (lab/checks/pud.py)."""
_NO_TESTS = {"debug_vm_pgtable"}
"""Of the kernel itself."""


def selftests(text: str) -> set[str]:
    """Of `pud_thp_test`, in the series."""
    return set(re.findall(r"^\+(?:PUD_TEST|TEST)\((\w+)\)", text, re.MULTILINE))


def columns(page: str) -> list[str]:
    """The cells of columns that name tests, of all tables."""
    found: list[str] = []
    at: list[int] = []
    inside = False
    for line in page.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not inside:
            inside, at = True, [index for index, cell in enumerate(cells) if cell in _HEADS]
        else:
            found += [cells[index] for index in at if index < len(cells)]
    return found


def named(cells: list[str]) -> set[str]:
    """What looks like a test: small letters with an underscore, or a word by itself."""
    return {name for cell in cells for name in re.findall(r"`([a-z]\w+)`", cell)}


def problems(page: str, tests: set[str]) -> list[str]:
    """What the page's tables name and is not there."""
    return sorted(named(columns(page)) - tests - _OTHERS - _NO_TESTS)


def _series() -> str:
    return "\n".join(patch.content.decode() for patch in series.load(series.ROOT / "pud"))


class PudPageTest(unittest.TestCase):
    def setUp(self) -> None:
        e2e = (REPO / "tests" / "e2e_pud.rs").read_text()
        self.e2e = set(re.findall(r"^#\[test\]\n(?:#\[[^\n]*\]\n)*fn (\w+)\(\)", e2e, re.MULTILINE))
        self.selftests = selftests(_series())

    def test_what_the_tables_name_exists(self) -> None:
        self.assertGreater(len(named(columns(_PAGE.read_text()))), 50)
        self.assertEqual(problems(_PAGE.read_text(), self.selftests | self.e2e), [])

    def test_what_the_letter_names_exists(self) -> None:
        self.assertEqual(problems(_LETTER.read_text(), self.selftests), [])

    def test_each_test_is_in_a_table(self) -> None:
        self.assertGreater(len(self.e2e), 10)
        self.assertEqual(sorted((self.selftests | self.e2e) - named(columns(_PAGE.read_text()))), [])

    def test_each_reason_has_a_row(self) -> None:
        reasons = re.findall(r'^\+\s+\{ PUD_SPLIT_\w+,\s+"(\w+)" \}', _series(), re.MULTILINE)
        rows = re.findall(r"^\| `(\w+)` \|", _PAGE.read_text().partition("| `reason` |")[2], re.MULTILINE)
        self.assertEqual(sorted(set(reasons) - set(rows)), [])
        words = {12: "twelve", 13: "thirteen", 14: "fourteen"}
        self.assertIn(f"for {words[len(reasons)]} reasons", _LETTER.read_text())

    def test_what_is_gone_is_found(self) -> None:
        page = "| area | test |\n|---|---|\n| a `no` | `here`, `gone` |\n\n| a | b |\n|---|---|\n| `x_y` | `z` |\n"
        self.assertEqual(problems(page, {"here"}), ["gone"])
        self.assertEqual(selftests("+PUD_TEST(one)\n+TEST(two)\n PUD_TEST(old)\n"), {"one", "two"})
