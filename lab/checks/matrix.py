# SPDX-License-Identifier: GPL-2.0-only
"""Compiles what the series touches with each option off that it could silently depend on, and for other machines."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import results, vm
from lab.checks import guest, tap
from lab.checks.result import Status
from lab.errors import Exit, LabError
from lab.kernel import config, source
from lab.kernel.build import Kernel
from lab.kernel.kbuild import Kbuild, symbols, touched, users, warnings
from lab.kernel.series import DEFAULT, Patch, load, load_all
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.paths import BUILD
from lab.vm import accel

_LOGS = BUILD / "log" / "config-matrix"

_ARITHMETIC = {"__udivdi3", "__divdi3", "__umoddi3", "__moddi3", "__aeabi_uldivmod", "__aeabi_ldivmod"}
"""What a compiler calls for a 64-bit division on a 32-bit machine; the kernel has none of them."""


@dataclass(frozen=True)
class Case:
    """One configuration: the lab's, with these options changed."""

    name: str
    off: tuple[str, ...] = ()
    """Options to switch off, without CONFIG_. What depends on them goes with them."""
    on: tuple[str, ...] = ()
    arch: str = "x86"
    variables: tuple[str, ...] = ()
    nm: str = "nm"
    hook: bool = True
    """Whether what the series is about can be on, the hook or 1 GiB pages; a case that loses it unawares checks
    nothing."""
    whole: bool = False
    """Whether every option that is asked for has to be had."""
    link: bool = False
    """Whether a kernel is linked of it, of a small configuration. That finds what no object of the reference defines,
    and so nobody misses by comparing with it."""
    boots: tuple[str, ...] = ()
    """Selftests to run in a guest with a kernel of this configuration, if that is asked for."""


_ARM64 = ("ARCH=arm64", "LLVM=-19")

CASES = (
    Case("all-on"),
    Case("BPF_TRANSPARENT_HUGEPAGE", off=("BPF_TRANSPARENT_HUGEPAGE",), hook=False),
    Case("PSI", off=("PSI",), boots=("mthp_psi", "mthp_hierarchy")),
    Case("SWAP", off=("SWAP",)),
    Case("DEBUG_INFO_BTF", off=("DEBUG_INFO_BTF",), hook=False),
    Case("MEMCG", off=("MEMCG",), hook=False),
    Case("TRANSPARENT_HUGEPAGE", off=("TRANSPARENT_HUGEPAGE",), hook=False),
    Case("CGROUP_BPF", off=("CGROUP_BPF",), hook=False),
    Case("BPF_JIT", off=("BPF_JIT",), hook=False),
    Case("BPF_SYSCALL", off=("BPF_SYSCALL",), hook=False),
    Case("CGROUPS", off=("CGROUPS",), hook=False),
    Case("LRU_GEN", off=("LRU_GEN",)),
    Case("NUMA", off=("NUMA",)),
    Case("CPUSETS", off=("CPUSETS",)),
    Case("arm64", arch="arm64", variables=_ARM64, nm="llvm-nm-19"),
    Case("arm64-64k", on=("ARM64_64K_PAGES",), arch="arm64", variables=_ARM64, nm="llvm-nm-19"),
    Case("i386", off=("64BIT",), on=("HIGHMEM4G",), arch="i386", variables=("ARCH=i386",), hook=False),
)
"""The first one is the reference: what the others lack is found by comparing symbols with it."""

_MEMORY_OF_DEVICES = ("ZONE_DEVICE", "FS_DAX", "DEV_DAX", "DEVICE_PRIVATE")
_LOOKS = ("DEBUG_VM", "DEBUG_VM_PGTABLE", "PAGE_TABLE_CHECK")
"""What looks at page tables, which nobody ships."""

_PUD_CASES = (
    Case(
        "all-on",
        on=("NUMA_BALANCING", "MEM_SOFT_DIRTY", "X86_USER_SHADOW_STACK", *_LOOKS, *_MEMORY_OF_DEVICES),
        whole=True,
    ),
    Case("ANON_PUD_THP", off=("ANON_PUD_THP",), on=_MEMORY_OF_DEVICES, hook=False),
    Case("TRANSPARENT_HUGEPAGE", off=("TRANSPARENT_HUGEPAGE",), on=("ZONE_DEVICE", "FS_DAX"), hook=False),
    Case("DEBUG_VM", off=_LOOKS, on=_MEMORY_OF_DEVICES),
    Case("DAX", off=("ZONE_DEVICE", "DEV_DAX")),
    Case("NO_PAGE_MAPCOUNT", on=("NO_PAGE_MAPCOUNT",)),
    Case("NUMA", off=("NUMA",), on=_MEMORY_OF_DEVICES),
    Case("MEMCG", off=("MEMCG",)),
    Case("SWAP", off=("SWAP",)),
    Case("LRU_GEN", off=("LRU_GEN",)),
    Case("FTRACE", off=("FTRACE",)),
    Case("USERFAULTFD", off=("USERFAULTFD",)),
    Case("HUGETLBFS", off=("HUGETLBFS",)),
    Case("PROC_PAGE_MONITOR", off=("PROC_PAGE_MONITOR", "MEM_SOFT_DIRTY")),
    # Without what only tests and checks have on, but for DAX.
    Case("plain", off=("KSM", "IDLE_PAGE_TRACKING", "MEMORY_FAILURE", "MEM_SOFT_DIRTY", "NUMA_BALANCING", *_LOOKS)),
    Case("callers", off=("SLUB_TINY",), on=("KASAN", "KVM", "KVM_AMD", "VIRTUALIZATION", "XEN", "XEN_PV")),
    Case("arm64", on=_MEMORY_OF_DEVICES, arch="arm64", variables=_ARM64, nm="llvm-nm-19", hook=False),
    Case(
        "arm64-64k",
        on=("ARM64_64K_PAGES", *_MEMORY_OF_DEVICES),
        arch="arm64",
        variables=_ARM64,
        nm="llvm-nm-19",
        hook=False,
    ),
    Case("i386", off=("64BIT",), on=("HIGHMEM4G",), arch="i386", variables=("ARCH=i386",), hook=False),
    Case("linked", on=_MEMORY_OF_DEVICES, whole=True, link=True),
)
"""The same for the series pud, upon what its tests and checks have on (`config.checked`)."""

_ABOUT = {"mthp": "BPF_TRANSPARENT_HUGEPAGE", "pud": "ANON_PUD_THP"}
"""The option that a series is about."""


def cases(series: Sequence[str] = DEFAULT) -> tuple[Case, ...]:
    """Those of a series."""
    return _PUD_CASES if tuple(series) == ("pud",) else CASES


@dataclass
class Row:
    """How one case went."""

    case: Case
    seconds: float = 0.0
    built: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Objects that kbuild does not compile in this configuration."""
    gone: list[str] = field(default_factory=list)
    """Other options of the lab's configuration that went off with it."""
    problems: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    """Tests that ran in a guest, with how they ended."""
    defined: set[str] = field(default_factory=set)
    """Symbols, but for those of the machine."""


def wishes(case: Case, lab: Mapping[str, str]) -> dict[str, str]:
    """The lines that ask for `case`."""
    changed = {f"CONFIG_{name}": "n" for name in case.off} | {f"CONFIG_{name}": "y" for name in case.on}
    return {**lab, **changed}


def judge_config(
    case: Case, actual: dict[str, str], about: str = _ABOUT[DEFAULT[0]], lab: Mapping[str, str] | None = None
) -> list[str]:
    """What is wrong with the configuration that came out: an option that is still on is not checked at all. `about`:
    the option that the series is about. `lab`: what a case that is whole has to have."""
    problems = []
    for name in case.off:
        if actual.get(f"CONFIG_{name}", "n") != "n":
            problems.append(f"CONFIG_{name} is still on: something selects it")
    wanted = [*case.on, *([about] if case.hook else [])]
    problems += [f"CONFIG_{name} is not on" for name in wanted if actual.get(f"CONFIG_{name}", "n") != "y"]
    if case.whole and lab:
        problems += config.differing(wishes(case, lab), actual)
    return problems


def unmet(reference: set[str], nm: str, own: Callable[[set[str]], set[str]] = lambda _: set()) -> list[str]:
    """Symbols that objects want although nobody defines them: of those the reference defines in the same objects,
    the ones this configuration lacks. A missing stub shows only when the kernel is linked; this finds it before. `own`
    says which of these another machine has in its own directory."""
    defined, wanted = symbols(nm)
    lost = (reference - set(defined)) & set(wanted)
    lost = (lost - own(lost)) | _ARITHMETIC
    return [
        f"{name} is used but not there: {', '.join(sorted(Path(place).name for place in wanted[name]))}"
        for name in sorted(lost & set(wanted))
    ]


def _configured(case: Case, build: Kbuild, lab: dict[str, str], about: str) -> list[str]:
    """What is wrong with the configuration of `case`, before anything of it is compiled."""
    return judge_config(case, build.configure(wishes(case, lab), _LOGS / f"{case.name}.log"), about, lab)


def certain(case: Case, lab: dict[str, str], about: str) -> dict[str, str]:
    """What has to be in the configuration of `case`; other options may go with those that it switches off."""
    if case.whole:
        return wishes(case, lab)
    on = (*case.on, *([about] if case.hook else []))
    return {f"CONFIG_{name}": "n" for name in case.off} | {f"CONFIG_{name}": "y" for name in on}


def _run(
    case: Case,
    build: Kbuild,
    objects: Sequence[str],
    lab: dict[str, str],
    reference: set[str],
    about: str = _ABOUT[DEFAULT[0]],
) -> Row:
    row = Row(case)
    begin = time.monotonic()
    log = _LOGS / f"{case.name}.log"
    try:
        row.built, row.absent = build.ready(wishes(case, lab), objects, log, certain(case, lab, about))
    except LabError as error:
        if error.code is not Exit.CONFIG:
            raise
        row.problems.append(str(error))
        return row
    actual = config.parse((build.objects / ".config").read_text())
    named = {f"CONFIG_{name}" for name in (*case.off, *case.on)}
    row.gone = [name for name, value in lab.items() if value == "y" and actual.get(name, "n") == "n"]
    row.gone = sorted(name.removeprefix("CONFIG_") for name in row.gone if name not in named)
    # -k: one broken file must not hide another.
    if not build.make("-k", "W=1", *row.built, log=log):
        text = log.read_text(errors="replace")
        row.problems += [line for line in text.splitlines() if "error:" in line] or [f"make failed; log: {log}"]
    else:
        nm = build.nm(case.nm, row.built)
        row.defined = common(symbols(nm)[0], build.objects)
        row.problems += unmet(reference, nm, lambda names: build.of_the_machine(names) if case.arch != "x86" else set())
    row.problems += warnings(log.read_text(errors="replace"))
    if case.link and not row.problems:
        linked = log.with_suffix(".link.log")
        if not build.make("vmlinux", log=linked):
            row.problems += build_errors(linked) or [f"make vmlinux failed; log: {linked}"]
        # Without W=1, so that what the base says there does not count.
        row.problems += warnings(linked.read_text(errors="replace"))
    row.seconds = time.monotonic() - begin
    return row


def build_errors(log: Path) -> list[str]:
    """The lines of a build's log that say why it failed, those of the linker included."""
    words = ("error:", "undefined reference", "undefined symbol")
    return [line for line in log.read_text(errors="replace").splitlines() if any(word in line for word in words)]


def common(defined: dict[str, set[str]], objects: Path) -> set[str]:
    """The symbols that are defined outside of arch/: those that other machines have to have as well."""
    return {name for name, places in defined.items() if not all(one.startswith(f"{objects}/arch/") for one in places)}


def _boot(row: Row, build: Kbuild, lab: dict[str, str]) -> None:
    """Links a kernel of this configuration, without what small.config leaves out, and runs selftests in it."""
    log = _LOGS / f"{row.case.name}-boot.log"
    # Programs are loaded by BTF, which small.config does without.
    small = config.merge([config.DIRECTORY / "small.config", *config.fragments(DEFAULT)[1:]])
    debug = ("DEBUG_INFO_BTF", "DEBUG_INFO_DWARF5", "DEBUG_INFO_NONE")
    small |= {f"CONFIG_{name}": lab[f"CONFIG_{name}"] for name in debug}
    actual = build.configure(wishes(row.case, {**lab, **small}), log)
    row.problems += judge_config(row.case, actual)
    if row.problems:
        return
    build.must("bzImage", log=log, what=f"the kernel without {', '.join(row.case.off)}")
    row.problems += warnings(log.read_text(errors="replace"))
    kernel = Kernel(build.objects / "arch/x86/boot", "", build.tree, build.objects)
    selftests = guest.build_selftests(kernel)
    mode, _ = accel.of_image(kernel.image, build.objects / ".config")
    for program in row.case.boots:
        job = selftests.job(program, kernel, mode, name=f"matrix-{row.case.name}-{program}")
        suite = guest.judge(program, vm.run(job), tap.parse)
        row.tests += [f"{program} {test.name}: {test.status}" for test in suite.tests]
        row.problems += [
            f"{program} {test.name}: {test.detail}" for test in suite.tests if test.status is Status.FAILED
        ]


def _show(row: Row) -> None:
    what = "ok" if not row.problems else f"{len(row.problems)} problems"
    print(f"{row.case.name:26} {len(row.built):3} objects {row.seconds:5.0f} s  {what}", flush=True)
    if row.gone:
        print(f"{'':26} off with it: {', '.join(row.gone)}")
    if row.absent:
        print(f"{'':26} not compiled then: {', '.join(row.absent)}")
    for line in row.tests:
        print(f"{'':26} guest: {line}")
    for line in row.problems[:20]:
        print(f"  {line}", flush=True)


def _write(rows: Sequence[Row], objects: Sequence[str], base: str, name: str) -> bool:
    metrics = {
        row.case.name: {
            "seconds": round(row.seconds, 1),
            "objects": len(row.built),
            "off with it": row.gone,
            "not compiled": row.absent,
            "tests in a guest": row.tests,
            "problems": row.problems,
        }
        for row in rows
    }
    gates = [results.gate(f"{row.case.name}: problems", len(row.problems), "== 0") for row in rows]
    # Each must be compiled somewhere, or its name is wrong and nothing would notice.
    never = [path for path in objects if not any(path in row.built for row in rows)]
    gates.append(results.gate("objects never compiled", len(never), "== 0"))
    if never:
        print(f"never compiled: {', '.join(never)}")
    compiler = source.compiler_identity().splitlines()[0]
    environment = results.environment(None, "none", base=base, compiler=compiler)
    path = results.write(name, environment, {"cases": metrics}, gates)
    bad = sum(not gate.ok for gate in gates)
    print(f"config-matrix: {len(gates) - bad} of {len(gates)} gates ok; results: {path}")
    return bad == 0


def select(names: Sequence[str], series: Sequence[str] = DEFAULT) -> list[Case]:
    """The cases of these names, the reference before them; all when there are none."""
    those = cases(series)
    unknown = set(names) - {case.name for case in those}
    if unknown:
        known = ", ".join(case.name for case in those)
        raise LabError(Exit.USAGE, f"there is no case {sorted(unknown)[0]!r}; there are: {known}")
    return [case for case in those if not names or case.name in names or case is those[0]]


def problems(name: str, extra: Sequence[Patch] = ()) -> list[str]:
    """What is wrong in the case `name` with the series and `extra` patches; empty if it compiles as it should."""
    patches = load()
    # Only what the series touches: an extra patch breaks these or nothing.
    objects = touched(patches)
    lab = config.merge(config.fragments(DEFAULT))
    rows: list[Row] = []
    with locked("kernel") as lock:
        base = source.get()
        worktree = Worktree(base)
        try:
            for case in select([name]):
                # The reference is always compiled without them, to know what there is to be missed.
                worktree.set([*patches, *extra] if case.name == name else patches)
                build = Kbuild(base.tree, base.directory / f"objects-matrix-{case.arch}", lock, case.variables)
                rows.append(_run(case, build, objects, lab, rows[0].defined if rows else set()))
        finally:
            worktree.set(patches)
    return rows[-1].problems


def run(names: Sequence[str] = (), boot: bool = False, series: Sequence[str] = DEFAULT) -> int:
    """All cases, or the reference and those of `names`, booted where the case says so and `boot` is set; 1 if one
    has a problem."""
    patches = load_all(series)
    if not patches:
        raise LabError(Exit.PATCH, f"{' '.join(series)} has no patches, so there is nothing to check")
    if len(series) != 1:
        raise LabError(Exit.USAGE, f"this is for one series at a time, not for {' '.join(series)}")
    about = _ABOUT[series[0]]
    if boot and not any(case.boots for case in cases(series)):
        raise LabError(Exit.USAGE, f"no case of {' '.join(series)} is booted; test-pud boots its kernels")
    lab = config.checked(series)
    chosen = select(names, series)
    suffix = "" if tuple(series) == DEFAULT else f"-{series[0]}"
    rows: list[Row] = []
    with locked("kernel") as lock:
        base = source.get()
        worktree = Worktree(base).of(series)
        worktree.set(patches)
        tree = worktree.base.tree
        objects = [*touched(patches), *users(series, patches, tree)]
        print(f"config-matrix: Linux {base.version} with {len(patches)} patches, W=1, logs in {_LOGS}", flush=True)

        def build_of(case: Case) -> Kbuild:
            name = "linked" if case.link else case.arch
            return Kbuild(tree, base.directory / f"objects-matrix-{name}{suffix}", lock, case.variables)

        def lab_of(case: Case) -> dict[str, str]:
            return config.stepwise(series) | config.added(series) if case.link else lab

        # All of them before anything is compiled: an impossible one is to end this in a minute or two.
        found = {case: _configured(case, build_of(case), lab_of(case), about) for case in chosen}
        rows = [Row(case, problems=lines) for case, lines in found.items() if lines]
        for row in rows:
            _show(row)
        for case in () if rows else chosen:
            build = build_of(case)
            row = _run(case, build, objects, lab_of(case), rows[0].defined if rows else set(), about)
            if boot and case.boots and not row.problems:
                _boot(row, Kbuild(tree, base.directory / "objects-matrix-boot", lock, case.variables), lab)
            _show(row)
            rows.append(row)
    # Some of the cases are no result for all.
    name = f"config-matrix{suffix}{'-some' if names else ''}"
    return Exit.OK if _write(rows, objects, base.version, name) else Exit.TESTS
