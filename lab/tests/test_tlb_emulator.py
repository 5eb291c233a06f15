# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU the TLB model runs in."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab.checks.result import Status
from lab.checks.tlb import run as gate_of_model
from lab.errors import Exit, LabError
from lab.kernel import debian
from lab.kernel.aptsources import Source
from lab.kernel.build import Kernel
from lab.tlb import emulator


class EmulatorTest(unittest.TestCase):
    def test_only_what_was_checked_fits(self) -> None:
        self.assertTrue(emulator.fits("QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)"))
        for other in ("QEMU emulator version 7.2.22", "QEMU emulator version 11.0.1", "version 10.1.0", ""):
            self.assertFalse(emulator.fits(other), other)

    def test_another_system_is_refused_with_the_reason(self) -> None:
        with (
            mock.patch("lab.tlb.emulator._release", return_value="forky"),
            mock.patch("lab.vm.qemu.binary", return_value="qemu"),
            mock.patch("lab.programs.version", return_value="11.0"),
            self.assertRaisesRegex(LabError, "needs QEMU 10.0; the host's is 11.0, and Debian has none for forky"),
        ):
            emulator.find()

    def test_the_version_is_of_the_series(self) -> None:
        madison = " qemu-system-x86 | 1:10.0.13+ds-0+deb13u1 | http://m trixie/main amd64 Packages\n"
        self.assertEqual(emulator.offered(madison), "1:10.0.13+ds-0+deb13u1")
        self.assertEqual(emulator.offered(madison.replace("10.0.13", "11.0.1")), "")
        self.assertEqual(emulator.offered(""), "")

    def test_what_the_host_has_installed_is_no_candidate(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            mirror = Source("http://m", ("trixie",), ("main",), "", Path("/s"))
            debian.PrivateApt(Path(name), {"Dir::State::status": ["/var/lib/dpkg/status"]}, mirror, "trixie")
            [line] = [one for one in (Path(name) / "apt.conf").read_text().splitlines() if "State::status" in one]
            self.assertEqual(line, f'Dir::State::status "{name}/status";')
            self.assertEqual((Path(name) / "status").read_text(), "")

    def fetch(self, answers: dict[str, tuple[bool, str]]) -> Exit:
        class Apt:
            def __init__(self, directory: Path, *_: object) -> None:
                self.directory = directory

            def call(self, *argv: str) -> tuple[bool, str]:
                return answers[argv[1]]

        with (
            tempfile.TemporaryDirectory() as name,
            mock.patch("lab.tlb.emulator.cache", return_value=Path(name)),
            mock.patch("lab.tlb.emulator.PrivateApt", Apt),
            mock.patch("lab.tlb.emulator.host_config", return_value={}),
            mock.patch("lab.tlb.emulator.mirrors", return_value=[mock.Mock(where="m")]),
            self.assertRaises(LabError) as caught,
        ):
            emulator._fetch("trixie", "7.2")
        return caught.exception.code

    def test_only_a_mirror_that_does_not_answer_is_lack_of_a_network(self) -> None:
        listed = (True, " q | 1:10.0.13+ds-0 | m")
        self.assertEqual(self.fetch({"update": (False, "no route")}), Exit.SOURCE)
        self.assertEqual(self.fetch({"update": (True, ""), "madison": (True, "")}), Exit.QEMU)
        broken = {"update": (True, ""), "madison": listed, "download": (False, "E: Can't find a source")}
        self.assertEqual(self.fetch(broken), Exit.QEMU)

    def test_the_gate_is_skipped_only_where_nothing_can_be_fetched(self) -> None:
        kernel = Kernel(Path("/k"), "7.3", Path("/t"), Path("/o"))
        for code, status in ((Exit.SOURCE, Status.SKIPPED), (Exit.QEMU, Status.FAILED)):
            with mock.patch("lab.tlb.model.load", side_effect=LabError(code, "why")):
                [test] = gate_of_model(kernel).tests
            self.assertEqual((test.status, test.detail), (status, "why"))

    def test_an_unpacked_program_that_does_not_run_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            program = Path(name) / "usr/bin/qemu-system-x86_64"
            program.parent.mkdir(parents=True)
            program.write_text("#!/bin/sh\necho QEMU emulator version 9.2.0\n")
            program.chmod(0o755)
            with self.assertRaisesRegex(LabError, "is QEMU emulator version 9.2.0, not QEMU 10.0"):
                emulator._check(Path(name))
