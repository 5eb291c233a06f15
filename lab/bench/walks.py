# SPDX-License-Identifier: GPL-2.0-only
"""What the TLB model counted, as figures of a run: page-table walks for each operation and for each 1,000 instructions,
by what one TLB entry maps. They need no price of a walk, and come from runs of their own, in the model's QEMU: rates
beside them are those of other runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.bench.cell import Cell
from lab.bench.run import Run
from lab.bench.spec import MIB, Case, Metric, Role
from lab.tlb import model
from lab.tlb.counts import MODES, Counts
from lab.tlb.geometry import Geometry
from lab.tlb.model import Model

_SIZES = {"4K": (4,), "joined": (16, 64), "2M": (2048, 1 << 20)}
"""Part of a key -> KiB that one entry maps. What the kernel maps by 1 GiB counts with 2 MiB: few, and not the
program's."""


@dataclass(frozen=True)
class Tlb:
    """The model for all cells of a `make bench`."""

    model: Model
    real_bytes: int | None = None
    """Data that the cases stand for; None: the TLB is taken at its full size."""

    def of(self, case: Case) -> Model | None:
        """The model for one case: its reach in the proportion of the case's data to the real. None where the case has
        several processors, which the model does not know."""
        if not fits(case):
            return None
        return Model(self.model.emulator, self.model.plugin, self.geometry(case), self.model.layout)

    def geometry(self, case: Case) -> Geometry:
        """The sizes for one case."""
        full = self.model.geometry
        scaled = self.real_bytes is not None and case.data_mib is not None
        return full.standing_for(self.real_bytes or 0, (case.data_mib or 0) * MIB) if scaled else full

    def line(self, case: Case) -> str:
        """What stands under a case's table."""
        if not fits(case):
            return "TLB: not modelled, since the case has several processors."
        sizes = f"TLB, in runs of its own: {self.geometry(case).text};"
        if self.real_bytes is None:
            return f"{sizes} at its full size."
        if case.data_mib is None:
            return f"{sizes} at its full size, as this case's data stands for nothing else."
        real = f"{self.real_bytes / (1 << 30):.3g} GiB"
        return f"{sizes} scaled, as {case.data_mib} MiB stand for {real}; full size: reach {self.model.geometry.reach}."


def fits(case: Case) -> bool:
    """Whether the case can be modelled: in instruction-counted emulation it has one processor."""
    return case.machine.cpus in (None, 1)


def plan(cells: Sequence[Cell], runs: int) -> list[Cell]:
    """A modelled twin of the first so many runs of each cell that can be."""
    return [replace(cell, modelled=True) for cell in cells if cell.repeat < runs and fits(cell.case)]


def load(vmlinux: Path, join: str, real_bytes: int | None) -> Tlb:
    """LabError if the model cannot be had."""
    return Tlb(model.load(Geometry(join=join), vmlinux), real_bytes)


def operations(run: Run) -> float | None:
    """Requests, loops and the like in the measured time, if the first score is a rate; else the run is one. A further
    score may be of another time."""
    score = run.cell.case.scores[0]
    for ending, seconds in (("/s", 1.0), ("/minute", 60.0)):
        if score.label.endswith(ending):
            rate = score.of(run)
            return None if not rate else rate * run.elapsed_s / seconds
    return None if run.died or run.bounded else 1.0


def _servers(run: Run) -> set[int]:
    """Process groups of the servers: each task begins one, and whatever it starts is in it."""
    names = {task.name for task in run.cell.case.tasks if task.role is Role.SERVER}
    return {end.pid for name, end in run.ends.items() if name in names}


def _of(counts: Counts, kinds: Iterable[str]) -> int | None:
    """Walks to entries of these kinds; None if the model had none of the kind."""
    sizes = [kib for kind in kinds for kib in _SIZES[kind] if kib in counts.walks]
    return sum(counts.walks[kib] for kib in sizes) if sizes else None


def _metric(key: str, label: str, value: Callable[[Run], float | None]) -> Metric:
    return Metric(key, label, "", -1, lambda run: None if run.tlb is None else value(run))


def _per_operation(run: Run, count: float | None) -> float | None:
    done = operations(run)
    return count / done if done and count is not None else None


def _by_operation(kind: str, what: str) -> Metric:
    kinds = _SIZES if kind == "all" else (kind,)
    return _metric(
        f"walks_op_{kind.lower()}", f"walks per operation{what}",
        lambda run: _per_operation(run, _of(run.tlb.counts(), kinds)) if run.tlb else None,
    )  # fmt: skip


def _by_instruction(kind: str, what: str) -> Metric:
    kinds = _SIZES if kind == "all" else (kind,)

    def value(run: Run) -> float | None:
        counts = run.tlb.counts() if run.tlb else Counts()
        walks = _of(counts, kinds)
        return 1000 * walks / counts.instructions if walks is not None and counts.instructions else None

    return _metric(f"walks_ki_{kind.lower()}", f"walks per 1,000 instructions{what}", value)


def _by_server(run: Run) -> float | None:
    groups = _servers(run)
    if run.tlb is None or not groups:
        return None
    # One that never ran has no figure, rather than one without it.
    seen = {group for _, group in run.tlb.groups}
    return _per_operation(run, run.tlb.counts(groups).walked) if groups <= seen else None


def by_program(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Walks in the whole run of each program that had any, in user and in kernel mode; the mean of several runs."""
    windows = [run.tlb for run in runs if run.tlb]
    names = sorted({name for window in windows for name, _ in window.groups})
    found = {}
    for name in names:
        programs = [window.program(name) or {} for window in windows]
        means = {mode: sum(one.get(mode, Counts()).walked for one in programs) / len(windows) for mode in MODES}
        if any(means.values()):
            found[name] = means
    return found


def _by_kernel(run: Run) -> float | None:
    return _per_operation(run, run.tlb.counts(modes=("kernel",)).walked) if run.tlb else None


PER_OPERATION = _by_operation("all", "")
SERVERS = _metric("walks_op_servers", "walks per operation, servers", _by_server)
PER_INSTRUCTION = _by_instruction("all", "")
REFERENCES = _metric(
    "references_op", "page-table reads per operation",
    lambda run: _per_operation(run, run.tlb.counts().references) if run.tlb else None,
)  # fmt: skip
WALKS = (
    PER_OPERATION,
    _by_operation("4K", ", 4K"),
    _by_operation("joined", ", joined"),
    _by_operation("2M", ", 2M"),
    SERVERS,
    _metric("walks_op_kernel", "walks per operation, in the kernel", _by_kernel),
    REFERENCES,
    PER_INSTRUCTION,
    _by_instruction("4K", ", 4K"),
    _by_instruction("joined", ", joined"),
    _by_instruction("2M", ", 2M"),
)
"""In the order of tables."""
