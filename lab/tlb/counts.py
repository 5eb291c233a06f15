# SPDX-License-Identifier: GPL-2.0-only
"""What the TLB model counted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MODES = ("user", "kernel")


@dataclass(frozen=True)
class Counts:
    """Of one program in one mode, or of several together."""

    instructions: int = 0
    accesses: int = 0
    l1_misses: int = 0
    references: int = 0
    """Page-table entries that walks read, with what the page-walk caches held."""
    lost: int = 0
    """Accesses to pages that the tables no longer had."""
    walks: Mapping[int, int] = field(default_factory=dict)
    """KiB that one TLB entry maps -> walks."""

    @property
    def walked(self) -> int:
        """Walks of all sizes."""
        return sum(self.walks.values())


def total(counts: Iterable[Counts]) -> Counts:
    """All of them together."""
    every = list(counts)
    return Counts(
        instructions=sum(one.instructions for one in every),
        accesses=sum(one.accesses for one in every),
        l1_misses=sum(one.l1_misses for one in every),
        references=sum(one.references for one in every),
        lost=sum(one.lost for one in every),
        walks={kib: sum(one.walks.get(kib, 0) for one in every) for one in every for kib in one.walks},
    )


@dataclass(frozen=True)
class Window:
    """What was counted between two marks of the guest."""

    label: int
    programs: dict[str, dict[str, Counts]]
    """Name of the program, as the kernel has it -> mode -> counts."""

    def counts(self, names: Iterable[str] | None = None, modes: Sequence[str] = MODES) -> Counts:
        """Of these programs, or of all, in these modes."""
        wanted = self.programs if names is None else set(names) & set(self.programs)
        return total(self.programs[name][mode] for name in wanted for mode in modes)


def read(records: Iterable[Mapping[str, Any]]) -> list[Window]:
    """The windows among a guest's records, in order; refusals are not among them."""
    return [
        Window(int(record["window"]), {one["name"]: {mode: _counts(one[mode]) for mode in MODES}
                                       for one in record["programs"]})
        for record in records
        if record.get("type") == "tlb" and "refused" not in record
    ]  # fmt: skip


def _counts(record: Mapping[str, Any]) -> Counts:
    return Counts(
        instructions=int(record["instructions"]),
        accesses=int(record["accesses"]),
        l1_misses=int(record["l1_misses"]),
        references=int(record["references"]),
        lost=int(record["lost"]),
        walks={int(kib): int(count) for kib, count in record["walks"].items()},
    )
