# SPDX-License-Identifier: GPL-2.0-only
"""A run over time, drawn."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from lab.bench.run import Run
from lab.report import svg
from lab.report.parts import band_css


def limits(run: Run) -> list[tuple[float, float]]:
    """The main cgroup's limit over time, bytes; inf: none."""
    main = run.cell.case.main
    moves = [(t, math.inf if value == "max" else float(value)) for t, group, value in run.waves if group == main]
    if moves:
        return moves
    settings = next(group.settings for group in run.cell.case.groups if group.name == main)
    fixed = [float(settings[file]) for file in ("memory.high", "memory.max") if file in settings]
    return [(0.0, min(fixed))] if fixed else []


def timeline(run: Run, events: Sequence[svg.Event], *, large: bool = True) -> str:
    """The memory of a run's main cgroup against its limit, what the policy allows it, its stall. `large`: with what of
    the guest's memory is in folios of 2 MiB."""
    main = run.cell.case.main
    span = max(run.elapsed_s, 0.001)
    bands = []
    if not run.cell.arm.static:
        mine = [decision for decision in run.decisions if decision.cgroup == f"/{main}"]
        everything = ~1 & (1 << 10) - 1
        states = [(0.0, everything, "all"), *((d.t_s, d.fault_orders, f"{d.to} ({d.why})") for d in mine)]
        ends = [*(state[0] for state in states[1:]), span]
        bands = [
            svg.Band(begin, end, band_css(orders), f"{text} from {begin:.2f} s")
            for (begin, orders, text), end in zip(states, ends, strict=True)
            if end > 0
        ]
    samples = _thin(run, main)
    return svg.timeline(
        span,
        [(s.t_s, s.memory) for s in samples],
        limits(run),
        [(s.t_s, s.stall) for s in samples],
        bands,
        events,
        # Of the guest as a whole: with several tenants it would not be this one's.
        [(s.t_s, s.huge) for s in samples] if large and len(run.cell.case.groups) == 1 else [],
    )


class _Point(NamedTuple):
    t_s: float
    memory: float
    huge: float
    stall: float


def _thin(run: Run, group: str) -> list[_Point]:
    """The samples, with neighbours joined until there are at most 200: the most memory, the average stall."""
    step = max(1, -(-len(run.samples) // 200))
    out = []
    for i in range(0, len(run.samples), step):
        part = run.samples[i : i + step]
        memory = max(float(sample.current[group]) for sample in part)
        huge = max(float(sample.large(2048)) for sample in part)
        stall = sum(sample.stall[group] for sample in part) / len(part)
        out.append(_Point(part[-1].t_s, memory, huge, stall))
    return out
