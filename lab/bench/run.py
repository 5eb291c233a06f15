# SPDX-License-Identifier: GPL-2.0-only
"""From the records of a guest to what a run was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from lab.bench.cell import Cell
from lab.bench.spec import Role
from lab.tlb import counts


@dataclass(frozen=True)
class Sample:
    """The guest at one moment."""

    t_s: float
    """Seconds of guest time since the measured time began."""
    free: int
    """Free memory of the guest, bytes."""
    anon: int
    """Anonymous memory of the guest, bytes."""
    folios: dict[int, int]
    """Size in KiB -> how many large folios of anonymous memory there are."""
    current: dict[str, int]
    """Cgroup -> memory.current, bytes."""
    stall: dict[str, float]
    """Cgroup -> share of the time since the last sample in which all of its tasks stalled on memory, 0 to 1."""

    def large(self, least_kib: int) -> int:
        """Bytes of anonymous memory in folios of at least this size."""
        return sum(kib * count << 10 for kib, count in self.folios.items() if kib >= least_kib)


@dataclass(frozen=True)
class Decision:
    """A change of what the policy allows a cgroup."""

    t_s: float
    cgroup: str
    to: str
    why: str
    fault_orders: int
    """Orders allowed at page fault, bit n = order n."""


@dataclass(frozen=True)
class End:
    """How a task ended."""

    started_s: float
    ended_s: float
    code: int | None
    """Exit code; None when a signal ended it."""
    stopped: bool
    """By the guest, at the end of the run."""
    said: str
    """The last line that it printed."""
    pid: int
    """Of its first process, and the number of its process group."""


@dataclass(frozen=True)
class Totals:
    """A cgroup's totals over the measured time."""

    current: int
    peak: int
    swap: int
    oom_kills: int
    some_s: float
    full_s: float
    user_s: float
    system_s: float
    stat: dict[str, int]


class TaskError(ValueError):
    """A program of the workload failed, so that the rest means nothing."""


@dataclass(frozen=True)
class Run:
    """One run of a cell."""

    cell: Cell
    release: str
    elapsed_s: float
    """Length of the measured time, guest seconds."""
    bounded: bool
    """The load was stopped before its end, at the deadline in guest time or by the clock of the host."""
    by_host: bool
    """By the clock of the host: another machine would have let it go on."""
    samples: list[Sample]
    decisions: list[Decision]
    groups: dict[str, Totals]
    ends: dict[str, End]
    output: dict[str, list[tuple[float, str]]]
    """Task -> (guest seconds, line)."""
    waves: list[tuple[float, str, str]]
    """(guest seconds, cgroup, value)"""
    meters: dict[str, list[tuple[float, int]]]
    """Meter -> (guest seconds, count), as the answers came."""
    vmstat: dict[str, int]
    tlb: counts.Window | None
    """What the TLB model counted in the measured time; None: it was not loaded."""
    killed_before: int
    """Processes killed for lack of memory before the measured time."""
    wall_s: float
    kept: bool = field(default=False, compare=False)
    """It comes from the journal."""

    def lines(self, task: str) -> list[str]:
        """What a task printed."""
        return [text for _, text in self.output.get(task, [])]

    @cached_property
    def died(self) -> dict[str, float]:
        """Servers that did not live to the end -> when they ended, guest seconds."""
        servers = {task.name for task in self.cell.case.tasks if task.role is Role.SERVER}
        return {name: end.ended_s for name, end in self.ends.items() if name in servers and not end.stopped}

    @property
    def oom_kills(self) -> int:
        """Processes that were killed for lack of memory, by a limit or by the host, since the guest booted."""
        return self.killed_before + self.vmstat["oom_kill"]

    def coverage(self, least_kib: int) -> float | None:
        """Share of the guest's anonymous memory in folios of at least this size, over the whole run."""
        anon = sum(sample.anon for sample in self.samples)
        return min(1.0, sum(sample.large(least_kib) for sample in self.samples) / anon) if anon else None

    def flips(self, group: str) -> int:
        """How often the policy changed its decision about a cgroup."""
        return sum(decision.cgroup == f"/{group}" for decision in self.decisions)


def read(cell: Cell, records: Sequence[Mapping[str, Any]], wall_s: float, kept: bool = False) -> Run:
    """A run from the records of its guest. Raises ValueError if they do not tell a whole story."""
    for record in _all(records, "cut"):
        raise ValueError(f"{record['task']} printed more than {record['lines']} lines, and the rest is missing")
    begin, end = _one(records, "begin"), _one(records, "end")
    start = int(begin["t_ms"])

    def at(record: Mapping[str, Any], name: str = "t_ms") -> float:
        return (int(record[name]) - start) / 1000

    output: dict[str, list[tuple[float, str]]] = {}
    for record in _all(records, "out"):
        output.setdefault(record["task"], []).append((at(record), record["text"]))
    run = Run(
        cell=cell,
        release=str(begin["release"]),
        elapsed_s=at(end),
        bounded=bool(end["bounded"]),
        by_host=bool(end["by_host"]),
        samples=_samples(records, start),
        decisions=[
            Decision(at(r), str(r["cgroup"]), str(r["to"]), str(r["why"]), int(r["orders"]["fault"]))
            for r in _all(records, "policy")
            if r.get("event") == "decision"
        ],
        groups={r["group"]: _totals(r) for r in _all(records, "group")},
        ends={
            r["task"]: End(
                at(r, "started_ms"), at(r, "ended_ms"), r["code"], bool(r["stopped"]), str(r["said"]), int(r["pid"])
            )
            for r in _all(records, "task")
        },
        output=output,
        waves=[(at(r), str(r["group"]), str(r["value"])) for r in _all(records, "wave")],
        meters=_meters(records, start),
        vmstat=dict(end["vmstat"]),
        tlb=_window(records),
        killed_before=int(begin["oom_kills"]),
        wall_s=wall_s,
        kept=kept,
    )
    _check(run)
    return run


def _window(records: Sequence[Mapping[str, Any]]) -> counts.Window | None:
    found = counts.read(records)
    if len(found) > 1:
        raise ValueError(f"the TLB model counted {len(found)} times where once is expected")
    return found[0] if found else None


def _check(run: Run) -> None:
    case = run.cell.case
    lacking = {task.name for task in case.tasks} - set(run.ends) | {group.name for group in case.groups} - set(
        run.groups
    )
    if lacking:
        raise ValueError(f"nothing is known of {', '.join(sorted(lacking))}")
    for task in case.tasks:
        end = run.ends[task.name]
        # A lack of memory is what the suite measures; whatever else stops a program is an error of ours.
        if run.oom_kills or (end.stopped and task.role is not Role.SETUP):
            continue
        if run.by_host and end.stopped:
            raise TaskError("the clock of this machine stopped it before the measured time began")
        if task.role in (Role.SERVER, Role.BESIDE) or (task.role is not Role.PROBE and end.code != 0):
            how = "was killed" if end.code is None else f"ended with exit code {end.code}"
            raise TaskError(f"{task.name} {how}{f': {end.said}' if end.said else ''}")


def _all(records: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [record for record in records if record.get("type") == kind]


def _one(records: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    found = _all(records, kind)
    if len(found) != 1:
        raise ValueError(f"{len(found)} records of type {kind!r} where one is expected")
    return found[0]


def _totals(record: Mapping[str, Any]) -> Totals:
    return Totals(
        current=int(record["current"]),
        peak=int(record["peak"]),
        swap=int(record["swap"]),
        oom_kills=int(record["oom_kills"]),
        some_s=record["psi_some_us"] / 1e6,
        full_s=record["psi_full_us"] / 1e6,
        user_s=record["user_us"] / 1e6,
        system_s=record["system_us"] / 1e6,
        stat={str(name): int(value) for name, value in record["stat"].items()},
    )


def _meters(records: Sequence[Mapping[str, Any]], start: int) -> dict[str, list[tuple[float, int]]]:
    meters: dict[str, list[tuple[float, int]]] = {}
    for record in _all(records, "meter"):
        meters.setdefault(str(record["meter"]), []).append(((record["t_ms"] - start) / 1000, int(record["count"])))
    return meters


def _samples(records: Sequence[Mapping[str, Any]], start: int) -> list[Sample]:
    samples = []
    for before, now in pairwise(_all(records, "sample")):
        passed_us = (now["t_ms"] - before["t_ms"]) * 1000
        if passed_us <= 0:
            continue
        groups = now["groups"]
        stall = {name: (values[2] - before["groups"][name][2]) / passed_us for name, values in groups.items()}
        samples.append(
            Sample(
                t_s=(now["t_ms"] - start) / 1000,
                free=int(now["free"]),
                anon=int(now["anon"]),
                folios={int(kib): int(count) for kib, count in now["folios"].items()},
                current={name: int(values[0]) for name, values in groups.items()},
                stall={name: min(1.0, max(0.0, share)) for name, share in stall.items()},
            )
        )
    return samples
