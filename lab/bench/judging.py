# SPDX-License-Identifier: GPL-2.0-only
"""What is judged, by which bound and by how many runs: fixed here, before anything is run."""

from dataclasses import dataclass
from fnmatch import fnmatch

from lab.bench.common import SWAPPED_OUT
from lab.bench.spec import Bind, Case, Metric

RUNS, RUNS_SWAPPING = 3, 5
"""Of each arm in each row, no more and no fewer, but for what runs once (`slow`, BEHIND); in rows that swap equal runs
differ by more."""
SWAPPING = (
    "mixed/*", "redis/*-high", "redis/*-max", "zipf/high", "memcached/max", "hostpressure/*", "tree/*", "swap/*",
    "vmhost/*", "square/*", "late/*", "advised/*-high", "heap/*", "database/*-high", "kernbench/high", "cpus/*",
)  # fmt: skip
"""Rows that swap, or that read evicted files again, as patterns."""
SWAPPED = 2048.0
"""Pages that `never` has swapped out in a row that swaps, or the row does not show what it is there for: four huge
pages. In the published run the least was 15,006, in 22 such rows; the others, zipf, tree, late, heap,
database and more, have no figure yet. Rows with more to say have a bind of their own."""
READS_AGAIN = ("vmhost/*",)
"""Rows in which files give way instead: nothing is swapped."""
STATIC = ("always", "madvise", "never", "only16", "only32", "only64", "only64-2m", "shrinker", "oracle")
"""The settings that the best static one is chosen from. A row in which one of them is missing, of those that are meant
for it (lab/bench/arms.py), is not judged by it."""
BEHIND = 0.90
"""A static arm whose first run has less than this of the best one's median, in each score of a row, does not run there
again: it is neither the best nor within NEAR of it. In the rows where this counts, runs of one arm lie within 4 % of
each other. What is compared by itself runs as often as the others (`kept_up`)."""
UNEVEN = ("cpus/*", "redis/bgsave-*", "square/*", "tree/follows", "memcached/max")
"""Rows where they do not, by up to 16 %, or where an arm is killed in some runs only: there all run as often."""
NEAR = 0.98
"""A latency is compared with the least of the static arms that reach this much of the best one's score."""
RESOLUTION = {"s": 0.005, "pages": 128.0}
"""Unit -> by how much figures may differ without a meaning: the guest polls for the end of tasks that often (POLL of
lab/guest/src/bench/mod.rs); with several processors no two runs swap the same pages."""


@dataclass(frozen=True)
class Rule:
    """A bound for a figure of some cases."""

    cases: str
    """A pattern."""
    metric: str
    """Key of the figure."""
    bound: str


SCORE = ">= 0.98"
"""Result / best static setting's."""
_SCORES = (
    # While a limit that came late is in force, and where no limit says that memory is short.
    Rule("late/load", "limited", ">= 0.97"),
    Rule("square/high", "rps_limited", ">= 0.97"),
    Rule("late/quarter", "uses", ">= 0.95"),
    # In it the policy takes large folios apart, which `never` does not have.
    Rule("late/quarter", "first", ">= 0.50"),
    Rule("hostpressure/*", "rps", ">= 0.97"),
)
MEDIAN = ">= 1.00"
"""Of all results / best static settings'."""
TAIL = "<= 1.10"
OF_NEVER = ("redis/bgsave-*",)
"""Rows whose latencies are compared with those of `never`, which shares its memory with the snapshot page by page."""
_TAILS = (Rule("redis/bgsave-high", "p99", "<= 1.05"), Rule("redis/bgsave-max", "p99", "<= 1.05"))
"""p99 / that of the best static setting."""
WORST = "<= 1.50"
"""Worst request / that of the best static setting."""
FLOORS = (
    Rule("redis/bgsave-high", "rps", ">= 0.95"),
    Rule("redis/bgsave-max", "rps", ">= 0.95"),
    Rule("tree/follows", "paced", ">= 0.95"),
)
"""Figure / that of `never`, beside the scores: the work of server and child together may hide what clients get, and the
time of the processor how long a job sleeps over its limit."""
MEMORY = "<= 1.05"
_MEMORIES = (Rule("services/grown", "small", "<= 1.10"), Rule("services/grown", "peak_mib", "<= 1.10"))
"""Memory / that of `never`, where memory is what a case is about."""
COVERAGE = ">= 0.90"
"""Huge coverage / that of `always`, where nothing is reclaimed."""


def swaps(case: Case) -> bool:
    """Whether the rows of a case swap."""
    return any(fnmatch(case.name, pattern) for pattern in SWAPPING)


def binds(case: Case) -> tuple[Bind, ...]:
    """What `never` must show in a case for it to be judged."""
    if case.binds or not swaps(case) or any(fnmatch(case.name, pattern) for pattern in READS_AGAIN):
        return case.binds
    return (Bind(SWAPPED_OUT, SWAPPED),)


def runs(case: Case) -> int:
    """How often each arm is run; those that are stopped at a deadline (`slow`) or far behind run once, as does every
    arm in a row that has to be named: half an hour."""
    if case.named:
        return 1
    return RUNS_SWAPPING if swaps(case) else RUNS


def _bound(rules: tuple[Rule, ...], case: Case, metric: Metric, usual: str) -> str:
    found = (rule.bound for rule in rules if fnmatch(case.name, rule.cases) and rule.metric == metric.key)
    return next(found, usual)


def of_score(case: Case, score: Metric) -> str:
    """Bound of a score."""
    return _bound(_SCORES, case, score, SCORE)


def of_tail(case: Case, tail: Metric) -> str:
    """Bound of a p99."""
    return _bound(_TAILS, case, tail, TAIL)


def of_memory(case: Case, metric: Metric) -> str:
    """Bound of a figure of memory."""
    return _bound(_MEMORIES, case, metric, MEMORY)


def kept_up(case: Case) -> tuple[str, ...]:
    """The static arms that something is compared with by itself, however they do: `never` wherever memory, floors and
    what must bind are, `always` where nothing is reclaimed."""
    return ("never", "always") if case.roomy else ("never",)


def even(case: Case) -> bool:
    """Whether one run of an arm says if it is far behind."""
    return not any(fnmatch(case.name, pattern) for pattern in UNEVEN)


def of_never(case: Case) -> bool:
    """Whether a case's latencies are compared with those of `never`."""
    return any(fnmatch(case.name, pattern) for pattern in OF_NEVER)


def floors(case: Case) -> list[tuple[str, str]]:
    """(key of a figure, bound) of what is judged beside the scores."""
    return [(rule.metric, rule.bound) for rule in FLOORS if fnmatch(case.name, rule.cases)]
