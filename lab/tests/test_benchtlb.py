# SPDX-License-Identifier: GPL-2.0-only
import io
import json
import os
import subprocess
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

from lab import results
from lab.__main__ import _parser
from lab.bench import benchtlb, run, software
from lab.bench.cell import Cell
from lab.bench.run import Run
from lab.checks.tlb import judge_own
from lab.errors import Exit, LabError
from lab.paths import REPO
from lab.tests.bench_runs import records
from lab.tests.tlb_records import counted, record
from lab.tlb.counts import read
from lab.tlb.geometry import Geometry

_PLAIN = {"PATH": os.environ["PATH"]}
"""What make passes on to the makes it starts would change the output."""


def ran(arm: int, walks: int, faults: int = 1234, large: int = 20) -> Run:
    """A run of a made-up program under one of the arms; of its 100 MiB so many folios have 2 MiB."""
    case = benchtlb.case("my program", 2048)
    sent = records(case, large=large)
    sent[-1]["vmstat"]["pgfault"] = faults
    found = run.read(Cell(case, benchtlb.ARMS[arm], "classic", 0), sent, 1.0)
    window = {"type": "tlb", "window": 1, "programs": [
        {"name": "<mine>", "group": 100, "user": counted(walks), "kernel": counted(0)},
    ]}  # fmt: skip
    return replace(found, tlb=read([window])[0])


class PayloadTest(unittest.TestCase):
    def setUp(self) -> None:
        self.held = tempfile.TemporaryDirectory()
        self.addCleanup(self.held.cleanup)
        self.path = Path(self.held.name)

    def script(self, name: str, mode: int = 0o755, text: str = "#!/bin/sh\n") -> Path:
        path = self.path / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_a_program_comes_with_its_libraries(self) -> None:
        program = Path("/bin/ls")
        files = benchtlb.payload(program, 256).files
        self.assertEqual(files["/own/run"], program)
        self.assertTrue(any("libc.so" in name for name in files), files)

    def test_a_directory_keeps_its_shape(self) -> None:
        self.script("run")
        (self.path / "data").mkdir()
        self.script("data/x", 0o644, "x")
        self.assertEqual(set(benchtlb.payload(self.path, 256).files), {"/own/run", "/own/data/x"})

    def test_what_cannot_run_is_refused_with_the_remedy(self) -> None:
        for path, said in (
            (self.path / "none", "there is no such program or directory"),
            (self.path, "has no file named run; make one"),
            (self.script("closed", 0o644), "chmod \\+x"),
            (self.script("text", 0o755, "hello\n"), "neither an ELF file nor a script"),
            (self.script("bash", 0o755, "#!/bin/bash\n"), "is for /bin/bash, which the guest does not have"),
            (self.script("env", 0o755, "#! /usr/bin/env python3\n"), "is for /usr/bin/env"),
        ):
            with self.assertRaisesRegex(LabError, said) as caught:
                benchtlb.payload(path, 256)
            self.assertEqual(caught.exception.code, Exit.USAGE)

    def test_an_interpreter_may_be_brought(self) -> None:
        self.script("run", text="#!/own/mine -x\n")
        self.script("mine")
        self.assertIn("/own/mine", benchtlb.payload(self.path, 256).files)

    def test_more_than_the_guest_can_hold_is_refused(self) -> None:
        self.script("run")
        with (self.path / "data").open("wb") as file:
            file.truncate(65 << 20)
        with self.assertRaisesRegex(LabError, "has 65 MiB, more than a quarter of the guest's memory"):
            benchtlb.payload(self.path, 256)
        self.assertIn("/own/data", benchtlb.payload(self.path, 512).files)

    def test_what_cannot_be_read_is_refused_with_its_name(self) -> None:
        self.script("run")
        with (
            mock.patch("pathlib.Path.open", side_effect=PermissionError(13, "Permission denied")),
            self.assertRaisesRegex(LabError, "cannot be read .Permission denied."),
        ):
            benchtlb.payload(self.path, 256)

    def test_memory_has_bounds(self) -> None:
        with self.assertRaisesRegex(LabError, "--memory must be from 256"):
            benchtlb.main(self.script("run"), 100)
        with self.assertRaisesRegex(LabError, "no program is named: make bench-tlb FILE="):
            benchtlb.main(None, 2048)

    def test_the_guest_gets_it_as_software_of_the_case(self) -> None:
        for name in ("first", "second"):
            own = benchtlb.payload(self.script(name), 256)
            software.provide("own", own)
            self.assertEqual(software.merge(benchtlb.case("run", 512).software).files, own.files)


class GateTest(unittest.TestCase):
    """Of the program that `make test` runs."""

    def failing(self, **changed: Run) -> list[str]:
        """Where the settings do what they are for, except the changed ones."""
        right = {
            "always": ran(0, 600, 175, 45),
            "never": ran(1, 17_000, 16_539, 0),
            "only64": ran(2, 17_000, 1_200, 0),
            "mthp_ext": ran(3, 3_000, 300, 38),
        }
        found = judge_own(list((right | changed).values()))
        return [one.name.removeprefix("bench-tlb: ") for one in found if not one.ok]

    def test_what_each_setting_must_do(self) -> None:
        self.assertEqual(self.failing(), [])
        memory = "memory in folios of 2M"
        self.assertEqual(self.failing(always=ran(0, 9_000, 175, 45)), ["walks with small pages / with large ones"])
        self.assertEqual(self.failing(always=ran(0, 600, 1_700, 45)), ["faults with small pages / with large ones"])
        self.assertEqual(self.failing(always=ran(0, 600, 175, 30)), [f"{memory}, always"])
        self.assertEqual(self.failing(never=ran(1, 17_000, 16_539, 1)), [f"{memory}, never"])
        self.assertEqual(
            self.failing(only64=ran(2, 17_000, 16_539, 0)), ["faults with small pages / with those of 64K"]
        )
        self.assertEqual(self.failing(only64=ran(2, 17_000, 1_200, 1)), [f"{memory}, 64K only"])
        self.assertEqual(self.failing(mthp_ext=ran(3, 17_000, 300, 0)), [f"{memory}, default policy"])

    def test_every_setting_must_have_run(self) -> None:
        for runs in ([], [ran(0, 5)], [ran(arm, 5) for arm in range(3)]):
            self.assertEqual([one.ok for one in judge_own(runs)], [False])


class PageTest(unittest.TestCase):
    def test_the_table_has_every_arm_and_figure(self) -> None:
        rows = benchtlb.table([ran(0, 5), ran(1, 5000)])
        self.assertEqual(rows[0], ["", "always", "never"])
        by_label = {row[0]: row[1:] for row in rows}
        self.assertEqual(by_label["of them to 4K pages"], ["5", "5,000"])
        self.assertEqual(by_label["page faults"], ["1,234", "1,234"])
        self.assertEqual(len(rows), len(benchtlb.ROWS) + 1)

    def test_the_files(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            write = results.write
            modelled = {"tlb": "L1 96", "qemu": "QEMU emulator version 10.0.2"}
            began = results.environment(None, "icount", program="my <program>", coalesce="16K", **modelled)
            report = partial(benchtlb._report, environment={**began, "revision": "of the start"}, identity="mine")
            with (
                mock.patch("lab.bench.benchtlb.RESULTS", directory),
                mock.patch("lab.results.write", partial(write, directory=directory)),
                redirect_stdout(io.StringIO()) as shown,
            ):
                code = report([ran(0, 5), ran(1, 5000)], complaints=[])
                failed = report([ran(0, 5)], complaints=["never failed"])
            self.assertEqual((code, failed), (Exit.OK, Exit.GUEST_FAILED))
            self.assertIn("never failed", shown.getvalue())
            page = (directory / "bench-tlb.html").read_text()
            self.assertIn("my &lt;program&gt;", page)
            self.assertNotIn("<mine>", page)
            self.assertIn("TLB: L1 96; coalescing: 16K.", page)
            self.assertIn("TLB: L1 96; coalescing: 16K.", (directory / "bench-tlb.md").read_text())
            body = json.loads((directory / "bench-tlb.json").read_text())
            self.assertEqual(body["environment"]["qemu"], modelled["qemu"], "the one that ran, not the host's")
            self.assertEqual(body["environment"]["coalesce"], "16K")
            self.assertEqual(body["environment"]["revision"], "of the start")
            self.assertEqual(body["environment"]["kernel"], ran(0, 5).release)
            self.assertEqual(body["metrics"]["model"], "mine")
            self.assertEqual(body["metrics"]["walks_by_program"]["always"]["<mine>"], {"user": 8, "kernel": 3})

    def test_the_model_is_asked_to_join(self) -> None:
        class GotThereError(Exception):
            pass

        for words, join in (([], "off"), (["--coalesce", "16K"], "16K"), (["--coalesce", "64K"], "64K")):
            with (
                mock.patch("lab.setup.ensure"),
                mock.patch("lab.kernel.build.ensure"),
                mock.patch("lab.bench.walks.model.load", side_effect=GotThereError) as load,
                self.assertRaises(GotThereError),
            ):
                args = _parser().parse_args(["bench-tlb", "/bin/ls", *words])
                args.call(args)
            self.assertEqual(load.call_args.args[0], Geometry(join=join))
        with redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            _parser().parse_args(["bench-tlb", "--coalesce", "32K", "/bin/ls"])
        # Python 3.12 and later quote no choices.
        self.assertRegex(said.getvalue(), "choose from '?off'?, '?16K'?, '?64K'?")

    def test_make_hands_the_option_on(self) -> None:
        for words, wanted in (([], "bench-tlb 'x'"), (["COALESCE=64K"], "bench-tlb --coalesce '64K' 'x'")):
            argv = ["make", "-n", "--no-print-directory", "bench-tlb", "FILE=x", *words]
            done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=True, env=_PLAIN)
            self.assertIn(wanted, " ".join(done.stdout.split()))

    def test_walks_to_pages_that_share_an_entry_have_a_row(self) -> None:
        one = ran(2, 7)
        window = record(mine=5)
        window["programs"][0]["user"]["walks"] |= {"16": 3, "64": 4}
        by_label = {row[0]: row[1:] for row in benchtlb.table([replace(one, tlb=read([window])[0]), one])}
        self.assertEqual(by_label["of them to joined base pages"], ["7", "0"])

    def test_a_program_that_goes_on_is_marked(self) -> None:
        stopped = replace(ran(1, 7), bounded=True)
        page = benchtlb.page("p", [stopped], "L1", {})
        self.assertIn("never: stopped after", page)
        by_label = {row[0]: row[1:] for row in benchtlb.table([stopped, ran(0, 5)])}
        self.assertEqual(by_label["page-table walks"], ["-", "11"], "it did another amount of work")
        self.assertNotEqual(by_label["page-table walks per 1,000 instructions"][0], "-")
        self.assertEqual(benchtlb._programs([stopped, ran(0, 5)]), [])
