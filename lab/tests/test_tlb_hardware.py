# SPDX-License-Identifier: GPL-2.0-only
"""Walks of a processor beside those of the model, from recorded output of perf."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from lab.errors import LabError
from lab.paths import REPO
from lab.tests.tlb_records import record
from lab.tlb import coverage, hardware
from lab.tlb.geometry import Geometry

# Recorded: perf 6.1.187 on an Intel Xeon of a virtual machine without the processor's counters.
_RECORDED = "8296;;page-faults;121676617;100.00;;\n<not supported>;;dTLB-load-misses;0;100.00;;\n"
_SYNTAX = (
    "event syntax error: '..age-faults,dtlb_load_misses.walk_completed,dtlb_load_m..'\n"
    "                                  \\___ parser error\nRun 'perf list' for a list of valid events\n"
)


class CoverageTest(unittest.TestCase):
    """The model's side of the table."""

    def said(self, *covered: float) -> list[dict[str, Any]]:
        return [{"type": "walks", "covered": one, "ns": 2 * coverage.ACCESSES} for one in covered]

    def test_rows_are_those_of_hardware(self) -> None:
        records = [*self.said(0.5), record(**{"lab-walks": coverage.ACCESSES // 2 - 3})]
        [row] = coverage.rows_of(records, [("random", 50)])
        # Three walks beside those to base pages are in the record.
        self.assertEqual(
            (row["order"], row["cover"], row["covered"], row["walks_per_access"]), ("random", 50, 0.5, 0.5)
        )
        self.assertEqual(row["ns_per_access"], 2)

    def test_a_run_that_was_not_counted_is_an_error(self) -> None:
        with self.assertRaisesRegex(LabError, "2 runs were asked for, and 1 counted"):
            coverage.rows_of([*self.said(0.5, 0.5), record(**{"lab-walks": 1})], [("random", 50), ("random", 75)])
        with self.assertRaisesRegex(LabError, "counted nothing of lab-walks in the run random, 50 %"):
            coverage.rows_of([*self.said(0.5), record(other=1)], [("random", 50)])

    def test_the_kept_rows_are_as_computed_for_what_was_read(self) -> None:
        body = json.loads((REPO / "results" / "walks" / "2026-11-26-lab-walks.json").read_text())
        rows = body["metrics"]["rows"]
        self.assertEqual(len(rows), len(hardware.ORDERS) * len(hardware.COVERS))
        self.assertEqual([one.name for one in coverage.judge(rows, Geometry()) if not one.ok], [])
        # Sixty walks more or less; and what the whole 256 MiB would have at 75 %, where 31 MiB are read.
        [row] = [row for row in rows if (row["order"], row["cover"]) == ("sequential", 75)]
        for wrong in (row["walks_per_access"] - 0.00012, row["walks_per_access"] + 0.00012, 0.25 / 64):
            [one] = coverage.judge([{**row, "walks_per_access": wrong}], Geometry())
            self.assertFalse(one.ok, wrong)
        # The drawn order without a row for L2 at all, and with huge pages that take no entry.
        [row] = [row for row in rows if (row["order"], row["cover"]) == ("random", 50)]
        for wrong in (0.5, 0.5 * (1 - 2048 / 32768) - 0.003):
            [one] = coverage.judge([{**row, "walks_per_access": wrong}], Geometry())
            self.assertFalse(one.ok, wrong)

    def test_the_warm_up_is_that_of_lab_walks(self) -> None:
        source = (REPO / "lab" / "walks" / "src" / "main.rs").read_text()
        self.assertIn(f"const WARM_UP: u64 = {coverage.WARM_UP:_};", source)
        self.assertIn("read(&memory, order, 1, WARM_UP.min(accesses))", source)


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
