# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's packages: their version, what is taken of Debian's configuration, the disk that boots them."""

import os
import tempfile
import unittest
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from lab import proc
from lab.checks import machine
from lab.checks.result import Status, Suite
from lab.deb import kernel
from lab.errors import Exit, LabError
from lab.kernel import config, series
from lab.paths import REPO
from lab.vm import disk, qemu


def sorts(one: str, other: str) -> bool:
    """Whether dpkg takes `one` for older than `other`."""
    proc.output(["dpkg", "--validate-version", one], what="asking dpkg", code=Exit.TESTS)
    try:
        proc.output(["dpkg", "--compare-versions", one, "lt", other], what="asking dpkg", code=Exit.TESTS)
    except LabError:
        return False
    return True


class VersionTest(unittest.TestCase):
    WHEN = datetime(2026, 11, 25, 22, 51, 58, tzinfo=UTC)

    def test_a_later_commit_and_a_later_base_are_higher(self) -> None:
        base = "7.3.4-1~bpo13+1"
        mine = kernel.version(base, self.WHEN, dirty=False)
        self.assertTrue(sorts(base, mine))
        self.assertTrue(sorts(mine, kernel.version(base, self.WHEN, dirty=True)))
        self.assertTrue(sorts(mine, kernel.version(base, self.WHEN.replace(second=59), dirty=False)))
        self.assertTrue(sorts(mine, "7.3.5-1~bpo13+1"))
        # What comes after the hyphen is in uname -v, of 64 characters.
        self.assertLessEqual(len(f"#{mine.rpartition('-')[2]} SMP PREEMPT_DYNAMIC 2026-01-01"), 64)

    def test_the_release_comes_after_debians_of_the_same_version_alone(self) -> None:
        mine = f"7.3.4{kernel.local_version('cloud-amd64')}"
        self.assertTrue(sorts("7.3.4+deb13-cloud-amd64", mine))
        self.assertTrue(sorts("7.3.4+deb13+1-cloud-amd64", mine))
        self.assertTrue(sorts(mine, "7.3.5+deb13-cloud-amd64"))


class ConfigurationTest(unittest.TestCase):
    def test_wanted_lines_take_the_place_of_others(self) -> None:
        text = kernel.merged("CONFIG_A=m\n# CONFIG_B is not set\nCONFIG_AB=y\n", {"CONFIG_A": "n", "CONFIG_B": "y"})
        self.assertEqual(text, "CONFIG_AB=y\n# CONFIG_A is not set\nCONFIG_B=y\n")

    def test_what_changed_besides_is_named(self) -> None:
        before = 'CONFIG_A=y\nCONFIG_M=m\nCONFIG_GCC_VERSION=140200\nCONFIG_RUST=y\nCONFIG_LOCALVERSION=""\n'
        after = 'CONFIG_A=y\nCONFIG_NEW=y\nCONFIG_GCC_VERSION=120200\nCONFIG_LOCALVERSION="+m"\n'
        self.assertEqual(
            kernel.changed(before, after, {"CONFIG_LOCALVERSION": '"+m"'}), ["CONFIG_M: m -> n", "CONFIG_NEW: n -> y"]
        )

    def test_the_hooks_fragment_has_what_the_hook_depends_on(self) -> None:
        """By the series' own Kconfig."""
        [text] = [
            patch.content.decode()
            for patch in series.load_all(series.DEFAULT)
            if "\n+config BPF_TRANSPARENT_HUGEPAGE\n" in patch.content.decode()
        ]
        entry = text.partition("\n+config BPF_TRANSPARENT_HUGEPAGE\n")[2].partition("+\thelp")[0]
        wanted = config.merge([config.DIRECTORY / "hook.config"])
        needed = {word for word in entry.replace("&&", " ").split() if word.isupper() and word.isidentifier()} - {"BPF"}
        self.assertIn("CGROUP_BPF", needed)
        # 64BIT and MMU are no choice.
        self.assertEqual({name for name in needed if wanted.get(f"CONFIG_{name}") != "y"} - {"MMU"}, set())

    def test_only_packages_to_install_are_kept(self) -> None:
        made = ["linux-image-7_1_amd64.deb", "linux-headers-7_1_amd64.deb", "linux-libc-dev_1_amd64.deb"]
        more = ["linux-image-7-dbg_1_amd64.deb", "linux-upstream_1_amd64.changes"]
        self.assertEqual(kernel.kept([*made, *more]), ["linux-headers-7_1_amd64.deb", "linux-image-7_1_amd64.deb"])

    def test_another_flavour_is_refused(self) -> None:
        with self.assertRaises(LabError) as caught:
            kernel.ensure("rt-amd64")
        self.assertEqual(caught.exception.code, Exit.USAGE)


class KilledTest(unittest.TestCase):
    def test_only_what_was_written_last_goes(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            objects = Path(name)
            for path, at in (("early.o", 1000), ("late.o", 9500), ("last.o", 10000)):
                (objects / path).touch()
                os.utime(objects / path, (at, at))
            kernel._drop_last(objects)
            self.assertEqual([path.name for path in objects.iterdir()], ["early.o"])


class DiskTest(unittest.TestCase):
    def test_the_root_begins_where_the_esp_ends(self) -> None:
        text = disk.layout(100, "some-uuid")
        self.assertIn("start=1MiB, size=64MiB, type=uefi", text)
        self.assertIn("start=65MiB, size=100MiB, type=linux, name=root, uuid=some-uuid", text)

    def test_the_machine_has_no_kernel_but_the_disks(self) -> None:
        ports = {name: Path(f"/{name}") for name in qemu.PORTS}
        with mock.patch("lab.vm.disk._firmware", return_value=Path("/fw")):
            argv = disk.command(
                "qemu", disk.Disk(Path("/a,b"), Path("/v")), Path("/c"), ports, mode=qemu.Mode.SINGLE, memory_mib=512
            )
        self.assertFalse({"-kernel", "-initrd", "-append"} & set(argv))
        self.assertIn("if=none,id=disk,format=raw,cache=unsafe,file=/a,,b", argv)

    def test_a_root_with_two_kernels_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "boot").mkdir()
            (root / "boot" / "vmlinuz-7.3.4+mthp-cloud-amd64").touch()
            self.assertEqual(disk.kernel_of(root)[1], "7.3.4+mthp-cloud-amd64")
            (root / "boot" / "vmlinuz-6.12").touch()
            with self.assertRaises(LabError):
                disk.kernel_of(root)


class RowsTest(unittest.TestCase):
    def test_records_belong_to_the_cell_before_them(self) -> None:
        text = '{"type": "cell"}\n{"type": "begin"}\n{"type": "cell"}\n'
        self.assertEqual(machine.split(text), [[{"type": "begin"}], []])
        for wrong in ('{"type": "begin"}\n', '{"type": "cell"}\nnonsense\n'):
            with self.assertRaises(ValueError):
                machine.split(wrong)

    def test_a_row_that_is_missing_is_a_failure(self) -> None:
        for text in ("", '{"type": "cell"}\n' * 3):
            suite = Suite("rows")
            machine.judge(machine.plan(), text, "7.3.4", suite)
            self.assertEqual([test.status for test in suite.tests], [Status.FAILED])

    def test_the_rows_are_those_with_gates(self) -> None:
        self.assertEqual(
            [(cell.case.key, cell.arm.key) for cell in machine.plan()],
            [("high", "mthp_ext"), ("max", "mthp_ext"), ("max", "always")],
        )

    def test_the_first_menu_is_told_from_the_second(self) -> None:
        text = machine.menu("7.3.4+x", "u-u")
        self.assertIn(f"root=UUID=u-u ro console=ttyS0 panic=-1 {machine.BY_HAND}\n", text)
        self.assertIn(machine.BY_HAND, (REPO / "lab" / "checks" / "kernel-deb.sh").read_text())
