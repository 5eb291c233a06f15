# SPDX-License-Identifier: GPL-2.0-only
"""The demo's figures of a run, and those of several runs of a cell. What could not be measured is None."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from lab.bench import readers
from lab.bench.common import FLIPS, KILLS, SWAPPED_IN, SWAPPED_OUT
from lab.bench.run import Decision, Run
from lab.bench.scenarios.store import requests
from lab.report.stats import Figure, figure

LATENCIES = ("avg_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def finished(run: Run) -> bool:
    """The benchmark came to its end: every request was served."""
    return bool(readers.benchmark_summary(run.lines("load")))


def killed_s(run: Run) -> float | None:
    """When the server was killed for lack of memory, seconds after the benchmark began."""
    return min(run.died.values(), default=None)


def elapsed_s(run: Run) -> float:
    """How long the server served."""
    died = killed_s(run)
    return run.elapsed_s if died is None else died


def served(run: Run) -> int:
    """Requests that the server counted; of one that is gone, by the benchmark's own rate until then."""
    counted = readers.calls(run.lines("info"), "set")
    if counted is not None:
        return counted
    return requests(run.cell.case) if finished(run) else round(readers.served_until(run, "load"))


def rate(run: Run) -> float:
    """Requests per second; of what was served until the run was stopped or the server died."""
    known = readers.redis_rps(run, "load", "info", "set")
    if known is not None:
        return known
    seconds = elapsed_s(run)
    return served(run) / seconds if seconds > 0 else 0.0


def doubt(run: Run) -> str:
    """Why a run cannot be true; empty if it can."""
    wanted = requests(run.cell.case)
    if not finished(run):
        unexplained = not run.bounded and killed_s(run) is None
        return f"{run.cell.label}: the benchmark came to a good end without a full report" if unexplained else ""
    if served(run) >= wanted:
        return ""
    return f"{run.cell.label}: a full report, but only {served(run)} of {wanted} requests were served"


def decisions(run: Run) -> list[Decision]:
    """What the policy allowed the server's cgroup, change by change."""
    return [one for one in run.decisions if one.cgroup == f"/{run.cell.case.main}"]


def _anon_mean(run: Run) -> float:
    return statistics.fmean(sample.anon for sample in run.samples) if run.samples else 0.0


def _huge_peak(run: Run) -> float:
    return float(max((sample.large(2048) for sample in run.samples), default=0))


def _latency(name: str) -> Callable[[Run], float | None]:
    return lambda run: readers.benchmark_summary(run.lines("load")).get(name.removesuffix("_ms"))


FIGURES: dict[str, Callable[[Run], float | None]] = {
    "rps": rate,
    **{name: _latency(name) for name in LATENCIES},
    "served": lambda run: float(served(run)),
    "pages_in": SWAPPED_IN.of,
    "pages_out": SWAPPED_OUT.of,
    "flips": FLIPS.of,
    "stall_some_s": lambda run: run.groups[run.cell.case.main].some_s,
    "stall_full_s": lambda run: run.groups[run.cell.case.main].full_s,
    # Bytes; of the guest's anonymous memory nearly all is the server's.
    "memory_peak": lambda run: float(run.groups[run.cell.case.main].peak),
    "anon_mean": _anon_mean,
    "huge_peak": _huge_peak,
    "oom_kills": KILLS.of,
}
"""Name in the tables and in the results file -> figure of a run."""


class Table:
    """All runs, by limit and arm."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    def runs(self, limit: str, arm: str) -> list[Run]:
        """The runs of one cell, in order."""
        return [run for run in self._runs if run.cell.case.key == limit and run.cell.arm.key == arm]

    def most_runs(self) -> int:
        """Of a cell; 0 without any."""
        cells = Counter((run.cell.case.key, run.cell.arm.key) for run in self._runs)
        return max(cells.values(), default=0)

    def figure(self, limit: str, arm: str, metric: str) -> Figure | None:
        """A metric of a cell; None unless every run of the cell has it."""
        values = [FIGURES[metric](run) for run in self.runs(limit, arm)]
        known = [value for value in values if value is not None]
        return figure(known) if known and len(known) == len(values) else None

    def finished(self, limit: str, arm: str) -> bool:
        """Every run of the cell served all requests."""
        runs = self.runs(limit, arm)
        return bool(runs) and all(finished(run) for run in runs)

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
