# SPDX-License-Identifier: GPL-2.0-only
"""Looks into the built kernel: does the hook take a reference on its way?"""

import re
import subprocess
from pathlib import Path

from lab.cost import symbols
from lab.errors import Exit, LabError

HOOK = "__bpf_mthp_choose"
_CONTROL = "get_mem_cgroup_from_mm"
"""Takes a css reference, inlined: where nothing is found in it, nothing would be found in the hook."""
_HELPERS = ("bpf_mthp_ask", "bpf_mthp_count_refused")
"""Functions the compiler may have left out of line."""
_TRACE = "__SCT__tp_func_bpf_mthp_choose"
"""The tracepoint, called only while it is on."""
_HARMLESS = {
    "__fentry__",
    "preempt_schedule_thunk",
    "__x86_indirect_thunk_array",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    _TRACE,
}
"""What the hook may call directly; its only other calls are those to the programs, through the ops."""
_HARMLESS_COUNTERS = {"__preempt_count", "vm_event_states"}
"""What it may change per CPU: being in an RCU section, and the counter of dropped bits. css_get() would be an
increment of another one, or a call."""
_STATISTICS = "mthp_stats"
"""Counts refusals by size: an array per CPU, so objdump shows its address plus a register, and no name."""
_TRACE_SRCU = "tracepoint_srcu"
"""That call is in a section of this, which counts per CPU, through a register."""

_CALL = re.compile(r"\b(?:call|jmp)\s+[0-9a-f]+ <([^>+]+)(\+0x[0-9a-f]+)?>")
_CHANGE = re.compile(r"\b(?:lock )?(?:inc|dec|add|sub|xadd|cmpxchg|xchg)[a-z]?\s+(\S*%gs:\S*|\S*\(%[a-z0-9]+\))(.*)")
_SYMBOL = re.compile(r"# [0-9a-f]+ <([^>+]+)")
_ARRAY = re.compile(r"%gs:-0x([0-9a-f]+)\(%")
_SRCU = re.compile(rf"\bmov\s+\S+,(%\w+)\s+# [0-9a-f]+ <{_TRACE_SRCU}\b")


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


def place(vmlinux: Path, symbol: str) -> range:
    """The addresses of a variable; none if there is no such variable."""
    found = (one for one in symbols.read(vmlinux) if one.name == symbol)
    return next((range(one.address, one.address + one.size) for one in found), range(0))


def strangers(code: str, statistics: range = range(0)) -> list[str]:
    """What `code` calls or changes beyond what the hook may: places where a reference could be taken. `statistics`:
    addresses of the array that counts refusals."""
    found = []
    srcu = set(_SRCU.findall(code))

    def counts(text: str) -> bool:
        if array := _ARRAY.search(text):
            return 2**64 - int(array[1], 16) in statistics
        return any(re.search(rf"^incq\s+%gs:(0x[08])?\({register}\)$", text) for register in srcu)

    for line in code.splitlines():
        text = line.split("\t", 1)[-1].strip()
        if call := _CALL.search(text):
            if call[2] is None and call[1] not in _HARMLESS and call[1] not in (HOOK, *_HELPERS):
                found.append(text)
        elif "%gs:" in text or text.startswith("lock "):
            symbol = _SYMBOL.search(text)
            harmless = counts(text) if symbol is None else symbol[1] in _HARMLESS_COUNTERS
            if _CHANGE.search(text) and not harmless:
                found.append(text)
    return found


def references(vmlinux: Path) -> list[str]:
    """The strangers in the hook of a built kernel."""
    code = disassemble(vmlinux, HOOK)
    if not code:
        raise LabError(Exit.TESTS, f"{vmlinux} has no {HOOK}")
    if not strangers(disassemble(vmlinux, _CONTROL)):
        raise LabError(Exit.TESTS, f"the reference that {_CONTROL} takes is not recognised in {vmlinux}")
    whole = [code, *(disassemble(vmlinux, name) for name in _HELPERS)]
    statistics = place(vmlinux, _STATISTICS)
    return [line for one in whole for line in strangers(one, statistics)]
