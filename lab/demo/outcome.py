# SPDX-License-Identifier: GPL-2.0-only
"""From a cell's records to its figures, and from several runs of a cell to medians and spread."""

import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lab.demo.cells import Cell
from lab.report.stats import Figure, figure

LATENCIES = ("avg_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


@dataclass(frozen=True)
class Sample:
    """The server's cgroup at one moment."""

    t_s: float
    """Seconds of guest time since the benchmark began."""
    stall: float
    """Share of the time since the last sample in which all of its tasks stalled on memory, 0 to 1."""
    current: int
    """memory.current in bytes."""
    anon: int
    """Anonymous memory of the guest in bytes; nearly all of it is the server's."""
    anon_thp: int
    """The part of it in PMD folios."""


@dataclass(frozen=True)
class Decision:
    """A change of what the policy allows the server's cgroup."""

    t_s: float
    to: str
    """Sizes allowed from now on, as mthp_ext names them."""
    why: str
    fault_orders: int
    """Orders allowed at page fault, bit n = order n."""


@dataclass(frozen=True)
class Run:
    """One run of a cell. What could not be measured is None."""

    cell: Cell
    release: str
    rps: float
    """Requests per second; of what was served until the run was stopped or the server died."""
    latency: dict[str, float] | None
    """Milliseconds by LATENCIES; None when the benchmark did not come to its end."""
    served: int
    bounded: bool
    """Stopped before its end, at the deadline in guest time or by the clock of the host."""
    by_host: bool
    """By the clock of the host: another machine would have let it go on."""
    killed_s: float | None
    """When the server was killed for lack of memory, seconds after the benchmark began."""
    oom_kills: int
    said: str
    """The server's last message."""
    pages_in: int
    pages_out: int
    memory_peak: int
    stall_full_s: float
    stall_some_s: float
    elapsed_s: float
    wall_s: float
    samples: list[Sample] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Every request was served."""
        return self.latency is not None

    @property
    def flips(self) -> int:
        """How often the policy changed its decision about the server's cgroup."""
        return len(self.decisions)

    @property
    def anon_mean(self) -> float:
        """Mean anonymous memory of the guest, bytes."""
        return statistics.fmean(s.anon for s in self.samples) if self.samples else 0.0

    @property
    def huge_peak(self) -> float:
        """Most anonymous memory of the guest that sat in PMD folios, bytes."""
        return float(max((s.anon_thp for s in self.samples), default=0))


def read(cell: Cell, records: list[dict[str, Any]], wall_s: float) -> Run:
    """A run from the records of its guest. Raises ValueError if they do not tell a whole story."""
    begin = _one(records, "begin")
    result = _one(records, "result")
    start = int(begin["t_ms"])
    died = result["server_died_ms"]
    elapsed_s = (result["elapsed_ms"] if died is None else died - start) / 1000
    served = int(result["served"])
    latency = {name: float(result[name]) for name in LATENCIES} if "rps" in result else None
    if latency is not None and served < cell.scale.requests:
        raise ValueError(f"{cell.name}: a full report, but only {served} of {cell.scale.requests} requests were served")
    return Run(
        cell=cell,
        release=str(begin["release"]),
        rps=float(result["rps"]) if latency else served / elapsed_s if elapsed_s > 0 else 0.0,
        latency=latency,
        served=served,
        bounded=bool(result["bounded"]),
        by_host=bool(result["by_host"]),
        killed_s=None if died is None else (died - start) / 1000,
        oom_kills=int(result["oom_kills"]),
        said=str(result["server_said"]),
        pages_in=int(result["pswpin"]),
        pages_out=int(result["pswpout"]),
        memory_peak=int(result["memory_peak"]),
        stall_full_s=result["psi_full_us"] / 1e6,
        stall_some_s=result["psi_some_us"] / 1e6,
        elapsed_s=elapsed_s,
        wall_s=wall_s,
        samples=_samples(records, start),
        decisions=[
            Decision((r["t_ms"] - start) / 1000, str(r["to"]), str(r["why"]), int(r["orders"]["fault"]))
            for r in records
            if r.get("type") == "policy" and r.get("event") == "decision" and r.get("cgroup") == "/redis"
        ],
    )


def _one(records: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    found = [r for r in records if r.get("type") == kind]
    if len(found) != 1:
        raise ValueError(f"{len(found)} records of type {kind!r} where one is expected")
    return found[0]


def _samples(records: list[dict[str, Any]], start: int) -> list[Sample]:
    raw = [r for r in records if r.get("type") == "sample"]
    samples = []
    for before, now in pairwise(raw):
        passed_us = (now["t_ms"] - before["t_ms"]) * 1000
        if passed_us <= 0:
            continue
        stall = (now["psi_full_us"] - before["psi_full_us"]) / passed_us
        samples.append(
            Sample(
                (now["t_ms"] - start) / 1000, min(1.0, max(0.0, stall)), now["current"], now["anon"], now["anon_thp"]
            )
        )
    return samples


class Table:
    """All runs, by limit and arm."""

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs

    def runs(self, limit: str, arm: str) -> list[Run]:
        """The runs of one cell, in order."""
        return [run for run in self._runs if run.cell.limit == limit and run.cell.arm.key == arm]

    def figure(self, limit: str, arm: str, metric: str) -> Figure | None:
        """A metric of a cell; None unless every run of the cell has it."""
        values = [metric_of(run, metric) for run in self.runs(limit, arm)]
        known = [value for value in values if value is not None]
        return figure(known) if known and len(known) == len(values) else None

    def finished(self, limit: str, arm: str) -> bool:
        """Every run of the cell served all requests."""
        runs = self.runs(limit, arm)
        return bool(runs) and all(run.finished for run in runs)

    def stopped(self, limit: str, arm: str) -> bool:
        """A run of the cell was stopped before its end: the cell does not finish, and its rate is that of what was
        served until then."""
        return any(run.bounded for run in self.runs(limit, arm))

    def by_host(self, limit: str, arm: str) -> bool:
        """And the reason was the clock of this machine."""
        return any(run.by_host for run in self.runs(limit, arm))

    def median(self, limit: str, arm: str, metric: str) -> float | None:
        """Median of a metric, or None."""
        found = self.figure(limit, arm, metric)
        return found.median if found else None

    def ratio(self, limit: str, metric: str, arm: str, base: str) -> float | None:
        """Median of `arm` divided by that of `base`, or None."""
        above, below = self.median(limit, arm, metric), self.median(limit, base, metric)
        return above / below if above is not None and below else None


def metric_of(run: Run, metric: str) -> float | None:
    """A metric by its name in the tables."""
    if metric in LATENCIES:
        return run.latency[metric] if run.latency else None
    value = {
        "rps": run.rps,
        "served": run.served,
        "pages_in": run.pages_in,
        "pages_out": run.pages_out,
        "flips": run.flips,
        "stall_full_s": run.stall_full_s,
        "stall_some_s": run.stall_some_s,
        "memory_peak": run.memory_peak,
        "anon_mean": run.anon_mean,
        "huge_peak": run.huge_peak,
        "oom_kills": run.oom_kills,
    }[metric]
    return float(value)
