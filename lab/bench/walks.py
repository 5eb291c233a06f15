# SPDX-License-Identifier: GPL-2.0-only
"""What the TLB model counted, as figures of a run: page-table walks for each operation and for each 1,000 instructions,
by what one TLB entry maps. They need no price of a walk, and change nothing in the rates beside them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.bench.run import Run
from lab.bench.spec import MIB, Case, Metric, Role
from lab.tlb import model
from lab.tlb.counts import Counts
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

    def of(self, case: Case) -> Model:
        """The model for one case: its reach in the proportion of the case's data to the real."""
        return Model(self.model.emulator, self.model.plugin, self.geometry(case), self.model.layout)

    def geometry(self, case: Case) -> Geometry:
        """The sizes for one case."""
        full = self.model.geometry
        scaled = self.real_bytes is not None and case.data_mib is not None
        return full.standing_for(self.real_bytes or 0, (case.data_mib or 0) * MIB) if scaled else full

    def line(self, case: Case) -> str:
        """What stands under a case's table."""
        if self.real_bytes is None:
            return f"TLB: {self.geometry(case).text}; at its full size."
        real = f"{self.real_bytes / (1 << 30):.3g} GiB"
        if case.data_mib is None:
            return f"TLB: {self.geometry(case).text}; at its full size, as this case's data stands for nothing else."
        return f"TLB: {self.geometry(case).text}; L2 and directory cache scaled: {case.data_mib} MiB stand for {real}."


def load(vmlinux: Path | None, join: str, real_bytes: int | None) -> Tlb:
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


def _servers(run: Run) -> set[str]:
    """Programs of the servers, as the kernel calls them."""
    names = {task.name for task in run.cell.case.tasks if task.role is Role.SERVER}
    return {end.comm for name, end in run.ends.items() if name in names}


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


def counts_of(run: Run, names: Iterable[str] | None) -> Counts:
    """Of these programs, or of all; nothing where the model was not loaded."""
    return run.tlb.counts(names) if run.tlb else Counts()


def _by_server(run: Run) -> float | None:
    names = _servers(run)
    return _per_operation(run, run.tlb.counts(names).walked) if run.tlb and names else None


def by_program(run: Run) -> dict[str, dict[str, int]]:
    """Walks in the whole run of each program that had any, in user and in kernel mode."""
    if run.tlb is None:
        return {}
    found = {name: {mode: one.walked for mode, one in modes.items()} for name, modes in run.tlb.programs.items()}
    return {name: modes for name, modes in found.items() if any(modes.values())}


def _by_kernel(run: Run) -> float | None:
    return _per_operation(run, run.tlb.counts(modes=("kernel",)).walked) if run.tlb else None


PER_OPERATION = _by_operation("all", "")
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
    _metric("walks_op_servers", "walks per operation, servers", _by_server),
    _metric("walks_op_kernel", "walks per operation, in the kernel", _by_kernel),
    REFERENCES,
    PER_INSTRUCTION,
    _by_instruction("4K", ", 4K"),
    _by_instruction("joined", ", joined"),
    _by_instruction("2M", ", 2M"),
)
"""In the order of tables."""
