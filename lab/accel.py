# SPDX-License-Identifier: GPL-2.0-only
"""Finds out by booting whether KVM works here: a /dev/kvm that opens proves nothing, on some hosts a guest
hangs in the decompressor for ever."""

import json
import os
from pathlib import Path

from lab import programs, qemu, vm
from lab.paths import cache
from lab.qemu import Mode
from lab.verdict import Verdict

DEADLINE_S = 10.0
"""A guest under working KVM is up and off again within two seconds."""

_DEVICE = Path("/dev/kvm")


def best(kernel: Path) -> tuple[Mode, str]:
    """The fastest mode that works on this host, and why; remembered until the host boots again."""
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return Mode.TCG, f"{_DEVICE} cannot be opened" if _DEVICE.exists() else f"there is no {_DEVICE}"
    key = [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), programs.version([qemu.binary(), "--version"])]
    memory = cache() / "accel.json"
    known = _recall(memory, key)
    if known is None:
        known = _probe(kernel)
        temporary = memory.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"key": key, "mode": known[0], "why": known[1]}))
        temporary.replace(memory)
    return known


def _recall(memory: Path, key: list[str]) -> tuple[Mode, str] | None:
    try:
        stored = json.loads(memory.read_text())
        return (Mode(stored["mode"]), str(stored["why"])) if stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        # Nothing remembered, or not by this version: probe again.
        return None


def _probe(kernel: Path) -> tuple[Mode, str]:
    outcome = vm.run(
        vm.Job(
            kernel=kernel,
            argv=["/bin/true"],
            memory_mib=256,
            cpus=1,
            mode=Mode.KVM,
            timeout_s=DEADLINE_S,
            name="probe-kvm",
        )
    )
    if outcome.verdict is Verdict.PASSED:
        return Mode.KVM, f"a guest under KVM was up and off in {outcome.seconds:.1f} s"
    return Mode.TCG, f"KVM does not work here: {outcome.reason}"
