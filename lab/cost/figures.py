# SPDX-License-Identifier: GPL-2.0-only
"""From a guest's records to instructions per fault and per call."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.cost.plan import ARMS, COUNT, NONE, Arm, Place
from lab.errors import Exit, LabError

Key = tuple[str, str, int]
"""Arm, place, size in KiB."""

_REFUSING = {arm.name for arm in ARMS if arm.refuses}
CLOCK_TOLERANCE = 0.001
"""How far a tick of the guest's clock may be from one instruction."""


@dataclass(frozen=True)
class Figure:
    """Several runs of one cell. What a timer tick or a refill of the page allocator's lists adds is in few faults, what
    the hook costs in each. So instructions of a fault are those of the median fault. Faults of 64 KiB come in kinds
    that differ by what the kernel's batches have left to do, in shares near enough for the median to be of either:
    theirs are the mean of the middle four fifths."""

    each: tuple[float, ...]
    """Of every run."""
    mean: float
    """Over all faults of all runs, whatever else ran meanwhile included."""

    @property
    def median(self) -> float:
        """Instructions per fault."""
        return float(statistics.median(self.each))

    @property
    def spread(self) -> float:
        """Largest less smallest run, instructions."""
        return max(self.each) - min(self.each)


@dataclass(frozen=True)
class Scale:
    """Instructions of one operation above so many cgroups."""

    p50: int
    p99: int
    most: int


@dataclass(frozen=True)
class Holds:
    """Instructions for which cgroup_mutex was held, the probes' own included."""

    count: int
    p50: int
    p99: int
    most: int
    longest: str
    """Task and pid of who held it longest."""
    of_scan: int
    """How often mthp_ext held it."""
    used: float
    """What mthp_ext itself took meanwhile, for each cgroup and scan."""


@dataclass(frozen=True)
class Life:
    """Something that a process does, or khugepaged for it."""

    instructions: int
    scans: int | None
    """How often khugepaged came round for that; None where it is not about khugepaged."""


@dataclass(frozen=True)
class Reclaim:
    """Several passes of reclaim over memory in use."""

    each: tuple[int, ...]
    """Instructions of every run."""
    scanned: int
    """Pages looked at in a run, the most."""
    folios: int
    """Large ones that there are in a run ..."""
    calls: float
    """... and questions, the mean; 0 where the arm does not count them."""

    @property
    def median(self) -> float:
        """Instructions of a pass."""
        return float(statistics.median(self.each))


@dataclass(frozen=True)
class Figures:
    """What one kernel's guest measured."""

    release: str
    faults: Mapping[Key, Figure]
    calls: Mapping[tuple[str, int], float]
    """Calls of the program per fault, by place and size."""
    scale: Mapping[tuple[int, str], Scale]
    """By number of cgroups and operation."""
    holds: Mapping[int, Holds] = field(default_factory=dict)
    """By number of cgroups."""
    lives: Mapping[tuple[int, str], Life] = field(default_factory=dict)
    """By the size that is on, KiB or 0, and what is done."""

    reclaims: Mapping[tuple[str, int], Reclaim] = field(default_factory=dict)
    """By arm and size in KiB."""

    def reclaim(self, arm: Arm, kib: int) -> float | None:
        """Instructions of a pass of reclaim, None if that was not measured."""
        found = self.reclaims.get((arm.name, kib))
        return found.median if found else None

    def per_question(self, arm: Arm, kib: int) -> float | None:
        """Instructions that one question at reclaim takes."""
        mine, none, count = self.reclaim(arm, kib), self.reclaim(NONE, kib), self.reclaims.get((COUNT.name, kib))
        return None if mine is None or none is None or not count or not count.calls else (mine - none) / count.calls

    def fault(self, arm: Arm, place: Place, kib: int) -> float | None:
        """Instructions per fault, None if that was not measured."""
        found = self.faults.get((arm.name, place.name, kib))
        return found.median if found else None

    def extra(self, arm: Arm, base: Arm, place: Place, kib: int) -> float | None:
        """Instructions per fault of `arm` above those of `base`."""
        mine, its = self.fault(arm, place, kib), self.fault(base, place, kib)
        return None if mine is None or its is None else mine - its

    def per_call(self, arm: Arm, base: Arm, place: Place, kib: int, calls: float | None) -> float | None:
        """Instructions of one call, when a fault makes `calls` of them."""
        extra = self.extra(arm, base, place, kib)
        return None if extra is None or not calls else extra / calls


def collect(records: Iterable[dict[str, Any]]) -> Figures:
    """Reads a guest's records. Raises LabError if its clock does not count instructions, or if faults were not of the
    size that was to be measured: the figures would be of something else."""
    release = ""
    runs: dict[Key, list[dict[str, Any]]] = {}
    scale: dict[tuple[int, str], Scale] = {}
    holds: dict[int, Holds] = {}
    lives: dict[tuple[int, str], Life] = {}
    passes: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        match record["type"]:
            case "begin":
                release = str(record["release"])
                ticks = float(record["ticks_per_instruction"])
                if abs(ticks - 1) > CLOCK_TOLERANCE:
                    raise LabError(Exit.TESTS, f"the guest's clock makes {ticks} ticks per instruction, not 1")
            case "faults":
                _check_size(record)
                runs.setdefault((record["arm"], record["place"], record["kib"]), []).append(record)
            case "scale":
                scale[record["cgroups"], record["what"]] = Scale(record["p50"], record["p99"], record["max"])
            case "life":
                lives[record["kib"], record["what"]] = Life(record["instructions"], record["scans"])
            case "reclaim":
                _check_pass(record)
                passes.setdefault((record["arm"], record["kib"]), []).append(record)
            case "holds" if record["count"]:
                holds[record["cgroups"]] = Holds(
                    record["count"],
                    record["p50"],
                    record["p99"],
                    record["max"],
                    record["longest"],
                    record["of_scan"],
                    record["used"] / record["cgroups"] / record["scans"],
                )
    if not release:
        raise LabError(Exit.TESTS, "the guest sent no records")
    faults = {
        key: Figure(
            tuple(_typical(run) for run in cell), sum(r["total"] for r in cell) / sum(r["faults"] for r in cell)
        )
        for key, cell in runs.items()
    }
    calls = {
        (place, kib): sum(run["calls"] for run in cell) / sum(run["faults"] for run in cell)
        for (_, place, kib), cell in runs.items()
        if cell[0]["calls"] is not None
    }
    reclaims = {
        key: Reclaim(
            tuple(run["instructions"] for run in cell),
            max(run["scanned"] for run in cell),
            cell[0]["folios"],
            statistics.mean(run["calls"] for run in cell),
        )
        for key, cell in passes.items()
    }
    return Figures(release, faults, calls, scale, holds, lives, reclaims)


def merge(parts: Sequence[Figures]) -> Figures:
    """What several guests with the same kernel measured."""
    whole = Figures(parts[0].release, {}, {}, {}, {}, {}, {})
    for one in parts:
        whole = Figures(
            whole.release,
            {**whole.faults, **one.faults},
            {**whole.calls, **one.calls},
            {**whole.scale, **one.scale},
            {**whole.holds, **one.holds},
            {**whole.lives, **one.lives},
            {**whole.reclaims, **one.reclaims},
        )
    return whole


def _typical(run: Mapping[str, Any]) -> float:
    return float(run["middle"] if run["kib"] == 64 else run["p50"])


def _check_pass(record: Mapping[str, Any]) -> None:
    # A pass that looks at less has met folios that it did not ask about; one that splits has other work to do.
    pages = record["folios"] * record["kib"] // 4
    if record["scanned"] < pages or not record["swapped"] or record["split"]:
        raise LabError(
            Exit.TESTS,
            f"{record['arm']}, {record['kib']} KiB: reclaim looked at {record['scanned']} pages, swapped "
            f"{record['swapped']} and split {record['split']} folios, so it is no pass over {pages} pages in use",
        )


def _check_size(record: Mapping[str, Any]) -> None:
    faults, large = record["faults"], record["large"]
    wanted = 0 if record["kib"] == 4 or record["arm"] in _REFUSING else faults
    if faults == 0 or large != wanted:
        what = f"{record['arm']} in {record['place']}"
        raise LabError(
            Exit.TESTS, f"{what}: {large} of {faults} faults got a large folio, not {wanted}, at {record['kib']} KiB"
        )
    if record["kib"] == 4 and record["p10"] < 1000:
        raise LabError(Exit.TESTS, f"{record['arm']} in {record['place']}: a tenth of the pages was there already")
