# SPDX-License-Identifier: GPL-2.0-only
"""Where the lab keeps things: results in build/ of the checkout, everything expensive in a cache outside it."""

import functools
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from lab.errors import Exit, LabError

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "build"
RESULTS = BUILD / "results"
CARGO_TARGET = BUILD / "cargo"
KERNEL_DIR = REPO / "kernel"

_ELSEWHERE = "name a directory of your own: MTHP_CACHE=/path/to/it"


def documents() -> list[Path]:
    """The Markdown pages of the repository."""
    found = [*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *KERNEL_DIR.glob("*.md")]
    return sorted(found)


def home() -> Path | None:
    """The user's home directory. A container may run as a number that has none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def cache_path() -> Path:
    """Where the cache is: $MTHP_CACHE, else $XDG_CACHE_HOME/mthp_ext, else ~/.cache/mthp_ext."""
    if chosen := os.environ.get("MTHP_CACHE"):
        path = Path(chosen)
    elif xdg := os.environ.get("XDG_CACHE_HOME"):
        path = Path(xdg) / "mthp_ext"
    elif mine := home():
        path = mine / ".cache" / "mthp_ext"
    else:
        raise LabError(
            Exit.DIRECTORY,
            f"user {os.geteuid()} has no home directory, and so no place for the cache; {_ELSEWHERE}",
        )
    return path.absolute()


def cache() -> Path:
    """The cache directory, made if missing; LabError if it cannot be used."""
    path = cache_path()
    _usable(path, 1, "the cache", _ELSEWHERE)
    return path


def check_build() -> None:
    """LabError if build/ of the checkout cannot be used, as after a run of another user."""
    mine = f"use a checkout of your own (git clone {REPO})"
    _usable(BUILD, 2, "the build directory", f"change the owner of {BUILD}, or remove it" if BUILD.is_dir() else mine)


@functools.cache
def _usable(path: Path, levels: int, what: str, remedy: str) -> None:
    """Makes the directory if need be, and looks at its upper `levels`: what another user made there would stop a run
    half way. Once per process."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            Exit.DIRECTORY, f"{what} {path} cannot be made ({error.strerror}, {_owner(path)}); {remedy}"
        ) from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise LabError(Exit.DIRECTORY, f"{what} {path} cannot be written ({_owner(path)}); {remedy}")
    for one in _below(path, levels):
        if one.stat().st_uid != os.geteuid() and not os.access(one, os.W_OK):
            raise LabError(
                Exit.DIRECTORY,
                f"{what} {path} cannot be used: a run of another user left {one}, which cannot be written "
                f"({_owner(one)}); {remedy}",
            )


def _below(path: Path, levels: int) -> Iterator[Path]:
    """What is in a directory, so many levels down; no links, which need not be ours."""
    for one in sorted(path.iterdir()) if os.access(path, os.R_OK | os.X_OK) else []:
        if one.is_symlink():
            continue
        yield one
        if levels > 1 and one.is_dir():
            yield from _below(one, levels - 1)


def existing(path: Path) -> Path:
    """`path`, or the first directory above that exists."""
    # Not path.exists(), which raises where a directory above is closed.
    while not os.path.exists(path):  # noqa: PTH110
        path = path.parent
    return path


def _owner(path: Path) -> str:
    """The owner of `path`, or of the first directory above that exists, beside the user of this process."""
    path = existing(path)
    return f"owner of {path}: {_name(path.stat().st_uid)}; this is {_name(os.geteuid())}"


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
