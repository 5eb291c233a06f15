# SPDX-License-Identifier: GPL-2.0-only
"""The TLB model as a guest gets it: a QEMU, the plugin, its sizes, and the layout of the guest's kernel."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import proc, programs
from lab.errors import Exit, LabError
from lab.lock import locked
from lab.paths import BUILD, REPO
from lab.tlb import emulator, layout
from lab.tlb.counts import read
from lab.tlb.geometry import Geometry
from lab.vm.qemu import Emulator

_SOURCE = REPO / "lab" / "tlb" / "plugin"
_FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")

LOST = 0.001
"""Share of the misses of L1 that may come to nothing."""


@dataclass(frozen=True)
class Model:
    """What is loaded into a guest."""

    emulator: Emulator
    plugin: Path
    geometry: Geometry
    layout: tuple[str, ...] = ()
    """Where the kernel has the running task, and what it is; without it the plugin refuses."""

    def arguments(self, out: Path) -> list[str]:
        """For QEMU's command line; counts go to `out`."""
        words = [str(self.plugin), f"out={out}", *self.geometry.words(), *self.layout]
        return ["-plugin", ",".join(word.replace(",", ",,") for word in words)]

    def records(self, out: Path) -> list[dict[str, Any]]:
        """What was counted, or why nothing was."""
        if not out.exists():
            return [{"type": "tlb", "refused": "the guest named no time to count in, or ended before it did"}]
        try:
            return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        except ValueError:
            return [{"type": "tlb", "refused": "its last record is cut off: QEMU ended while it was written"}]

    def environment(self) -> dict[str, str]:
        """What readers of its figures need: its sizes, and the QEMU they come from, which may not be the host's."""
        return {"tlb": self.geometry.text, "qemu": programs.version([self.emulator.program, "--version"])}

    def identity(self) -> str:
        """All that decides what it counts, but for the QEMU program."""
        plugin = hashlib.sha256(self.plugin.read_bytes()).hexdigest()
        return " ".join([plugin, *self.geometry.words(), *self.layout])


def plugin() -> Path:
    """The built plugin, named by a hash of its source."""
    sources = sorted(_SOURCE.glob("*.[ch]"))
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sources:
        digest.update(source.read_bytes())
    path = BUILD / "tlb" / f"tlb-{digest.hexdigest()[:16]}.so"
    with locked("tlb-plugin"):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            code = [str(source) for source in sources if source.suffix == ".c"]
            argv = ["gcc", *_FLAGS, "-o", str(part), *code]
            proc.run(argv, log=BUILD / "log" / "tlb-plugin.log", what="building the TLB model")
            part.replace(path)
    return path


def load(geometry: Geometry, vmlinux: Path) -> Model:
    """The model for a kernel; LabError where it cannot be had."""
    return Model(emulator.find(), plugin(), geometry, layout.words(vmlinux))


def refusal(records: list[dict[str, Any]]) -> str:
    """Why what the model counted must not be used, or that it counted nothing; empty if all is well."""
    found = [record for record in records if record.get("type") == "tlb"]
    for record in found:
        if "refused" in record:
            return str(record["refused"])
    for window in read(found):
        if window.lost > LOST:
            # Each is neither a hit nor a walk: it would look as if the guest walked less.
            return f"of its misses of L1 {window.lost:.2%} came to nothing, since a page table could not be read"
    return "" if found else "no record"


def check(records: list[dict[str, Any]], what: str, log: Path) -> None:
    """LabError if the model refused."""
    if why := refusal(records):
        raise LabError(
            Exit.QEMU, f"{what}: the TLB model reports nothing: {why}; log: {log}", cause=f"TLB model: {why}", log=log
        )
