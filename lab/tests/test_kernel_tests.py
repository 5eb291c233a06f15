# SPDX-License-Identifier: GPL-2.0-only
"""docs/internals/kernel-tests.md names a test for each requirement: complete, and all tests exist."""

import re
import unittest
from typing import ClassVar

from lab.checks.guest import SELFTEST_BOOTS
from lab.kernel.series import load
from lab.paths import REPO

_TABLE = REPO / "docs" / "internals" / "kernel-tests.md"
_WANTED = (
    [f"B{n}" for n in range(1, 13)] + [f"W{n}" for n in range(1, 27)] + [f"Gate {n}" for n in range(1, 11)]
)  # fmt: skip
_LATER = re.compile(r"\bLater\b: \S+")


def selftests(texts: list[str]) -> dict[str, set[str]]:
    """Program -> names of the tests that patches add to it; of the test in selftests/bpf its subtests."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for part in re.split(r"^diff --git ", text, flags=re.MULTILINE)[1:]:
            if match := re.match(r"a/tools/testing/selftests/mthp/(mthp_\w+)\.c ", part):
                names = re.findall(r"^\+TEST_F(?:_TIMEOUT)?\(\w+, (\w+)", part, re.MULTILINE)
                if names:
                    found.setdefault(match[1], set()).update(names)
            elif match := re.match(r"a/tools/testing/selftests/bpf/prog_tests/(\w+)\.c ", part):
                names = re.findall(r'^\+\t\{ "(\w+)", test_\w+ \},', part, re.MULTILINE)
                found.setdefault(match[1], set()).update(names)
    return found


def others() -> dict[str, set[str]]:
    """The same for Rust files (by their name), C unit tests, and the lab's own tests."""
    found: dict[str, set[str]] = {}
    for path in [*(REPO / "tests").glob("*.rs"), *(REPO / "src").rglob("*.rs")]:
        found.setdefault(path.stem, set()).update(
            re.findall(r"#\[test\]\n(?:\s*#\[[^\n]*\]\n)*\s*fn (\w+)", path.read_text())
        )
    for path in (REPO / "tests").glob("*_test.c"):
        found[path.stem] = set(re.findall(r"^\tTEST\((\w+)\)", path.read_text(), re.MULTILINE))
    for path in (REPO / "lab" / "tests").glob("test_*.py"):
        found[path.stem] = set(re.findall(r"^    def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


def rows(text: str) -> dict[str, list[str]]:
    """First column -> the other columns, of every table row."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 2 or set(cells[0]) <= {"-"}:
            continue
        if cells[0] in found and cells[0][0] in "BWG":
            raise ValueError(f"{cells[0]} has two rows")
        found[cells[0]] = cells[1:]
    return found


def problems(text: str, tests: dict[str, set[str]], targets: set[str]) -> list[str]:
    """What is wrong with the table `text`."""
    table = rows(text)
    wrong = [f"{name} has no row" for name in _WANTED if name not in table]
    for name, cells in table.items():
        named = re.findall(r"`(\w+)::(\w+)`", " ".join(cells))
        makes = re.findall(r"`make ([\w-]+)", " ".join(cells))
        wrong += [f"{name}: there is no test {one}::{two}" for one, two in named if two not in tests.get(one, set())]
        wrong += [f"{name}: there is no target {one}" for one in makes if one not in targets]
        if name in _WANTED and not named and not makes and not _LATER.search(" ".join(cells)):
            wrong.append(f"{name} names no test and does not say when there will be one")
    return wrong


class Table(unittest.TestCase):
    def setUp(self) -> None:
        self.kernel = selftests([patch.content.decode(errors="replace") for patch in load()])
        self.targets = set(re.findall(r"^([a-z][a-z-]*):", (REPO / "Makefile").read_text(), re.MULTILINE))

    def test_the_table_is_complete_and_its_tests_exist(self) -> None:
        self.assertGreater(len(self.kernel), 10)
        self.assertEqual(problems(_TABLE.read_text(), {**others(), **self.kernel}, self.targets), [])

    def test_every_selftest_is_in_the_table(self) -> None:
        text = _TABLE.read_text()
        missing = [
            f"{program}::{name}"
            for program, names in sorted(self.kernel.items())
            for name in sorted(names)
            if f"`{program}::{name}`" not in text
        ]
        self.assertEqual(missing, [])

    def test_every_selftest_runs_in_some_boot(self) -> None:
        for program, boots in SELFTEST_BOOTS.items():
            if any(not boot.only for boot in boots.values()):
                continue
            named = {name for boot in boots.values() for name in boot.only}
            self.assertEqual(named, self.kernel[program], program)

    def test_names_are_unique(self) -> None:
        names = [name for tests in self.kernel.values() for name in tests]
        self.assertEqual(len(names), len(set(names)))


class Check(unittest.TestCase):
    """That it finds what it is there to find."""

    _TESTS: ClassVar[dict[str, set[str]]] = {"mthp_x": {"one"}}

    def _table(self, without: str = "", cell: str = "`mthp_x::one`") -> str:
        return "\n".join(f"| {name} | what | {cell} |" for name in _WANTED if name != without)

    def test_a_whole_table_has_no_problems(self) -> None:
        self.assertEqual(problems(self._table(), self._TESTS, set()), [])

    def test_a_missing_row(self) -> None:
        self.assertEqual(problems(self._table(without="W7"), self._TESTS, set()), ["W7 has no row"])

    def test_a_test_or_target_that_does_not_exist(self) -> None:
        self.assertEqual(len(problems(self._table(cell="`mthp_x::two`"), self._TESTS, set())), len(_WANTED))
        self.assertEqual(len(problems(self._table(cell="`mthp_y::one`"), self._TESTS, set())), len(_WANTED))
        self.assertEqual(len(problems(self._table(cell="`make nothing`"), self._TESTS, {"test"})), len(_WANTED))

    def test_a_row_that_names_nothing(self) -> None:
        self.assertEqual(len(problems(self._table(cell="trust us"), self._TESTS, set())), len(_WANTED))
        self.assertEqual(problems(self._table(cell="Later: with the daemon"), self._TESTS, set()), [])

    def test_two_rows_of_one_name(self) -> None:
        with self.assertRaises(ValueError):
            rows("| B1 | a | b |\n| B1 | c | d |")

    def test_names_in_patches(self) -> None:
        patch = (
            "diff --git a/tools/testing/selftests/mthp/mthp_x.c b/tools/testing/selftests/mthp/mthp_x.c\n"
            "+TEST_F(mthp, one)\n+TEST_F_TIMEOUT(mthp, two, 60)\n-TEST_F(mthp, gone)\n"
        )
        self.assertEqual(selftests([patch]), {"mthp_x": {"one", "two"}})
