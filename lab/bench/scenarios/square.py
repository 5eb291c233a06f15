# SPDX-License-Identifier: GPL-2.0-only
"""A limit that comes and goes: does the policy follow without wavering, and how soon?"""

from dataclasses import replace
from itertools import pairwise
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


def recovery(run: Run) -> float | None:
    """Mean time from the end of a limit until the rate is 90 % of what it was before there was any, s; the whole phase
    where it never is."""
    rates = readers.rates(run, "load")
    phases = _phases(run)
    if not phases:
        return None
    begin, end, _ = phases[0]
    first = [rate for t, rate in rates if (begin + end) / 2 < t <= end]
    later = [(begin, end) for begin, end, value in phases[1:] if value == "max"]
    if not first or not later:
        return None
    goal = 0.9 * fmean(first)
    return fmean(
        next((t for t, rate in rates if begin < t <= end and rate >= goal), end) - begin for begin, end in later
    )


def unserved(run: Run) -> float | None:
    """Time in which no request was answered, s: what redis-benchmark reports a rate of 0 for."""
    reports = readers.rates(run, "load")
    return sum(now - before for (before, _), (now, rate) in pairwise(reports) if rate == 0) if reports else None


def cases(scale: Scale) -> list[Case]:
    """One."""
    size, every_ms = store.SIZES[scale], _EVERY_MS[scale]
    size = replace(size, requests=size.requests * _TIMES[scale], deadline_s=2 * size.deadline_s)
    title = f"Redis, SET, memory.high = {size.limit_mib}M and max in turns of {every_ms / 1000:g} s"
    return [
        replace(
            store.case("square", "high", title, size),
            waves=(Wave("redis", "memory.high", ("max", str(size.limit_mib * MIB)), every_ms),),
            # All requests alone would hide a limit under which nothing is served: the other phases serve the more of
            # them. Those are not judged: an arm that swapped nothing out, as it served nobody, has nothing to swap in.
            scores=(
                store.rps(),
                Metric("rps_limited", "requests/s with the limit", "", +1, lambda run: phase_rate(run, limited=True)),
            ),
            more=(
                Metric("rps_free", "requests/s without", "", +1, lambda run: phase_rate(run, limited=False)),
                Metric("recovery", "time to recover", "s", -1, recovery),
                Metric("unserved", "time without an answer", "s", -1, unserved),
                *store.LATENCIES,
            ),
        )
    ]
