# SPDX-License-Identifier: GPL-2.0-only
"""An object tree in which checks compile parts of the kernel, and questions about what kbuild makes of it."""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError
from lab.kernel import config
from lab.kernel.series import Patch

_NOT_COMPILED = ("tools/", "scripts/", "samples/", "Documentation/")

_INCLUDED = {
    "arch/x86/mm/ident_map.c": "arch/x86/mm/init_64.o",
    "kernel/sched/psi.c": "kernel/sched/build_utility.o",
}
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
    "kernel/events/uprobes.o",
    "kernel/fork.o",
    "mm/ksm.o",
    "mm/madvise.o",
    "mm/mempolicy.o",
    "mm/mincore.o",
    "mm/mlock.o",
    "mm/ptdump.o",
)
"""The same for the series pud: walks of page tables and of the rmap. Callers of what its headers change are found."""

_CALLERS_IN = ("arch/x86", "block", "drivers", "fs", "io_uring", "ipc", "kernel", "lib", "mm", "security", "virt")
"""Where callers are looked for. Of arch/ that of which a header is changed."""
_HEADERS_IN = ("arch/x86/include/asm", "include/asm-generic", "include/linux", "mm")
_BEFORE_THE_KERNEL = ("arch/x86/boot/", "arch/x86/purgatory/")
"""What runs before the kernel does, and is compiled otherwise."""

_DEFINED = re.compile(r"(?:[a-z_][\w*]*[\s*]+)*([a-z_]\w*)\(|#\s*define\s+(\w+)|(?:struct|enum|union) \w+ \{")
"""A line at which a function, a macro or a type begins; for types without a name."""


def _within(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Each line of a header, or of what a patch shows of one, with the function or macro that it is a line of, if any.
    Lines of patches have their first character before them."""
    within = ""
    macro = False
    for line in lines:
        text = line[1:]
        if heading := re.match(r"@@ [^@]+ @@ ?(.*)", line):
            within, text, macro = "", heading[1], False
        if begun := _DEFINED.match(text):
            within, macro = begun[1] or begun[2] or "", bool(begun[2])
        yield line, within
        ended = not text.endswith("\\") if macro else text.startswith("}") or (text.endswith(";") and text[0].isalpha())
        if ended:
            within, macro = "", False


def changed(patches: Iterable[Patch]) -> set[str]:
    """Functions and macros of headers that these patches add, remove or write anew."""
    found: set[str] = set()
    for patch in patches:
        for part in re.split(r"^diff --git ", patch.content.decode(errors="replace"), flags=re.MULTILINE)[1:]:
            head, _, hunks = part.partition("\n@@ ")
            path = head.splitlines()[0].rpartition(" b/")[2]
            if path.endswith(".h") and not path.startswith(_NOT_COMPILED):
                lines = _within(f"@@ {hunks}".splitlines())
                found |= {name for line, name in lines if line[0] in "+-" and line[1:].strip()}
    # Those that are written in capitals are annotations, such as TRACE_EVENT().
    return {name for name in found if name and not name.isupper() and not name.startswith("__HAVE_ARCH")}


def _naming(tree: Path, names: Iterable[str], files: str, places: Iterable[str]) -> list[str]:
    """The files of `tree` that say one of these names."""
    argv = ["grep", "-rlwE", f"--include={files}", "|".join(sorted(names))]
    argv += [place for place in places if (tree / place).is_dir()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tree)
    if done.returncode not in (0, 1):
        raise LabError(Exit.HOST, f"looking for callers in {tree} failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def callers(tree: Path, names: set[str]) -> list[str]:
    """The objects of C files in `tree` that say one of these names, or a function of a header that does."""
    if not names:
        return []
    through: set[str] = set()
    word = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")
    for file in _naming(tree, names, "*.h", _HEADERS_IN):
        text = (tree / file).read_text(errors="replace")
        through |= {name for line, name in _within(f" {line}" for line in text.splitlines()) if word.search(line)}
    found = _naming(tree, names | {name for name in through if name.islower()}, "*.c", _CALLERS_IN)
    return sorted({_object(file) for file in found if not file.startswith(_BEFORE_THE_KERNEL)})


def users(series: Sequence[str], patches: Sequence[Patch], tree: Path) -> list[str]:
    """Objects of files that these series leave alone but whose headers they change. `tree`: a source tree."""
    found = set(USERS if "mthp" in series else ())
    if "pud" in series:
        found |= {*_USERS_PUD, *callers(tree, changed(patches))}
    return sorted(found - set(touched(patches)))


_SRCARCH = {"i386": "x86"}
"""Machines whose directory in arch/ has another name."""

# What the Makefile of one directory would have made, with the members of the objects that are linked from several.
_ASK = """\
srctree := {tree}
src := {tree}/{directory}
obj := {directory}
include {objects}/include/config/auto.conf
BITS := $(if $(CONFIG_64BIT),64,32)
include {tree}/{directory}/{makefile}
lab-parts := $(obj-y) $(obj-m) $(lib-y)
lab-ask: ; @echo $(lab-parts) $(foreach part,$(lab-parts),$($(part:.o=-y)) $($(part:.o=-objs)))
"""


def touched(patches: Iterable[Patch]) -> list[str]:
    """The objects that the C files of a series are compiled into, sorted."""
    files = set().union(*(patch.files() for patch in patches))
    sources = {file for file in files if file.endswith(".c") and not file.startswith(_NOT_COMPILED)}
    return sorted({_object(file) for file in sources})


def _object(file: str) -> str:
    """What a C file is compiled into."""
    return _INCLUDED.get(file, file.removesuffix(".c") + ".o")


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

    def ready(
        self, wanted: dict[str, str], objects: Sequence[str], log: Path, certain: Mapping[str, str] | None = None
    ) -> tuple[list[str], list[str]]:
        """Configures, and makes what compiling takes: those of `objects` that kbuild compiles then, and those that it
        does not. LabError unless each option of `certain` comes out as it says: all that is wanted, unless given."""
        self.configure(wanted, log)
        config.check(wanted if certain is None else certain, (self.objects / ".config").read_text())
        self.must("prepare", log=log, what=f"make prepare ({log.stem})")
        there = self.builds(objects)
        absent = [path for path in objects if path not in there]
        # Objects of an earlier configuration must not be taken for those of this one.
        for path in absent:
            (self.objects / path).unlink(missing_ok=True)
        return there, absent

    def builds(self, objects: Sequence[str]) -> list[str]:
        """Those of `objects` that kbuild compiles with the present configuration (after `make prepare`)."""
        known: dict[str, set[str]] = {}

        def within(directory: str, name: str) -> bool:
            """Whether the Makefile of `directory` names this, and those above it name the directory."""
            if not any((self.tree / directory / file).exists() for file in ("Kbuild", "Makefile")) and "/" in directory:
                # One of the directories above names its objects.
                above, _, last = directory.rpartition("/")
                if above != "arch":
                    return within(above, f"{last}/{name}")
            if directory not in known:
                known[directory] = self._parts(directory)
            above, _, last = directory.rpartition("/")
            if above == "arch":
                # Which has no Makefile; only the machine's directory in it is gone into.
                return name in known[directory] and last == self._machine()
            return name in known[directory] and (not above or within(above, f"{last}/"))

        return [path for path in objects if within(*path.rsplit("/", 1))]

    def of_the_machine(self, names: set[str]) -> set[str]:
        """Those of `names` that C files in the machine's directory begin a function with."""
        if not names:
            return set()
        found: set[str] = set()
        place = f"arch/{self._machine()}"
        for file in _naming(self.tree, names, "*.c", [place]):
            lines = (self.tree / file).read_text(errors="replace").splitlines()
            begun = (_DEFINED.match(line) for line in lines if not line.endswith(";"))
            found |= {match[1] for match in begun if match and match[1]}
        return names & found

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
