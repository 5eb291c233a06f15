# SPDX-License-Identifier: GPL-2.0-only
import json
import os
import random
import stat
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from lab.bench import compare, execute, markdown, page, scenarios, walks
from lab.bench.__main__ import main as bench_main
from lab.bench.arms import ARM
from lab.bench.cell import Cell
from lab.bench.output import collect
from lab.bench.plan import plan
from lab.bench.run import Run
from lab.bench.spec import Scale
from lab.bench.table import Table
from lab.bench.text import case_table, not_modelled
from lab.checks.result import Status
from lab.checks.tlb import TOLERANCE, Guest, Reads, accesses, clock, expected, judge, judge_cells, rows, script, wrong
from lab.checks.tlb import run as gate_of_model
from lab.errors import Exit, LabError
from lab.kernel import debian
from lab.kernel.aptsources import Source
from lab.kernel.build import Kernel
from lab.paths import REPO
from lab.tests.bench_runs import CI, ENVIRONMENT, FREE, one
from lab.tlb import coverage, emulator, hardware, model
from lab.tlb.counts import Counts, Window, read
from lab.tlb.geometry import Geometry, Shape, size
from lab.tlb.model import Model
from lab.vm import Mode
from lab.vm.qemu import Emulator


def counted(walks_4k: int, accesses: int = 1000, l1_misses: int = 0, lost: int = 0) -> dict[str, Any]:
    return {"instructions": 4000, "accesses": accesses, "l1_misses": l1_misses, "lost": lost,
            "references": 2 * walks_4k, "walks": {"4": walks_4k, "2048": 1, "1048576": 2}}  # fmt: skip


def record(**programs: int) -> dict[str, Any]:
    """Of process groups from 100 on."""
    every = [{"name": name, "group": 100 + number, "user": counted(count), "kernel": counted(0)}
             for number, (name, count) in enumerate(programs.items())]  # fmt: skip
    return {"type": "tlb", "window": 0, "programs": every}


class GeometryTest(unittest.TestCase):
    def test_reach_follows_the_data(self) -> None:
        full = Geometry()
        small = full.standing_for(3400 << 20, 170 << 20)
        self.assertEqual((small.l2, small.pde, small.pdpte), (Shape(6, 16), Shape(1, 3), Shape(1, 1)))
        self.assertEqual((small.l1_small, small.l1_large), (Shape(1, 5), Shape(1, 2)), "below L2, as they were")
        self.assertEqual(full.reach, "8.38 MiB in base pages, 4,160 MiB in 2 MiB")
        self.assertEqual(small.reach, "0.395 MiB in base pages, 196 MiB in 2 MiB", "a twentieth")
        self.assertEqual(full.standing_for(1 << 20, 170 << 20), full, "never larger than it is")
        self.assertEqual(Shape(16, 4).scaled(1e-9), Shape(1, 1))

    def test_sizes(self) -> None:
        self.assertEqual((size("3.4G"), size("512M"), size("1T")), (3650722202, 512 << 20, 1 << 40))
        for bad in ("3.4", "G", "-1G", "0G", "3,4G", "3.4g", ""):
            with self.assertRaisesRegex(LabError, "is not a size"):
                size(bad)

    def test_every_size_reaches_the_plugin(self) -> None:
        words = Geometry(join="16K").words()
        self.assertEqual(words, ["l1-small=16x6", "l1-large=8x4", "l2=128x16", "pde=16x4", "pdpte=4x4", "coalesce=2"])


class CountsTest(unittest.TestCase):
    def test_programs_and_modes_are_apart_and_add_up(self) -> None:
        [window] = read([{"type": "sample"}, record(server=30, client=10), {"type": "tlb", "refused": "no"}])
        self.assertEqual(window.counts().walks, {4: 40, 2048: 4, 1 << 20: 8})
        self.assertEqual(window.counts([100], ["user"]).walked, 33)
        self.assertEqual(window.counts([100, 7]).instructions, 8000)
        self.assertEqual(Window(0, {}).counts(), Counts())

    def test_processes_of_one_name_are_apart(self) -> None:
        both = record(python3=30, other=10)
        both["programs"][1]["name"] = "python3"
        [window] = read([both])
        self.assertEqual(window.counts([101], ["user"]).walked, 13)
        self.assertEqual((window.program("python3") or {})["user"].walked, 46)
        self.assertIsNone(window.program("nobody"))

    def test_lost_accesses_are_a_refusal(self) -> None:
        for lost, why in ((1, ""), (2, "of its misses of L1 0.20% came to nothing")):
            one = record(a=1)
            one["programs"][0]["user"] = counted(1, l1_misses=1000, lost=lost)
            self.assertEqual(model.refusal([one])[: len(why) or None], why)

    def test_a_record_that_is_cut_off_is_a_refusal(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            out = Path(name) / "out"
            out.write_text(json.dumps(record(a=1))[:-9])
            self.assertIn("is cut off", model.refusal(TLB.model.records(out)))
            self.assertIn("named no time", model.refusal(TLB.model.records(Path(name) / "none")))

    def test_a_refusal_is_an_error_with_its_reason(self) -> None:
        with self.assertRaisesRegex(LabError, "reports nothing: boot with nokaslr"):
            model.check([{"type": "tlb", "refused": "boot with nokaslr"}], "a run", Path("/log"))
        with self.assertRaisesRegex(LabError, "no record"):
            model.check([], "a run", Path("/log"))
        model.check([record(a=1)], "a run", Path("/log"))


class GateTest(unittest.TestCase):
    """The gate itself: it must fail for a model that is wrong."""

    guest = Guest("g", (Reads(4, ("random",)),), ("off",), 5)
    count = accesses("random", 4, ["off"])

    def failed(self, guest: Guest, programs: list[dict[str, Any]]) -> list[str]:
        found = judge(guest, Geometry(), [{"type": "tlb", "window": 0, "programs": programs}])
        return [one.name.rpartition(", ")[2].partition(": ")[2].partition(":")[0] for one in found if not one.ok]

    def judged(self, **changed: Any) -> list[str]:
        walked = round(self.count * 0.9687)
        right = {**counted(0, accesses=self.count + 18, l1_misses=self.count - 180),
                 "references": round(walked * 1.5), "walks": {"4": walked}}  # fmt: skip
        program = {"name": "lab-walks", "group": 9, "user": {**right, **changed}, "kernel": counted(0)}
        return self.failed(self.guest, [program])

    def test_it_holds_and_each_part_can_fail(self) -> None:
        self.assertEqual(self.judged(), [])
        self.assertEqual(self.judged(accesses=self.count + 51), ["accesses beside the reads"])
        self.assertEqual(len(self.judged(accesses=self.count - 1)), 1)
        self.assertEqual(self.judged(l1_misses=round(self.count * 0.9964)), ["misses of L1"])
        self.assertEqual(self.judged(lost=1), ["accesses that no table maps"])
        self.assertEqual(self.judged(references=round(self.count * 0.9687 * 1.47)), ["references a walk"])
        self.assertEqual(self.judged(walks={"4": round(self.count * 0.9664)})[0], "walks")
        self.assertEqual(len([one for one in judge(self.guest, Geometry(), []) if not one.ok]), 1)

    def test_an_empty_window_fails_where_nothing_is_to_be_counted(self) -> None:
        large = Guest("g", (Reads(2048, ("sequential",)),), ("off",), 5)
        for programs in ([], [{"name": "lab-walks", "group": 9, "user": {**counted(0), "accesses": 0, "walks": {}},
                               "kernel": counted(0)}]):  # fmt: skip
            self.assertTrue(self.failed(large, programs), programs)

    def test_the_kernel_and_flushes_are_held_against_what_is_computed(self) -> None:
        for order, walked, failed in (
            ("kernel", 0.9687, []),
            ("kernel", 0.95, ["walks to 4 KiB"]),
            ("kernel", 0.0, ["walks to 4 KiB"]),
            ("dropped", 1.0, []),
            ("dropped", 0.0, ["misses of L1", "walks"]),
        ):
            guest = Guest("g", (Reads(4, (order,)),), ("off",), 5)
            count = accesses(order, 4, ["off"])
            mine = {**counted(0, l1_misses=round(count * walked)), "walks": {"4": round(count * walked)}}
            none = {**counted(0), "walks": {"4": 0}}
            modes = {"user": none, "kernel": mine} if order == "kernel" else {"user": mine, "kernel": none}
            self.assertEqual(self.failed(guest, [{"name": "lab-walks", "group": 9, **modes}]), failed, order)

    def test_accesses_suffice_for_the_tolerance(self) -> None:
        self.assertEqual(accesses("random", 64, ["off", "64K"]), 1_000_000)
        self.assertEqual(accesses("random", 64, ["off", "16K"]), 437_500)
        self.assertEqual(accesses("random", 4, ["off", "64K"]), 121_094)
        # Deviations of a share that is drawn so often.
        draw = random.Random(1)
        count = accesses("random", 64, ["off", "16K"])
        for _ in range(3):
            share = sum(draw.random() < 0.875 for _ in range(count)) / count
            self.assertLess(abs(share - 0.875), TOLERANCE)

    def test_folios_must_have_been_made(self) -> None:
        text = script(Guest("g", (Reads(4), Reads(64)), ("off",), 5), "/p")
        self.assertEqual(text.count("anon_fault_alloc"), 2)
        self.assertIn("-ge 4096 ]", text)

    def test_the_control_comes_before_the_model(self) -> None:
        guest = Guest("g", (Reads(4, ("random",), control=True),), ("off",), 4)
        self.assertIn(f"- random:{self.count} arm random:{self.count} >", script(guest, "/p"))
        self.assertIn("! grep -q ' la57'", script(guest, "/p"))
        self.assertEqual(len(rows(guest)), 1, "the control has no window")

    def test_the_clock(self) -> None:
        def ok(*times: int) -> bool:
            said = [{"type": "walks", "seen": number > 0, "ns": ns} for number, ns in enumerate(times)]
            return all(one.ok for one in clock(said))

        self.assertTrue(ok(2_058_000, 2_060_000))
        self.assertFalse(ok(2_058_000, 2_058_000 + 117_000), "a nanosecond for each walk")
        self.assertFalse(ok(2_058_000))
        self.assertFalse(ok())

    def test_a_model_for_another_kernel_differs_in_one_word(self) -> None:
        layout = ("current=0x10", "leader=0x18", "comm=0x8", "mm=0x0", "context=0x20")
        found = wrong(replace(TLB.model, layout=layout))
        self.assertEqual(len(found), 5)
        self.assertEqual(found["wrong-mm"][0].layout, (*layout, "mm=0x8"))

    def test_cells_of_the_suite(self) -> None:
        def failed(runs: list[Run]) -> list[str]:
            return [one.name for one in judge_cells(runs) if not one.ok]

        self.assertEqual(len(failed([])), 2, "nothing ran")
        # 2 programs in 2 modes of 4,000 instructions each.
        right = replace(modelled(FREE, "never", 200_000), elapsed_s=16e-6)
        plain = replace(one(FREE, "never"), elapsed_s=16e-6)
        self.assertTrue(failed([plain]))
        self.assertTrue(all("instructions" not in name for name in failed([right, plain])))
        slow = replace(right, elapsed_s=32e-6)
        self.assertEqual(len([name for name in failed([slow, plain]) if "instructions" in name]), 1)

    def test_what_is_computed(self) -> None:
        off, zen, arm = (Geometry(join=join) for join in ("off", "16K", "64K"))
        self.assertEqual(expected("random", 4, off)[1], 1 - 2048 / 65536)
        self.assertEqual(expected("random", 64, off), expected("random", 4, off))
        self.assertEqual(expected("dependent", 64, zen)[1], 0.875)
        self.assertEqual(expected("random", 64, arm)[1], 0.5)
        self.assertEqual(expected("random", 2048, off), (0.75, 0.0))
        self.assertEqual(expected("sequential", 4, off), (1 / 64, 1 / 64))


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
            ("no-text", (), "running task cannot be read"),
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


TLB = walks.Tlb(Model(Emulator("qemu"), REPO / "LICENSE", Geometry()), size("3.4G"))


def modelled(case: Any, arm: str, count: int) -> Any:
    """A run of the model; its servers are the first task."""
    run = one(case, arm)
    return replace(run, cell=replace(run.cell, modelled=True), tlb=read([record(server=count, load=10 * count)])[0])


def modelled_slow(case: Any, arm: str) -> Any:
    run = one(case, arm, repeat=1, rps=1.0)
    return replace(run, cell=replace(run.cell, modelled=True), tlb=read([record(server=5, load=5)])[0])


class SuiteTest(unittest.TestCase):
    def table(self) -> Table:
        runs = [modelled(FREE, "never", 200_000), modelled(FREE, "always", 20_000)]
        return Table([one(FREE, "never"), one(FREE, "always"), *runs], TLB)

    def test_no_figure_but_walks_comes_from_a_modelled_run(self) -> None:
        table = self.table()
        slow = Table([*table.all, modelled_slow(FREE, "never")], TLB)
        [world] = slow.worlds
        for metric in slow.metrics(world):
            if metric not in walks.WALKS:
                self.assertEqual(slow.values(world, "never", metric), table.values(world, "never", metric), metric.key)
        self.assertEqual(len(slow.values(world, "never", walks.PER_OPERATION)), 2)

    def test_a_plain_cell_knows_nothing_of_the_model(self) -> None:
        cell = Cell(FREE, ARM["never"], "classic", 0)
        world = execute.World(Path("/k"), Mode.ICOUNT, Path("/m"), Path("/g"), None)
        self.assertIsNone(replace(world, tlb=TLB).model(cell))
        self.assertIsNotNone(replace(world, tlb=TLB).model(replace(cell, modelled=True)))
        self.assertNotEqual(cell.name, replace(cell, modelled=True).name)

    def test_several_processors_are_not_modelled(self) -> None:
        cases = scenarios.cases(Scale.CI)
        several = {case.name for case in cases if case.machine.cpus not in (None, 1)}
        self.assertIn("cpus/x4", several)
        for case in cases:
            self.assertEqual(TLB.of(case) is None, case.name in several, case.name)
            if case.name in several:
                self.assertIn("several processors", TLB.line(case))
        cells = plan(cases, [ARM["never"]], ["classic"], 2)
        twins = walks.plan(cells, 1)
        self.assertEqual({cell.case.name for cell in cells} - {cell.case.name for cell in twins}, several)
        self.assertTrue(all(cell.modelled and cell.repeat == 0 for cell in twins))
        self.assertEqual(walks.plan(cells, 0), [])

    def test_a_server_that_was_not_seen_has_no_figure(self) -> None:
        run = modelled(FREE, "never", 200_000)
        ends = {name: replace(end, pid=end.pid + 50) for name, end in run.ends.items()}
        lost = replace(run, ends=ends)
        self.assertIsNone({metric.key: metric.of(lost) for metric in walks.WALKS}["walks_op_servers"])

    def test_what_cannot_be_modelled_is_refused_before_anything_is_built(self) -> None:
        for words, why in (
            (["--coalesce", "16K"], "say --walks 1"),
            (["--walks", "1", "--mode", "tcg"], "needs mode icount"),
            (["--walks", "1", "--kernel", str(REPO / "LICENSE")], "vmlinux is missing"),
            (["--walks", "1", "--tlb-stands-for", "9G"], "170 MiB cannot stand for 9 GiB"),
            (["--walks", "-1"], "WALKS must be from 1"),
        ):
            with self.assertRaisesRegex(LabError, why):
                bench_main([*words, "--scenario", "redis/set-none", "--list"])

    def test_small_differences_of_walks_are_not_notable(self) -> None:
        for change, notable in ((1.04, False), (1.2, True)):
            runs = [modelled(FREE, "mthp_ext", 200_000), modelled(FREE, "never", round(200_000 * change))]
            table = Table([one(FREE, "mthp_ext"), one(FREE, "never"), *runs], TLB)
            self.assertEqual(compare._differs(table, table.worlds[0], ARM["never"], walks.PER_OPERATION), notable)

    def test_walks_per_operation_and_per_instruction(self) -> None:
        run = modelled(FREE, "never", 200_000)
        # 50,000 requests/s for 4 s; two programs in two modes have 12 walks of large pages.
        self.assertEqual(walks.operations(run), 200_000)
        self.assertAlmostEqual(walks.PER_OPERATION.of(run) or 0, 11 + 12 / 200_000)
        by_key = {metric.key: metric.of(run) for metric in walks.WALKS}
        self.assertAlmostEqual(by_key["walks_op_4k"] or 0, 11)
        self.assertAlmostEqual(by_key["walks_op_servers"] or 0, 1 + 6 / 200_000)
        self.assertAlmostEqual(by_key["walks_ki_4k"] or 0, 2_200_000 / 16)
        self.assertIsNone(by_key["walks_op_joined"], "nothing was to be joined")
        self.assertIsNone(walks.PER_OPERATION.of(one(FREE, "never")), "not modelled")

    def test_without_a_rate_the_run_is_the_operation(self) -> None:
        self.assertEqual(walks.operations(one(CI["bloat/threads"], "never")), 1)
        self.assertEqual(walks.operations(one(CI["vmhost/fragmented"], "never")), 1, "its requests come before")
        self.assertIsNone(walks.operations(one(FREE, "never", killed=True)))

    def test_the_table_has_them_and_says_what_the_tlb_stands_for(self) -> None:
        table = self.table()
        text = "\n".join(case_table(table, table.worlds[0]))
        self.assertRegex(text, r"walks per operation +\| 1.1 +\| 11 ")
        self.assertIn("L2 96", text)
        self.assertIn("170 MiB stand for 3.4 GiB; full size: reach 8.38 MiB", text)
        plain = Table([one(FREE, "never")])
        self.assertNotIn("walks per", "\n".join(case_table(plain, plain.worlds[0])))

    def test_the_page_and_the_markdown_have_them(self) -> None:
        table, environment = self.table(), {**ENVIRONMENT, "tlb": "L1"}
        shown = page.render(table, [], environment)
        self.assertIn('aria-label="walks per operation"', shown)
        self.assertIn("<th>walks per 1,000 instructions, 2M</th>", shown)
        text = markdown.render(table, [], environment)
        self.assertIn("| walks per operation, 4K ", text)
        for document in (shown, text):
            self.assertIn("170 MiB stand for 3.4 GiB", document)

    def test_json_has_them_by_program(self) -> None:
        world = collect(self.table())["worlds"]["redis/set-none/classic"]
        self.assertEqual(world["arms"]["never"]["walks_by_program"]["load"], {"user": 2_000_003, "kernel": 3})
        self.assertEqual((world["arms"]["never"]["modelled"], world["arms"]["never"]["lost"]), (1, 0.0))
        self.assertIn("stand for", world["tlb"])

    def test_readers_learn_whether_there_was_a_model(self) -> None:
        self.assertIn("TLB misses", not_modelled(ENVIRONMENT)[0])
        self.assertIn("the time of a TLB miss", not_modelled({**ENVIRONMENT, "tlb": "L1"})[0])

    def test_a_case_without_data_is_not_scaled(self) -> None:
        self.assertIn("at its full size", TLB.line(CI["bloat/threads"]))
        self.assertEqual(TLB.geometry(CI["bloat/threads"]), Geometry())
        identities = {one.identity() for one in (TLB.of(FREE), TLB.of(CI["bloat/threads"])) if one}
        self.assertEqual(len(identities), 2)


# Recorded: perf 6.1.187 on an Intel Xeon of a virtual machine without the processor's counters.
_RECORDED = "8296;;page-faults;121676617;100.00;;\n<not supported>;;dTLB-load-misses;0;100.00;;\n"
_SYNTAX = (
    "event syntax error: '..age-faults,dtlb_load_misses.walk_completed,dtlb_load_m..'\n"
    "                                  \\___ parser error\nRun 'perf list' for a list of valid events\n"
)


class HardwareTest(unittest.TestCase):
    def test_recorded_output(self) -> None:
        self.assertEqual(hardware.count(_RECORDED, "page-faults"), 8296)
        with self.assertRaisesRegex(hardware.RefusedError, "<not supported> of dTLB-load-misses: likely a virtual"):
            hardware.count(_RECORDED, "dTLB-load-misses")
        with self.assertRaisesRegex(hardware.RefusedError, "perf does not know dtlb_load_misses.walk_completed"):
            hardware.count(_SYNTAX, "dtlb_load_misses.walk_completed")
        with self.assertRaisesRegex(hardware.RefusedError, r"50.00 % of the time"):
            hardware.count(_RECORDED.replace("100.00", "50.00"), "page-faults")
        with self.assertRaisesRegex(hardware.RefusedError, "did not report"):
            hardware.count("", "page-faults")

    def test_two_kinds_of_cores_and_events_of_ones_own(self) -> None:
        name = "dtlb_load_misses.walk_completed"
        self.assertEqual(hardware.asked(name, hybrid=True), f"cpu_core/{name}/u")
        self.assertEqual(hardware.asked(name, hybrid=False), f"{name}:u")
        raw = "cpu/event=0x08,umask=0x0e/"
        self.assertEqual(hardware.asked(raw, hybrid=False), f"{raw}u")
        both = f"7;;cpu_core/{name}/u;1;100.00;;\n<not counted>;;cpu_atom/{name}/u;0;0.00;;\n"
        self.assertEqual(hardware.count(both, name), 7)
        self.assertEqual(hardware.count(f"9;;{raw}u;1;100.00;;\n", raw), 9)

    def row(self, walks: dict[str, list[int]], covered: float = 0.9) -> dict[str, Any]:
        def measure(*words: Any) -> tuple[int, dict[str, Any]]:
            accesses = words[3][2].partition(":")[2]
            return walks[accesses].pop(0), {"covered": covered, "ns": int(accesses)}

        with mock.patch("lab.tlb.hardware._measure", measure):
            return hardware.row("perf", "p", "e", "random", 256, 90)

    def test_noise_of_a_short_run_does_not_lower_the_difference(self) -> None:
        found = self.row({"2000000": [900, 5_000_000, 900], "12000000": [10_000_900] * 3})
        self.assertEqual(found["walks_per_access"], 1.0)
        with self.assertRaisesRegex(hardware.RefusedError, "too busy"):
            self.row({"2000000": [9000] * 3, "12000000": [800] * 3})
        self.assertEqual(self.row({"2000000": [900] * 3, "12000000": [800] * 3})["walks_per_access"], 0.0)

    def test_memory_that_is_not_in_huge_pages_is_refused(self) -> None:
        with self.assertRaisesRegex(hardware.RefusedError, "90 % were to be in huge pages, and 0% to 0% were"):
            self.row({"2000000": [0] * 3, "12000000": [5] * 3}, covered=0.0)

    def test_makers(self) -> None:
        self.assertEqual(hardware.event_of("vendor_id\t: AuthenticAMD\n"), "ls_l1_d_tlb_miss.all_l2_miss")
        with self.assertRaisesRegex(hardware.RefusedError, "unknown"):
            hardware.event_of("CPU implementer : 0x41\n")

    def test_a_perf_that_counts_nothing_ends_without_figures(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            perf, program = Path(name) / "perf", Path(name) / "lab-walks"
            perf.write_text(f"#!/bin/sh\ncat > \"$4\" <<'E'\n{_RECORDED}E\n")
            program.write_text("#!/bin/sh\n")
            for path in (perf, program):
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            argv = [sys.executable, str(REPO / "lab/tlb/hardware.py"), "--program", str(program)]
            env = {**os.environ, "PATH": f"{name}:/usr/bin:/bin"}
            done = subprocess.run(
                [*argv, "--event", "dTLB-load-misses"], capture_output=True, text=True, env=env, check=False
            )
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("<not supported>", done.stderr)

    def test_starts_drop_out_of_what_is_reported(self) -> None:
        # perf's own form, of a count of user code: this one was 95.
        recorded = "# started on Mon Nov 23 12:04:25 2026\n\n%d;;page-faults:u;1167048;100.00;;\n"
        self.assertEqual(hardware.count(recorded % 95, "page-faults"), 95)
        with tempfile.TemporaryDirectory() as name:
            perf, program, printed = (Path(name) / part for part in ("perf", "lab-walks", "count"))
            # A walk for every fourth access and 500 to start; 2 ns an access and 10,000 before the first.
            perf.write_text(
                '#!/bin/sh\nout=$4\nshift 7\n"$@" && printf \''
                + recorded.replace("\n", "\\n")
                + '\' $(cat "$0.count") > "$out"\n'
            )
            program.write_text(
                f"#!/bin/sh\naccesses=${{3#*:}}\necho $((accesses / 4 + 500)) > {perf}.count\n"
                'echo "{\\"covered\\": 0.$2, \\"ns\\": $((accesses * 2 + 10000))}"\n'
            )
            for path in (perf, program):
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            argv = [sys.executable, str(REPO / "lab/tlb/hardware.py"), "--program", str(program), "--mib", "256"]
            env = {**os.environ, "PATH": f"{name}:/usr/bin:/bin"}
            done = subprocess.run(
                [*argv, "--event", "page-faults"], capture_output=True, text=True, env=env, check=False
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            printed.write_text(done.stdout)
            rows = coverage.load(printed)["rows"]
        self.assertEqual({(row["walks_per_access"], row["ns_per_access"]) for row in rows}, {(0.25, 2.0)})
        wanted = [(order, cover) for order in hardware.ORDERS for cover in hardware.COVERS]
        self.assertEqual([(row["order"], row["cover"]) for row in rows], wanted)

    def test_beside_the_model(self) -> None:
        mine = [{"order": "random", "mib": 256, "cover": cover, "covered": cover / 100, "walks_per_access": 0.9,
                 "ns_per_access": 17.0} for cover in (0, 25)]  # fmt: skip
        theirs = [{**mine[0], "walks_per_access": 0.8, "ns_per_access": 3.5}]
        rows = coverage.table(mine, theirs)
        self.assertEqual(rows[1][1:], ["0%", "0.9000", "0%", "0.8000", "3.50"])
        self.assertEqual(rows[2][1:], ["25%", "0.9000", "-", "-", "-"])
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "walks.json"
            path.write_text(json.dumps({"format": hardware.FORMAT, "cpu": "c", "event": "e", "rows": theirs}))
            self.assertEqual(coverage.load(path)["rows"], theirs)
            for wrong in ({"format": 0, "rows": []}, {"format": hardware.FORMAT, "rows": [{"order": "up"}]}):
                path.write_text(json.dumps(wrong))
                with self.assertRaisesRegex(LabError, "another version"):
                    coverage.load(path)
            path.write_text("{")
            with self.assertRaisesRegex(LabError, "write it with lab/tlb/hardware.py"):
                coverage.load(path)


if __name__ == "__main__":
    unittest.main()
