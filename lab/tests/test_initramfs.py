# SPDX-License-Identifier: GPL-2.0-only
"""The cpio writer, checked with an independent reader, and the closure of a program."""

import io
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab.errors import LabError
from lab.vm import initramfs
from lab.vm.cpio import CpioWriter


def read_newc(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Name -> (mode, content), by the format's definition in the kernel's documentation."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert data[at : at + 6] == b"070701", data[at : at + 6]
        fields = [int(data[at + 6 + 8 * number : at + 14 + 8 * number], 16) for number in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + name_size - 1].decode()
        body = (at + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            return found
        found[name] = (mode, data[body : body + size])
        at = (body + size + 3) & ~3


class Writer(unittest.TestCase):
    def test_reads_back(self) -> None:
        out = io.BytesIO()
        archive = CpioWriter(out)
        for size in range(6):
            archive.file(f"/a/b/{'n' * (size + 1)}", bytes(range(size)), 0o755)
        archive.symlink("/a/link", "b/n")
        archive.character_device("/dev/console", 5, 1)
        archive.finish()
        found = read_newc(out.getvalue())
        self.assertEqual(found["a"][0], 0o040755)
        self.assertEqual(found["a/b/nnn"], (0o100755, b"\0\1"))
        self.assertEqual(found["a/link"], (0o120777, b"b/n"))
        self.assertEqual(found["dev/console"][0], 0o020600)
        self.assertLess(list(found).index("a/b"), list(found).index("a/b/n"))

    def test_a_path_is_taken_once_and_stays_inside(self) -> None:
        archive = CpioWriter(io.BytesIO())
        archive.file("/x", b"")
        for bad in ("/x", "x", "/../x", "/"):
            with self.assertRaises(ValueError, msg=bad):
                archive.file(bad, b"")


class Closure(unittest.TestCase):
    def test_ldd(self) -> None:
        text = (
            "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n"
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n"
        )
        self.assertEqual(
            [str(path) for path in initramfs.parse_ldd(text)],
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"],
        )

    def test_a_library_found_beside_the_program(self) -> None:
        text = "\tlibx.so.1 => /usr/bin/../lib/libx.so.1 (0x00007f1234567000)\n"
        self.assertEqual(initramfs.parse_ldd(text), [Path("/usr/lib/libx.so.1")])

    def test_a_missing_library_is_told(self) -> None:
        with self.assertRaises(LabError) as caught:
            initramfs.parse_ldd("\tlibgone.so.1 => not found\n")
        self.assertIn("libgone.so.1", str(caught.exception))

    @unittest.skipUnless(initramfs.BUSYBOX.exists(), "busybox is not installed")
    def test_whole_image(self) -> None:
        shell = Path(shutil.which("sh") or "/bin/sh").resolve()
        out = io.BytesIO()
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"hello")
            file.flush()
            initramfs.build(out, shell, [shell], {"/lab/hello": Path(file.name)}, {"/lab/job": b"n"})
        found = read_newc(out.getvalue())
        self.assertEqual(found["init"][1], shell.read_bytes())
        self.assertEqual(found["lab/hello"][1], b"hello")
        self.assertEqual(found["lab/job"], (0o100600, b"n"))
        names = {f"/{name}".removeprefix("/usr") for name in found}
        for library in initramfs.libraries(shell):
            self.assertIn(str(library).removeprefix("/usr"), names)

    def test_a_path_the_guest_covers_is_refused(self) -> None:
        for path in ("/dev/shm/program", "/proc/program", "/sys/program"):
            with self.subTest(path=path), self.assertRaises(LabError) as caught:
                initramfs.build(io.BytesIO(), Path("/bin/sh"), files={path: Path("/bin/sh")})
            self.assertIn(path, str(caught.exception))

    @unittest.skipUnless(shutil.which("cpio"), "cpio is not installed")
    def test_cpio_agrees(self) -> None:
        out = io.BytesIO()
        archive = CpioWriter(out)
        archive.file("/a/b", b"text")
        archive.finish()
        done = subprocess.run(["cpio", "-it", "--quiet"], input=out.getvalue(), capture_output=True, check=True)
        self.assertEqual(done.stdout.decode().split(), ["a", "a/b"])
