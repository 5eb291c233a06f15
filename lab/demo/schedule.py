# SPDX-License-Identifier: GPL-2.0-only
"""Runs the demo's cells, two at a time, each in a guest of its own."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import programs, vm
from lab.demo.cells import Cell
from lab.demo.outcome import Run, read
from lab.demo.text import stopped
from lab.errors import Exit
from lab.vm import schedule as guests
from lab.vm.schedule import Progress

Finished = guests.Finished[Run]
"""What came out of a plan."""


@dataclass(frozen=True)
class Programs:
    """Host paths of what runs in the guest."""

    mthp_ext: Path
    server: Path
    benchmark: Path


def _record(progress: Progress, cell: Cell, record: dict[str, Any], begun: float) -> None:
    if not progress.live:
        return
    kind = record.get("type")
    if kind == "begin":
        progress.show(cell.label, "running")
    elif kind == "progress":
        rate = f"{record.get('overall', 0):,.0f} requests/s"
        progress.show(cell.label, f"{rate}, {time.monotonic() - begun:.0f} s")
    elif kind == "policy" and record.get("event") == "decision" and record.get("cgroup") == "/redis":
        progress.show(cell.label, f"policy: {record.get('to')} ({record.get('why')})")


def outcome_line(run: Run) -> str:
    """One line about a finished cell."""
    rate = f"{run.rps:,.0f} requests/s"
    if run.killed_s is not None:
        rate = f"{'OOM-killed' if run.oom_kills else 'server died'} after {run.killed_s:.2f} s"
    elif run.bounded:
        rate += f", {stopped(run)}, {run.served:,} requests served"
    elif run.latency:
        rate += f", p99 {run.latency['p99_ms']:.1f} ms"
    return f"{rate} ({run.wall_s:.0f} s)"


def run_cell(cell: Cell, kernel: Path, mode: vm.Mode, programs_: Programs, progress: Progress, stop_s: float) -> Run:
    """Boots the cell's guest and returns what it measured."""
    begun = time.monotonic()
    progress.show(cell.label, "booting")
    server, benchmark = programs_.server.resolve(), programs_.benchmark.resolve()
    job = vm.Job(
        kernel=kernel,
        argv=["/init", "redis", "/lab/cell.json"],
        programs=[programs_.mthp_ext, server, benchmark],
        data={"/lab/cell.json": cell.job(str(programs_.mthp_ext), str(server), str(benchmark))},
        memory_mib=cell.scale.memory_mib,
        cpus=1 if mode is vm.Mode.ICOUNT else 2,
        mode=mode,
        timeout_s=stop_s + vm.GRACE_S,
        stop_s=stop_s,
        name=f"demo-{cell.name}",
    )
    outcome = vm.run(job, lambda record: _record(progress, cell, record, begun))
    outcome.check(cell.label)
    if outcome.splats:
        raise guests.error_of(cell.label, f"the kernel complained: {outcome.splats[0]}", outcome.console)
    try:
        run = read(cell, outcome.records, outcome.seconds)
    except (ValueError, KeyError, TypeError) as error:
        raise guests.error_of(cell.label, f"its records make no sense: {error!r}", outcome.output) from error
    if run.by_host and not run.served:
        cause = f"the clock of this machine stopped it after {stop_s:g} s, before a request was served"
        raise guests.error_of(cell.label, cause, outcome.console, Exit.GUEST_TIMEOUT)
    progress.end(cell.label, outcome_line(run))
    return run


def run_all(
    cells: Sequence[Cell], kernel: Path, mode: vm.Mode, programs_: Programs, width: int, stop_s: float | None = None
) -> Finished:
    """Runs `cells`, `width` at a time, each for `stop_s` of wall-clock time at the most (by default its scale's); see
    lab.vm.schedule.run_all."""
    programs.guest()
    progress = Progress(len(cells))
    try:
        return guests.run_all(
            cells,
            lambda cell: run_cell(cell, kernel, mode, programs_, progress, stop_s or cell.scale.stop_s),
            lambda cell, error: progress.fail(cell.label, error),
            width,
            names=lambda cell: (cell.label, cell.name),
        )
    finally:
        progress.close()
