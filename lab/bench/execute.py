# SPDX-License-Identifier: GPL-2.0-only
"""Runs cells, each in a guest of its own, or takes them from the journal."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import programs, vm
from lab.bench import software
from lab.bench.cell import Cell, digest
from lab.bench.journal import Journal
from lab.bench.payload import Payload
from lab.bench.run import Run, TaskError, read
from lab.bench.walks import Tlb
from lab.errors import Exit
from lab.report.parts import number
from lab.tlb import model
from lab.tlb.model import Model
from lab.vm import qemu, schedule

NONSENSE = (ValueError, KeyError, TypeError, IndexError)
"""What reading records raises that do not tell a whole story."""
_TALKS_S = 1.0
"""How often a running cell says how far it is."""


@dataclass(frozen=True)
class World:
    """What all cells of a `make bench` have in common."""

    kernel: Path
    mode: vm.Mode
    mthp_ext: Path
    guest: Path
    journal: Journal | None
    """Where runs are kept; None: nowhere."""
    fresh: bool = False
    """Measure again what the journal has."""
    tlb: Tlb | None = None
    """The TLB model, for cells that ask for it; None: there are none."""
    emulator: qemu.Emulator | None = None
    """Another QEMU than the host's for cells without the model."""
    stop_s: float | None = None
    """Wall-clock seconds after which a run is stopped; None: by its case."""
    carried: Callable[[vm.Job], vm.Job] = lambda job: job
    """What a guest needs beside its cell: on a stock kernel, the module."""

    def model(self, cell: Cell) -> Model | None:
        """The TLB model for a cell; None: it runs in the host's own QEMU, without one."""
        return self.tlb.of(cell.case) if self.tlb and cell.modelled else None

    def cpus(self, cell: Cell) -> int:
        """Processors of a cell's guest."""
        return cell.case.machine.cpus or (1 if self.mode is vm.Mode.ICOUNT else 2)

    def parts(self, cell: Cell, payload: Payload) -> dict[str, str]:
        """The emulated machine, and the hashes of all files that take part in a cell. Of mthp_ext only where it runs:
        static arms outlive a change of the policies."""
        ours = {"guest": self.guest} | ({} if cell.arm.static else {"mthp_ext": self.mthp_ext})
        tlb = self.model(cell)
        emulator = tlb.emulator if tlb else self.emulator
        program = emulator.program if emulator else qemu.binary()
        files = {"kernel": self.kernel, "qemu": Path(program), **ours}
        found = {name: software.file_hash(path) for name, path in files.items()}
        found |= {"tlb": tlb.identity()} if tlb else {}
        of_case = cell.case.machine
        hardware = qemu.hardware(self.mode, of_case.memory_mib, self.cpus(cell), of_case.nodes)
        machine = " ".join([*hardware, qemu.line(self.mode, self.cpus(cell))])
        return {"machine": machine, **found, **software.hashes(payload, *ours.values())}


def _prepare(cell: Cell, world: World) -> tuple[Payload, dict[str, Any], str]:
    """What the guest gets, the cell as it reads it, and the hash of all that decides what the run measures."""
    payload = software.merge(cell.case.software)
    paths = {name: str(path) for name, path in payload.paths.items()}
    job = cell.job(paths, str(world.mthp_ext))
    return payload, job, digest(cell, job, world.parts(cell, payload))


def is_kept(cell: Cell, world: World) -> bool:
    """Does the journal have the cell's run?"""
    return _kept(cell, world, _prepare(cell, world)[2]) is not None


def _kept(cell: Cell, world: World, key: str) -> Run | None:
    """The journal's run of this hash; None if it has none that makes sense."""
    entry = world.journal.get(key) if world.journal else None
    if entry is None:
        return None
    try:
        return read(cell, entry.records, entry.wall_s, kept=True)
    except NONSENSE:
        return None


def run_cell(cell: Cell, world: World, progress: schedule.Progress) -> Run:
    """The cell's run, from the journal or from its guest."""
    payload, job, key = _prepare(cell, world)
    kept = None if world.fresh else _kept(cell, world, key)
    if kept:
        progress.end(cell.label, f"{summary(kept)} (kept)")
        return kept
    progress.show(cell.label, "booting")
    outcome = vm.run(world.carried(_vm_job(cell, world, payload, job)), _Talker(cell, progress))
    outcome.check(cell.label)
    if outcome.splats:
        raise schedule.error_of(cell.label, f"the kernel complained: {outcome.splats[0]}", outcome.console)
    if world.model(cell):
        model.check(outcome.records, cell.label, outcome.console)
    run = _read(cell, outcome.records, outcome.seconds, outcome.output)
    # What this machine was too slow for, it or another one may do another day.
    if world.journal and not run.by_host:
        world.journal.put(key, cell.label, outcome.records, outcome.seconds)
    progress.end(cell.label, f"{summary(run)} ({run.wall_s:.0f} s)")
    return run


def _vm_job(cell: Cell, world: World, payload: Payload, job: Mapping[str, Any]) -> vm.Job:
    stop_s = world.stop_s or cell.case.stop_s
    return vm.Job(
        kernel=world.kernel,
        argv=["/init", "bench", "/lab/cell.json"],
        # mthp_ext in all arms: it lies in the guest's memory.
        programs=[world.mthp_ext, *payload.paths.values(), *payload.programs],
        files=payload.files,
        data={**payload.data, "/lab/cell.json": json.dumps(job).encode()},
        memory_mib=cell.case.machine.memory_mib,
        cpus=world.cpus(cell),
        nodes=cell.case.machine.nodes,
        mode=world.mode,
        timeout_s=stop_s + vm.GRACE_S,
        stop_s=stop_s,
        name=cell.name,
        plugin=world.model(cell),
        emulator=world.emulator,
    )


def _read(cell: Cell, records: Sequence[dict[str, Any]], wall_s: float, output: Path) -> Run:
    try:
        run = read(cell, records, wall_s)
    except TaskError as error:
        raise schedule.error_of(cell.label, str(error), output) from error
    except NONSENSE as error:
        raise schedule.error_of(cell.label, f"its records make no sense: {error!r}", output) from error
    if run.by_host and all(score.of(run) is None for score in cell.case.scores):
        cause = f"the clock of this machine stopped it after {wall_s:.0f} s, before there was anything to rate"
        raise schedule.error_of(cell.label, cause, output, Exit.GUEST_TIMEOUT)
    return run


class _Talker:
    """Shows how far a guest is."""

    def __init__(self, cell: Cell, progress: schedule.Progress) -> None:
        self._cell, self._progress = cell, progress
        self._begin: int | None = None
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        if not self._progress.live or time.monotonic() < self._next or "t_ms" not in record:
            return
        if record.get("type") == "begin":
            self._begin = int(record["t_ms"])
        text = (
            "starting" if self._begin is None else f"{(int(record['t_ms']) - self._begin) / 1000:.1f} s of guest time"
        )
        self._progress.show(self._cell.label, text)
        self._next = time.monotonic() + _TALKS_S


def fate(run: Run) -> str:
    """What became of a run that did not come to its end; empty if it did."""
    if run.died:
        name, when = min(run.died.items(), key=lambda item: item[1])
        return f"{name} OOM-killed after {when:.2f} s"
    if run.oom_kills:
        return f"{run.oom_kills} processes OOM-killed"
    if run.by_host:
        return f"stopped by the clock of this machine after {run.elapsed_s:.1f} s of guest time"
    if run.bounded:
        return f"stopped after {run.elapsed_s:.0f} s"
    return ""


def fates_of(runs: Sequence[Run]) -> list[str]:
    """The different fates of several runs; empty if all came to their end."""
    return sorted({fate(run) for run in runs} - {""})


def summary(run: Run) -> str:
    """One line about a finished run."""
    parts = []
    for score in run.cell.case.scores:
        value = score.of(run)
        parts.append("no figure" if value is None else f"{number(value)} {score.unit or score.label}")
    return ", ".join(filter(None, [*parts, fate(run)]))


def shared(cells: Sequence[Cell], world: World) -> schedule.Shared[Cell, Run]:
    """The same as parts of a pool that has others, whose lines stand between those of cells."""
    progress = schedule.Progress(len(cells), live=False)
    return schedule.Shared(
        cells,
        lambda cell: run_cell(cell, world, progress),
        lambda cell, error: progress.fail(cell.label, error),
        lambda cell: (cell.label, cell.name),
        tried=lambda run: not run.kept,
    )


def run_all(cells: Sequence[Cell], world: World, width: int, *, known_to_work: bool = False) -> schedule.Finished[Run]:
    """Runs `cells`, `width` at a time; see lab.vm.schedule.run_all."""
    programs.guest()
    progress = schedule.Progress(len(cells))
    try:
        return schedule.run_all(
            cells,
            lambda cell: run_cell(cell, world, progress),
            lambda cell, error: progress.fail(cell.label, error),
            width,
            names=lambda cell: (cell.label, cell.name),
            tried=lambda run: not run.kept,
            known_to_work=known_to_work,
        )
    finally:
        progress.close()
