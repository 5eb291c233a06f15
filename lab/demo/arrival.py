# SPDX-License-Identifier: GPL-2.0-only
"""The scene: a limit arrives while Redis serves. A view of the suite's case late/load."""

from collections.abc import Sequence
from html import escape
from typing import Any

from lab.bench import scenarios
from lab.bench.arms import ARM
from lab.bench.cell import Cell
from lab.bench.run import Run
from lab.bench.scenarios import late
from lab.bench.served import panels
from lab.demo.cells import Scale
from lab.results import Gate, gate, unjudged

KEY = "late"
"""Selects it as --limit, and names it in the results file."""
ARMS = ("always", "never", "mthp_ext")
_FLOOR = "limit under load: rps of mthp_ext / always from then on"
"""Judged where reclaim cannot be; 103 and 116 on the stock kernels of 27 November 2026."""
_ABOUT = (
    "All keys are there and Redis answers SET, when its cgroup gets a limit of about half of its memory. Large folios "
    "were right when they were given, and are not any more."
)


def plan(scale: Scale, arms: Sequence[str]) -> list[Cell]:
    """A run for each arm, as far as they are wanted."""
    [case] = scenarios.cases(scale.suite, ["late/load"])
    return [Cell(case, ARM[arm], "classic", 0) for arm in ARMS if arm in arms]


def text(runs: Sequence[Run]) -> list[str]:
    """For the terminal."""
    shown = panels(runs)
    return [f"{runs[0].cell.case.title}: requests/s over time", "", *shown.text()] if shown else []


def section(runs: Sequence[Run]) -> str:
    """For the page."""
    shown = panels(runs)
    if shown is None:
        return ""
    return (
        f"<section><h2>A limit arrives while Redis serves</h2><p class='note'>{escape(_ABOUT)} One run of each; guest "
        "time. The rate is that of the server's own counter of SET, read ten times a second.</p>"
        f"{shown.svg()}</section>"
    )


def collect(runs: Sequence[Run]) -> dict[str, Any]:
    """{arm: {"free", "limited" (requests/s), "limit_s", "elapsed_s", "died_s", "oom_kills", "served": [[s, count]]}}"""
    return {
        run.cell.arm.key: {
            "free": late.free_rate(run),
            "limited": late.limited_rate(run),
            "limit_s": late.limit_s(run),
            "elapsed_s": run.elapsed_s,
            "died_s": min(run.died.values(), default=None),
            "by_host": run.by_host,
            "oom_kills": run.oom_kills,
            "wall_s": round(run.wall_s, 1),
            "served": [[round(t_s, 3), count] for t_s, count in run.meters.get("served", [])],
        }
        for run in runs
    }


def check(runs: Sequence[Run], *, counted: bool, reclaim: bool = True) -> list[Gate]:
    """With the limit, the policy does nearly what `never` does; ratios only by instruction-counted time. The suite asks
    for 0.97 of five runs; this is one run, and on 27 November 2026 it had 0.953: two points for as long as the limit
    lasts, three in its first second, while the folios are taken apart. `reclaim`: the carrier asks at reclaim."""
    found = {run.cell.arm.key: run for run in runs}
    if not counted or not {"never", "mthp_ext"} <= set(found):
        return []
    name, bound = "limit under load: rps of mthp_ext / never from then on", ">= 0.90"
    if any(found[arm].by_host for arm in ("never", "mthp_ext")):
        return [unjudged(name, bound, "because the clock of this machine stopped a run")]
    mine, its = (late.limited_rate(found[arm]) for arm in ("mthp_ext", "never"))
    if not reclaim and mine is not None:
        always = found.get("always")
        least = late.limited_rate(always) if always and not always.by_host else None
        floor = [gate(_FLOOR, mine / least, ">= 20")] if least else []
        return [unjudged(name, bound, "because the module never asks at reclaim: what was given stays"), *floor]
    return [gate(name, mine / its if mine is not None and its else None, bound)]
