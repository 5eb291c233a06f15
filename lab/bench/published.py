# SPDX-License-Identifier: GPL-2.0-only
"""The proposal's published figures, to be set beside ours: Ryzen 9 9950X, 32 GB, zram."""

from dataclasses import dataclass

from lab.bench.table import Table, World


@dataclass(frozen=True)
class Published:
    """A row of the proposal's tables."""

    case: str
    """Our case of the same kind."""
    metric: str
    """Our figure of the same kind, by its key."""
    what: str
    always: float
    never: float
    policy: float


PUBLISHED = (
    Published("redis/set-none", "rps", "Redis, no limit: requests/s", 1431307.083, 1224004.250, 1420053.873),
    Published("redis/set-none", "p99", "Redis, no limit: p99, ms", 0.682, 0.812, 0.692),
    Published("redis/bgsave-none", "rps", "Redis, BGSAVE, no limit: requests/s", 1429093.707, 1231569.587, 1431075.330),
    Published("redis/bgsave-none", "p99", "Redis, BGSAVE, no limit: p99, ms", 0.684, 0.823, 0.684),
    Published("redis/set-high", "rps", "Redis, memory.high: requests/s", 24932.790, 976610.893, 885337.250),
    Published("redis/set-high", "p99", "Redis, memory.high: p99, ms", 366.762, 1.183, 2.975),
    Published("redis/bgsave-high", "rps", "Redis, BGSAVE, memory.high: requests/s", 50551.567, 1026720.293, 892643.707),
    Published("redis/bgsave-high", "p99", "Redis, BGSAVE, memory.high: p99, ms", 311.551, 1.140, 2.988),
    Published("shell8/free", "loops", "shell8: score and loops/minute", 22916.8, 24304.0, 24289.9),
    Published("kernbench/none", "elapsed", "kernbench, no limit: elapsed, s", 703.28, 699.1, 703.99),
    Published("kernbench/none", "user_s", "kernbench, no limit: user, s", 19702.39, 18428.9, 19706.73),
    Published("kernbench/none", "system_s", "kernbench, no limit: system, s", 1159.55, 2252.43, 1177.48),
    Published("kernbench/high", "elapsed", "kernbench, memory.high: elapsed, s", 1377.55, 1026.1, 1019.4),
    Published("kernbench/high", "user_s", "kernbench, memory.high: user, s", 20250.65, 18368.91, 18681.27),
    Published("kernbench/high", "system_s", "kernbench, memory.high: system, s", 12778.56, 9636.99, 9392.65),
)


@dataclass(frozen=True)
class Beside:
    """A published row and ours."""

    published: Published
    never: float | None
    """Ours: never / always."""
    reactive: float | None
    """Ours: reactive (the proposal's rule) / always."""
    policy: float | None
    """Ours: the default policy / always."""
    base: str
    """What ours are divided by in truth: `never` where `always` does not finish."""

    @property
    def agreement(self) -> float | None:
        """The ratio of ratios: ours of reactive / never, divided by theirs. 1: emulation shows what the hardware
        showed; both sides run the same rule."""
        if not self.never or self.reactive is None:
            return None
        return (self.reactive / self.never) / (self.published.policy / self.published.never)


def beside(table: Table, lru: str) -> list[Beside]:
    """The published rows whose case was run under `lru`."""
    rows = []
    for one in PUBLISHED:
        world = next((w for w in table.worlds if w.case.name == one.case and w.lru == lru), None)
        if world is None:
            continue
        rows.append(_beside(table, world, one))
    return rows


def _beside(table: Table, world: World, one: Published) -> Beside:
    metric = next(metric for metric in table.metrics(world) if metric.key == one.metric)
    # Where `always` is killed or stopped, there is still what the policies are to `never`.
    finishes = table.whole(world, "always") and table.ratio(world, metric, "never", "always") is not None
    base = "always" if finishes else "never"
    never, reactive, policy = (table.ratio(world, metric, arm, base) for arm in ("never", "reactive", "mthp_ext"))
    return Beside(one, never, reactive, policy, base)


def grid(table: Table, lru: str) -> list[list[str]]:
    """The published figures beside ours as rows of text, the head first; empty if none of the cases was run."""

    def ratio(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.3g}"

    rows = [
        [
            one.published.what + ("" if one.base == "always" else " (ours by never)"),
            ratio(one.published.never / one.published.always),
            ratio(one.published.policy / one.published.always),
            *(ratio(value) for value in (one.never, one.reactive, one.policy, one.agreement)),
        ]
        for one in beside(table, lru)
    ]
    head = ["divided by always", "never, theirs", "policy, theirs", "never, ours", "the same rule, ours",
            "default policy, ours", "ratio of ratios"]  # fmt: skip
    return [head, *rows] if rows else []
