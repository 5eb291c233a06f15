# SPDX-License-Identifier: GPL-2.0-only
"""Finds out by booting whether KVM works here: a /dev/kvm that opens proves nothing, on some hosts a guest
hangs in the decompressor for ever."""

import json
import os
from pathlib import Path

from lab import programs, vm
from lab.kernel import config
from lab.kernel.build import Kernel
from lab.paths import cache
from lab.vm import qemu
from lab.vm.qemu import Mode
from lab.vm.verdict import Verdict

DEADLINE_S = 10.0
"""A guest under working KVM is up and off again within two seconds."""

_DEVICE = Path("/dev/kvm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def best(kernel: Path) -> tuple[Mode, str]:
    """The fastest mode that works on this host, and why; remembered until the host boots again."""
    if why := _closed():
        return Mode.TCG, why
    key = [_BOOT_ID.read_text().strip(), programs.version([qemu.binary(), "--version"])]
    memory = cache() / "accel.json"
    known = _recall(memory, key)
    if known is None:
        known = _probe(kernel)
        temporary = memory.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"key": key, "mode": known[0], "why": known[1]}))
        temporary.replace(memory)
    return known


def of(kernel: Kernel) -> tuple[Mode, str]:
    """The fastest mode that works on this host for this kernel, and why.

    A kernel with jump labels patches its code while other CPUs run it. Emulated with a thread for each of them, one now
    and then meets the breakpoint of a label after the patching has ended, and dies of it.
    """
    return of_image(kernel.image, kernel.config)


def of_image(image: Path, configuration: Path | None = None) -> tuple[Mode, str]:
    """The same of an image; its configuration is the file `config` beside it unless another is named. A kernel whose
    configuration is unknown may have jump labels."""
    mode, why = best(image)
    if mode is not Mode.TCG:
        return mode, why
    try:
        text = (configuration or image.parent / "config").read_text()
    except OSError:
        return Mode.SINGLE, f"{why}; a kernel of unknown configuration takes one thread for all its processors"
    if config.has(text, "JUMP_LABEL"):
        return Mode.SINGLE, f"{why}; a kernel with jump labels takes one thread for all its processors"
    return mode, why


def _closed() -> str:
    """Why the device cannot be opened; empty if it can. Its mode alone does not say: a container may have it, and yet
    not be allowed to use it."""
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"there is no {_DEVICE}"
    except OSError as error:
        return f"{_DEVICE} cannot be opened: {error.strerror}"
    return ""


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
