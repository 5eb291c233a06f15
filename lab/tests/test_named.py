# SPDX-License-Identifier: GPL-2.0-only
"""Test programs that are run alone, by their names."""

import argparse
import unittest
from pathlib import Path
from unittest import mock

from lab import __main__ as front
from lab.checks import guest, main, module
from lab.checks.guest import Run
from lab.checks.host import RustTest
from lab.checks.result import Suite
from lab.errors import Exit, LabError
from lab.kernel import series
from lab.tests.test_kernel_tests import selftests
from lab.vm import Mode


def built(*names: str) -> list[RustTest]:
    return [RustTest(name, True, Path(f"/x/{name}"), Path("/x")) for name in names]


def as_run(_kernel: object, test: RustTest, _mode: Mode) -> Run:
    return Run(f"vm/{test.name}", mock.Mock(), mock.Mock())


class NamedTest(unittest.TestCase):
    def ran(self, *only: str) -> tuple[list[str], bool]:
        """Names of the runs, and whether the selftests were built."""
        done: list[Suite] = []
        e2e = built(*sorted({name.partition("-")[0] for name in only if name.startswith("e2e")}))
        of_series = [
            Run(f"kernel/{name}", mock.Mock(), mock.Mock()) for name in ("mthp_psi", "mthp_psi-8cpu", "mthp_key")
        ]
        with (
            mock.patch.object(guest, "selftests", return_value=of_series) as build,
            mock.patch.object(guest, "_e2e", as_run),
            mock.patch.object(guest, "_alone", lambda this: [Suite(this.name)]),
            mock.patch.object(
                guest, "_before", lambda _image, test, _mode: Run(f"vm/{test.name}-before", mock.Mock(), mock.Mock())
            ),
            mock.patch("lab.checks.guest.stock.image"),
        ):
            guest.run_named(mock.Mock(), e2e, Mode.TCG, done.append, only)
        return sorted(suite.name for suite in done), build.called

    def test_orders_name_what_there_is(self) -> None:
        wanted = [name.rpartition("/")[2] for name in (*guest._LONG, *guest._WAITING)]
        self.assertEqual([name for name in wanted if name not in guest.names()], [])

    def test_all_is_run_once(self) -> None:
        done: list[Suite] = []
        selftests = [Run(f"kernel/{name}", mock.Mock(), mock.Mock()) for name in guest.names() if name[0] == "m"]
        with (
            mock.patch.object(guest, "selftests", return_value=selftests),
            mock.patch.object(guest, "_e2e", as_run),
            mock.patch.object(guest, "_alone", lambda this: [Suite(this.name)]),
            mock.patch.object(guest, "_all_before", lambda _rust, _mode: []),
        ):
            # None, where they could not be built.
            for e2e in (guest.e2e_names(), []):
                done.clear()
                guest.run(mock.Mock(), built(*e2e), Mode.TCG, done.append, [lambda: [Suite("other")]])
                expected = [this.name for this in selftests] + [f"vm/{name}" for name in e2e] + ["other"]
                self.assertEqual(sorted(suite.name for suite in done), sorted(expected))

    def test_one_that_waits_and_fails_ends_all(self) -> None:
        def broken() -> list[Suite]:
            raise LabError(Exit.TESTS, "no guest")

        with mock.patch("lab.proc.stop_all") as stopped, self.assertRaisesRegex(LabError, "no guest"):
            guest.together([lambda: [Suite("one")]], lambda _suite: None, [broken])
        stopped.assert_called_once()

    def test_only_what_was_named_is_run(self) -> None:
        self.assertEqual(self.ran("e2e_keep"), (["vm/e2e_keep"], False))
        self.assertEqual(self.ran("e2e_keep", "mthp_key"), (["kernel/mthp_key", "vm/e2e_keep"], True))

    def test_a_program_has_all_its_guests(self) -> None:
        self.assertEqual(self.ran("mthp_psi"), (["kernel/mthp_psi", "kernel/mthp_psi-8cpu"], True))
        self.assertEqual(self.ran("mthp_psi-8cpu"), (["kernel/mthp_psi-8cpu"], True))
        self.assertEqual(self.ran("e2e_khugepaged"), (["vm/e2e_khugepaged", "vm/e2e_khugepaged-before"], False))
        self.assertEqual(self.ran("e2e_khugepaged-before"), (["vm/e2e_khugepaged-before"], False))

    def test_every_program_has_a_name(self) -> None:
        programs = selftests([patch.content.decode() for patch in series.load()])
        wanted = {name for name in programs if name.startswith("mthp_")} - {"mthp_soak"}
        self.assertGreater(len(wanted), 15)
        self.assertLessEqual({*wanted, "e2e_keep", "mthp_matrix-fault", guest.PAGES}, set(guest.names()))

    def test_a_name_may_be_that_of_the_suite(self) -> None:
        self.assertEqual(guest.check_names(["vm/e2e_keep", "kernel/mthp_psi"], guest.names()), ["e2e_keep", "mthp_psi"])

    def refused(self, call: object, *words: str) -> None:
        assert callable(call)
        with self.assertRaises(LabError) as caught:
            call()
        self.assertIs(caught.exception.code, Exit.USAGE)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_an_unknown_name_is_refused_before_anything_is_built(self) -> None:
        with mock.patch("lab.setup.ensure", side_effect=AssertionError):
            self.refused(lambda: main.named(["e2e_kep"]), "'e2e_kep'", "e2e_keep")
            self.refused(lambda: main.named(["nonsense"]), "e2e_keep", "mthp_psi-8cpu")
            self.refused(lambda: module.run(tests=("mthp_psi",)), "'mthp_psi'", "contract", "e2e_keep")

    def test_names_and_parts_are_not_both_given(self) -> None:
        for only, preempt in ((["host"], ""), (None, "full")):
            args = argparse.Namespace(name=["e2e_keep"], only=only, preempt=preempt)
            self.refused(lambda args=args: front._test(args), "not both")
