# SPDX-License-Identifier: GPL-2.0-only
"""Reads the TAP that kernel selftests and the lab's own runners print."""

import re

from lab.checks.result import Status, Suite, Test

_LINE = re.compile(r"(?P<not>not )?ok (?P<number>\d+)(?:[ -]+(?P<text>.*))?")
_DIRECTIVE = re.compile(r"\s*#\s*(?P<kind>SKIP|TODO|XFAIL|XPASS)\b\s*(?P<why>.*)", re.IGNORECASE)
_PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*SKIP\s*(?P<why>.*))?", re.IGNORECASE)


def parse(text: str, suite: Suite) -> None:
    """Adds every test of `text` to `suite`, and a failure when they are not those that the plan announces."""
    planned: int | None = None
    numbers: list[int] = []
    notes: list[str] = []
    for line in text.replace("\r", "").splitlines():
        if match := _PLAN.fullmatch(line.strip()):
            if planned is not None:
                suite.fail("(plan)", "the plan is announced twice")
            planned = int(match[1])
            if planned == 0 and match["why"] is not None:
                suite.tests.append(Test("(all)", Status.SKIPPED, match["why"]))
        elif match := _LINE.fullmatch(line):
            numbers.append(int(match["number"]))
            suite.tests.append(_test(match, notes))
            notes = []
        else:
            notes = [*notes, line][-40:]
    if planned is None:
        if numbers:
            suite.fail("(plan)", "no plan (1..N): it cannot be said whether all tests ran")
    elif numbers != list(range(1, planned + 1)):
        suite.fail("(plan)", f"announced tests 1 to {planned}, reported {len(numbers)}: {_brief(numbers)}")


def _test(match: re.Match[str], notes: list[str]) -> Test:
    text = match["text"] or f"test {match['number']}"
    name, why = text, ""
    if directive := _DIRECTIVE.search(text):
        name, why = text[: directive.start()].strip(), directive["why"]
        if directive["kind"].upper() in ("SKIP", "TODO", "XFAIL") and not (
            match["not"] and directive["kind"].upper() == "SKIP"
        ):
            return Test(name, Status.SKIPPED, why or directive["kind"].lower())
    if match["not"]:
        said = [note for note in notes if not note.startswith(("#  RUN", "TAP version"))]
        return Test(name, Status.FAILED, "\n".join(said[-20:]) or why)
    return Test(name, Status.PASSED)


def _brief(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:20])
    return shown + (", ..." if len(numbers) > 20 else "")
