# SPDX-License-Identifier: GPL-2.0-only
"""What the programs say about themselves, read from their own output."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from lab.bench.run import Run
from lab.bench.spec import Metric
from lab.report.rateline import counted

_PROGRESS = re.compile(r"rps=([0-9.]+) \(overall: ([0-9.]+)\)")


def benchmark_summary(lines: Sequence[str]) -> dict[str, float]:
    """The report at the end of redis-benchmark: "rps", "avg", "p50", "p95", "p99", "max" (ms); empty if it did not
    come that far."""
    text = "\n".join(lines)
    rate = re.search(r"throughput summary: ([0-9.]+) requests per second", text)
    table = re.search(r"latency summary \(msec\):\n([a-z0-9 ]+)\n([0-9. ]+)(?:\n|$)", text)
    if not rate or not table:
        return {}
    names, values = table[1].split(), table[2].split()
    if len(names) != len(values):
        return {}
    return {"rps": float(rate[1]), **{name: float(value) for name, value in zip(names, values, strict=True)}}


def calls(lines: Sequence[str], command: str) -> int | None:
    """How often a command was served, by Redis' INFO commandstats."""
    for line in lines:
        if found := re.match(rf"cmdstat_{command}:calls=(\d+)", line):
            return int(found[1])
    return None


def redis_rps(run: Run, load: str, probe: str, command: str) -> float | None:
    """Requests per second: the benchmark's own figure, or what was served until it was stopped. None if the server
    died: the rate of its short life is not one to compare with."""
    if run.died:
        return None
    summary = benchmark_summary(run.lines(load))
    if summary:
        return summary["rps"]
    served = calls(run.lines(probe), command)
    # A load that is stopped goes on until the server is asked.
    asked_s = min((t for t, _ in run.output.get(probe, [])), default=run.elapsed_s)
    return served / asked_s if served is not None and asked_s > 0 else None


def latency(load: str, name: str, label: str) -> Metric:
    """A latency of redis-benchmark, which it reports at its end only."""
    return Metric(name, label, "ms", -1, lambda run: benchmark_summary(run.lines(load)).get(name))


def elapsed(task: str) -> Callable[[Run], float | None]:
    """Seconds that a task took; None unless it came to a good end."""

    def of(run: Run) -> float | None:
        end = run.ends[task]
        return end.ended_s - end.started_s if end.code == 0 and not end.stopped else None

    return of


ELAPSED = Metric("elapsed", "elapsed", "s", -1, elapsed("load"))
"""Of the load, where it is one task."""


def rate_between(run: Run, load: str, begin_s: float, end_s: float) -> float | None:
    """Requests per second of redis-benchmark between two moments, by its own progress reports."""
    reports = [(t, rate) for t, rate in rates(run, load) if begin_s <= t <= end_s]
    spans = [(b[0] - a[0], b[1]) for a, b in pairwise(reports)]
    whole = sum(span for span, _ in spans)
    return sum(span * rate for span, rate in spans) / whole if whole > 0 else None


def known_s(run: Run, meter: str) -> float:
    """Until when a meter's counter is known in every run: its last answer is up to a period old. The same is left out
    of each, so that silence before it counts."""
    return run.elapsed_s - next(one.every_ms for one in run.cell.case.meters if one.name == meter) / 1000


def counted_rate(run: Run, meter: str, begin_s: float, end_s: float) -> float | None:
    """Mean rate of a meter's counter between two moments. A server that does not answer to the end served nobody."""
    counts = run.meters.get(meter, [])
    if not counts:
        return None
    if end_s <= begin_s:
        return None
    changes = [t_s for t_s, _, _ in run.waves]
    first, until = (_count_at(counts, t_s, t_s in changes) for t_s in (begin_s, end_s))
    return (until - first) / (end_s - begin_s)


def _count_at(counts: Sequence[tuple[float, int]], t_s: float, changed: bool) -> float:
    """What was counted until `t_s`. Where a setting `changed` then, the rate was until then what it had been: the
    reading after it comes as late as the server answers, and that wait lies behind the change, not on both sides."""
    if t_s <= counts[0][0]:
        return counts[0][1]
    even = counted(counts, t_s)
    if even is None:
        return counts[-1][1]
    last = max(at for at, (begin_s, _) in enumerate(counts) if begin_s <= t_s)
    if not changed or last == 0 or last + 1 == len(counts):
        return even
    (before_s, low), (begin_s, high) = counts[last - 1 : last + 1]
    if begin_s <= before_s:
        return even
    as_before = high + (high - low) * (t_s - begin_s) / (begin_s - before_s)
    return min(as_before, counts[last + 1][1])


def served_until(run: Run, load: str) -> float:
    """Requests that redis-benchmark had made when it reported last, by its own overall rate."""
    reports = [(t, found[2]) for t, text in run.output.get(load, []) if (found := _PROGRESS.search(text))]
    return reports[-1][0] * float(reports[-1][1]) if reports else 0.0


def rates(run: Run, load: str) -> list[tuple[float, float]]:
    """(guest seconds, requests per second since the report before) over the run. Not from the overall rate that is
    reported, too: its time begins when redis-benchmark pleases."""
    return [(t, float(found[1])) for t, text in run.output.get(load, []) if (found := _PROGRESS.search(text))]
