#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Page-table walks and time of the lab's own access patterns on this processor, at several coverages with huge pages.

For a real machine, x86-64, with any kernel: it needs perf (Debian: linux-perf), the program lab-walks beside it or
named, and Python 3.11; nothing of the lab's kernel. It prints JSON, which `python3 -m lab walks FILE` shows beside the
model.

    cargo build --release -p lab-walks
    python3 lab/tlb/hardware.py > walks.json
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ORDERS = ("random", "sequential", "dependent")
COVERS = (0, 25, 50, 75, 90)
FORMAT = 1
_EVENTS = {
    "GenuineIntel": "dtlb_load_misses.walk_completed",
    "AuthenticAMD": "ls_l1_d_tlb_miss.all_l2_miss",
}
"""By the maker's name in /proc/cpuinfo. Intel's: completed walks for loads. AMD's: what misses both its TLBs, of loads,
stores and what the processor asks for ahead of them."""
_CORES = Path("/sys/devices/cpu_core/cpus")
"""The fast cores where there are two kinds. Each kind has its own counters."""
_NEAR, _HUGE_MIB = 0.02, 2
"""How far the memory in huge pages may be from what was asked for, beside one page of it."""
_FEW, _MANY = 2_000_000, 12_000_000
"""Accesses of two runs. Their difference has neither the start of the program in it nor the filling of its memory."""
_REPEATS = 3
_NOISE = 1e-4
"""Walks for each access by which none may seem less than none."""


class RefusedError(Exception):
    """There is nothing to report; the message says why."""


def event_of(cpuinfo: str) -> str:
    """The event that counts walks on this processor."""
    found = re.search(r"^vendor_id\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    vendor = found[1] if found else "unknown"
    if vendor not in _EVENTS:
        raise RefusedError(
            f"no event is known that counts page-table walks of a processor by {vendor}; name one of `perf list` with "
            "--event"
        )
    return _EVENTS[vendor]


def asked(event: str, hybrid: bool) -> str:
    """The event as perf is asked for it: of user code, and of one kind of cores."""
    if "/" in event:
        return f"{event}u"
    return f"cpu_core/{event}/u" if hybrid else f"{event}:u"


def _bare(name: str) -> str:
    """Without kind of cores and modifiers."""
    found = re.fullmatch(r"(?:cpu_core/)?(\w+/.+/|[^/:]+)(?:/?[a-z]*|:[a-z]*)", name)
    return found[1] if found else name


def count(text: str, event: str) -> int:
    """An event's count in the output of `perf stat -x ;`: names of events may have commas."""
    for line in text.splitlines():
        fields = line.split(";")
        if len(fields) < 3 or _bare(fields[2]) != _bare(event):
            continue
        if not fields[0].isdigit():
            raise RefusedError(
                f"perf says {fields[0]} of {event}: likely a virtual machine without the processor's counters, or "
                "counters that another program holds; use a real machine"
            )
        if len(fields) > 4 and float(fields[4] or 0) < 100:
            raise RefusedError(f"perf counted {event} in {fields[4]} % of the time only: stop what else uses counters")
        return int(fields[0])
    if "event syntax error" in text:
        raise RefusedError(
            f"perf does not know {event}: likely a virtual machine without the processor's counters, or another "
            "processor; name one of `perf list` with --event"
        )
    raise RefusedError(f"perf did not report {event}; it said: {' '.join(text.split())[-300:] or 'nothing'}")


def _measure(perf: str, program: str, event: str, plan: list[str]) -> tuple[int, dict[str, Any]]:
    with tempfile.NamedTemporaryFile() as out:
        argv = [perf, "stat", "-x;", "-o", out.name, "-e", asked(event, _CORES.exists()), "--", program, *plan]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
        text = Path(out.name).read_text(encoding="utf-8") + done.stderr
    walks = count(text, event)
    if done.returncode != 0:
        raise RefusedError(f"{program} failed with exit code {done.returncode}: {done.stderr.strip()}")
    return walks, json.loads(done.stdout)


def row(perf: str, program: str, event: str, order: str, mib: int, cover: int) -> dict[str, Any]:
    """One row. Whatever else runs only adds to a run, so the least of each length is the nearest; of differences of
    single runs it would not be."""
    runs: dict[int, list[tuple[int, dict[str, Any]]]] = {_FEW: [], _MANY: []}
    for _ in range(_REPEATS):
        for accesses, found in runs.items():
            found.append(_measure(perf, program, event, [str(mib), str(cover), f"{order}:{accesses}"]))
    what = f"{order} reads of {mib} MiB"
    covers = [said["covered"] for found in runs.values() for _, said in found]
    if any(abs(covered - cover / 100) > _NEAR + _HUGE_MIB / mib for covered in covers):
        raise RefusedError(
            f"{what}: {cover} % were to be in huge pages, and {min(covers):.0%} to {max(covers):.0%} were: likely "
            "/sys/kernel/mm/transparent_hugepage/enabled is never, or memory is in pieces; set it to madvise, or reboot"
        )
    walks, times = (min(many) - min(few) for few, many in (
        ([walks for walks, _ in runs[_FEW]], [walks for walks, _ in runs[_MANY]]),
        ([said["ns"] for _, said in runs[_FEW]], [said["ns"] for _, said in runs[_MANY]]),
    ))  # fmt: skip
    if walks < -_NOISE * (_MANY - _FEW) or times <= 0:
        raise RefusedError(
            f"{what}: the long run had fewer walks than the short one; the machine is too busy to measure"
        )
    return {"order": order, "mib": mib, "cover": cover, "covered": covers[-1],
            "walks_per_access": max(0, walks) / (_MANY - _FEW), "ns_per_access": times / (_MANY - _FEW)}  # fmt: skip


def _pin() -> None:
    """To the cores whose counters are read."""
    if _CORES.exists():
        first = re.match(r"\d+", _CORES.read_text(encoding="utf-8"))
        if first:
            os.sched_setaffinity(0, {int(first[0])})


def _cpu(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1] if found else "unknown"


def main(argv: list[str] | None = None) -> int:
    """Measures and prints; 1 with the reason where that cannot be."""
    built = Path(__file__).resolve().parents[2] / "build/cargo/release/lab-walks"
    beside = Path(__file__).resolve().with_name("lab-walks")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=beside if beside.exists() else built, help="lab-walks")
    parser.add_argument("--event", help="of `perf list`; default: by the maker of the processor")
    parser.add_argument("--mib", type=int, action="append", help="memory, a power of 2; may repeat (256 and 4096)")
    args = parser.parse_args(argv)
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    try:
        perf = shutil.which("perf")
        if perf is None:
            raise RefusedError("perf is not installed; Debian has it in linux-perf")
        if not args.program.is_file():
            raise RefusedError(f"{args.program} is missing; cargo build --release -p lab-walks, then --program PATH")
        if platform.machine() != "x86_64":
            raise RefusedError(f"lab-walks and its events are for x86-64, and this is {platform.machine()}")
        event = args.event or event_of(cpuinfo)
        _pin()
        rows = [
            row(perf, str(args.program.resolve()), event, order, mib, cover)
            for mib in args.mib or [256, 4096]
            for order in ORDERS
            for cover in COVERS
        ]
    except RefusedError as refused:
        print(f"hardware: {refused}", file=sys.stderr)
        return 1
    print(json.dumps({"format": FORMAT, "cpu": _cpu(cpuinfo), "event": event, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
