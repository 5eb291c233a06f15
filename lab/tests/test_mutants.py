# SPDX-License-Identifier: GPL-2.0-only
"""Mutants: headers, names of tests, completeness, and when one counts as caught."""

import re
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

from lab.checks import bpftests, matrix
from lab.checks.guest import SELFTEST_BOOTS
from lab.checks.mutants.judge import Fate, Seen, fate, sound
from lab.checks.mutants.patches import (
    BOTH_RULES,
    BUGS,
    OPEN,
    PUD_RULES,
    RULES,
    Catch,
    How,
    Mutant,
    load,
    parse,
    rules_of,
)
from lab.checks.result import Status
from lab.errors import LabError
from lab.kernel import series
from lab.kernel.source import Base
from lab.kernel.worktree import Worktree
from lab.paths import REPO, cache

_HEAD = b"SPDX-License-Identifier: GPL-2.0-only\nRule: bounds B4\nBreaks: it\nCaught-by: mthp_psi mthp.stall_totals\n"
_DIFF = b"\n--- a/mm/one.c\n+++ b/mm/one.c\n@@ -1 +1 @@\n-a\n+b\n"
_PUD = ("pud",)
_BOTH = ("mthp", "pud")
_TEST_F = re.compile(r"^\+?TEST_F(?:_TIMEOUT|_SIGNAL)?\((\w+), (\w+)", re.MULTILINE)


def _selftests() -> set[str]:
    """PROGRAM FIXTURE.TEST of every selftest in the series, and the subtests of selftests/bpf."""
    found = set()
    for patch in series.load():
        program = ""
        for line in patch.content.decode(errors="replace").splitlines():
            if match := re.fullmatch(r"\+\+\+ b/tools/testing/selftests/(?:mthp|bpf/prog_tests)/(\w+)\.c", line):
                program = match[1]
            elif match := re.fullmatch(r'\+\t\{ "(\w+)", test_\w+ \},', line):
                found.add(f"{bpftests.PROGRAM} {program}/{match[1]}")
            elif match := _TEST_F.match(line):
                found.add(f"{program} {match[1]}.{match[2]}")
    return found


def _pud_tests() -> set[str]:
    """The same of the series pud, which has a macro for all tests of its fixture."""
    text = "".join(patch.content.decode(errors="replace") for patch in series.load_all(_PUD))
    return {f"pud_thp_test pud_thp.{name}" for name in re.findall(r"^\+PUD_TEST\((\w+)\)", text, re.MULTILINE)}


def _program_tests() -> set[str]:
    """TARGET PATH of every host test that a mutant of the program can name."""
    found = set()
    for path in sorted((REPO / "src").rglob("*.rs")):
        # The tests of x.rs may be in x/tests.rs.
        module = "::".join(path.relative_to(REPO / "src").with_suffix("").parts).removesuffix("::tests")
        for name in re.findall(r"#\[test\]\n\s*fn (\w+)", path.read_text()):
            found.add(f"mthp_ext {module}::tests::{name}")
    for module, names in re.findall(r"^tests! \{\n\s+(\w+), \"\w+\",\n(.*?)^\}", _decide(), re.MULTILINE | re.DOTALL):
        found |= {f"decide {module}::{name}" for name in re.findall(r"\w+", names)}
    return found


def _decide() -> str:
    return (REPO / "tests" / "decide.rs").read_text()


class Headers(unittest.TestCase):
    def test_a_sound_one(self) -> None:
        mutant = parse("one.patch", _HEAD + _DIFF, True)
        self.assertEqual(mutant.name, "one")
        self.assertEqual(mutant.rules, ("bounds", "B4"))
        self.assertEqual(mutant.catches, (Catch(How.TEST, "mthp_psi", "mthp.stall_totals"),))
        self.assertFalse(mutant.debug)

    def test_splats_builds_and_debug(self) -> None:
        more = b"Caught-by: splat mthp_race mthp.a\nCaught-by: config-matrix PSI\nKernel: debug\n"
        mutant = parse("one.patch", _HEAD + more + _DIFF, True)
        self.assertEqual([catch.how for catch in mutant.catches], [How.TEST, How.SPLAT, How.BUILD])
        self.assertTrue(mutant.debug)

    def test_what_is_refused(self) -> None:
        for old, new in (
            (b"Rule: bounds B4\n", b""),
            (b"Rule: bounds B4\n", b"Rule: nonsense\n"),
            (b"Rule: bounds B4\n", b"Rule: B4\n"),
            (b"Caught-by: mthp_psi mthp.stall_totals\n", b""),
            (b"mthp_psi mthp.stall_totals", b"mthp_psi"),
            (b"mthp_psi mthp.stall_totals", b"splat mthp_psi"),
            (b"Breaks: it\n", b"Breaks: it\nnonsense\n"),
            (b"Breaks: it\n", b"Breaks: it\nKernel: fast\n"),
            (b"SPDX-License-Identifier: GPL-2.0-only\n", b""),
            (_DIFF, b""),
        ):
            with self.assertRaises(LabError, msg=(old, new)):
                parse("one.patch", (_HEAD + _DIFF).replace(old, new), True)


class CompletePud(unittest.TestCase):
    def test_named_tests_exist(self) -> None:
        tests = _pud_tests()
        for mutant in load(_PUD):
            self.assertTrue(mutant.kernel)
            self.assertEqual(mutant.series, _PUD)
            for catch in mutant.catches:
                self.assertIn(f"{catch.program} {catch.test}", tests, mutant.name)

    def test_every_rule_has_a_mutant(self) -> None:
        self.assertEqual({rule for mutant in load(_PUD) for rule in mutant.rules}, set(PUD_RULES))

    def test_every_mutant_is_in_the_documentation(self) -> None:
        text = (REPO / "docs" / "internals" / "pud.md").read_text()
        self.assertEqual([mutant.name for mutant in load(_PUD) if f"| `{mutant.name}` |" not in text], [])


class CompleteBoth(unittest.TestCase):
    def test_named_tests_exist(self) -> None:
        text = (REPO / "tests" / "e2e_pud.rs").read_text()
        tests = re.findall(r"^fn (\w+)\(\) \{", text, re.MULTILINE)
        for mutant in load(_BOTH):
            for catch in mutant.catches:
                self.assertEqual((catch.program, catch.test in tests), ("e2e_pud", True), mutant.name)

    def test_every_rule_has_a_mutant(self) -> None:
        self.assertEqual({rule for mutant in load(_BOTH) for rule in mutant.rules}, set(BOTH_RULES))

    def test_every_mutant_is_in_the_documentation(self) -> None:
        text = (REPO / "docs" / "internals" / "pud.md").read_text()
        self.assertEqual([mutant.name for mutant in load(_BOTH) if f"`{mutant.name}`" not in text], [])

    def test_another_order_has_none(self) -> None:
        with self.assertRaises(LabError):
            rules_of(("pud", "mthp"))


class Complete(unittest.TestCase):
    def test_named_tests_exist(self) -> None:
        selftests, host = _selftests(), _program_tests()
        cases = {case.name for case in matrix.CASES}
        self.assertTrue(selftests and host)
        for mutant in load():
            for catch in mutant.catches:
                if catch.how is How.BUILD:
                    self.assertIn(catch.test, cases, mutant.name)
                else:
                    program, _, boot = catch.program.partition("-")
                    self.assertIn(f"{program} {catch.test}", selftests if mutant.kernel else host, mutant.name)
                    # Most programs have one boot, which has no name.
                    self.assertIn(boot, {"": None, **SELFTEST_BOOTS.get(program, {})}, mutant.name)

    def test_every_rule_has_a_mutant(self) -> None:
        broken = {rule for mutant in load() for rule in mutant.rules}
        self.assertEqual(sorted((set(RULES) | set(BUGS)) - broken), sorted(OPEN))

    def test_every_mutant_is_in_the_documentation(self) -> None:
        text = (REPO / "docs" / "internals" / "mutants.md").read_text()
        self.assertEqual([mutant.name for mutant in load() if f"| {mutant.name} |" not in text], [])


class Applies(unittest.TestCase):
    def _all_apply(self, mutants: list[Mutant], find: Callable[[str], Path | None]) -> None:
        self.assertTrue(mutants)
        for mutant in mutants:
            with self.subTest(mutant.name), tempfile.TemporaryDirectory() as name:
                series.compose([mutant.patch], find, Path(name), "(with the series)")

    def test_to_the_program(self) -> None:
        self._all_apply([mutant for mutant in load() if not mutant.kernel], lambda path: REPO / path)

    def test_to_the_series(self) -> None:
        self._all_apply_to(series.DEFAULT)

    def test_to_the_series_pud(self) -> None:
        self._all_apply_to(_PUD)

    def test_to_both(self) -> None:
        self._all_apply_to(_BOTH)

    def _all_apply_to(self, names: tuple[str, ...]) -> None:
        trees = sorted((cache() / "source").glob("*/linux"))
        if not trees:
            self.skipTest("no kernel source in the cache: `make kernel` fetches it")
        base = Base(trees[-1].parent.name, trees[-1].parent)
        with tempfile.TemporaryDirectory() as name:
            pristine = Worktree(base).pristine
            touched = series.compose(series.load_all(names), pristine, Path(name), base.version)
            self._all_apply(
                [mutant for mutant in load(names) if mutant.kernel],
                lambda path: Path(name) / path if path in touched else pristine(path),
            )


class Judging(unittest.TestCase):
    test = Catch(How.TEST, "p", "t")
    splat = Catch(How.SPLAT, "p", "t")

    def test_the_named_test_must_fail(self) -> None:
        self.assertIs(fate([self.test], [Seen("p", {"t": Status.FAILED})]), Fate.CAUGHT)
        self.assertIs(fate([self.test], [Seen("p", {"t": Status.PASSED})]), Fate.SURVIVED)
        self.assertIs(fate([self.test], [Seen("p", {"t": Status.SKIPPED})]), Fate.SURVIVED)
        self.assertIs(fate([self.test], [Seen("p", {"t": Status.PASSED, "u": Status.FAILED})]), Fate.OTHERWISE)

    def test_a_panic_is_no_failed_test(self) -> None:
        self.assertIs(fate([self.test], [Seen("p", {}, 1, False)]), Fate.OTHERWISE)
        self.assertIs(fate([self.splat], [Seen("p", {}, 1, False)]), Fate.CAUGHT)
        # A guest that hung is no complaint of its kernel.
        self.assertIs(fate([self.splat], [Seen("p", {}, 0, False)]), Fate.OTHERWISE)

    def test_all_that_are_named(self) -> None:
        other = Catch(How.TEST, "q", "t")
        seen = [Seen("p", {"t": Status.FAILED}), Seen("q", {"t": Status.PASSED})]
        self.assertIs(fate([self.test, other], seen), Fate.OTHERWISE)

    def test_without_the_mutant_all_is_well(self) -> None:
        self.assertEqual(sound(self.test, [Seen("p", {"t": Status.PASSED})]), "")
        for seen in (
            [],
            [Seen("p", {})],
            [Seen("p", {"t": Status.SKIPPED})],
            [Seen("p", {"t": Status.FAILED})],
            [Seen("p", {"t": Status.PASSED}, 1)],
            [Seen("p", {"t": Status.PASSED}, 0, False)],
        ):
            self.assertNotEqual(sound(self.test, seen), "", seen)
