# SPDX-License-Identifier: GPL-2.0-only
"""Keeps one source tree per base version at the content of the series, rewriting only what differs.

make decides by modification times what to build again. A tree that is unpacked and patched anew looks
changed in every file; here a file is written only when its content is not what it should be.
"""

import filecmp
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.kernel.series import DEFAULT, Patch, compose
from lab.kernel.source import Base

_ABSENT = "absent"
_SAVED = "saved"


class Worktree:
    """The tree of `base`. What it has of its own is kept in pristine/ beside it: saved/ holds the base's
    content of every file that was ever rewritten, absent/ marks the files that the base does not have."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._pristine = base.directory / "pristine"

    def pristine(self, path: str) -> Path | None:
        """A file with the base's content of `path`, or None if the base has no such file."""
        if (self._pristine / _ABSENT / path).exists():
            return None
        saved = self._pristine / _SAVED / path
        if saved.exists():
            return saved
        here = self._base.tree / path
        return here if here.exists() else None

    def known(self) -> set[str]:
        """Every path that may differ from the base."""
        found: set[str] = set()
        for kind in (_ABSENT, _SAVED):
            root = self._pristine / kind
            found |= {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        return found

    def set(self, patches: Sequence[Patch]) -> list[str]:
        """Brings the tree to the base plus `patches` and returns the files that were written or removed.

        Killed at any point, it leaves a tree that the next call puts right: what the base had is saved
        before the tree is touched, and every file once touched is looked at again.
        """
        with tempfile.TemporaryDirectory(dir=self._base.directory, prefix=".compose-") as name:
            scratch = Path(name)
            touched = compose(patches, self.pristine, scratch, self._base.version)
            changed = []
            for path in sorted(touched | self.known()):
                wanted = scratch / path if path in touched else self.pristine(path)
                if wanted is not None and not wanted.exists():
                    wanted = None
                if self._put(path, wanted):
                    changed.append(path)
            return changed

    def _put(self, path: str, wanted: Path | None) -> bool:
        target = self._base.tree / path
        if wanted is None:
            if not target.exists():
                return False
            self._save(path)
            target.unlink()
            return True
        if target.exists() and _same(target, wanted):
            return False
        self._save(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.lab-new")
        # Not the copy's time but now, or make would not see the change.
        shutil.copyfile(wanted, temporary)
        shutil.copymode(wanted, temporary)
        temporary.replace(target)
        return True

    def _save(self, path: str) -> None:
        """Keeps the base's content of `path`, if that is not done yet."""
        absent, saved = self._pristine / _ABSENT / path, self._pristine / _SAVED / path
        if absent.exists() or saved.exists():
            return
        target = self._base.tree / path
        if not target.exists():
            absent.parent.mkdir(parents=True, exist_ok=True)
            absent.touch()
            return
        saved.parent.mkdir(parents=True, exist_ok=True)
        temporary = saved.with_name(f".{saved.name}.lab-new")
        shutil.copy2(target, temporary)
        temporary.replace(saved)

    def export(self, directory: Path, link: bool = False) -> None:
        """Copies the base, without the series, to `directory`, which must not exist. With `link` its files are
        links to this tree's, for a directory of which no file is ever written in place."""
        shutil.copytree(self._base.tree, directory, symlinks=True, copy_function=os.link if link else shutil.copy2)
        for path in self.known():
            source, target = self.pristine(path), directory / path
            target.unlink(missing_ok=True)
            if source is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def _copied(self, tree: Path) -> Path:
        """`tree`, made of the base on the first call. Builds are out of tree and `set` replaces files instead of
        writing into them, so that it can share what the two have in common."""
        if not tree.is_dir():
            part = tree.with_name(f".{tree.name}")
            shutil.rmtree(part, ignore_errors=True)
            part.parent.mkdir(parents=True, exist_ok=True)
            self.export(part, link=True)
            part.rename(tree)
        return tree

    def beside(self, name: str) -> "Worktree":
        """A worktree with a tree of its own: another series is put there, and what was built of this tree stays as new
        as it is."""
        base = Base(self._base.version, self._base.directory / name)
        self._copied(base.tree)
        return Worktree(base)

    def of(self, series: Sequence[str]) -> "Worktree":
        """The worktree that these series have: this one for the default, and one beside it for others."""
        return self if tuple(series) == DEFAULT else self.beside("-".join(series))

    @property
    def base(self) -> Base:
        """What the tree is made of, and where it is."""
        return self._base

    def stock(self) -> Path:
        """A second tree, of the base alone."""
        return self._copied(self._base.directory / "linux-stock")


def _same(one: Path, other: Path) -> bool:
    executable = os.access(one, os.X_OK) == os.access(other, os.X_OK)
    return executable and filecmp.cmp(one, other, shallow=False)
