# SPDX-License-Identifier: GPL-2.0-only
"""Tests that need the patched kernel: its selftests and the end-to-end tests of mthp_ext, in VMs."""

import difflib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lab import proc, programs, vm
from lab.checks import bpftests, libtest, tap
from lab.checks.host import RustTest
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit, LabError
from lab.kernel import series, stock
from lab.kernel.build import Kernel
from lab.paths import BUILD, REPO, documents
from lab.vm import Mode, Outcome, Verdict

_AT_ONCE = 2
"""Guests that compute: two keep two processors busy."""


@dataclass(frozen=True)
class Boot:
    """How the guest of an end-to-end test program is started."""

    append: str = ""
    env: dict[str, str] = field(default_factory=dict)
    nodes: int = 1
    memory_mib: int = 1024
    timeout_s: float = 900
    counted: bool = False
    """Emulated, its time is counted in instructions: figures do not depend on what else the host does."""


PUD = "e2e_pud"
"""The test program that is for a kernel with the series pud as well; lab/checks/pud.py runs it."""
PAGES = "e2e_docs"
"""The test program that runs the commands of the pages for users."""
EXAMPLES = "e2e_examples"
"""The test program that runs the example policies of the series."""

BOOTS: dict[str, Boot] = {
    "e2e": Boot(),
    # Kernels as users have them: what mthp_ext needs is off.
    "e2e_psi_off": Boot(append="psi=0"),
    "e2e_no_memcg": Boot(append="cgroup_disable=memory", env={"LAB_CONTROLLERS": "cpu pids"}),
    # The test mounts the v1 memory hierarchy itself, which v2 must not have taken.
    "e2e_memcg_v1": Boot(env={"LAB_CONTROLLERS": "cpu pids"}),
    # From boot on, khugepaged is to know of no process but those of the test.
    "e2e_khugepaged": Boot(append="transparent_hugepage=madvise"),
    "e2e_numa": Boot(nodes=2),
    "e2e_crowd": Boot(memory_mib=1536, counted=True),
    # It judges how long a start takes.
    "e2e_verifier": Boot(counted=True),
    # A kept policy without scans ends after five seconds: a restart must not take longer because the host is busy.
    "e2e_keep": Boot(counted=True),
    # Ranges of 1 GiB without a page of the kernel's, see lab/checks/pud.py; zeroed in words, which is faster emulated.
    PUD: Boot(append="clearcpuid=erms,fsrm", nodes=2, memory_mib=12288, timeout_s=3600),
    # As distributions boot. Every page takes its time: mthp_ext alone needs some seconds to load a policy.
    PAGES: Boot(append="transparent_hugepage=always", memory_mib=1536, timeout_s=1800),
}
"""Boot of each tests/NAME.rs; another file named e2e_* boots as `e2e` does."""


@dataclass(frozen=True)
class Run:
    """A test program in a guest of its own."""

    name: str
    job: vm.Job
    parse: Callable[[str, Suite], None]
    """Adds the tests of the program's output to a suite."""


@dataclass(frozen=True)
class SelftestBoot(Boot):
    """How a guest of a kernel selftest is started, and which of the program's tests run in it."""

    only: tuple[str, ...] = ()
    """Names of tests (of the fixture's: `child_attaches_first`); empty: all."""
    cpus: int = 2


SELFTEST_BOOTS: dict[str, dict[str, SelftestBoot]] = {
    # Some 500 cells each: side by side they take half the time.
    "mthp_matrix": {
        reason: SelftestBoot(only=(f"matrix_{reason}",))
        for reason in ("fault", "forced_collapse", "khugepaged", "swap_in")
    },
    "mthp_nomemcg": {
        # The test mounts the v1 memory hierarchy itself, which v2 must not have taken.
        "v1": SelftestBoot(
            env={"LAB_CONTROLLERS": "cpu pids"},
            only=("v1_memory_is_refused", "root_policy_outlives_memory"),
        ),
        "off": SelftestBoot(
            append="cgroup_disable=memory",
            env={"LAB_CONTROLLERS": "cpu pids"},
            only=("disabled_memory_is_refused",),
        ),
    },
    "mthp_pages": {
        "": SelftestBoot(
            only=(
                "cold_files_of_the_list",
                "cold_files_of_generations",
                "used_files_are_not_cold",
                "generations_grow_old",
                "spare_is_what_could_be_given",
            )
        ),
        "2nodes": SelftestBoot(nodes=2, only=("spare_is_what_could_be_given", "spare_of_nodes")),
    },
    "mthp_psi": {
        "": SelftestBoot(
            only=(
                "stall_totals",
                "stall_of_states_out_of_bounds",
                "stall_beyond_32_bits",
                "flush_storm_disturbs_nothing",
                "flush_storm_loses_no_short_stalls",
                "stall_with_cgroup_pressure_off",
                "stall_of_one_cpu_of_several",
                "stall_without_a_clock",
            )
        ),
        "1cpu": SelftestBoot(cpus=1, only=("stall_of_one_cpu_of_several", "stall_without_a_clock")),
        "8cpu": SelftestBoot(cpus=8, only=("stall_of_one_cpu_of_several", "stall_without_a_clock")),
        "off": SelftestBoot(append="psi=0", only=("stall_with_psi_off", "stall_of_states_out_of_bounds")),
    },
    "mthp_reclaim": {
        "": SelftestBoot(
            only=(
                "hot_is_split",
                "hot_stays_when_allowed",
                "cold_is_not_asked_about",
                "advice_counts_at_reclaim",
                "mlocked_is_not_asked_about",
                "zeroes_are_freed",
                "pinned_is_not_asked_about",
                "shared_by_fork",
                "lazily_freed_is_not_asked_about",
                "pageout_does_not_ask",
                "shared_memory_is_not_asked_about",
                "the_charged_cgroup_is_asked",
                "memory_outlives_its_cgroup",
                "swap_off",
                "each_size",
                "khugepaged_does_not_undo_it",
                "splits_are_paced",
                "promoted_is_asked_about",
                "promoted_starts_again",
                "reclaim_is_traced",
            )
        ),
        # Once it was enabled, nothing is swapped in at once until the next boot.
        "zswap": SelftestBoot(append="zswap.enabled=1", only=("zswap",)),
    },
}
"""Boots of the selftest programs that need other than one usual guest: program -> what the run is called after
the program's name -> boot. An empty name is the program's own."""


@dataclass(frozen=True)
class Selftests:
    """The built selftests of a kernel's series."""

    directory: Path
    names: tuple[str, ...]
    """The test programs, in the order of the Makefile."""

    def job(
        self,
        program: str,
        kernel: Kernel,
        mode: Mode,
        boot: SelftestBoot | None = None,
        name: str = "",
        timeout_s: float = 900,
    ) -> vm.Job:
        """A guest that runs `program`, or the tests of it that `boot` names."""
        boot = boot or SelftestBoot()
        path = self.directory / program
        # It looks for its BPF objects where it is itself.
        files = {str(one): one for one in self.directory.glob("*.bpf.o")}
        return vm.Job(
            kernel=kernel.image,
            argv=[str(path), *(word for test in boot.only for word in ("-t", test))],
            programs=[path],
            files=files,
            memory_mib=1536,
            cpus=boot.cpus,
            nodes=boot.nodes,
            mode=mode,
            timeout_s=timeout_s,
            append=boot.append,
            env=boot.env,
            name=name or f"test-{program}",
        )


def build_selftests(kernel: Kernel) -> Selftests:
    """Builds the series' selftests from the patched source."""
    source = kernel.tree / "tools" / "testing" / "selftests" / "mthp"
    if not (source / "Makefile").exists():
        raise LabError(Exit.BUILD, f"the series has no selftests: {source} is missing")
    out = BUILD / "selftests" / kernel.tree.parent.name
    out.mkdir(parents=True, exist_ok=True)
    env = proc.outside_make()
    make = ["make", "-C", str(source), f"OUTPUT={out}", "CC=gcc", "CLANG=clang-19", "BPF_CLANG=clang-19"]
    what = "building the kernel selftests"
    proc.run([*make, proc.make_jobs()], log=BUILD / "log" / "selftests.log", what=what, env=env)
    # "COLLECTION:PROGRAM", one a line, is how kselftest's runners learn of the programs.
    log = BUILD / "log" / "selftests-list.log"
    proc.run([*make, "-s", "COLLECTION=mthp", "emit_tests"], log=log, what="listing the kernel selftests", env=env)
    names = tuple(re.findall(r"^mthp:(\w+)$", log.read_text(errors="replace"), re.MULTILINE))
    if not names:
        raise LabError(Exit.BUILD, f"the series' selftests name no test program; see {log}")
    return Selftests(out, names)


def build_examples(kernel: Kernel) -> Path:
    """Builds the example policies of the series as their README says; the program that loads them."""
    source = kernel.tree / "tools" / "mm" / "bpf_mthp"
    if not (source / "Makefile").exists():
        raise LabError(Exit.BUILD, f"the series has no example policies: {source} is missing")
    out = BUILD / "examples" / kernel.tree.parent.name
    out.mkdir(parents=True, exist_ok=True)
    make = ["make", "-C", str(source), f"OUTPUT={out}/", f"VMLINUX_BTF={kernel.vmlinux}", "CC=gcc", "CLANG=clang-19"]
    what = "building the example policies"
    proc.run(
        [*make, proc.make_jobs()],
        log=BUILD / "log" / "examples.log",
        what=what,
        env=proc.outside_make(),
    )
    return out / "mthp_policy"


_WITHOUT_HOOK = ("mthp_pages", "mthp_psi")
"""Selftest programs about parts of the series that a kernel has without transparent hugepages, too."""


def meant_for(kernel: Kernel, built: Selftests) -> list[str]:
    """The programs that have something to test on `kernel`."""
    if kernel.has("BPF_TRANSPARENT_HUGEPAGE"):
        return list(built.names)
    return [name for name in built.names if name in _WITHOUT_HOOK]


def selftests(kernel: Kernel, mode: Mode) -> list[Run]:
    """A run for each selftest program of the series, or several where it has several boots; then that of
    selftests/bpf."""
    built = build_selftests(kernel)
    runs = []
    for program in meant_for(kernel, built):
        for suffix, boot in SELFTEST_BOOTS.get(program, {"": SelftestBoot()}).items():
            name = f"{program}-{suffix}" if suffix else program
            job = built.job(program, kernel, mode, boot, f"test-{name}")
            runs.append(Run(f"kernel/{name}", job, tap.parse))
    in_bpf = bpftests.build(kernel, built.directory)
    runs.append(Run(f"kernel/{bpftests.PROGRAM}", in_bpf.job(kernel, mode), bpftests.parse))
    return runs


BEFORE: dict[str, dict[str, str]] = {"e2e_khugepaged": {"KHUGEPAGED_BEFORE": "1"}}
"""Test programs that run on a stock kernel, too, where they expect what was before; the environment says so."""
_BEFORE_APPEND = "damon_stat.enabled=0"
"""Debian's kernels sample all memory with DAMON, which leaves pages marked as referenced here and there; khugepaged
takes them for used."""


def bare(image: Path, test: RustTest, mode: Mode, env: Mapping[str, str], *, memory_mib: int, name: str) -> vm.Job:
    """A test program that needs no mthp_ext, on any kernel."""
    job = _program(image, test, mode, name)
    # A stock kernel patches its own code while it runs. Emulated it survives that with one processor and counted time
    # only.
    return replace(job, memory_mib=memory_mib, cpus=1, append=f"{job.append} {_BEFORE_APPEND}", env={**job.env, **env})


def _before(image: Path, test: RustTest, mode: Mode) -> Run:
    """A test program on a stock kernel from before a change."""
    counted = mode if mode is Mode.KVM else Mode.ICOUNT
    name = f"{test.name}-before"
    job = bare(image, test, counted, BEFORE[test.name], memory_mib=1024, name=f"test-{name}")
    return Run(f"vm/{name}", job, libtest.parse)


def _all_before(rust: Sequence[RustTest], mode: Mode) -> list[Suite]:
    """What is to be compared with a stock kernel; skipped where none can be had."""
    suites = []
    for test in rust:
        if test.name not in BEFORE:
            continue
        try:
            suites += _alone(_before(stock.image(), test, mode))
        except LabError as error:
            if error.code is not Exit.SOURCE:
                raise
            suites.append(Suite(f"vm/{test.name}-before", [Test("(all)", Status.SKIPPED, str(error))]))
    return suites


def _program(image: Path, test: RustTest, mode: Mode, name: str) -> vm.Job:
    """A test program in the guest that it wants."""
    boot = BOOTS.get(test.name, BOOTS["e2e"])
    counted = boot.counted and mode is not Mode.KVM
    return vm.Job(
        kernel=image,
        argv=[str(test.program), "--test-threads=1", "--include-ignored"],
        programs=[test.program],
        memory_mib=boot.memory_mib,
        cpus=1 if boot.counted else vm.Job.cpus,
        mode=Mode.ICOUNT if counted else mode,
        timeout_s=boot.timeout_s,
        append=boot.append,
        nodes=boot.nodes,
        env={"RUST_BACKTRACE": "1", **boot.env},
        name=name,
    )


def _e2e(kernel: Kernel, test: RustTest, mode: Mode) -> Run:
    binary = programs.mthp_ext()
    job = _program(kernel.image, test, mode, f"test-{test.name}")
    job = replace(job, programs=[*job.programs, binary], env={"MTHP_EXT_BIN": str(binary), **job.env})
    if test.name == PAGES:
        job = _with_pages(job)
    elif test.name == EXAMPLES:
        loader = build_examples(kernel)
        job = replace(job, programs=[*job.programs, loader], env={"MTHP_POLICY_BIN": str(loader), **job.env})
    return Run(f"vm/{test.name}", job, libtest.parse)


def e2e(kernel: Kernel, test: RustTest, mode: Mode, names: Sequence[str] = (), append: str = "") -> Suite:
    """An end-to-end test program on any kernel, or those of its tests whose names have one of `names` in them."""
    run = _e2e(kernel, test, mode)
    job = replace(run.job, argv=[*run.job.argv, *names], append=f"{run.job.append} {append}")
    return judge(run.name, vm.run(job), run.parse)


def alone(kernel: Kernel, test: RustTest, mode: Mode, name: str) -> vm.Job:
    """One test of an end-to-end test program, for what it records."""
    job = _e2e(kernel, test, mode).job
    return replace(job, argv=[*job.argv, "--exact", name], name=f"{job.name}-{name}")


def _with_pages(job: vm.Job) -> vm.Job:
    """The job with the pages, and with the programs that their commands name."""
    commands = {
        "mthp_ext": programs.mthp_ext(),
        # Only its name makes a server of it.
        "redis-server": programs.redis_server(),
        "redis-cli": programs.installed("redis-cli"),
        "redis-benchmark": programs.installed("redis-benchmark"),
    }
    return replace(
        job,
        programs=[*job.programs, *commands.values()],
        files={f"/pages/{page.relative_to(REPO)}": page for page in documents()},
        env={
            "LAB_PAGES": "/pages",
            "LAB_PROGRAMS": " ".join(f"{name}={path}" for name, path in commands.items()),
            **job.env,
        },
    )


def pages(kernel: Kernel, test: RustTest, mode: Mode, names: Sequence[str]) -> Suite:
    """The commands of these pages in a guest."""
    run = _e2e(kernel, test, mode)
    return judge(run.name, vm.run(replace(run.job, argv=[*run.job.argv, *names])), run.parse)


def judge(name: str, outcome: Outcome, parse: Callable[[str, Suite], None]) -> Suite:
    """The tests of a guest's output; a guest that did not end well is a failure whatever it printed."""
    suite = Suite(name, seconds=outcome.seconds, logs=[outcome.output, outcome.console])
    parse(outcome.output.read_text(errors="replace"), suite)
    if outcome.verdict not in (Verdict.PASSED, Verdict.FAILED):
        # Also where a test failed before: the panic is what must be seen.
        suite.fail(f"(the guest: {outcome.verdict})", f"{outcome.reason}\n{proc.tail(outcome.console)}")
    elif outcome.verdict is Verdict.FAILED:
        suite.settle(f"{outcome.reason}; the end of its output:\n{proc.tail(outcome.output)}")
    if outcome.splats:
        listed = "\n".join(outcome.splats[:20])
        suite.fail("(the guest's kernel log)", f"the kernel complains; log: {outcome.console}\n{listed}")
    suite.settle()
    return suite


_LONG = ("kernel/mthp_psi", "vm/e2e_keep", "vm/e2e_pressure", "vm/e2e_unread")
"""Runs of a minute and more: they start first, so that at the end none has the machine for itself."""
_WAITING = (
    "vm/e2e_drill",
    "vm/e2e_lifetime",
    "vm/e2e_service",
    "vm/e2e_metrics",
    "kernel/mthp_hotplug",
    "kernel/mthp_pages",
)
"""Runs that wait for most of their time, for clocks and not for processors: they run beside the two, one after the
other. Those of pressure wait as well, but a busy host is a stall that they count."""


_OF_SERIES = re.compile(rb"^\+TEST_GEN_PROGS [+:]= (\w+)", re.MULTILINE)


def e2e_names() -> list[str]:
    """The end-to-end test programs."""
    return sorted(path.stem for path in (REPO / "tests").glob("e2e*.rs") if path.stem != PUD)


def names() -> list[str]:
    """What may be run alone, known before anything is built: programs, and the guests of those that have several."""
    selftests = {name.decode() for patch in series.load() for name in _OF_SERIES.findall(patch.content)}
    boots = [f"{program}-{suffix}" for program, boots in SELFTEST_BOOTS.items() for suffix in boots if suffix]
    return sorted([*e2e_names(), *(f"{name}-before" for name in BEFORE), *selftests, *boots, bpftests.PROGRAM])


def check_names(wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """`wanted` without the room that suites show (`vm/`, `kernel/`); LabError for what is none of `known`."""
    bare = [word.removeprefix("vm/").removeprefix("kernel/") for word in wanted]
    for word in bare:
        if word not in known:
            near = difflib.get_close_matches(word, known) or known
            raise LabError(Exit.USAGE, f"no test program is called {word!r}; there are: {', '.join(near)}")
    return bare


def _chosen(name: str, only: Sequence[str]) -> bool:
    """Whether the run of this name, or all of its program's, were asked for."""
    bare = name.rpartition("/")[2]
    return bare in only or bare.partition("-")[0] in only


def run_named(
    kernel: Kernel, rust: Sequence[RustTest], mode: Mode, done: Callable[[Suite], None], only: Sequence[str]
) -> None:
    """Runs these of `names()` as `run` does; `rust`: the end-to-end programs among them."""
    of_series = any(not name.startswith("e2e") for name in only)
    runs = [*(selftests(kernel, mode) if of_series else []), *(_e2e(kernel, test, mode) for test in rust)]
    before = [test for test in rust if _chosen(f"{test.name}-before", only)]
    parts = [partial(_alone, this) for this in runs if _chosen(this.name, only)]
    together([*parts, partial(_all_before, before, mode)], done)


def run(
    kernel: Kernel,
    rust: Sequence[RustTest],
    mode: Mode,
    done: Callable[[Suite], None],
    others: Sequence[Callable[[], list[Suite]]] = (),
    last: Sequence[Callable[[], list[Suite]]] = (),
) -> None:
    """Runs everything, then `others` and `last`, as `together` does; `done` hears of each suite as it ends."""
    runs = [*selftests(kernel, mode), *(_e2e(kernel, test, mode) for test in rust)]
    runs.sort(key=lambda this: this.name not in _LONG)
    parts = {this.name: partial(_alone, this) for this in runs}
    # None of the end-to-end tests is there if they could not be built.
    waiting = [parts.pop(name) for name in _WAITING if name in parts]
    together([*parts.values(), *others, partial(_all_before, rust, mode), *last], done, waiting)


def run_selftests(kernel: Kernel, mode: Mode, done: Callable[[Suite], None]) -> None:
    """Runs the selftests alone, as `run` does."""
    together([partial(_alone, this) for this in selftests(kernel, mode)], done)


def _alone(this: Run) -> list[Suite]:
    return [judge(this.name, vm.run(this.job), this.parse)]


def together(
    parts: Sequence[Callable[[], list[Suite]]],
    done: Callable[[Suite], None],
    waiting: Sequence[Callable[[], list[Suite]]] = (),
) -> None:
    """Runs these, each of which starts a guest, two at a time, and beside them those that do little but wait, one at a
    time; `done` hears of each suite as it ends."""
    ended = threading.Event()

    def one(part: Callable[[], list[Suite]]) -> None:
        found = [] if ended.is_set() else part()
        # Killed because the user interrupts: that says nothing about the tests.
        if not ended.is_set():
            for suite in found:
                done(suite)

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool, ThreadPoolExecutor(max_workers=1) as beside:
        futures = [*(beside.submit(one, part) for part in waiting), *(pool.submit(one, part) for part in parts)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            ended.set()
            # The threads wait for their guests; without them they end at once.
            for lane in (pool, beside):
                lane.shutdown(wait=False, cancel_futures=True)
            proc.stop_all()
            raise
