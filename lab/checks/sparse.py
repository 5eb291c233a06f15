# SPDX-License-Identifier: GPL-2.0-only
"""Runs sparse over what the series touches, and over the same files without the series: what is new counts."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab import proc, results
from lab.checks import matrix
from lab.errors import Exit, LabError
from lab.kernel import config, source
from lab.kernel.kbuild import Kbuild, touched
from lab.kernel.series import DEFAULT, load_all
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.paths import BUILD

_LOGS = BUILD / "log" / "sparse"

# sparse 0.6.4, which Debian 12 and 13 have, lacks __typeof_unqual__, and the kernel then skips it altogether. What
# the definition costs is complaints about per-CPU accessors, which the base has as well.
CHECKER = "sparse -D__typeof_unqual__=__typeof__"

_COMPLAINT = re.compile(r"^(?P<file>[\w./-]+\.[ch]):\d+:(?:\d+:)? (?P<text>(?:warning|error): .*)$")
_UNDECLARED = re.compile(r"symbol '(\w+)' was not declared")


def complaints(log: str, tree: Path) -> Counter[str]:
    """File and message of each complaint, with how often; without line numbers, which move with the series."""
    found: Counter[str] = Counter()
    for line in log.splitlines():
        match = _COMPLAINT.match(line.replace(f"{tree}/", ""))
        if match:
            found[f"{match['file']}: {match['text']}"] += 1
    return found


def kfuncs(text: str) -> set[str]:
    """Functions that a C file defines for BPF programs alone: BTF declares them, no header does."""
    return set(re.findall(r"^__bpf_kfunc\b[^;{(]*?(\w+)\(", text, re.MULTILINE))


def fresh(after: Counter[str], before: Counter[str], allowed: set[str]) -> list[str]:
    """Complaints that are more than they were, except that a kfunc is not declared in a header."""
    lines = []
    for line, count in sorted((after - before).items()):
        undeclared = _UNDECLARED.search(line)
        if undeclared and undeclared[1] in allowed:
            continue
        lines.append(f"{line} ({count} more)" if count > 1 else line)
    return lines


def _version() -> str:
    return proc.output(["sparse", "--version"], what="asking sparse for its version", code=Exit.BUILD).strip()


def _wanted(series: Sequence[str]) -> dict[str, str]:
    """The lab's configuration; for the series pud with what its tests use, since that is what it has to do with, and
    with memory of devices, of which it changes what nothing else compiles."""
    if "pud" not in series:
        return config.merge(config.fragments(series))
    wanted = config.merge([*config.fragments(series), config.DIRECTORY / "pud-test.config"])
    return wanted | {f"CONFIG_{name}": "y" for name in matrix.DEVICE}


def _check(build: Kbuild, wanted: dict[str, str], objects: Sequence[str], name: str) -> tuple[Counter[str], list[str]]:
    """What sparse says about those of `objects` that exist in this tree, and which these are."""
    log = _LOGS / f"{name}.log"
    build.configure(wanted, log)
    build.must("prepare", log=log, what=f"make prepare ({name})")
    there = build.builds(objects)
    build.must("C=2", f"CHECK={CHECKER}", "CF=-D__CHECK_ENDIAN__", *there, log=log, what=f"sparse ({name})")
    text = log.read_text(errors="replace")
    if "not available or not up to date" in text or "CHECK  " not in text:
        raise LabError(Exit.BUILD, f"sparse did not run: {CHECKER!r} is not what this kernel wants; log: {log}")
    return complaints(text, build.tree), there


def run(series: Sequence[str] = DEFAULT) -> int:
    """sparse with address spaces, contexts and endianness; 1 if the series adds a complaint."""
    patches = load_all(series)
    if not patches:
        raise LabError(Exit.PATCH, f"{' '.join(series)} has no patches, so there is nothing to check")
    objects = touched(patches)
    wanted = _wanted(series)
    name = "sparse" if tuple(series) == DEFAULT else f"sparse-{'-'.join(series)}"
    with locked("kernel") as lock:
        base = source.get()
        worktree = Worktree(base).of(series)
        worktree.set(patches)
        tree = worktree.base.tree
        print(f"sparse: {len(objects)} objects, with and without the series; logs in {_LOGS}", flush=True)
        build = Kbuild(tree, base.directory / f"objects-{name}", lock)
        after, checked = _check(build, wanted, objects, "series")
        stock = Kbuild(Worktree(base).stock(), base.directory / f"objects-{name}-base", lock)
        before, _ = _check(stock, wanted, objects, "base")
        allowed: set[str] = set()
        for path in checked:
            code = tree / f"{path.removesuffix('.o')}.c"
            allowed |= kfuncs(code.read_text(errors="replace")) if code.exists() else set()
    lines = fresh(after, before, allowed)
    for line in lines:
        print(f"  {line}")
    missing = [path for path in objects if path not in checked]
    gates = [
        results.gate("new complaints", len(lines), "== 0"),
        results.gate("objects not checked", len(missing), "== 0"),
    ]
    metrics = {"objects": checked, "complaints": sum(after.values()), "base": sum(before.values()), "new": lines}
    environment = results.environment(None, "none", base=base.version, sparse=_version())
    where = results.write(name, environment, metrics, gates)
    print(
        f"sparse: {len(checked)} objects, {sum(after.values())} complaints, {sum(before.values())} of the base, "
        f"{len(lines)} new; results: {where}"
    )
    return Exit.OK if all(gate.ok for gate in gates) else Exit.TESTS
