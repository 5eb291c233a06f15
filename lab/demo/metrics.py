# SPDX-License-Identifier: GPL-2.0-only
"""The demo's metrics as they stand in the results file."""

from typing import Any

from lab.bench.run import Run
from lab.demo.cells import EVERY, LIMITS, Scale, describe
from lab.demo.outcome import FIGURES, Table, decisions, elapsed_s, finished, killed_s, rate


def collect(table: Table, scale: Scale) -> dict[str, Any]:
    """{"workload", "cells": {limit: {arm: {metric: {median, min, max}, "runs": [...]}}}}"""
    cells: dict[str, Any] = {}
    for limit in LIMITS:
        for arm in EVERY:
            runs = table.runs(limit, arm)
            if not runs:
                continue
            entry: dict[str, Any] = {}
            for name in FIGURES:
                found = table.figure(limit, arm, name)
                entry[name] = None if found is None else {"median": found.median, "min": found.least, "max": found.most}
            entry["runs"] = [_run(run) for run in runs]
            cells.setdefault(limit, {})[arm] = entry
    return {"workload": {**describe(scale), "repeats": table.most_runs() or scale.repeats}, "cells": cells}


def _run(run: Run) -> dict[str, Any]:
    return {
        "rps": rate(run),
        "p99_ms": FIGURES["p99_ms"](run),
        "max_ms": FIGURES["max_ms"](run),
        "finished": finished(run),
        "bounded": run.bounded,
        "by_host": run.by_host,
        "killed_s": killed_s(run),
        "elapsed_s": elapsed_s(run),
        "wall_s": round(run.wall_s, 1),
        "decisions": [{"t_s": d.t_s, "to": d.to, "why": d.why, "fault_orders": d.fault_orders} for d in decisions(run)],
    }
