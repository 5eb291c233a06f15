# SPDX-License-Identifier: GPL-2.0-only
"""What a piece of software brings into a guest."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from lab.errors import Exit, LabError


@dataclass(frozen=True)
class Payload:
    """What one piece of software brings."""

    paths: dict[str, Path] = field(default_factory=dict)
    """Name that tasks use -> host binary, kept at its path with the libraries it loads."""
    programs: tuple[Path, ...] = ()
    """More binaries and shared objects, which no task names."""
    files: dict[str, Path] = field(default_factory=dict)
    """Guest path -> host file."""
    data: dict[str, bytes] = field(default_factory=dict)
    """Guest path -> content."""


def tool(name: str) -> Path:
    """A program of the host; LabError if it is not installed."""
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        raise LabError(Exit.HOST, f"{name} is not installed; run `make setup`")
    return Path(found).resolve()
