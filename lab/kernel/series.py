# SPDX-License-Identifier: GPL-2.0-only
"""The patch series: which files it touches, and what they look like with it applied."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import Exit, LabError
from lab.paths import KERNEL_DIR

ROOT = KERNEL_DIR / "series"
DEFAULT = ("mthp",)
"""The series that all is about where nobody names another."""
PATCHES = ROOT / DEFAULT[0]
_AND = "+"
"""A directory that is called one+other has what it takes where both are applied. It is no series that can be named."""
_FILE = re.compile(rb"^(?:---|\+\+\+) (?:[ab]/([^\t\n]+)|/dev/null)", re.MULTILINE)
_RENAME = re.compile(rb"^(?:rename|copy) (?:from|to) ([^\n]+)", re.MULTILINE)


@dataclass(frozen=True)
class Patch:
    """One patch of the series."""

    name: str
    content: bytes

    def files(self) -> set[str]:
        """Paths in the kernel tree that the patch reads or writes."""
        names = [match for match in _FILE.findall(self.content) if match] + _RENAME.findall(self.content)
        return {name.decode() for name in names}


def every() -> tuple[str, ...]:
    """The series that there are, the default first."""
    found = {path.parent.name for path in ROOT.glob("*/series") if _AND not in path.parent.name}
    return (*DEFAULT, *sorted(found - set(DEFAULT)))


def joints(series: Sequence[str], root: Path = ROOT) -> list[str]:
    """The directories with what it takes where more than one of `series` are applied."""
    found = sorted(path.parent.name for path in root.glob(f"*{_AND}*/series"))
    return [name for name in found if set(name.split(_AND)) <= set(series)]


def names(text: str) -> tuple[str, ...]:
    """The series that `text`, such as the variable SERIES, names, in the order to apply them; LabError for one that is
    not there."""
    found = tuple(text.split())
    for name in found:
        if name not in every():
            raise LabError(Exit.USAGE, f"there is no series {name!r} in {ROOT}; there are: {', '.join(every())}")
    if len(set(found)) != len(found) or not found:
        raise LabError(Exit.USAGE, f"SERIES={text!r}: name each series once")
    return found


def one(series: Sequence[str]) -> Path:
    """The directory of the only one of `series`; LabError if there are more."""
    if len(series) != 1:
        raise LabError(Exit.USAGE, f"this is for one series at a time, not for {' '.join(series)}")
    return ROOT / series[0]


def default(series: Sequence[str], what: str) -> None:
    """LabError if `what` is to be for others than the default series, which is all that it can do."""
    if tuple(series) != DEFAULT:
        raise LabError(Exit.USAGE, f"{what} is for SERIES={' '.join(DEFAULT)}, not for {' '.join(series)}")


def load_all(series: Sequence[str]) -> list[Patch]:
    """The patches of these series, one after the other, and then those for what they have to do with each other."""
    return [patch for name in (*series, *joints(series)) for patch in load(ROOT / name)]


def load(directory: Path = PATCHES) -> list[Patch]:
    """The patches that `directory`/series lists, in order; no series file means no patches."""
    series = directory / "series"
    if not series.exists():
        return []
    patches: list[Patch] = []
    for line in series.read_text().splitlines():
        name = line.split("#", 1)[0].strip()
        if not name:
            continue
        try:
            patches.append(Patch(name, (directory / name).read_bytes()))
        except OSError as error:
            raise LabError(Exit.PATCH, f"{series} lists {name}, which cannot be read: {error.strerror}") from error
    return patches


def apply(patches: Sequence[Patch], directory: Path, base_version: str) -> None:
    """Applies `patches` in `directory`; LabError names the first that does not apply, with file and hunk."""
    env = {**os.environ, "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(directory.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    env["GIT_CONFIG_GLOBAL"] = os.devnull
    env.pop("GIT_DIR", None)
    env.pop("GIT_WORK_TREE", None)
    for number, patch in enumerate(patches, 1):
        done = subprocess.run(
            ["git", "apply", "-p1", "--whitespace=nowarn", "-"],
            cwd=directory,
            env=env,
            input=patch.content,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            where = "\n".join(f"  {line}" for line in done.stderr.decode(errors="replace").strip().splitlines())
            raise LabError(
                Exit.PATCH,
                f"patch {number} of {len(patches)}, {patch.name}, does not apply to Linux {base_version}:\n{where}\n"
                "The base has moved on, or an earlier patch was changed. Rebase it: `make kernel-tree`, edit, "
                "`make kernel-patches`; or build its own base (docs/internals/kernel-lab.md, KERNEL_TARBALL).",
            )


def compose(
    patches: Sequence[Patch], pristine: Callable[[str], Path | None], scratch: Path, base_version: str
) -> set[str]:
    """Fills the empty directory `scratch` with every file the series touches, as the series leaves it, and
    returns their paths; one that is not there afterwards is one the series removes."""
    touched: set[str] = set().union(*(patch.files() for patch in patches)) if patches else set()
    for path in touched:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise LabError(Exit.PATCH, f"a patch leaves the kernel tree: {path}")
        source = pristine(path)
        if source is not None:
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    apply(patches, scratch, base_version)
    return touched
