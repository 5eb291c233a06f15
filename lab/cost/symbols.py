# SPDX-License-Identifier: GPL-2.0-only
"""The symbols of a built kernel."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.errors import Exit, LabError


@dataclass(frozen=True)
class Symbol:
    """A name for a place in memory."""

    name: str
    kind: str
    """As nm calls it: t and T are code, for one."""
    address: int
    size: int
    """0 where it is not known."""


def read(vmlinux: Path) -> list[Symbol]:
    """Those that have an address, by it."""
    done = subprocess.run(["nm", "-n", "-S", str(vmlinux)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(Exit.HOST, f"nm cannot read {vmlinux}: {done.stderr.strip()}")
    return parse(done.stdout)


def parse(text: str) -> list[Symbol]:
    """What nm printed: ADDRESS [SIZE] KIND NAME, without an address for what is not defined."""
    found = []
    for line in text.splitlines():
        match line.split():
            case [address, size, kind, name]:
                found.append(Symbol(name, kind, int(address, 16), int(size, 16)))
            case [address, kind, name]:
                found.append(Symbol(name, kind, int(address, 16), 0))
    return found
