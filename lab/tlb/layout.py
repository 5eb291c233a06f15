# SPDX-License-Identifier: GPL-2.0-only
"""Where a kernel keeps the running task: by it the model tells programs apart, and address spaces that reuse tables."""

import re
from functools import cache
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError

_MEMBERS = {
    "leader": ("task_struct", "group_leader"),
    "comm": ("task_struct", r"comm\[16\]"),
    "signal": ("task_struct", "signal"),
    "mm": ("task_struct", "active_mm"),
    "pgrp": ("signal_struct", r"pids\[4\]"),
    "nr": ("pid", r"numbers\[\d*\]"),
    "pgd": ("mm_struct", "pgd"),
    "context": ("mm_struct", "context"),
}
_PGID = 2
"""Of enum pid_type."""


@cache
def words(vmlinux: Path) -> tuple[str, ...]:
    """The plugin's options for this kernel; LabError if its symbols or types do not say."""
    symbols = proc.output(["nm", str(vmlinux)], what=f"reading the symbols of {vmlinux}", code=Exit.HOST)
    found = re.search(r"^([0-9a-f]{16}) \w current_task$", symbols, re.MULTILINE)
    values = {"current": int(found[1], 16) if found else None}
    for name, (struct, member) in _MEMBERS.items():
        values[name] = _offset(vmlinux, struct, member)
    if values["pgrp"] is not None:
        values["pgrp"] += 8 * _PGID
    if _offset(vmlinux, "upid", "nr") != 0:
        values["nr"] = None
    if _offset(vmlinux, "mm_context_t", "ctx_id") != 0 or _offset(vmlinux, "mm_context_t", "tlb_gen") != 8:
        values["context"] = None
    lacking = [name for name, value in values.items() if value is None]
    if lacking:
        raise LabError(
            Exit.CONFIG,
            f"the TLB model does not find {', '.join(lacking)} in {vmlinux}: likely a kernel with another layout; "
            "measure without the model, or correct lab/tlb/layout.py",
        )
    return tuple(f"{name}={value:#x}" for name, value in values.items() if value is not None)


def _offset(vmlinux: Path, struct: str, member: str) -> int | None:
    text = proc.output(["pahole", "-C", struct, str(vmlinux)], what=f"reading the types of {vmlinux}", code=Exit.HOST)
    found = re.search(rf"[\s*]{member}(?:\s+__attribute__\S+)?;\s+/\*\s+(\d+)\s", text)
    return int(found[1]) if found else None
