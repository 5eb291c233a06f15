# SPDX-License-Identifier: GPL-2.0-only
"""Runs the kernel's own style checker over the series."""

import fnmatch
import re
import subprocess
from collections.abc import Sequence

from lab.errors import Exit, LabError
from lab.kernel import source
from lab.kernel.series import DEFAULT, ROOT, Patch, joints, load
from lab.kernel.worktree import Worktree
from lab.lock import locked

_PADDING = re.compile(
    r"^ERROR:SPACING: space prohibited before that ':'[^\n]*\n"
    r"#\d+: FILE: (?:tools/)?include/uapi/linux/bpf\.h:[^\n]*\n\+\s*__u32 :32;\n[^\n]*\n+",
    re.MULTILINE,
)


def but_padding(text: str) -> str:
    """What checkpatch.pl said without its complaint of padding, which in bpf.h is written `__u32 :32;` throughout."""
    return _PADDING.sub("", text)


def unlisted(patch: str, maintainers: str) -> list[str]:
    """The files that `patch` adds and that no entry of `maintainers`, the text of MAINTAINERS, covers."""
    patterns = [one for one in re.findall(r"^F:\s+(\S+)", maintainers, re.MULTILINE) if one not in ("*", "*/")]
    added = re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)", patch, re.MULTILINE)
    return [
        path
        for path in added
        if not any(path.startswith(one) if one.endswith("/") else fnmatch.fnmatchcase(path, one) for one in patterns)
    ]


def _text(patches: Sequence[Patch]) -> str:
    return "".join(patch.content.decode(errors="replace") for patch in patches)


def complaints(series: str = DEFAULT[0]) -> dict[str, str]:
    """What checkpatch.pl --strict says about each patch of a series, in order; empty where it is content."""
    directory = ROOT / series
    patches = load(directory)
    if not patches:
        raise LabError(Exit.PATCH, f"{directory} lists no patches, so there is nothing to check")
    with locked("kernel"):
        base = source.get()
        # The checker and its lists are the same in every tree, so the usual one does for every series.
        Worktree(base).set(load())
        maintainers = (base.tree / "MAINTAINERS").read_text(errors="replace")
        maintainers += "".join(re.findall(r"^\+(F:.*\n)", _text(patches), re.MULTILINE))
        said: dict[str, str] = {}
        for patch in patches:
            # checkpatch.pl asks for an entry in MAINTAINERS with every patch that adds files but does not touch it. It
            # does not look whether there is one; here somebody does.
            covered = not unlisted(patch.content.decode(errors="replace"), maintainers)
            # The base is a tarball: it has no history, in which a commit of a Fixes: line could be found.
            ignore = ["--ignore", ",".join(["UNKNOWN_COMMIT_ID", *(["FILE_PATH_CHANGES"] if covered else [])])]
            done = subprocess.run(
                ["perl", "scripts/checkpatch.pl", "--strict", "--no-tree", "--quiet", "--no-summary", "--show-types",
                 *ignore, "--root", str(base.tree), str(directory / patch.name)],
                cwd=base.tree,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )  # fmt: skip
            text = (but_padding(done.stdout) + done.stderr).strip()
            silent = done.returncode != 0 and not done.stdout.strip()
            said[patch.name] = text or (f"exit code {done.returncode}" if silent else "")
    return said


def run(series: Sequence[str] = DEFAULT) -> int:
    """Prints what checkpatch.pl says; 1 if it is not content with every patch."""
    said = {name: text for one in (*series, *joints(series)) for name, text in complaints(one).items()}
    for name, text in said.items():
        if text:
            print(f"{name}:\n{text}\n")
    bad = sum(bool(text) for text in said.values())
    print(f"checkpatch: {len(said) - bad} of {len(said)} patches clean")
    return Exit.TESTS if bad else Exit.OK
