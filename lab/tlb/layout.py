# SPDX-License-Identifier: GPL-2.0-only
"""Where a kernel keeps the running task: by it the model tells programs apart, and address spaces that reuse tables."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError

_MEMBERS = {
    "leader": ("task_struct", "group_leader"),
    "comm": ("task_struct", "comm[16]"),
    "signal": ("task_struct", "signal"),
    "mm": ("task_struct", "active_mm"),
    "pgrp": ("signal_struct", "pids[4]"),
    "nr": ("pid", "numbers[]"),
    "pgd": ("mm_struct", "pgd"),
    "context": ("mm_struct", "context"),
}
_PLACES = {("upid", "nr"): 0, ("mm_context_t", "ctx_id"): 0, ("mm_context_t", "tlb_gen"): 8}
"""Where the plugin expects them, as it has no options for them."""
_PGID = 2
"""Of enum pid_type."""
_TYPES = re.compile(r"^(?:struct (\w+)|typedef struct) \{\n(.*?)^\}(?: (\w+);)?", re.MULTILINE | re.DOTALL)
"""What is declared within a type is indented."""


@cache
def words(vmlinux: Path) -> tuple[str, ...]:
    """The plugin's options for this kernel; LabError if its symbols or types do not say."""
    symbols = proc.output(["nm", str(vmlinux)], what=f"reading the symbols of {vmlinux}", code=Exit.HOST)
    found = re.search(r"^([0-9a-f]{16}) \w current_task$", symbols, re.MULTILINE)
    types = _types(vmlinux)
    values = {name: _offset(types, *member) for name, member in _MEMBERS.items()}
    lacking = [".".join(member) for name, member in _MEMBERS.items() if values[name] is None]
    lacking += [".".join(member) for member, place in _PLACES.items() if _offset(types, *member) != place]
    if found is None or lacking:
        raise _unknown(vmlinux, ["current_task", *lacking] if found is None else lacking)
    offsets = {name: value for name, value in values.items() if value is not None}
    offsets["pgrp"] += 8 * _PGID
    return tuple(f"{name}={value:#x}" for name, value in {"current": int(found[1], 16), **offsets}.items())


def _types(vmlinux: Path) -> dict[str, str]:
    """The bodies of the types that are asked about. One call, by BTF: by DWARF each takes a second or more."""
    names = dict.fromkeys(struct for struct, _ in (*_MEMBERS.values(), *_PLACES))
    argv = ["pahole", "-F", "btf", "-C", ",".join(names), str(vmlinux)]
    text = proc.output(argv, what=f"reading the types of {vmlinux} (CONFIG_DEBUG_INFO_BTF)", code=Exit.HOST)
    types = {name or alias: body for name, body, alias in _TYPES.findall(text)}
    # pahole stops at the first one that is not there, and calls that a success.
    if lacking := [name for name in names if name not in types]:
        raise _unknown(vmlinux, lacking[:1])
    return types


def _offset(types: dict[str, str], struct: str, member: str) -> int | None:
    pattern = rf"[\s*]{re.escape(member)}(?:\s+__attribute__\S+)?;\s+/\*\s+(\d+)\s"
    found = re.search(pattern, types[struct])
    return int(found[1]) if found else None


def _unknown(vmlinux: Path, lacking: Sequence[str]) -> LabError:
    return LabError(
        Exit.CONFIG,
        f"the TLB model does not find {', '.join(lacking)} in {vmlinux} where it expects it: likely a kernel with "
        "another layout; measure without the model, or correct lab/tlb/layout.py",
    )
