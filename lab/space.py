# SPDX-License-Identifier: GPL-2.0-only
"""Free disk space: asked for before what needs much of it, so that nothing fails half way."""

import shutil
from pathlib import Path

from lab.errors import Exit, LabError
from lab.paths import existing


def free_mib(path: Path) -> int:
    """What is free for this user where `path` is, or would be made."""
    return shutil.disk_usage(existing(path)).free >> 20


def need(mib: int, directory: Path, what: str, remedy: str = "") -> None:
    """LabError if less than `mib` MiB are free for `directory`; `remedy` is what helps besides making room."""
    free = free_mib(directory)
    if free < mib:
        raise LabError(
            Exit.SPACE,
            f"{what} needs about {mib} MiB in {directory}, where {free} MiB are free; make room there"
            f"{f', or {remedy}' if remedy else ''}",
        )
