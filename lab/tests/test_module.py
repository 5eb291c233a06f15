# SPDX-License-Identifier: GPL-2.0-only
"""How tests on the module are judged, and which packages a stock kernel is made of."""

import io
import re
import struct
import tempfile
import unittest
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from lab import vm
from lab.checks import module
from lab.checks.module import KnownFailure
from lab.checks.modulemutants import MUTANTS
from lab.checks.modulerefused import Types, another_build
from lab.checks.result import Status, Suite, Test
from lab.errors import LabError
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import REPO

_KERNEL = Stock("6.12", "6.12.1", Path("image"), Path("modules"), Path("root"))
_KNOWN = (KnownFailure("e2e_x", "known", ("6.12",), "no such place"),)


HEAD = "[ 1.2] Oops: {}: 0000 [#1] SMP\n[ 1.2] RIP: 0010:f+0x5/0x320{}\n[ 1.2] Code: {}\n[ 1.2] Call Trace:\n"
NOP = "66 0f 1f 00 0f <1f> 44 00 00"


class SoakTest(unittest.TestCase):
    """Whose fault an oops is, and what comes after."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.asked: list[int] = []

    def test_only_a_breakpoint_that_the_log_does_not_show_is_the_emulator_s(self) -> None:
        stale = HEAD.format("int3", "", NOP)
        user = "[ 1.2] RIP: 0033:0x7f\n[ 1.2] Code: 00 0f 05 <48> 3d\n"
        for console, wanted in (
            (stale, True),
            (HEAD.format("int3", "", "66 0f 1f 00 cc <1f> 44 00 00"), False),
            (HEAD.format("int3", " [mthp_hook]", NOP), False),
            (HEAD.format("int3", "", "Unable to access opcode bytes at 0x5.") + user, False),
            (HEAD.format("general protection fault", "", NOP) + stale, False),
            ("Kernel panic - not syncing\n", False),
        ):
            self.assertEqual(module.stale_breakpoint(console), wanted, console)

    def soaked(self, rounds: int, *guests: tuple[str, str]) -> list[Suite]:
        """The suites of guests with this output and console."""

        def guest_of(number: int, left: int) -> vm.Outcome:
            self.asked.append(left)
            output, console = guests[min(number, len(guests)) - 1]
            paths = [self.directory / f"{number}.{kind}" for kind in ("output", "console")]
            for path, text in zip(paths, (output, console), strict=True):
                path.write_text(text)
            verdict = vm.Verdict.PANIC if console else vm.Verdict.PASSED
            splats = tuple(line for line in console.splitlines() if "Oops" in line or "WARNING" in line)
            return vm.Outcome(verdict, None if console else 0, [], paths[0], paths[1], 1.0, splats=splats)

        with redirect_stdout(io.StringIO()):
            return module.soaked("6.12", rounds, guest_of)

    def test_what_is_left_is_done_by_another_guest(self) -> None:
        stale, well = HEAD.format("int3", "", NOP), ("ok 1 - x\n1..1\n", "")
        for said, asked in ((2, [2000, 1000]), (4, [2000, 500])):
            self.asked.clear()
            suites = self.soaked(2000, ("# 500 rounds\n" * said, stale), well)
            self.assertEqual(self.asked, asked)
            self.assertEqual([suite.count(Status.FAILED) for suite in suites], [0, 0])
            self.assertEqual(suites[0].count(Status.SKIPPED), 1)

    def test_whatever_else_went_wrong_is_a_failure(self) -> None:
        stale = HEAD.format("int3", "", NOP)
        for output, console in (
            ("", HEAD.format("int3", "", "00 cc <1f>")),
            ("not ok 1 - x\n", stale),
            ("", "[ 1.0] WARNING: CPU: 0\n" + stale),
        ):
            suites = self.soaked(2000, (output, console))
            self.assertEqual((len(suites), bool(suites[-1].count(Status.FAILED))), (1, True), console)
        self.assertTrue(self.soaked(2000, ("", stale))[-1].count(Status.FAILED))


class JudgeTest(unittest.TestCase):
    """The table of exceptions."""

    def judged(self, *tests: Test) -> list[Status]:
        """What becomes of these tests of e2e_x."""
        suite = Suite("module/e2e_x", list(tests))
        with patch.object(module, "EXCEPTIONS", _KNOWN):
            module._except(suite, _KERNEL, "e2e_x")
        return [test.status for test in suite.tests]

    def test_an_exception_may_fail(self) -> None:
        """It counts as skipped, with its reason; another one that fails is a failure."""
        found = self.judged(Test("known", Status.FAILED), Test("other", Status.FAILED))
        self.assertEqual(found, [Status.SKIPPED, Status.FAILED])

    def test_an_exception_that_passes_is_out_of_date(self) -> None:
        """Or the table would hide what breaks later."""
        self.assertEqual(self.judged(Test("known", Status.PASSED)), [Status.FAILED])

    def test_an_exception_that_is_gone_is_out_of_date(self) -> None:
        """Renamed or removed, it would excuse nothing any more, unseen."""
        self.assertEqual(self.judged(Test("other", Status.PASSED)), [Status.PASSED, Status.FAILED])


class MutantTest(unittest.TestCase):
    """Mutants of the module."""

    def test_each_changes_the_module(self) -> None:
        """One place of it, and no other."""
        text = (REPO / "module" / "mthp_hook.c").read_text()
        for one in MUTANTS:
            self.assertNotEqual(one.source(text), text, one.name)
        with self.assertRaisesRegex(LabError, "stands 0 times"):
            replace(MUTANTS[0], old="what is not there").source(text)

    def test_each_test_of_the_contract_has_one(self) -> None:
        """And each names a test that there is."""
        text = (REPO / "lab" / "hook" / "src" / "contract.rs").read_text()
        table = text[text.index("const TESTS") : text.index("];")]
        tests = set(re.findall(r"^    (\w+),$", table, re.MULTILINE))
        self.assertEqual({one.test for one in MUTANTS}, tests)

    def test_each_has_a_name_and_a_kernel(self) -> None:
        """By the name it is chosen."""
        self.assertEqual(len({one.name for one in MUTANTS}), len(MUTANTS))
        for one in MUTANTS:
            self.assertTrue(one.kernels and set(one.kernels) <= set(module.KERNELS), one.name)


class TypesTest(unittest.TestCase):
    """Kernels that are made up from the types of another."""

    def test_another_build_has_one_type_more(self) -> None:
        """At the end, so that those of a module, which follow, are others."""
        types = struct.pack("<IIII", 1, 1 << 24, 4, 32)
        strings = b"\0int\0"
        raw = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings)) + types + strings
        self.assertEqual([name for _, _, _, name in Types(raw).each()], ["int"])
        more = Types(another_build(raw))
        self.assertEqual([(number, kind, name) for number, _, kind, name in more.each()], [(1, 1, "int"), (2, 2, "")])


class PageTest(unittest.TestCase):
    """docs/carriers.md."""

    def test_it_has_the_table(self) -> None:
        """All exceptions, with their reasons."""
        self.assertIn(module.table(), (REPO / "docs" / "carriers.md").read_text())


class PackagesTest(unittest.TestCase):
    """An image, and its modules."""

    def test_newer_kernels_have_them_apart(self) -> None:
        """Both are needed; of an older kernel there is one package."""
        apart = "linux-binary-unsigned-7.3.4+x - B\nlinux-modules-7.3.4+x - M\nlinux-image-7.3.4+x - I"
        self.assertEqual(
            stockbuild._images(apart, "7.3.4+x"), ["linux-binary-unsigned-7.3.4+x", "linux-modules-7.3.4+x"]
        )
        self.assertEqual(
            stockbuild._images("linux-image-6.12.1-unsigned - I", "6.12.1"), ["linux-image-6.12.1-unsigned"]
        )
