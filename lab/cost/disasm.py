# SPDX-License-Identifier: GPL-2.0-only
"""Looks into the built kernel: does the hook take a reference on its way?"""

import re
import subprocess
from pathlib import Path

from lab.errors import Exit, LabError

HOOK = "__bpf_mthp_choose"
_CONTROL = "get_mem_cgroup_from_mm"
"""Takes a css reference, inlined: where nothing is found in it, nothing would be found in the hook."""
_HELPERS = ("bpf_mthp_walk",)
"""Functions the compiler may have left out of line."""
_HARMLESS = {
    "__fentry__",
    "preempt_schedule_thunk",
    "__x86_indirect_thunk_array",
    "__rcu_read_lock",
    "__rcu_read_unlock",
}
"""What the hook may call directly; its only other call is the one to the program, through the ops."""
_HARMLESS_COUNTERS = {"__preempt_count", "vm_event_states"}
"""What it may change per CPU: being in an RCU section, and the counter of dropped bits. css_get() would be an
increment of another one, or a call."""

_CALL = re.compile(r"\b(?:call|jmp)\s+[0-9a-f]+ <([^>+]+)(\+0x[0-9a-f]+)?>")
_CHANGE = re.compile(r"\b(?:lock )?(?:inc|dec|add|sub|xadd|cmpxchg|xchg)[a-z]?\s+(\S*%gs:\S*|\S*\(%[a-z0-9]+\))(.*)")
_SYMBOL = re.compile(r"# [0-9a-f]+ <([^>+]+)")


def disassemble(vmlinux: Path, function: str) -> str:
    """The code of one function; empty if there is none of this name."""
    done = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", str(vmlinux)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(Exit.HOST, f"objdump cannot read {vmlinux}: {done.stderr.strip()}")
    return "\n".join(line for line in done.stdout.splitlines() if re.match(r"^[0-9a-f]+:\t", line))


def strangers(code: str) -> list[str]:
    """What `code` calls or changes beyond what the hook may: places where a reference could be taken."""
    found = []
    for line in code.splitlines():
        text = line.split("\t", 1)[-1].strip()
        if call := _CALL.search(text):
            if call[2] is None and call[1] not in _HARMLESS and call[1] not in (HOOK, *_HELPERS):
                found.append(text)
        elif "%gs:" in text or text.startswith("lock "):
            symbol = _SYMBOL.search(text)
            if _CHANGE.search(text) and (symbol is None or symbol[1] not in _HARMLESS_COUNTERS):
                found.append(text)
    return found


def references(vmlinux: Path) -> list[str]:
    """The strangers in the hook of a built kernel."""
    code = disassemble(vmlinux, HOOK)
    if not code:
        raise LabError(Exit.TESTS, f"{vmlinux} has no {HOOK}")
    if not strangers(disassemble(vmlinux, _CONTROL)):
        raise LabError(Exit.TESTS, f"the reference that {_CONTROL} takes is not recognised in {vmlinux}")
    return [*strangers(code), *(line for name in _HELPERS for line in strangers(disassemble(vmlinux, name)))]
