# SPDX-License-Identifier: GPL-2.0-only
"""The figures that a run of the demo must reach."""

from lab.demo.outcome import Table
from lab.results import Gate, gate

SPREAD = "<= 0.05"
"""Between the runs of a cell: under a limit it matters which keys share a large folio, and each run has other keys."""
STEADY = [
    ("none", "always"),
    ("none", "never"),
    ("none", "reactive"),
    ("none", "mthp_ext"),
    ("high", "never"),
    ("high", "mthp_ext"),
    ("max", "never"),
    ("max", "mthp_ext"),
]
"""Cells whose throughput must repeat with other keys: all but those under a limit in which `always` or the proposal
lets large folios in first. What those lose until they react depends on chance, 5 % from one set of keys to the next."""


def check(table: Table, *, counted: bool) -> list[Gate]:
    """All gates whose cells were run. Without instruction-counted time (`counted`) only event counts are judged:
    wall time depends on the host."""
    gates = _events(table)
    return gates + _ratios(table) + _repeats(table) if counted else gates


def _has(table: Table, limit: str, *arms: str) -> bool:
    return all(table.runs(limit, arm) for arm in arms)


def _events(table: Table) -> list[Gate]:
    runs = table.runs("max", "mthp_ext")
    if not runs:
        return []
    return [
        gate(
            "memory.max: mthp_ext serves every request (share of requests)",
            min(run.served / run.cell.scale.requests if run.finished else 0.0 for run in runs),
            ">= 1",
        ),
        gate("memory.max: mthp_ext, out-of-memory kills", sum(run.oom_kills for run in runs), "== 0"),
    ]


def _ratios(table: Table) -> list[Gate]:
    wanted = [
        # The proposal's rule: 16 MiB of small pages for each cgroup.
        ("none", "rps", "reactive", "always", ">= 0.98"),
        ("none", "rps", "mthp_ext", "always", ">= 0.99"),
        ("high", "rps", "reactive", "never", ">= 0.60"),
        ("high", "rps", "mthp_ext", "never", ">= 0.97"),
        ("high", "rps", "mthp_ext", "always", ">= 20"),
        ("high", "p99_ms", "mthp_ext", "never", "<= 1.10"),
        ("max", "rps", "mthp_ext", "never", ">= 0.97"),
    ]
    names = {"none": "no limit", "high": "memory.high", "max": "memory.max", "rps": "rps", "p99_ms": "p99"}
    return [
        gate(f"{names[limit]}: {names[metric]} of {arm} / {base}", table.ratio(limit, metric, arm, base), bound)
        for limit, metric, arm, base, bound in wanted
        if _has(table, limit, arm, base)
    ]


def _repeats(table: Table) -> list[Gate]:
    gates = []
    for limit, arm in STEADY:
        if len(table.runs(limit, arm)) < 2:
            continue
        found = table.figure(limit, arm, "rps")
        gates.append(gate(f"{limit}/{arm}: rps repeats (spread)", found.spread if found else None, SPREAD))
    return gates
