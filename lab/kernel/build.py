# SPDX-License-Identifier: GPL-2.0-only
"""Builds the kernel: out of tree, incrementally, with finished results kept by a hash of all that went in."""

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import proc, space, terminal
from lab.errors import Exit, LabError, of_host
from lab.kernel import config, source
from lab.kernel.series import DEFAULT as DEFAULT_SERIES
from lab.kernel.series import Patch, load_all
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.paths import BUILD, cache

_FORMAT = "3"
"""Changes when finished results must not be shared with those of an older lab."""
_LENT = "kernel-lent"
_LOG = BUILD / "log" / "kernel.log"
_REPORT_S = 30.0
_FINISHED_MIB, _AGAIN_MIB = 250, 300
"""What is kept of a finished kernel, and what a build adds to an object tree that is there."""


@dataclass(frozen=True)
class Variant:
    """One of the kernels that can be built. Each keeps its own finished results."""

    name: str
    fragments: tuple[str, ...] = ()
    """Files in kernel/config/, merged after those that every kernel has."""
    series: tuple[str, ...] = DEFAULT_SERIES
    """What is applied. Variants with the default share a tree; others have theirs beside it."""
    objects: str = "objects"
    """Its object tree; two variants that differ in few files may share one."""
    keep: int = 1
    """How many finished kernels stay in the cache."""
    mib: int = 2200
    """What its object tree takes."""


DEFAULT = Variant("kernel", keep=4)
DEBUG = Variant("kernel-debug", fragments=("debug.config",), objects="objects-debug", keep=2, mib=4000)
"""The same code with everything in it that finds errors by itself."""
_JUMP_LABEL = ("jump-label.config",)
COST = Variant("kernel-cost", fragments=_JUMP_LABEL, objects="objects-cost")
"""The default kernel with static keys as they are shipped: patched code. For guests whose CPUs share a thread."""
STOCK = Variant("kernel-stock", fragments=_JUMP_LABEL, series=(), objects="objects-stock")
"""The base as it is, to compare with COST."""
MUTANT = Variant("kernel-mutant")
"""The default kernel with one patch more, built in the same trees."""
DEBUG_MUTANT = Variant("kernel-debug-mutant", fragments=DEBUG.fragments, objects=DEBUG.objects, mib=DEBUG.mib)
"""The kernel for debugging with one patch more, built in the same trees."""

PUD = Variant(
    "kernel-pud-test",
    fragments=("small.config", "pud-small.config", "pud-test.config"),
    series=("pud",),
    objects="objects-pud-test",
    keep=2,
    mib=900,
)
"""1 GiB pages for anonymous memory, on a small kernel that looks at its page tables."""
PUD_DEBUG = Variant(
    "kernel-pud-debug",
    fragments=(*PUD.fragments, "pud-debug.config"),
    series=PUD.series,
    objects="objects-pud-debug",
    mib=2000,
)
"""The same with what finds errors by itself."""


def mutant(variant: Variant) -> Variant:
    """`variant` with one patch more, built in the same trees, and one finished kernel kept."""
    known = {DEFAULT.name: MUTANT, DEBUG.name: DEBUG_MUTANT}
    return known.get(variant.name, replace(variant, name=f"{variant.name}-mutant", keep=1))


PREEMPTION = {"full": "preempt.config", "rt": "rt.config"}
"""Other models of preemption than the usual one, which is lazy: name -> fragment."""


def preempted(variant: Variant, model: str) -> Variant:
    """`variant` with another model of preemption, one of PREEMPTION; itself for an empty name."""
    if not model:
        return variant
    if model not in PREEMPTION:
        raise LabError(Exit.USAGE, f"there is no model of preemption {model!r}; there are: {', '.join(PREEMPTION)}")
    return replace(
        variant,
        name=f"{variant.name}-{model}",
        fragments=(*variant.fragments, PREEMPTION[model]),
        # Next to nothing is the same in two models, so that one tree takes turns rather than twice the space.
        objects=f"{variant.objects}-preempt",
        keep=1,
    )


def with_series(variant: Variant, series: tuple[str, ...]) -> Variant:
    """`variant` with other series than the default, with objects and finished kernels of its own; else itself."""
    if series == variant.series:
        return variant
    name = "-".join(series)
    return replace(variant, name=f"{variant.name}-{name}", series=series, objects=f"{variant.objects}-{name}", keep=1)


BOTH = with_series(DEFAULT, ("mthp", "pud"))
"""The default kernel with 1 GiB pages for anonymous memory as well."""


@dataclass(frozen=True)
class Kernel:
    """A finished kernel."""

    directory: Path
    base: str
    """Version of the unpatched source."""
    tree: Path
    """The source it was built from, with the series applied."""
    objects: Path
    """The object tree; other builds (selftests) take generated headers from it."""

    @property
    def image(self) -> Path:
        """What QEMU boots."""
        return self.directory / "bzImage"

    @property
    def vmlinux(self) -> Path:
        """The ELF file with symbols and BTF."""
        return self.directory / "vmlinux"

    @property
    def config(self) -> Path:
        """The full configuration."""
        return self.directory / "config"

    @property
    def release(self) -> str:
        """What uname -r says in the guest."""
        return (self.directory / "release").read_text().strip()

    def has(self, option: str) -> bool:
        """Is CONFIG_`option` set?"""
        return config.has(self.config.read_text(), option)


def _diff(patch: Patch) -> bytes:
    """Without the message, which nothing is built of."""
    start = re.search(rb"^(diff --git |--- (a/|/dev/null))", patch.content, re.MULTILINE)
    return patch.content[start.start() :] if start else patch.content


def key(base: str, patches: Sequence[Patch], fragments: Sequence[bytes], compiler: str) -> str:
    """Hash of everything that decides what comes out of the build."""
    digest = hashlib.sha256()
    for part in [_FORMAT, base, compiler]:
        digest.update(f"{len(part)}:{part}".encode())
    for group in [[_diff(patch) for patch in patches], fragments]:
        digest.update(f"[{len(group)}]".encode())
        for content in group:
            digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


def ensure(update: bool = False, variant: Variant = DEFAULT, extra: Sequence[Patch] = ()) -> Kernel:
    """The kernel for the series as it is now, built if it is not there yet.

    `update` looks for a newer base first; `extra` are patches to apply after the series. Raises LabError for
    everything that can go wrong on the way.
    """
    patches, fragments, wanted = _inputs(variant, extra)
    with locked("kernel") as lock:
        base = source.get(update, variant.mib + _FINISHED_MIB)
        worktree = Worktree(base)
        if variant.series:
            worktree = worktree.of(variant.series)
            tree, changed = worktree.base.tree, worktree.set(patches)
        else:
            tree, changed = worktree.stock(), []
        digest = key(base.version, patches, fragments, source.compiler_identity())
        kernel = Kernel(cache() / variant.name / digest, base.version, tree, base.directory / variant.objects)
        if kernel.directory.is_dir():
            os.utime(kernel.directory)
            print(f"{variant.name}: {kernel.release}, built before: {kernel.image}", flush=True)
            return kernel
        known = kernel.objects.is_dir()
        source.need_space((_AGAIN_MIB if known else variant.mib) + _FINISHED_MIB, f"building {variant.name}")
        print(
            f"{variant.name}: building Linux {base.version} with {len(patches)} patches ({len(changed)} files "
            f"rewritten); log: {_LOG}",
            flush=True,
        )
        begin = time.monotonic()
        _build(kernel, wanted, lock)
        _publish(kernel, patches, variant.keep)
        seconds = time.monotonic() - begin
        print(f"{variant.name}: {kernel.release}, built in {seconds:.0f} s: {kernel.image}", flush=True)
        return kernel


def _inputs(variant: Variant, extra: Sequence[Patch] = ()) -> tuple[list[Patch], list[bytes], dict[str, str]]:
    """What is applied, the fragments, and the options that they come to."""
    patches = [*load_all(variant.series), *extra]
    # Patches upon the default series may have to do with its options.
    of = variant.series or (DEFAULT_SERIES if patches else ())
    names = [*config.fragments(of), *(config.DIRECTORY / name for name in variant.fragments)]
    return patches, [name.read_bytes() for name in names], config.merge(names)


def _lent(store: Path) -> Path:
    patches, fragments, _ = _inputs(DEFAULT)
    return store / _LENT / key("", patches, fragments, "")


def lend(kernel: Kernel, store: Path) -> None:
    """Copies the finished usual kernel to `store`, the cache of a root that has another compiler, for lent() there.
    What was lent before goes: the root cannot tell whether it is of the base and the tools that this host has now."""
    forget_lent(store)
    space.need(_FINISHED_MIB, store, "a kernel that is lent")
    to = _lent(store)
    part = to.with_name(".part")
    try:
        shutil.copytree(kernel.directory, part)
        (part / "base").write_text(kernel.base)
        part.rename(to)
    except OSError as error:
        raise of_host(error) from error


def forget_lent(store: Path) -> None:
    """Removes what lend() left there: the root builds its own."""
    shutil.rmtree(store / _LENT, ignore_errors=True)


def lent() -> Kernel | None:
    """The usual kernel, if who made this root has lent it: built elsewhere, without a source tree beside it."""
    directory = _lent(cache())
    if not directory.is_dir():
        return None
    nowhere = directory / "no-source"
    kernel = Kernel(directory, (directory / "base").read_text(), nowhere, nowhere)
    print(f"kernel: {kernel.release}, built outside of this root and lent: {kernel.image}", flush=True)
    return kernel


def _make(kernel: Kernel) -> list[str]:
    # Fixed, so that equal inputs give an equal image.
    names = ["KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab"]
    return ["make", "-C", str(kernel.tree), f"O={kernel.objects}", proc.make_jobs(), *names]


def _build(kernel: Kernel, wanted: dict[str, str], lock: int) -> None:
    kernel.objects.mkdir(parents=True, exist_ok=True)
    marker = kernel.objects / ".lab-building"
    if marker.exists():
        drop_unfinished(kernel.objects, marker.stat().st_mtime)
    marker.touch()
    env = {**proc.outside_make(), "KBUILD_VERBOSE": "0"}

    def make(*targets: str, what: str, append: bool = True) -> None:
        with _LOG.open("ab" if append else "wb") as log:
            process = proc.start(
                [*_make(kernel), *targets], stdout=log, stderr=subprocess.STDOUT, env=env, pass_fds=(lock,)
            )
            try:
                status = wait(process, _LOG, "kernel")
            finally:
                proc.stop_gently(process)
        if status != 0:
            raise LabError(Exit.BUILD, f"{what} failed; log: {_LOG}\n{errors(_LOG)}")

    _LOG.parent.mkdir(parents=True, exist_ok=True)
    make("tinyconfig", what="tinyconfig", append=False)
    path = kernel.objects / ".config"
    lines = [f"# {name} is not set" if value == "n" else f"{name}={value}" for name, value in wanted.items()]
    base = [line for line in path.read_text().splitlines() if not set(config.parse(line)) & set(wanted)]
    path.write_text("\n".join([*base, *lines]) + "\n")
    make("olddefconfig", what="olddefconfig")
    config.check(wanted, path.read_text())
    make("bzImage", what="the kernel build")
    marker.unlink()


def drop_unfinished(objects: Path, since: float) -> None:
    """Removes what a killed build was writing: make would take a truncated object for a finished one."""
    for path in objects.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since:
            path.unlink()


def wait(process: subprocess.Popen[bytes], out: Path, name: str) -> int:
    """Waits for a make that writes to `out`, and shows that it is alive; its exit code."""
    begin = time.monotonic()
    live = terminal.is_live()
    period = 1.0 if live else _REPORT_S
    while True:
        try:
            status = process.wait(timeout=period)
        except subprocess.TimeoutExpired:
            last = proc.tail(out, 1).strip()
            text = f"{name}: {time.monotonic() - begin:4.0f} s  {last}"
            print(f"\r\033[K{text[: terminal.columns() - 1]}" if live else text, end="" if live else "\n", flush=True)
            continue
        if live:
            print("\r\033[K", end="", flush=True)
        return status


def errors(out: Path) -> str:
    """The lines that matter from a failed build's log, else its end."""
    text = out.read_text(errors="replace")
    lines = [line for line in text.splitlines() if "error:" in line or "*** " in line]
    if "No space left on device" in text:
        lines.insert(0, f"the disk is full: {space.free_mib(cache())} MiB free below {cache()}")
    return "\n".join(f"  {line}" for line in lines[:20]) or proc.tail(out)


def _publish(kernel: Kernel, patches: Sequence[Patch], keep: int) -> None:
    """Copies the results to a new directory and gives it its name when all is on the disk."""
    store = kernel.directory.parent
    store.mkdir(parents=True, exist_ok=True)
    for left in store.glob(".part-*"):
        shutil.rmtree(left, ignore_errors=True)
    part = store / f".part-{kernel.directory.name}"
    part.mkdir()
    objects = kernel.objects
    try:
        shutil.copyfile(objects / "arch/x86/boot/bzImage", part / "bzImage")
        shutil.copyfile(objects / "vmlinux", part / "vmlinux")
        shutil.copyfile(objects / ".config", part / "config")
        shutil.copyfile(objects / "include/config/kernel.release", part / "release")
        (part / "series").write_text("".join(f"{patch.name}\n" for patch in patches))
        for path in part.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        part.rename(kernel.directory)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise LabError(Exit.BUILD, f"keeping the finished kernel in {store}: {error}") from error
    finished = sorted(store.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in finished[keep:]:
        shutil.rmtree(old, ignore_errors=True)
