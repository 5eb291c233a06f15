# SPDX-License-Identifier: GPL-2.0-only
"""What a program needs in the guest beside its libraries."""

import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab.bench import software
from lab.bench.payload import Payload
from lab.errors import LabError


class NodeTest(unittest.TestCase):
    """Debian builds Node.js with some builtins outside of it, and names them in its library."""

    def payload(self, folder: Path, named: list[Path]) -> Payload:
        """Of a node whose library names these files; another library names one more."""
        node, library, other = folder / "node", folder / "libnode.so.108", folder / "libuv.so.1"
        node.write_bytes(b"\x7fELF")
        library.write_bytes(b"\0".join([b"\x7fELF", *map(bytes, named), b"/usr/share/doc/x.js", b""]))
        other.write_bytes(bytes(folder / "usr/share/nodejs/not/read.js") + b"\0")
        outside = re.compile(re.escape(bytes(folder)) + software._OUTSIDE.pattern)
        with (
            mock.patch.object(software, "_OUTSIDE", outside),
            mock.patch.object(software, "tool", return_value=node),
            mock.patch("lab.bench.software.initramfs.libraries", return_value=[library, other]),
        ):
            return software._node()

    def test_builtins_outside_of_the_library_come_along(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            (folder / "usr/share/nodejs/undici").mkdir(parents=True)
            there = folder / "usr/share/nodejs/undici/undici-fetch.js"
            there.write_text("")
            payload = self.payload(folder, [there])
            self.assertEqual(payload.paths, {"node": folder / "node"})
            self.assertEqual(payload.files, {str(there): there})
            # node aborts without any of them: refused before a guest boots.
            gone = folder / "usr/share/nodejs/acorn/acorn.js"
            with self.assertRaisesRegex(LabError, r"acorn\.js at its start, which is not there.*apt-get"):
                self.payload(folder, [there, gone])

    def test_a_single_binary_brings_nothing_else(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(self.payload(Path(directory), []).files, {})

    def test_only_those_of_node_are_meant(self) -> None:
        text = b"\0/usr/share/nodejs/cjs-module-lexer/dist/lexer.js\0/usr/share/doc/a.js\0/usr/share/nodejs/x.txt\0"
        self.assertEqual(software._OUTSIDE.findall(text), [b"/usr/share/nodejs/cjs-module-lexer/dist/lexer.js"])
