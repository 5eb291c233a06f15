# SPDX-License-Identifier: GPL-2.0-only
"""What is compared: limits, arms, scales. The cells are the suite's: its Redis cases under their own deadlines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from lab.bench import scenarios, variants
from lab.bench import spec as suite
from lab.bench.arms import ARM as ALL
from lab.bench.cell import SAMPLE_MS, Cell
from lab.bench.plan import plan as planned
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case
from lab.demo import outcome

SCENARIO = "demo"
"""Tells its cells from those of other cases, and names their directories."""
ARM = {key: ALL[key] for key in ("always", "never", "reactive", "mthp_ext")}
NAMED = {"no-small": replace(variants.ABLATION["small"], cases=())}
"""Run only where it is named: what the rule costs that acts without a limit."""
EVERY = {**ARM, **NAMED}
LIMITS = {"none": "no limit", "high": "memory.high", "max": "memory.max"}
"""Key of a limit -> how it is shown; "high" and "max" are the files of the server's cgroup."""


@dataclass(frozen=True)
class Scale:
    """How large, and for how long."""

    name: str
    suite: suite.Scale
    """The suite's scale of the same size."""
    deadline_s: int
    """Guest time after which a run is stopped and its rate computed from what was served."""
    stop_s: int
    """Wall-clock time after which a run is stopped and rated likewise, whatever the guest's clock shows."""
    repeats: int

    @property
    def size(self) -> store.Size:
        """Of the workload and of the guest."""
        return store.SIZES[self.suite]

    @property
    def limit_bytes(self) -> int:
        """memory.high or memory.max: about half of what the server needs."""
        return self.size.limit_mib * MIB


SCALES = {
    scale.name: scale
    for scale in (
        # Half a minute: shows that the machinery works, its figures mean nothing.
        Scale("smoke", suite.Scale.SMOKE, 10, 300, 1),
        # The proposal's command scaled to a 2-core machine under emulation.
        Scale("demo", suite.Scale.CI, 60, 1500, 2),
        # The proposal's own size.
        Scale("full", suite.Scale.FULL, 600, 6 * 3600, 1),
    )
}


@cache
def case(scale: Scale, limit: str) -> Case:
    """The suite's case of this limit."""
    [one] = scenarios.cases(scale.suite, [f"redis/set-{limit}"])
    # A server that does not answer any more is rated by what the benchmark said last.
    scores = tuple(replace(score, of=lambda run: outcome.rate(run) or None) for score in one.scores)
    return replace(one, scenario=SCENARIO, key=limit, scores=scores, deadline_s=scale.deadline_s, stop_s=scale.stop_s)


def plan(scale: Scale, limits: Sequence[str], arms: Sequence[str], repeats: int) -> list[Cell]:
    """All cells, arms interleaved within each repeat. `always` under a limit runs once, and first: it is bounded in
    time rather than in requests and takes as long as several others, which then run beside it."""
    cells = planned([case(scale, limit) for limit in limits], [EVERY[arm] for arm in arms], ["classic"], repeats)
    return sorted(cells, key=lambda cell: cell.arm.key not in cell.case.slow)


def command(scale: Scale) -> str:
    """The benchmark's command."""
    return " ".join(("redis-benchmark", *store.load(case(scale, "none"))))


def describe(scale: Scale) -> dict[str, object]:
    """The workload for the results file."""
    size = scale.size
    return {
        "name": scale.name,
        "keys": size.keys,
        "requests": size.requests,
        "limit_bytes": scale.limit_bytes,
        "memory_mib": size.machine.memory_mib,
        "swap_bytes": size.machine.swap_mib * MIB,
        "deadline_s": scale.deadline_s,
        "stop_s": scale.stop_s,
        "repeats": scale.repeats,
        "command": command(scale),
        "min_free_kbytes": size.machine.min_free_kbytes,
        "sample_ms": SAMPLE_MS,
    }
