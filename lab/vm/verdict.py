# SPDX-License-Identifier: GPL-2.0-only
"""Decides how a run ended, from evidence that the code under test cannot fake into a pass."""

import json
import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lab.errors import Exit


class Verdict(StrEnum):
    """How a run ended; all but PASSED are failures."""

    PASSED = "passed"
    """argv ended with exit code 0 and the guest powered off by itself."""
    FAILED = "failed"
    """argv ended otherwise, or could not be started."""
    PANIC = "panic"
    """The guest's kernel panicked."""
    TIMEOUT = "timeout"
    """The time was over; QEMU was killed."""
    DIED = "died"
    """QEMU ended without the guest's verdict."""

    @property
    def exit_code(self) -> Exit:
        """The lab's exit code for a run that ended so."""
        return {
            Verdict.PASSED: Exit.OK,
            Verdict.FAILED: Exit.GUEST_FAILED,
            Verdict.PANIC: Exit.GUEST_PANIC,
            Verdict.TIMEOUT: Exit.GUEST_TIMEOUT,
            Verdict.DIED: Exit.GUEST_DIED,
        }[self]


@dataclass(frozen=True)
class Evidence:
    """What is known when QEMU is gone."""

    nonce: str
    verdict: str
    """Everything that came through the verdict port."""
    console: str
    status: int
    """QEMU's exit status as of subprocess: negative for a signal."""
    over: str = ""
    """Why the lab killed QEMU: empty when it did not."""
    bad_records: int = 0


_PANIC = re.compile(r"^(?:\[[ \d.]+\](?:\[[^\]]*\])? ?)?(Kernel panic - not syncing.*)$", re.MULTILINE)
_COMPLAINTS = (
    "BUG: (?!soft lockup)",
    "WARNING: ",
    "Oops",
    "kernel BUG at ",
    "UBSAN: ",
    "KASAN: ",
    "ODEBUG: ",
    r"list_(?:add|del) corruption",
    r"INFO: task \S+ blocked",
    # What makes lockdep and kmemleak silent from then on is as bad as what they find.
    "INFO: trying to register non-static key",
    "turning off the locking correctness validator",
    r"kmemleak: \d+ new suspected memory leaks",
    "kmemleak: Kernel memory leak detector disabled",
    "======.*WARNING",
)
_STALLS = (r"rcu: INFO: \w+ (?:self-)?detected (?:expedited )?stalls?\b", "(?:watchdog: )?BUG: soft lockup")


def _at_start(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Matches kernel lines that begin with one of `texts`; a program's own output has no time stamp."""
    return re.compile(r"^(?:\[[ \d.]+\](?:\[[^\]]*\])? ?)((?:" + "|".join(texts) + r").*)$", re.MULTILINE)


_SPLAT = _at_start(_COMPLAINTS)
_STALL = _at_start(_STALLS)


def splats(console: str) -> tuple[str, ...]:
    """Kernel complaints in a console log, without `stalls`."""
    return tuple(match[1].strip() for match in _SPLAT.finditer(console.replace("\r", "")))


def stalls(console: str) -> tuple[str, ...]:
    """Stalls and soft lock-ups in a console log. An emulated CPU that its busy host starves looks just like them,
    so they count only where a run waits long enough before it calls something a stall."""
    return tuple(match[1].strip() for match in _STALL.finditer(console.replace("\r", "")))


def judge(evidence: Evidence) -> tuple[Verdict, int | None, str]:
    """The verdict, argv's exit code when it has one, and the reason in words (empty for PASSED)."""
    said = None
    for line in evidence.verdict.splitlines():
        who, _, text = line.partition(" ")
        if who == evidence.nonce:
            said = text
    code = int(said[5:]) if said and re.fullmatch(r"exit [0-9]{1,3}", said) else None

    panic = _PANIC.search(evidence.console.replace("\r", ""))
    if panic:
        return Verdict.PANIC, code, f"the guest's kernel panicked: {panic[1].strip()}"
    if evidence.over:
        after = f" after its verdict ({said})" if said else ""
        return Verdict.TIMEOUT, code, f"{evidence.over}{after}; QEMU was killed"
    if evidence.status != 0:
        how = f"by signal {-evidence.status}" if evidence.status < 0 else f"with exit code {evidence.status}"
        if evidence.status == -signal.SIGKILL:
            how += ", likely of the kernel for lack of memory on this host"
        return Verdict.DIED, code, f"QEMU ended {how}"
    if said is None:
        return Verdict.DIED, None, "the guest powered off or reset without a verdict"
    if code is None:
        if match := re.fullmatch(r"signal ([0-9]+)", said):
            return Verdict.FAILED, None, f"killed by signal {match[1]}"
        return Verdict.FAILED, None, f"the guest's init reports: {said.removeprefix('error ')}"
    if code != 0:
        return Verdict.FAILED, code, f"exit code {code}"
    if evidence.bad_records:
        return Verdict.FAILED, code, f"{evidence.bad_records} lines in the results channel are no JSON objects"
    return Verdict.PASSED, 0, ""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_record(line: bytes) -> dict[str, Any] | None:
    """One line of the results channel as a JSON object, or None if it is anything else."""
    try:
        value = json.loads(line.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
