# SPDX-License-Identifier: GPL-2.0-only
"""From several runs' values to a median, its spread, and intervals that come out the same each time."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

_RESAMPLES = 1000
_SEED = 0x6D746870


@dataclass(frozen=True)
class Figure:
    """Several runs' values of one metric."""

    median: float
    least: float
    most: float

    @property
    def spread(self) -> float:
        """(most - least) / median; 0 for a single run."""
        return (self.most - self.least) / self.median if self.median else 0.0


def figure(values: Sequence[float]) -> Figure:
    """Median and extremes; `values` must not be empty."""
    return Figure(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Interval:
    """Where a figure lies. Of a median: with 95 % confidence, by bootstrap; of fewer than `ENOUGH` runs their range,
    since resampling so few gives no more than that: the median of three runs' population is outside of it one time in
    four."""

    low: float
    high: float


ENOUGH = 6
"""Runs from which on the range holds the median of their population with more than 95 %: 1 - 2 * 0.5 ** 6 = 0.97."""
INTERVAL = f"the range of the runs, from {ENOUGH} runs on the 95 % interval of the median by bootstrap"
"""What is shown beside a median, for readers."""


def _quantiles(values: list[float]) -> Interval:
    values.sort()
    edge = round(0.025 * (len(values) - 1))
    return Interval(values[edge], values[-1 - edge])


def median_interval(values: Sequence[float]) -> Interval | None:
    """Of the median; None for a single run, which knows nothing of its spread."""
    if len(values) < 2:
        return None
    return _median_interval(tuple(values)) if len(values) >= ENOUGH else Interval(min(values), max(values))


# A report asks for the same ones in its text, its page and its JSON.
@cache
def _median_interval(values: tuple[float, ...]) -> Interval:
    draw = random.Random(_SEED)
    return _quantiles([statistics.median(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES)])


ERR = 0.05
"""How often the true ratio of equal distributions lies below, and how often above, an interval by ranks."""
FEWEST = 3
"""Runs of each side: of three and three the range of their ratios errs by 1 in 20 on each side, of fewer by more."""
RATIO = "the 90 % interval by ranks, from three runs of each side on"
"""What is shown beside a ratio, for readers."""


@cache
def _rank(above: int, below: int) -> int:
    """The largest k so that the k-th least of all pairs' ratios is too high no more often than ERR: by the exact
    distribution of Mann and Whitney's U. 0 if there is none."""
    # Ways in which U comes out as n: coefficients of the Gaussian binomial.
    ways = [1]
    for n in range(1, below + 1):
        longer = ways + [0] * (above + n)
        for at in range(len(longer) - 1, above + n - 1, -1):
            longer[at] -= longer[at - above - n]
        for at in range(n, len(longer)):
            longer[at] += longer[at - n]
        ways = longer[: above * n + 1]
    left = ERR * comb(above + below, below)
    for k, count in enumerate(ways):
        left -= count
        if left < -1e-9:
            return k
    return 0


def pair_interval(quotients: Sequence[float], above: int, below: int) -> Interval | None:
    """Where the ratio of two sides lies, from the ratios of all pairs of their runs (Hodges and Lehmann): exact for few
    runs, and a dead one may count as 0. None for too few."""
    rank = _rank(above, below) if min(above, below) >= FEWEST else 0
    if not rank:
        return None
    ordered = sorted(quotients)
    return Interval(ordered[rank - 1], ordered[-rank])
