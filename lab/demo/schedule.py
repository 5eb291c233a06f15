# SPDX-License-Identifier: GPL-2.0-only
"""Runs cells, two at a time, each in a guest of its own, and shows how far they are."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import proc, programs, vm
from lab.demo.cells import Cell
from lab.demo.outcome import Run, read
from lab.errors import Exit, LabError


@dataclass(frozen=True)
class Programs:
    """Host paths of what runs in the guest."""

    mthp_ext: Path
    server: Path
    benchmark: Path


@dataclass
class Progress:
    """What is shown while cells run: live lines on a terminal, a line per event elsewhere."""

    total: int
    live: bool = field(default_factory=lambda: sys.stdout.isatty())
    done: int = 0
    _running: dict[str, str] = field(default_factory=dict)
    _lines: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, cell: Cell) -> None:
        """A cell begins."""
        with self._lock:
            self._running[cell.label] = "booting"
            self._draw()

    def record(self, cell: Cell, record: dict[str, Any], begun: float) -> None:
        """A record came from a guest."""
        if not self.live:
            return
        kind = record.get("type")
        with self._lock:
            if kind == "begin":
                self._running[cell.label] = "running"
            elif kind == "progress":
                rate = f"{record.get('overall', 0):,.0f} requests/s"
                self._running[cell.label] = f"{rate}, {time.monotonic() - begun:.0f} s"
            elif kind == "policy" and record.get("event") == "decision" and record.get("cgroup") == "/redis":
                self._running[cell.label] = f"policy: {record.get('to')} ({record.get('why')})"
            else:
                return
            self._draw()

    def end(self, cell: Cell, text: str) -> None:
        """A cell is done."""
        with self._lock:
            self._running.pop(cell.label, None)
            self.done += 1
            self._clear()
            print(f"[{self.done:2}/{self.total}] {cell.label}: {text}", flush=True)
            self._draw()

    def close(self) -> None:
        """Leaves the terminal tidy."""
        with self._lock:
            self._running.clear()
            self._clear()

    def _clear(self) -> None:
        if self.live and self._lines:
            sys.stdout.write(f"\x1b[{self._lines}A\x1b[J")
            self._lines = 0

    def _draw(self) -> None:
        if not self.live:
            return
        self._clear()
        width = os.get_terminal_size().columns
        for label, text in self._running.items():
            sys.stdout.write(f"        {label}: {text}"[: width - 1] + "\n")
        self._lines = len(self._running)
        sys.stdout.flush()


def outcome_line(run: Run) -> str:
    """One line about a finished cell."""
    rate = f"{run.rps:,.0f} requests/s"
    if run.killed_s is not None:
        rate = f"{'OOM-killed' if run.oom_kills else 'server died'} after {run.killed_s:.2f} s"
    elif run.bounded:
        rate += f", stopped after {run.elapsed_s:.0f} s with {run.served:,} requests served"
    elif run.latency:
        rate += f", p99 {run.latency['p99_ms']:.1f} ms"
    return f"{rate} ({run.wall_s:.0f} s)"


def run_cell(cell: Cell, kernel: Path, mode: vm.Mode, programs_: Programs, progress: Progress) -> Run:
    """Boots the cell's guest and returns what it measured."""
    begun = time.monotonic()
    progress.start(cell)
    server, benchmark = programs_.server.resolve(), programs_.benchmark.resolve()
    job = vm.Job(
        kernel=kernel,
        argv=["/init", "redis", "/lab/cell.json"],
        programs=[programs_.mthp_ext, server, benchmark],
        data={"/lab/cell.json": cell.job(str(programs_.mthp_ext), str(server), str(benchmark))},
        memory_mib=cell.scale.memory_mib,
        cpus=1 if mode is vm.Mode.ICOUNT else 2,
        mode=mode,
        timeout_s=cell.scale.timeout_s,
        name=f"demo-{cell.name}",
    )
    outcome = vm.run(job, lambda record: progress.record(cell, record, begun))
    outcome.check(cell.label)
    if outcome.splats:
        raise LabError(
            Exit.GUEST_FAILED, f"{cell.label}: the kernel complained: {outcome.splats[0]}; {outcome.console}"
        )
    try:
        run = read(cell, outcome.records, outcome.seconds)
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            Exit.GUEST_FAILED, f"{cell.label}: its records make no sense: {error}; {outcome.output}"
        ) from error
    progress.end(cell, outcome_line(run))
    return run


@dataclass(frozen=True)
class Finished:
    """What came out of a plan."""

    runs: list[Run]
    errors: list[LabError]
    interrupted: bool


def run_all(cells: Sequence[Cell], kernel: Path, mode: vm.Mode, programs_: Programs, width: int) -> Finished:
    """Runs `cells`, `width` at a time. A cell that fails does not stop the others; an interrupt stops all and keeps
    what was measured."""
    programs.guest()
    progress = Progress(len(cells))
    runs: list[Run] = []
    errors: list[LabError] = []
    interrupted = False
    pool = ThreadPoolExecutor(width)
    futures: list[tuple[Cell, Future[Run]]] = [
        (cell, pool.submit(run_cell, cell, kernel, mode, programs_, progress)) for cell in cells
    ]
    try:
        for cell, future in futures:
            try:
                runs.append(future.result())
            except LabError as error:
                errors.append(error)
                progress.end(cell, f"failed: {str(error).splitlines()[0]}")
    except BaseException as stop:
        pool.shutdown(wait=False, cancel_futures=True)
        # The threads wait for their guests; one may be about to start its guest only now.
        while not all(future.done() for _, future in futures):
            proc.stop_all()
            time.sleep(0.1)
        if not isinstance(stop, KeyboardInterrupt):
            raise
        interrupted = True
        seen = {id(run) for run in runs}
        done = [f.result() for _, f in futures if not f.cancelled() and f.exception() is None]
        runs += [run for run in done if id(run) not in seen]
    finally:
        progress.close()
        pool.shutdown()
    return Finished(runs, errors, interrupted)
