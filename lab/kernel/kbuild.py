# SPDX-License-Identifier: GPL-2.0-only
"""An object tree in which checks compile parts of the kernel, and questions about what kbuild makes of it."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError
from lab.kernel import config
from lab.kernel.series import Patch

_NOT_COMPILED = ("tools/", "scripts/", "samples/", "Documentation/")

_INCLUDED = {"kernel/sched/psi.c": "kernel/sched/build_utility.o"}
"""Files that another file includes, with the object they end up in."""

USERS = (
    "fs/proc/task_mmu.o",
    "kernel/bpf/cgroup.o",
    "kernel/cgroup/cgroup.o",
    "mm/shmem.o",
)
"""Objects of files that the series leaves alone but whose headers it changes."""

_USERS_PUD = (
    "arch/x86/mm/pgtable.o",
    "kernel/fork.o",
    "mm/hugetlb.o",
    "mm/ksm.o",
    "mm/madvise.o",
    "mm/memory-failure.o",
    "mm/mempolicy.o",
    "mm/mincore.o",
    "mm/mlock.o",
    "mm/shmem.o",
    "mm/vma.o",
)
"""The same for the series pud."""


def users(series: Sequence[str]) -> list[str]:
    """Objects of files that these series leave alone but whose headers they change."""
    return sorted({*(USERS if "mthp" in series else ()), *(_USERS_PUD if "pud" in series else ())})


_SRCARCH = {"i386": "x86"}
"""Machines whose directory in arch/ has another name."""

# What the Makefile of one directory would have made, with the members of the objects that are linked from several.
_ASK = """\
srctree := {tree}
src := {tree}/{directory}
obj := {directory}
include {objects}/include/config/auto.conf
include {tree}/{directory}/{makefile}
lab-parts := $(obj-y) $(obj-m) $(lib-y)
lab-ask: ; @echo $(lab-parts) $(foreach part,$(lab-parts),$($(part:.o=-y)) $($(part:.o=-objs)))
"""


def touched(patches: Iterable[Patch]) -> list[str]:
    """The objects that the C files of a series are compiled into, sorted."""
    files = set().union(*(patch.files() for patch in patches))
    sources = {file for file in files if file.endswith(".c") and not file.startswith(_NOT_COMPILED)}
    return sorted({_INCLUDED.get(file, file.removesuffix(".c") + ".o") for file in sources})


def warnings(log: str) -> list[str]:
    """The lines of a build's log that complain: of the compiler, of kernel-doc and of modpost or the linker."""
    return [line for line in log.splitlines() if "warning:" in line.lower() or line.startswith("WARNING:")]


@dataclass(frozen=True)
class Kbuild:
    """A source tree, an object tree, and how make is called for them. The caller holds the cache's lock."""

    tree: Path
    objects: Path
    lock: int
    """Descriptor of the cache's lock, which make inherits."""
    variables: tuple[str, ...] = ()

    def make(self, *arguments: str, log: Path) -> bool:
        """Runs make; its output goes to `log`. Whether it succeeded."""
        self.objects.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        env = {**proc.outside_make(), "KBUILD_VERBOSE": "0"}
        names = ["KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab"]
        argv = ["make", "-C", str(self.tree), f"O={self.objects}", proc.make_jobs()]
        argv += [*names, *self.variables, *arguments]
        return proc.made(argv, log=log, env=env, pass_fds=(self.lock,))

    def must(self, *arguments: str, log: Path, what: str) -> None:
        """Like `make`, but LabError with the end of the log when it fails."""
        if not self.make(*arguments, log=log):
            raise LabError(Exit.BUILD, f"{what} failed; the end of {log}:\n{proc.tail(log)}")

    def configure(self, wanted: dict[str, str], log: Path) -> dict[str, str]:
        """tinyconfig with the lines of `wanted`, and what came of it: options that depend on what is off go, too."""
        self.must("tinyconfig", log=log, what="tinyconfig")
        path = self.objects / ".config"
        lines = [f"# {name} is not set" if value == "n" else f"{name}={value}" for name, value in wanted.items()]
        path.write_text("\n".join([path.read_text(), *lines]) + "\n")
        self.must("olddefconfig", log=log, what="olddefconfig")
        return config.parse(path.read_text())

    def builds(self, objects: Sequence[str]) -> list[str]:
        """Those of `objects` that kbuild compiles with the present configuration (after `make prepare`)."""
        known: dict[str, set[str]] = {}

        def within(directory: str, name: str) -> bool:
            """Whether the Makefile of `directory` names this, and those above it name the directory."""
            if directory not in known:
                known[directory] = self._parts(directory)
            above, _, last = directory.rpartition("/")
            if above == "arch":
                # Which has no Makefile; only the machine's directory in it is gone into.
                return name in known[directory] and last == self._machine()
            return name in known[directory] and (not above or within(above, f"{last}/"))

        return [path for path in objects if within(*path.rsplit("/", 1))]

    def _machine(self) -> str:
        """The directory in arch/ that is built."""
        given = next((word.removeprefix("ARCH=") for word in self.variables if word.startswith("ARCH=")), "x86")
        return _SRCARCH.get(given, given)

    def _parts(self, directory: str) -> set[str]:
        """Objects and directories that kbuild goes into in `directory`."""
        # Where there is a Kbuild, it is what counts, as in arch/x86.
        makefile = "Kbuild" if (self.tree / directory / "Kbuild").exists() else "Makefile"
        text = _ASK.format(tree=self.tree, objects=self.objects, directory=directory, makefile=makefile)
        argv = ["make", "-s", "--no-print-directory", "-f", "-", "lab-ask"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, cwd=self.objects)
        if done.returncode != 0:
            raise LabError(Exit.BUILD, f"asking kbuild about {directory} failed: {done.stderr.strip()}")
        return set(done.stdout.split())

    def nm(self, program: str, objects: Sequence[str]) -> str:
        """What `program` (nm, llvm-nm) says about symbols that these objects share with others."""
        paths = [str(self.objects / path) for path in objects]
        return proc.output([program, "-g", "-A", *paths], what="reading symbols", code=Exit.BUILD)


def symbols(nm: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Symbol -> objects, of those that are defined and of those that are wanted, from the output of nm -g -A."""
    defined: dict[str, set[str]] = {}
    wanted: dict[str, set[str]] = {}
    for line in nm.splitlines():
        place, _, rest = line.rpartition(":")
        fields = rest.split()
        if len(fields) < 2:
            continue
        kind, name = fields[-2], fields[-1]
        (wanted if kind in "Uvw" else defined).setdefault(name, set()).add(place)
    return defined, wanted
