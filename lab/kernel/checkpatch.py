# SPDX-License-Identifier: GPL-2.0-only
"""Runs the kernel's own style checker over the series."""

import subprocess

from lab.errors import Exit, LabError
from lab.kernel import source
from lab.kernel.series import PATCHES, load
from lab.kernel.worktree import Worktree
from lab.lock import locked


def run() -> int:
    """checkpatch.pl --strict over every patch; 1 if it has anything to say."""
    patches = load()
    if not patches:
        raise LabError(Exit.PATCH, f"{PATCHES} lists no patches, so there is nothing to check")
    with locked("kernel"):
        base = source.get()
        Worktree(base).set(patches)
        bad = 0
        for patch in patches:
            done = subprocess.run(
                ["perl", "scripts/checkpatch.pl", "--strict", "--no-tree", "--quiet", "--no-summary", "--show-types",
                 "--root", str(base.tree), str(PATCHES / patch.name)],
                cwd=base.tree,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )  # fmt: skip
            if done.returncode != 0 or done.stdout.strip():
                bad += 1
                print(f"{patch.name}:\n{(done.stdout + done.stderr).strip()}\n")
    print(f"checkpatch: {len(patches) - bad} of {len(patches)} patches clean")
    return Exit.TESTS if bad else Exit.OK
