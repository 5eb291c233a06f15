# SPDX-License-Identifier: GPL-2.0-only
"""Where the lab keeps things: results in build/ of the checkout, everything expensive in a cache outside it."""

import os
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "build"
RESULTS = BUILD / "results"
CARGO_TARGET = BUILD / "cargo"
KERNEL_DIR = REPO / "kernel"


def documents() -> list[Path]:
    """The Markdown pages of the repository."""
    found = [*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *KERNEL_DIR.glob("*.md")]
    return sorted(found)


def cache() -> Path:
    """The cache directory: $MTHP_CACHE, else $XDG_CACHE_HOME/mthp_ext, else ~/.cache/mthp_ext; made if missing."""
    if chosen := os.environ.get("MTHP_CACHE"):
        path = Path(chosen)
    elif xdg := os.environ.get("XDG_CACHE_HOME"):
        path = Path(xdg) / "mthp_ext"
    else:
        path = Path.home() / ".cache" / "mthp_ext"
    path = path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path
