# SPDX-License-Identifier: GPL-2.0-only
"""What a test ended with, and how a suite of them is judged."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from lab.results import Gate


class Status(StrEnum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Test:
    """One test."""

    name: str
    status: Status
    detail: str = ""
    """Why it failed or was skipped."""


@dataclass
class Suite:
    """The tests of one program run, in order."""

    name: str
    tests: list[Test] = field(default_factory=list)
    seconds: float = 0.0
    logs: list[Path] = field(default_factory=list)
    """Files that tell more about a failure."""

    def count(self, status: Status) -> int:
        """How many tests ended so."""
        return sum(test.status is status for test in self.tests)

    def check(self, name: str, ok: bool, detail: str) -> None:
        """Adds a test that passes if `ok`; else `detail` says why not."""
        self.tests.append(Test(name, Status.PASSED if ok else Status.FAILED, "" if ok else detail))

    def gate(self, one: Gate, head: str = "") -> None:
        """Adds a gate as a test."""
        self.check(f"{head}{one.name}", one.ok, f"{one.value} ({one.bound})")

    def fail(self, name: str, detail: str) -> None:
        """Adds a failure that the suite itself could not report, such as its own death."""
        self.tests.append(Test(name, Status.FAILED, detail))

    def settle(self, problem: str = "") -> None:
        """Closes the suite. `problem` is what the program's end says against it; without a failed test that
        explains it, it is a failure of its own. No test at all is one, too."""
        if problem and not self.count(Status.FAILED):
            self.fail("(the suite itself)", problem)
        if not self.tests:
            self.fail("(the suite itself)", "it reported no tests")


def total(suites: list[Suite]) -> str:
    """The closing line."""
    counts = (f"{sum(suite.count(status) for suite in suites)} {status}" for status in Status)
    return ", ".join(counts)
