# SPDX-License-Identifier: GPL-2.0-only
"""Whether a mutant was caught, and by what."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lab.checks.mutants.patches import Catch, How
from lab.checks.result import Status


class Fate(StrEnum):
    """How a mutant ended."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    OTHERWISE = "caught otherwise"
    """Something went wrong, but not what the mutant's header says."""
    BUILD_FAILED = "build failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Seen:
    """What one run of a test program showed."""

    program: str
    tests: dict[str, Status]
    """Those that reported an end."""
    splats: int = 0
    """Complaints of the guest's kernel, among them its panic."""
    ended: bool = True
    """The program reported its end; else the guest died, panicked or hung."""


def _of(catch: Catch, seen: Iterable[Seen]) -> Seen | None:
    return next((one for one in seen if one.program == catch.program), None)


def sound(catch: Catch, seen: Iterable[Seen]) -> str:
    """Why the catch means nothing even without a mutant: its test must pass then, in silence. "" if it does."""
    one = _of(catch, seen)
    if one is None:
        return f"{catch.program} did not run"
    status = one.tests.get(catch.test)
    if status is None:
        return f"{catch.program} reports no test {catch.test}"
    if status is not Status.PASSED:
        return f"{catch.test} {status} without the mutant"
    if one.splats or not one.ended:
        return f"{catch.program} does not end in silence without the mutant"
    return ""


def caught(catch: Catch, seen: Iterable[Seen]) -> bool:
    """Whether this is what happened."""
    one = _of(catch, seen)
    if one is None:
        return False
    if catch.how is How.SPLAT:
        return one.splats > 0
    return one.tests.get(catch.test) is Status.FAILED


def fate(catches: Iterable[Catch], seen: list[Seen]) -> Fate:
    """The fate of a mutant that was built and run: all its catches must have caught it."""
    if all(caught(catch, seen) for catch in catches):
        return Fate.CAUGHT
    noticed = any(one.splats or not one.ended or Status.FAILED in one.tests.values() for one in seen)
    return Fate.OTHERWISE if noticed else Fate.SURVIVED
