# SPDX-License-Identifier: GPL-2.0-only
"""What a program needs in the guest beside its libraries."""

import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab.bench import software


class NodeTest(unittest.TestCase):
    """Debian builds Node.js with some builtins outside of it, and names them in its library."""

    def test_builtins_outside_of_the_library_come_along(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            (folder / "usr/share/nodejs/undici").mkdir(parents=True)
            there = folder / "usr/share/nodejs/undici/undici-fetch.js"
            there.write_text("")
            gone = folder / "usr/share/nodejs/acorn/acorn.js"
            node, library, other = folder / "node", folder / "libnode.so.108", folder / "libuv.so.1"
            node.write_bytes(b"\x7fELF")
            library.write_bytes(b"\0".join([b"\x7fELF", bytes(there), bytes(gone), b"/usr/share/doc/x.js", b""]))
            other.write_bytes(b"not read")
            outside = re.compile(re.escape(bytes(folder)) + software._OUTSIDE.pattern)
            with (
                mock.patch.object(software, "_OUTSIDE", outside),
                mock.patch.object(software, "tool", return_value=node),
                mock.patch("lab.bench.software.initramfs.libraries", return_value=[library, other]),
            ):
                payload = software._node()
        self.assertEqual(payload.paths, {"node": node})
        self.assertEqual(payload.files, {str(there): there})

    def test_only_those_of_node_are_meant(self) -> None:
        text = b"\0/usr/share/nodejs/cjs-module-lexer/dist/lexer.js\0/usr/share/doc/a.js\0/usr/share/nodejs/x.txt\0"
        self.assertEqual(software._OUTSIDE.findall(text), [b"/usr/share/nodejs/cjs-module-lexer/dist/lexer.js"])
