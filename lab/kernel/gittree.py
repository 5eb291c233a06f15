# SPDX-License-Identifier: GPL-2.0-only
"""A git tree of the kernel to edit the series in, and the way back from its commits to kernel/series/."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError
from lab.kernel import source
from lab.kernel.series import PATCHES, Patch, load
from lab.kernel.worktree import Worktree
from lab.lock import locked

_STATE = "lab-state.json"
# Independent of the user's configuration and of the number of objects in the repository, so that exporting an
# unedited tree gives the same bytes everywhere.
_FORMAT = (
    "format-patch", "--quiet", "--zero-commit", "--no-signature", "--no-numbered", "--full-index", "--no-cover-letter",
    "--no-thread", "--no-base", "--no-color", "--no-ext-diff", "--subject-prefix=PATCH", "--stat=72", "--summary",
    "--no-renames", "--diff-algorithm=myers",
)  # fmt: skip


def _git(directory: Path, *args: str, what: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    env |= {"GIT_COMMITTER_NAME": "lab", "GIT_COMMITTER_EMAIL": "lab@localhost"}
    env |= {"GIT_AUTHOR_NAME": "lab", "GIT_AUTHOR_EMAIL": "lab@localhost"}
    try:
        done = subprocess.run(
            [*proc.GIT, "-C", str(directory), *args],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except OSError as error:
        raise LabError(Exit.TREE, f"{what}: cannot start git ({error.strerror}); run `make setup`") from error
    if done.returncode != 0:
        raise LabError(Exit.TREE, f"{what}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def fingerprint(patches: Sequence[Patch]) -> str:
    """Hash of a series: names and contents in order."""
    digest = hashlib.sha256()
    for patch in patches:
        digest.update(f"{patch.name}\0{len(patch.content)}\0".encode() + patch.content)
    return digest.hexdigest()


def _state(directory: Path) -> dict[str, str]:
    try:
        state = json.loads((directory / ".git" / _STATE).read_text())
    except (OSError, ValueError) as error:
        raise LabError(
            Exit.TREE,
            f"{directory} exists and is not a tree that `make kernel-tree` made; name another directory with DIR=, "
            "or, to export from a tree of your own, the commit its series starts above with BASE=",
        ) from error
    return {str(name): str(value) for name, value in state.items()}


def _save(directory: Path, base: str, patches: Sequence[Patch]) -> None:
    state = {
        "base": base,
        "base_commit": _git(directory, "rev-parse", "lab-base^{commit}", what="reading the tree").strip(),
        "head": _git(directory, "rev-parse", "HEAD", what="reading the tree").strip(),
        "series": fingerprint(patches),
    }
    (directory / ".git" / _STATE).write_text(json.dumps(state))


def _busy(directory: Path) -> str:
    """What keeps the tree from being read as a finished series; empty when nothing does."""
    for name in ("rebase-apply", "rebase-merge", "MERGE_HEAD", "CHERRY_PICK_HEAD"):
        if (directory / ".git" / name).exists():
            return f"git is in the middle of something ({name}); finish or abort it"
    dirty = _git(directory, "status", "--porcelain", what="reading the tree").splitlines()
    if dirty:
        shown = ", ".join(line[3:] for line in dirty[:5])
        return f"it has changes that are not committed ({shown}{', ...' if len(dirty) > 5 else ''})"
    return ""


def create(directory: Path, patches_dir: Path = PATCHES) -> None:
    """Makes a git tree at `directory`: a commit for the base, tagged lab-base, and one for each patch. An
    existing tree is brought up to date if nobody has edited it, and never overwritten otherwise."""
    directory = directory.absolute()
    patches = load(patches_dir)
    with locked("kernel"):
        base = source.get()
        worktree = Worktree(base)
        if directory.exists() and any(directory.iterdir()):
            if not _refresh(directory, base.version, patches):
                return
            if _state(directory)["base"] == base.version:
                _git(directory, "checkout", "--quiet", "-B", "series", "lab-base", what="going back to the base")
                _am(directory, patches, base.version)
                _save(directory, base.version, patches)
                print(f"kernel-tree: {directory} brought up to date: {len(patches)} patches on {base.version}")
                return
            shutil.rmtree(directory)
        part = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        print(f"kernel-tree: copying Linux {base.version} and making its first commit, a minute or so", flush=True)
        try:
            worktree.export(part)
            _first_commit(part, base.version)
            _am(part, patches, base.version)
            _save(part, base.version, patches)
            part.replace(directory)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    print(f"kernel-tree: {directory}: {len(patches)} patches above tag lab-base (Linux {base.version})")
    print("kernel-tree: edit and commit there (rebase -i lab-base), then `make kernel-patches`")


def _refresh(directory: Path, base: str, patches: Sequence[Patch]) -> bool:
    """Whether the existing tree is to be made anew; LabError if that would lose somebody's work."""
    state = _state(directory)
    head = _git(directory, "rev-parse", "HEAD", what="reading the tree").strip()
    busy = _busy(directory)
    edited = busy or ("it has commits of its own" if head != state["head"] else "")
    if edited and (busy or not _equal(_export(directory, "lab-base"), patches)):
        raise LabError(
            Exit.TREE,
            f"{directory} was edited: {edited}. Write its commits back with `make kernel-patches`, or remove it, or "
            "name another directory with DIR=",
        )
    if state["base"] == base and (edited or state["series"] == fingerprint(patches)):
        print(f"kernel-tree: {directory} is up to date: {len(patches)} patches on {base}")
        return False
    return True


def _first_commit(directory: Path, version: str) -> None:
    # Debian's source ignores every file in the root, which would hide new files from `git status`.
    ignore = directory / ".gitignore"
    if ignore.exists() and "/*" in ignore.read_text().splitlines():
        ignore.unlink()
    what = "making the base commit"
    _git(directory, "init", "--quiet", "--initial-branch=series", what=what)
    # Packed once at the end of the day is cheaper than compressing 90,000 files now.
    for name, value in (("core.looseCompression", "0"), ("gc.auto", "0")):
        _git(directory, "config", name, value, what=what)
    _git(directory, "add", "--force", "--all", ".", what=what)
    _git(directory, "commit", "--quiet", "--no-verify", "-m", f"Linux {version}", what=what)
    _git(directory, "tag", "lab-base", what=what)


def _am(directory: Path, patches: Sequence[Patch], version: str) -> None:
    for number, patch in enumerate(patches, 1):
        with tempfile.NamedTemporaryFile(suffix=".patch") as file:
            file.write(patch.content)
            file.flush()
            try:
                _git(
                    directory, "am", "--quiet", "--keep-non-patch", "--committer-date-is-author-date",
                    "--whitespace=nowarn", file.name, what=f"applying {patch.name}",
                )  # fmt: skip
            except LabError as error:
                _git(directory, "am", "--abort", what="giving up")
                raise LabError(
                    Exit.PATCH,
                    f"patch {number} of {len(patches)}, {patch.name}, does not apply to Linux {version}:\n{error}",
                ) from error


def _export(directory: Path, base: str) -> dict[str, bytes]:
    """File name -> content of each commit above `base`, in order."""
    with tempfile.TemporaryDirectory() as name:
        merges = _git(directory, "rev-list", "--merges", f"{base}..HEAD", what="reading the series").split()
        if merges:
            raise LabError(Exit.TREE, f"{directory}: the series holds a merge ({merges[0][:12]}); it must be a line")
        _git(directory, *_FORMAT, "-o", name, f"{base}..HEAD", what="writing the patches")
        return {path.name: path.read_bytes() for path in sorted(Path(name).iterdir())}


def _equal(exported: dict[str, bytes], patches: Sequence[Patch]) -> bool:
    return list(exported.items()) == [(patch.name, patch.content) for patch in patches]


def export(directory: Path, base: str | None = None, patches_dir: Path = PATCHES) -> None:
    """Writes the commits above the base to `patches_dir`. Without `base` the tree must be one of ours, and
    the series in `patches_dir` the one it was made from: changes made to it meanwhile are not overwritten."""
    directory = directory.absolute()
    if not (directory / ".git").exists():
        raise LabError(Exit.TREE, f"{directory} is no git tree; make one with `make kernel-tree`, or name it with DIR=")
    if busy := _busy(directory):
        raise LabError(Exit.TREE, f"{directory}: {busy}")
    old = load(patches_dir)
    if base is None:
        state = _state(directory)
        head = _git(directory, "rev-parse", "HEAD", what="reading the tree").strip()
        if (state["head"], state["series"]) == (head, fingerprint(old)):
            # Not even compared: patches that somebody exported with other options stay as they are.
            print(f"kernel-patches: {len(old)} patches, nothing changed")
            return
    exported = _export(directory, base or "lab-base")
    if _equal(exported, old):
        print(f"kernel-patches: {len(exported)} patches, nothing changed")
        return
    if base is None and _state(directory)["series"] != fingerprint(old):
        raise LabError(
            Exit.TREE,
            f"{patches_dir} has changed since {directory} was made, and writing would undo that. Make a second tree "
            "(DIR=... make kernel-tree), bring your commits there (git fetch, git cherry-pick) and export that one.",
        )
    _write(exported, patches_dir)
    if base is None:
        _save(directory, _state(directory)["base"], load(patches_dir))
    print(f"kernel-patches: wrote {len(exported)} patches to {patches_dir}")


def _write(exported: dict[str, bytes], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    series = directory / "series"
    comments = [line for line in series.read_text().splitlines() if line.startswith("#")] if series.exists() else []
    for name, content in exported.items():
        if not (directory / name).exists() or (directory / name).read_bytes() != content:
            (directory / name).write_bytes(content)
    # The list first: a run that stops here leaves files that nobody lists, not a list of files that are gone.
    series.write_text("\n".join([*comments, *exported]) + "\n")
    for path in directory.glob("*.patch"):
        if path.name not in exported:
            path.unlink()
