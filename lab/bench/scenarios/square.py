# SPDX-License-Identifier: GPL-2.0-only
"""A limit that comes and goes: does the policy follow without wavering, and how soon?"""

from dataclasses import replace
from statistics import fmean

from lab.bench import readers
from lab.bench.run import Run
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Metric, Scale, Wave

_EVERY_MS = {Scale.SMOKE: 300, Scale.CI: 2_000, Scale.FULL: 20_000}
_TIMES = {Scale.SMOKE: 3, Scale.CI: 4, Scale.FULL: 10}
"""Requests: this many times the keys."""


def _phases(run: Run) -> list[tuple[float, float, str]]:
    """(begin, end, limit) of each whole phase."""
    return [
        (begin, end, value)
        for (begin, _, value), (end, _, _) in zip(run.waves, run.waves[1:], strict=False)
        if end <= run.elapsed_s
    ]


def phase_rate(run: Run, *, limited: bool) -> float | None:
    """Mean of the request rates of the phases with, or without, a limit; the first one is the filling."""
    if run.died:
        return None
    found = [
        rate
        for begin, end, value in _phases(run)[1:]
        if (value != "max") == limited and (rate := readers.rate_between(run, "load", begin, end)) is not None
    ]
    return fmean(found) if found else None


def settling(run: Run) -> float | None:
    """Mean time from a change of the limit until the request rate reaches 90 % of what the phase ends with, s."""
    rates = readers.rates(run, "load")
    times = []
    for begin, end, _ in _phases(run)[1:]:
        inside = [(t, rate) for t, rate in rates if begin < t <= end]
        last = [rate for t, rate in inside if t > (begin + end) / 2]
        if last:
            goal = 0.9 * fmean(last)
            times.append(next((t for t, rate in inside if rate >= goal), end) - begin)
    return fmean(times) if times else None


def cases(scale: Scale) -> list[Case]:
    """One."""
    size, every_ms = store.SIZES[scale], _EVERY_MS[scale]
    size = replace(size, requests=size.requests * _TIMES[scale], deadline_s=2 * size.deadline_s)
    title = f"Redis, SET, memory.high = {size.limit_mib}M and max in turns of {every_ms / 1000:g} s"
    return [
        replace(
            store.case("square", "high", title, size),
            waves=(Wave("redis", "memory.high", ("max", str(size.limit_mib * MIB)), every_ms),),
            more=(
                Metric("rps_limited", "requests/s with the limit", "", +1, lambda run: phase_rate(run, limited=True)),
                Metric("rps_free", "requests/s without", "", +1, lambda run: phase_rate(run, limited=False)),
                Metric("settling", "time to settle", "s", -1, settling),
                *store.LATENCIES,
            ),
        )
    ]
