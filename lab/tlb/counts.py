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
    groups: dict[tuple[str, int], dict[str, Counts]]
    """Name of the process, as the kernel has it, and its process group -> mode -> counts."""

    def counts(self, groups: Iterable[int] | None = None, modes: Sequence[str] = MODES) -> Counts:
        """Of these process groups, or of all, in these modes."""
        wanted = None if groups is None else set(groups)
        found = (one for (_, group), one in self.groups.items() if wanted is None or group in wanted)
        return total(one[mode] for one in found for mode in modes)

    def program(self, name: str) -> dict[str, Counts] | None:
        """What all processes of this name together did, by mode; None if there was none."""
        found = [one for (known, _), one in self.groups.items() if known == name]
        return {mode: total(one[mode] for one in found) for mode in MODES} if found else None

    @property
    def lost(self) -> float:
        """Share of the misses of L1 that came to nothing, since a table could not be read."""
        every = self.counts()
        return every.lost / every.l1_misses if every.l1_misses else 0.0


def read(records: Iterable[Mapping[str, Any]]) -> list[Window]:
    """The windows among a guest's records, in order; refusals are not among them."""
    return [
        Window(int(record["window"]), {(str(one["name"]), int(one["group"])): {m: _counts(one[m]) for m in MODES}
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
