# SPDX-License-Identifier: GPL-2.0-only
"""Runs sparse over what the series touches, and over the same files without the series: what is new counts."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab import proc, results
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


def _check(
    build: Kbuild, series: Sequence[str], objects: Sequence[str], name: str, *, patched: bool
) -> tuple[Counter[str], list[str]]:
    """What sparse says about those of `objects` that exist in this tree, and which do not. LabError for an option that
    does not take effect: what it has compiled would not be checked."""
    log = _LOGS / f"{name}.log"
    wanted = config.checked(series)
    # The base has no options of the series.
    certain = wanted if patched else {key: wanted[key] for key in wanted.keys() - config.added(series).keys()}
    there, absent = build.ready(wanted, objects, log, certain)
    build.must("C=2", f"CHECK={CHECKER}", "CF=-D__CHECK_ENDIAN__", *there, log=log, what=f"sparse ({name})")
    text = log.read_text(errors="replace")
    if "not available or not up to date" in text or "CHECK  " not in text:
        raise LabError(Exit.BUILD, f"sparse did not run: {CHECKER!r} is not what this kernel wants; log: {log}")
    return complaints(text, build.tree), absent


def run(series: Sequence[str] = DEFAULT) -> int:
    """sparse with address spaces, contexts and endianness; 1 if the series adds a complaint."""
    patches = load_all(series)
    if not patches:
        raise LabError(Exit.PATCH, f"{' '.join(series)} has no patches, so there is nothing to check")
    objects = touched(patches)
    name = "sparse" if tuple(series) == DEFAULT else f"sparse-{'-'.join(series)}"
    with locked("kernel") as lock:
        base = source.get()
        worktree = Worktree(base).of(series)
        worktree.set(patches)
        tree = worktree.base.tree
        print(f"sparse: {len(objects)} objects, with and without the series; logs in {_LOGS}", flush=True)
        build = Kbuild(tree, base.directory / f"objects-{name}", lock)
        after, missing = _check(build, series, objects, "series", patched=True)
        stock = Kbuild(Worktree(base).stock(), base.directory / f"objects-{name}-base", lock)
        before, _ = _check(stock, series, objects, "base", patched=False)
        checked = [path for path in objects if path not in missing]
        allowed: set[str] = set()
        for path in checked:
            code = tree / f"{path.removesuffix('.o')}.c"
            allowed |= kfuncs(code.read_text(errors="replace")) if code.exists() else set()
    lines = fresh(after, before, allowed)
    for line in lines:
        print(f"  {line}")
    if missing:
        print(f"not checked: {', '.join(missing)}")
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
