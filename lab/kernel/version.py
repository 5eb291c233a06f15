# SPDX-License-Identifier: GPL-2.0-only
"""Kernel versions as Debian writes them, and which of them to take."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

SERIES = "7.3"
"""The stable series the patches are for."""

_UPSTREAM = re.compile(r"(?:\d+:)?(?P<series>\d+\.\d+)(?:\.(?P<point>\d+))?(?:~rc(?P<rc>\d+))?(?:[-+~].*)?")


@dataclass(frozen=True)
class Candidate:
    """A package version and the suite that has it."""

    version: str
    suite: str


def rank(version: str) -> tuple[int, int, int] | None:
    """Sorts versions of SERIES: a final release after all its candidates; None for another series."""
    match = _UPSTREAM.fullmatch(version)
    if not match or match["series"] != SERIES:
        return None
    return (int(match["point"] or 0), 0 if match["rc"] else 1, int(match["rc"] or 0))


def newest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The newest upstream version; of equals the one from the suite named first."""
    best: tuple[tuple[int, int, int], Candidate] | None = None
    for one in candidates:
        order = rank(one.version)
        if order is not None and (best is None or order > best[0]):
            best = (order, one)
    return best[1] if best else None


def parse_madison(text: str, suite: str) -> list[Candidate]:
    """The versions in a report of `apt-cache madison`."""
    rows = (line.split("|") for line in text.splitlines())
    return [Candidate(row[1].strip(), suite) for row in rows if len(row) == 3]
