# SPDX-License-Identifier: GPL-2.0-only
"""The plugin itself: with a made-up guest, its structures, and what it refuses."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from lab.paths import REPO
from lab.tlb import model
from lab.tlb.counts import Counts, Window, read
from lab.tlb.geometry import Geometry


class MadeUpGuestTest(unittest.TestCase):
    """The whole plugin, with a made-up guest in the place of QEMU (tlb_plugin.c)."""

    held: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.held = tempfile.TemporaryDirectory()
        source = REPO / "lab" / "tlb" / "plugin"
        files = [REPO / "lab" / "tests" / "tlb_plugin.c", *source.glob("*.c")]
        flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", f"-I{source}"]
        program = str(Path(cls.held.name) / "test")
        subprocess.run(["gcc", *flags, "-fno-sanitize-recover", "-o", program, *map(str, files)], check=True)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.held.cleanup()

    def records(self, scenario: str, *options: str, join: str = "off") -> list[dict[str, Any]]:
        out = Path(self.held.name) / "out"
        out.unlink(missing_ok=True)
        offsets = {"leader": 24, "comm": 8, "signal": 32, "mm": 0, "pgrp": 16, "nr": 8, "pgd": 24, "context": 0}
        task = ("current=0x10", *(f"{name}={value}" for name, value in offsets.items()))
        argv = [
            str(Path(self.held.name) / "test"),
            scenario,
            f"out={out}",
            *Geometry(join=join).words(),
            *task,
            *options,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def one(self, scenario: str, join: str = "off") -> Window:
        [found] = self.records(scenario, join=join)
        self.assertEqual(found["window"], 1)
        return read([found])[0]

    def of(self, scenario: str, name: str, join: str = "off") -> dict[str, Counts]:
        return self.one(scenario, join).program(name) or {}

    def test_sizes_modes_and_levels(self) -> None:
        window = self.one("sizes")
        programs = window.program("first") or {}
        user, kernel = programs["user"], programs["kernel"]
        # Page 16 is not mapped. The first walk reads 4 levels, the others find their directory.
        self.assertEqual((user.accesses, user.lost), (18, 1))
        self.assertEqual(user.walks, {4: 15, 2048: 1, 1 << 20: 0})
        self.assertEqual(user.references, 4 + 14 + 1)
        self.assertEqual((kernel.accesses, kernel.walks[2048], kernel.walks[4]), (2, 1, 0))
        # The marks at both ends count.
        self.assertEqual((user.instructions, kernel.instructions), (19, 2))
        self.assertEqual(list(window.groups), [("first", 101)], "of the process, not of the thread")

    def test_only_aligned_contiguous_pages_of_equal_rights_join(self) -> None:
        counts = self.of("sizes", "first", "16K")["user"]
        # Pages 1 to 3 and 12 to 15 join; 4 to 7 are not aligned, one of 8 to 11 has other rights.
        self.assertEqual(counts.walks, {4: 8, 16: 2, 2048: 1, 1 << 20: 0})

    def test_a_window_inside_another_is_part_of_it(self) -> None:
        self.assertEqual(self.one("windows").counts().accesses, 3)

    def test_flushes_and_address_spaces(self) -> None:
        # First: once, after its page is dropped, after its CR3 is written again; not when it comes back.
        window = self.one("flushes")
        walked = {name: one["user"].walks[4] for (name, _), one in window.groups.items()}
        self.assertEqual(walked["first"], 3)
        self.assertEqual(walked["other"], 1)
        self.assertEqual(walked["third"], 1, "the tables were another one's")

    def test_what_changed_meanwhile_is_flushed(self) -> None:
        self.assertEqual(self.of("changed", "first")["user"].walks[4], 2)
        self.assertEqual(self.of("own", "first")["user"].walks[4], 2, "what it changed itself is flushed once")
        self.assertEqual(self.of("own-page", "first")["user"].walks[4], 2, "a page of it, too")

    def test_a_kernel_thread_that_borrows_a_space_does_not_flush_it(self) -> None:
        self.assertEqual(self.of("lazy", "first")["user"].walks[4], 2)

    def test_the_first_access_in_the_kernel_settles_whose_the_space_is(self) -> None:
        programs = self.of("kernel-first", "first")
        self.assertEqual((programs["user"].walks[4], programs["kernel"].walks[4]), (1, 1), "what is stale is gone")
        window = self.one("exec")
        self.assertEqual((window.program("other") or {})["user"].accesses, 1, "under its new name")
        window = self.one("before")
        other, kernel = window.program("other") or {}, window.program("(kernel)") or {}
        self.assertEqual((other["kernel"].accesses, other["kernel"].walks[4]), (1, 1))
        self.assertEqual(kernel["kernel"].accesses, 1, "nobody's yet, and not the last one's")

    def test_long_work_on_the_kernels_own_tables_is_nobodys_and_not_looked_at_again(self) -> None:
        window = self.one("nobody")
        other, kernel = window.program("other") or {}, window.program("(kernel)") or {}
        self.assertEqual((other["kernel"].accesses, other["user"].accesses), (1, 1))
        self.assertEqual(kernel["kernel"].accesses, 4000)

    def test_it_refuses_with_the_reason(self) -> None:
        for scenario, options, why in (
            ("pcid", (), "PCIDs"),
            ("la57", (), "map of all memory"),
            ("names", (), "does not show cr3"),
            ("sizes", ("direct=0xffff800000000000",), "map of all memory"),
            ("sizes", ("current=0x7000000",), "running task cannot be read"),
            ("unarmed", (), "before the guest has armed"),
            ("unended", (), "ended inside a window"),
            ("other-pgd", (), "page tables are not those in use"),
            ("no-name", (), "running task cannot be read"),
            ("no-text", (), "a program's name is not ASCII text"),
            ("utf8-name", (), "a program's name is not ASCII text"),
            ("no-leader", (), "running task cannot be read"),
            ("other-signals", (), "running task cannot be read"),
            ("one-number", (), "two address spaces have one number"),
            ("new-number", (), "number of an address space changes"),
        ):
            records = self.records(scenario, *options)
            self.assertIn(why, model.refusal(records), scenario)
            self.assertEqual(read(records), [], scenario)


class StructuresTest(unittest.TestCase):
    def test_hits_replacement_flushes_and_references(self) -> None:
        source = REPO / "lab" / "tlb" / "plugin"
        with tempfile.TemporaryDirectory() as name:
            program = Path(name) / "test"
            files = [REPO / "lab" / "tests" / "tlb_model.c", source / "model.c"]
            flags = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{source}", "-o", str(program)]
            subprocess.run(["gcc", *flags, *map(str, files), "-lm"], check=True)
            done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class PluginTest(unittest.TestCase):
    """The built plugin, without QEMU: it says no before it uses any of it."""

    def install(self, api: int, target: bytes = b"x86_64", cpus: int = 1, options: tuple[bytes, ...] = ()) -> str:
        script = (
            "import ctypes, sys\n"
            "class Info(ctypes.Structure):\n"
            "    _fields_ = [('t', ctypes.c_char_p), ('a', ctypes.c_int), ('b', ctypes.c_int), ('s', ctypes.c_bool),\n"
            "                ('c', ctypes.c_int), ('m', ctypes.c_int)]\n"
            f"plugin = ctypes.CDLL({str(model.plugin())!r}, mode=1)\n"
            f"words = {list(options)!r}\n"
            "argv = (ctypes.c_char_p * len(words))(*words)\n"
            f"info = Info({target!r}, 0, {api}, True, {cpus}, {cpus})\n"
            "sys.exit(plugin.qemu_plugin_install(ctypes.c_uint64(1), ctypes.byref(info), len(words), argv) != 0)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_it_refuses_with_the_reason(self) -> None:
        for api in (1, 3, 5, 7):
            self.assertIn(f"this QEMU has plugin API {api}, and the model was checked with 4", self.install(api))
        self.assertIn("one processor of an x86_64 system", self.install(4, cpus=2))
        self.assertIn("one processor of an x86_64 system", self.install(4, target=b"aarch64"))
        self.assertIn("option l2=128 is not known, or its value is none", self.install(4, options=(b"l2=128",)))
        self.assertIn("it needs out=", self.install(4))
