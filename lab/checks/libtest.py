# SPDX-License-Identifier: GPL-2.0-only
"""Reads what Rust's test programs print."""

import re

from lab.checks.result import Status, Suite, Test

_START = re.compile(r"test (?P<name>\S+)(?: - should panic)? \.\.\. ?(?P<rest>.*)")
_ENDS = {"ok": Status.PASSED, "FAILED": Status.FAILED, "ignored": Status.SKIPPED}
_RUNNING = re.compile(r"running (\d+) tests?")
_SUMMARY = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;.*")
_DETAIL = re.compile(r"---- (\S+) stdout ----")


def parse(text: str, suite: Suite) -> None:
    """Adds every test of `text` to `suite`, and a failure when the program's own counts say otherwise.

    A test's children may print between a test's name and its end; the end then stands at the end of what they
    printed. Where such output is mistaken for an end, the program's counts tell.
    """
    lines = text.replace("\r", "").splitlines()
    details = _details(lines)
    announced = sum(int(match[1]) for line in lines if (match := _RUNNING.fullmatch(line)))
    summaries = [match for line in lines if (match := _SUMMARY.fullmatch(line))]
    open_test = ""
    for line in lines:
        rest = line
        if match := _START.fullmatch(line):
            if open_test:
                suite.fail(open_test, "it never ended: the test program died in it")
            open_test, rest = match["name"], match["rest"]
        if not open_test:
            continue
        if end := _end(rest):
            status, why = end
            suite.tests.append(Test(open_test, status, details.get(open_test, "") or why))
            open_test = ""
    if open_test:
        suite.fail(open_test, "it never ended: the test program died in it")
    if not announced and not summaries:
        return
    counts = [suite.count(status) for status in (Status.PASSED, Status.FAILED, Status.SKIPPED)]
    said = [sum(int(match[number]) for match in summaries) for number in (1, 2, 3)]
    if sum(counts) != announced or (summaries and counts != said):
        suite.fail(
            "(counts)", f"announced {announced} tests, summed up {said}, seen {counts} (passed, failed, ignored)"
        )
    elif not summaries:
        suite.fail("(counts)", "the test program ended before its summary")


def _end(text: str) -> tuple[Status, str] | None:
    """The status that `text` is or, behind what a test's child printed, ends with."""
    for word, status in _ENDS.items():
        if text == word or text.startswith((f"{word}, ", f"{word} <")):
            return status, text.removeprefix(word).lstrip(", ")
        if status is not Status.SKIPPED and text.endswith(word):
            return status, ""
    return None


def _details(lines: list[str]) -> dict[str, str]:
    """What each failed test printed, from the program's closing report."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if match := _DETAIL.fullmatch(line):
            name = match[1]
            found[name] = []
        elif line == "failures:":
            name = ""
        elif name:
            found[name].append(line)
    return {name: "\n".join(text).strip() for name, text in found.items()}
