# SPDX-License-Identifier: GPL-2.0-only
"""From several runs' values to a median, its spread, and intervals that come out the same each time."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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
    """Where a figure lies with 95 % confidence, by bootstrap; of fewer than `ENOUGH` runs their range, since resampling
    so few gives no more than that: the median of three runs' population is outside of it one time in four."""

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


def ratio_by_bootstrap(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """As `ratio_interval`, but resampled however few runs there are: their ranges divided by each other would take the
    worst of both sides for usual. None if a side is empty or a median can be 0."""
    if not above or not below or min(below) <= 0:
        return None
    return _resampled(tuple(above), tuple(below))


@cache
def _resampled(above: tuple[float, ...], below: tuple[float, ...]) -> Interval:
    draw = random.Random(_SEED)
    return _quantiles(
        [
            statistics.median(draw.choices(above, k=len(above))) / statistics.median(draw.choices(below, k=len(below)))
            for _ in range(_RESAMPLES)
        ]
    )


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """Of the ratio of two medians, each side resampled by itself; None if a side ran once or a median can be 0."""
    if len(above) < 2 or len(below) < 2 or min(below) <= 0:
        return None
    if min(len(above), len(below)) < ENOUGH:
        return Interval(min(above) / max(below), max(above) / min(below))
    return _resampled(tuple(above), tuple(below))
