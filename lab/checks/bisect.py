# SPDX-License-Identifier: GPL-2.0-only
"""Builds and boots the series patch by patch: somebody who bisects lands between any two of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import proc, results, vm
from lab.errors import Exit, LabError
from lab.kernel import config, source
from lab.kernel.kbuild import Kbuild, touched, users, warnings
from lab.kernel.series import DEFAULT, Patch, load_all
from lab.kernel.source import Base
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.paths import BUILD
from lab.vm import accel
from lab.vm.verdict import Verdict

_LOGS = BUILD / "log" / "bisect"

# What a file's place says must be built; the first that fits counts.
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Documentation/", ()),
    ("MAINTAINERS", ()),
    ("tools/lib/bpf/", ("libbpf", "bpftool")),
    ("tools/include/", ("libbpf", "bpftool")),
    ("tools/bpf/bpftool/", ("bpftool",)),
    # Only `make test` builds these: they want the types and the module of a whole kernel.
    ("tools/testing/selftests/bpf/", ()),
    # And these `make test-pud`, which runs them.
    ("tools/testing/selftests/mm/", ()),
    ("tools/testing/selftests/", ("selftests",)),
    ("", ("kernel",)),
)
_ORDER = ("kernel", "libbpf", "bpftool", "selftests")


@dataclass
class Row:
    """How one patch went."""

    number: int
    name: str
    parts: list[str]
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    boot_s: float | None = None
    """Wall-clock seconds of the guest; None where nothing of the kernel changed."""
    compiled: list[str] = field(default_factory=list)
    """Objects of what the series touches, and of users of its headers, that there were."""
    boots: int = 0
    """Attempts that took: a guest that stands still gets a second one."""


def parts(patch: Patch) -> list[str]:
    """What a patch changes and so must still build: kernel, libbpf, bpftool, selftests."""
    found: set[str] = set()
    for file in patch.files():
        found |= set(next(names for start, names in _PARTS if file.startswith(start)))
    return [name for name in _ORDER if name in found]


class _Steps:
    """A source tree of its own, so that going back in the series does not make the lab's kernel build again, and
    nobody who wants that one waits for an hour."""

    def __init__(self, base: Base, lock: int, series: Sequence[str]) -> None:
        """The caller holds the cache's lock, for the copy, and `lock`, that of the steps."""
        self._worktree = Worktree(base).beside("steps")
        self._base = self._worktree.base
        self._lock = lock
        self._added = config.added(series)
        self._wanted = config.stepwise(series)
        self.kernel = Kbuild(self._base.tree, base.directory / "objects-steps", lock)

    def go(self, patches: Sequence[Patch]) -> None:
        """Brings the tree to the base and these patches."""
        self._worktree.set(patches)

    def build_kernel(self, row: Row, log: Path, objects: Sequence[str], quick: bool) -> None:
        """An image, or with `quick` only those of `objects` that there are."""
        there = (self._base.tree / "mm" / "Kconfig").read_text()
        # Not there before the patch that adds it.
        of_series = {
            name: value for name, value in self._added.items() if f"config {name.removeprefix('CONFIG_')}\n" in there
        }
        row.compiled, _ = self.kernel.ready(self._wanted | of_series, objects, log)
        targets = ["W=1", *row.compiled] if quick else ["bzImage"]
        self._make(row, log, lambda: self.kernel.make("-k", *targets, log=log))

    def build_tool(self, part: str, row: Row, log: Path) -> None:
        directory = {"libbpf": "lib/bpf", "bpftool": "bpf/bpftool", "selftests": "testing/selftests/mthp"}[part]
        out = self._base.directory / f"out-{part}"
        out.mkdir(exist_ok=True)
        source_dir = self._base.tree / "tools" / directory
        # With OUTPUT the tools build out of tree, as the selftests do.
        argv = ["make", "-C", str(source_dir), proc.make_jobs(), f"OUTPUT={out}/", "CC=gcc"]
        argv += ["CLANG=clang-19", "BPF_CLANG=clang-19", "LLVM_STRIP=llvm-strip-19"]
        self._make(row, log, lambda: proc.made(argv, log=log, env=proc.outside_make(), pass_fds=(self._lock,)))

    @staticmethod
    def _make(row: Row, log: Path, make: Callable[[], bool]) -> None:
        ok = make()
        text = log.read_text(errors="replace")
        if not ok:
            errors = [line for line in text.splitlines() if "error:" in line or "*** " in line]
            row.problems += errors[:20] or [f"make failed; log: {log}"]
        row.problems += warnings(text)


def _boot(row: Row, image: Path) -> None:
    mode, _ = accel.best(image)
    name = f"bisect-{row.number}"
    outcome = vm.run(vm.Job(kernel=image, argv=["/bin/true"], memory_mib=512, mode=mode, timeout_s=300, name=name))
    row.boots = 2 if outcome.hung else 1
    row.boot_s = outcome.seconds
    if outcome.verdict is not Verdict.PASSED:
        row.problems.append(f"the guest {outcome.verdict}: {outcome.reason}")
    row.problems += [f"kernel log: {line}" for line in outcome.splats]


def _one(steps: _Steps, row: Row, objects: Sequence[str], quick: bool) -> None:
    begin = time.monotonic()
    for part in row.parts:
        log = _LOGS / f"{row.number:04}-{part}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        if part == "kernel":
            steps.build_kernel(row, log, objects, quick)
            if not quick and not row.problems:
                _boot(row, steps.kernel.objects / "arch/x86/boot/bzImage")
        else:
            steps.build_tool(part, row, log)
    row.seconds = time.monotonic() - begin


def _show(row: Row) -> None:
    what = "ok" if not row.problems else f"{len(row.problems)} problems"
    boot = f"boots ({row.boot_s:.1f} s)" if row.boot_s is not None else ""
    boot += " at the second attempt" if row.boots > 1 else ""
    print(f"{row.name[:60]:60} {'+'.join(row.parts) or 'no code':16} {row.seconds:4.0f} s  {what}  {boot}", flush=True)
    for line in row.problems[:20]:
        print(f"  {line}", flush=True)


def never_compiled(objects: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """What the configuration leaves out, so that nothing is known of it."""
    return [path for path in objects if not any(path in row.compiled for row in rows)]


def run(quick: bool = False, only: Sequence[int] = (), series: Sequence[str] = DEFAULT) -> int:
    """Every patch (or those of the numbers `only`), with all before it: builds what it changes, without warnings, and
    boots; 1 if one does not. `quick` compiles only what the series touches and users of its headers, and boots
    nothing."""
    patches = load_all(series)
    if not patches:
        raise LabError(Exit.PATCH, f"{' '.join(series)} has no patches, so there is nothing to check")
    if missing := [number for number in only if not 1 <= number <= len(patches)]:
        raise LabError(Exit.USAGE, f"there is no patch {missing[0]}; the series has 1 to {len(patches)}")
    rows: list[Row] = []
    with locked("steps") as lock:
        with locked("kernel"):
            base = source.get()
            steps = _Steps(base, lock, series)
        objects = [*touched(patches), *users(series, patches, steps.kernel.tree)]
        print(f"bisect: {len(patches)} patches on Linux {base.version}, logs in {_LOGS}", flush=True)
        for number, patch in enumerate(patches, 1):
            if only and number not in only:
                continue
            row = Row(number, patch.name.removesuffix(".patch"), parts(patch))
            if row.parts:
                steps.go(patches[:number])
                _one(steps, row, objects, quick)
            _show(row)
            rows.append(row)
    gates = [results.gate(f"{row.name}: problems", len(row.problems), "== 0") for row in rows]
    # A series of which nothing was compiled proves nothing.
    gates.append(results.gate("patches with code", sum(bool(row.parts) for row in rows), ">= 1"))
    if not only:
        never = never_compiled(touched(patches), rows)
        gates.append(results.gate("touched objects compiled at no step", len(never), "== 0"))
        if never:
            print(f"compiled at no step: {', '.join(never)}")
    metrics = {
        row.name: {
            "built": row.parts,
            "seconds": round(row.seconds, 1),
            "compiled": len(row.compiled),
            "boots": row.boots,
            "boot seconds": None if row.boot_s is None else round(row.boot_s, 1),
            "problems": row.problems,
        }
        for row in rows
    }
    environment = results.environment(None, "none" if quick else "tcg", base=base.version)
    name = "bisect" if tuple(series) == DEFAULT else f"bisect-{'-'.join(series)}"
    path = results.write(name + "-quick" * quick + "-some" * bool(only), environment, {"patches": metrics}, gates)
    bad = sum(bool(row.problems) for row in rows)
    print(f"bisect: {len(rows) - bad} of {len(rows)} patches ok; results: {path}")
    return Exit.OK if all(gate.ok for gate in gates) else Exit.TESTS
