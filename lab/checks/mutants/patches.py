# SPDX-License-Identifier: GPL-2.0-only
"""The mutants: patches with a header that says which rule they break and which test must catch them.

Rule: hup-at-rmdir B9           rules of RULES, the first of them first in reports
Breaks: what is wrong then      one line
Caught-by: PROGRAM TEST         fails; PROGRAM is a selftest (with its boot: mthp_psi-off), test_progs for the
                                one in selftests/bpf (struct_ops_cgroup/rmdir), tests/PROGRAM.rs, or mthp_ext
                                for its unit tests
Caught-by: splat PROGRAM TEST   the kernel complains or panics while the test runs
Caught-by: config-matrix CASE   does not build with the options of that case
Kernel: debug                   needs the kernel with KASAN and lockdep; without the line the usual one
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from lab.errors import Exit, LabError
from lab.kernel.series import DEFAULT, Patch
from lab.paths import KERNEL_DIR, REPO

KERNEL_MUTANTS = KERNEL_DIR / "mutants"
PROGRAM_MUTANTS = REPO / "tests" / "mutants"

RULES: dict[str, str] = {
    "narrow-only": "what a policy answers is intersected with what was offered",
    "dropped-counted": "bits beyond the offer are counted, and nothing else is",
    "and-over-ancestors": "every policy on the path from the root is asked about what those above it left",
    "delegation": "a policy below keeps nobody above from attaching",
    "cgroup-of-the-mm": "the cgroup is that of the mm's owner, not of the current task",
    "asked-last": "only what fits the mapping and the range is asked about",
    "reason-passed": "the policy learns the reason, and each reason asks",
    "flags-passed": "of the mapping the policy learns that it was advised, and nothing else",
    "attachment-passed": "each call gets the cgroup that its link is attached to",
    "refusals-counted": "refusals are counted for each size that policies take away",
    "requests-traced": "each request is traced, with the cgroup of the policy that narrowed it last",
    "guards-beside-faults": "a fault does not mind guards that are installed beside it",
    "private-file-swap-in": "what is swapped in to a private mapping of a file is asked about",
    "smaps-not-asked": "THPeligible tells the configuration",
    "anonymous-only": "shared memory and files have no policy",
    "precedence": "prctl, madvise and sysfs come first",
    "one-per-cgroup": "a second policy for a cgroup is refused with EEXIST",
    "no-memory-controller": "a cgroup without the memory controller is refused with ENODEV",
    "cgroup-required": "only links with the flag and a cgroup, and no unknown flags",
    "may-write": "links are made and updated by those who may write the cgroup",
    "type-by-itself": "callbacks of a type hold nothing of the cgroup core, and one waits for none of another type",
    "verifier": "programs that sleep and ops without the operation are refused",
    "static-key": "the key is on while a policy is attached",
    "key-deferred": "policies that come and go do not patch the text of the kernel each time",
    "rcu-order": "pointer cleared, grace period, then free; read and used in one RCU section",
    "lifetime": "a link that is detached or refused leaves nothing behind in the cgroup",
    "hup-at-rmdir": "removing a cgroup detaches its links and raises EPOLLHUP",
    "auto-detach": "the policy ends when its link is closed",
    "update-atomic": "replacing a policy leaves no moment without one",
    "id-cleared": "fdinfo and link info show the cgroup until the link is detached",
    "khugepaged-registration": "an mm is registered by the configuration, whatever its faults may use",
    "reclaim-asks": "reclaim asks about each large folio it finds in use, and splits what is refused, nothing else",
    "reclaim-spares": "unused, mlocked, pinned, lazily freed folios and MADV_PAGEOUT are not asked about at reclaim",
    "reclaim-cgroup": "at reclaim the cgroup is the one that the folio is charged to",
    "reclaim-paced": "reclaim splits no more until it has looked at the pages of what it split last",
    "reclaim-counted": "used folios are counted for each size, splits in vmstat and in the cgroup",
    "cold-files": "page cache that reclaim would take first is counted, on both LRUs, and no other",
    "spare-pages": "spare is what the machine, or the nodes of a cgroup, could give beyond its reserves",
    "bounds": "a state without a total reads as 0",
    "psi-flush": "a flush brings the totals up to date",
    "stall-kept": "every stall counts, whatever was before, and however often somebody samples",
    "psi-off": "the kfuncs do nothing where pressure is not tracked, and the flush says so",
    "blind": "a cgroup whose pressure is not tracked goes by the verdict of the cgroup above",
    "unknown-reason": "a reason that the program does not know passes unchanged",
    "kept-by-less": "a folio in use stays where no more of its size would be given, until memory is short",
    "unmissed": "what reclaim takes and nobody wants back narrows nothing, unless a neighbour or the machine is short",
    "advised-leaves-the-reserve": "advised memory takes what a limit leaves, beside a reserve for all else",
    "pud-fits-to-its-end": "1 GiB is given where the last 2 MiB of it would be",
    "pud-takes-itself-alone": "a fault without room for 1 GiB keeps all smaller sizes",
    "sizes-counted-apart": "each size is counted in its own place",
    "wanted-has-to-fit": "advised memory gets what fits, and no more",
    "sparse-by-growth": "a process is sparse by what it grows by, and one that has shown nothing ends nothing",
    "one-composition": "a decision has the rule that binds, and reads the limits only where they can change it",
    "level-that-binds": "of all levels up to the machine the one that leaves the least is named",
    "baseline": "the first sample of a stall total is history",
    "falls-at-its-end": "a verdict of pressure falls at the end of a window, and not within one",
    "rest-is-calm": "stall after a rest that nobody sampled is measured from its end on",
    "empty-cgroup": "a cgroup without processes is not small",
    "whole-scan": "a scan visits every cgroup once, however many calls and lists it takes",
    "bounded-retry": "a scan ends whatever the kernel answers",
    "overflow": "sizes are refused before they wrap",
    "errno-kept": "the errno of a refused trigger is the one that is reported",
    "own-policy": "a policy of the user's that cannot be read is not replaced by the one that is built in",
    "gaps-show": "what the kernel would not say shows in status, and in its exit code",
    "profile-of-ones-own": "a cgroup has the policy that it was assigned, whatever its slot gets later",
    "last-override": "of the overrides that match a cgroup the last one wins",
}
"""The rules of the contract that the kernel or the program keeps."""

PUD_RULES: dict[str, str] = {
    "leaf-is-no-table": "who looks for a table in a PUD does not take a leaf for one",
    "undone-as-it-was": "where a folio could not be split, each of its pages is mapped again where it was",
    "deposit-moves": "the tables in reserve hang on the PUD table that has the leaf",
    "rmap-balanced": "what is mapped is counted once, and not any more when it is unmapped",
    "folio-split-unlocked": "no folio is split where its anon_vma is locked",
    "never-swapped-whole": "no folio of 1 GiB is put into the swap cache",
    "copied-on-write": "a page that somebody else has, too, is not written",
    "sharers-have-an-end": "a folio has so many sharers at most that splitting all their leaves overflows no count",
    "tables-or-pages": "where the tables that a child needs for a leaf cannot be had, it gets pages",
    "asked-again": "a fault that found no memory is the last one to look for it for a while",
    "hints-pass-by": "NUMA balancing does not split what it cannot move",
    "aging-passes-by": "MGLRU's walk of page tables leaves a leaf to the rmap, without a warning",
    "splits-are-traced": "each split of a mapping or a folio is traced once, with who asked",
}
"""Those of the series pud."""

BOTH_RULES: dict[str, str] = {
    "asked-about-1g": "a fault that may have 1 GiB asks, before it looks for it, and nobody else does",
    "settings-first": "where settings do not have 1 GiB looked for nobody is asked",
}
"""Those of what it takes where both series are."""

BUGS: dict[str, str] = {
    "B1": "attaching above a policy broke the hierarchy",
    "B2": "new cgroups bypassed the policy of their parent",
    "B3": "the pointer was read before the read section",
    "B4": "the state of a stall total was not checked, and the total had 32 bits",
    "B5": "a cgroup without pressure tracking was dereferenced",
    "B6": "the first scan took all stall so far for new",
    "B7": "a cgroup without processes was forced to base pages",
    "B8": "it did not build without PSI",
    "B9": "a missing link was dereferenced",
    "B10": "a failing read() of the proposal's iterator was repeated for ever",
    "B11": "a size in MB wrapped at 32 bits",
    "B12": "the errno of a refused trigger was lost",
}
"""Bugs that reviewers found in the public proposal. Each has a mutant that brings it back."""

OPEN: dict[str, str] = {
    "private-file-swap-in": "no file system of the lab's kernel has huge_fault, without which only base pages come in",
}
"""Rules and bugs without a mutant, and why."""

_FIELD = re.compile(r"^([A-Z][A-Za-z-]+): +(.+)$")
_FIELDS = ("SPDX-License-Identifier", "Rule", "Breaks", "Caught-by", "Kernel")
_KERNELS = ("debug",)


class How(StrEnum):
    """What must be seen."""

    TEST = "test"
    SPLAT = "splat"
    BUILD = "config-matrix"


@dataclass(frozen=True)
class Catch:
    """What catches a mutant."""

    how: How
    program: str
    """Test program; for BUILD empty."""
    test: str
    """Name of the test as its report has it; for BUILD the case."""

    def __str__(self) -> str:
        words = ([] if self.how is How.TEST else [self.how.value]) + [self.program, self.test]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Mutant:
    """One patch that breaks something."""

    patch: Patch
    rules: tuple[str, ...]
    breaks: str
    catches: tuple[Catch, ...]
    """All of them must catch it."""
    debug: bool
    kernel: bool
    """A patch of the kernel; else of this repository."""
    series: tuple[str, ...] = DEFAULT
    """What the kernel has besides."""

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.patch.name.removesuffix(".patch")


def rules_of(series: tuple[str, ...]) -> dict[str, str]:
    """The rules that mutants of these series break; LabError if there are none."""
    known: dict[tuple[str, ...], dict[str, str]] = {
        DEFAULT: RULES,
        ("pud",): PUD_RULES,
        ("mthp", "pud"): BOTH_RULES,
    }
    found = known.get(series)
    if found is None:
        raise LabError(Exit.USAGE, f"there are no mutants for {' '.join(series)}; name one series")
    return found


def parse(name: str, content: bytes, kernel: bool, series: tuple[str, ...] = DEFAULT) -> Mutant:
    """A mutant from its file; LabError with the line that is wrong."""
    known = rules_of(series)

    def wrong(what: str) -> LabError:
        return LabError(Exit.PATCH, f"mutant {name}: {what}; the header's form is in lab/checks/mutants/patches.py")

    fields: dict[str, list[str]] = {}
    head = content.decode(errors="replace").split("\n--- ", 1)[0]
    for line in head.splitlines():
        if not line.strip():
            continue
        match = _FIELD.match(line)
        if not match or match[1] not in _FIELDS:
            raise wrong(f"its header has the line {line!r}")
        fields.setdefault(match[1], []).append(match[2].strip())
    for field in ("SPDX-License-Identifier", "Rule", "Breaks", "Caught-by"):
        if field not in fields:
            raise wrong(f"its header has no {field}")
    for field, values in fields.items():
        if field != "Caught-by" and len(values) != 1:
            raise wrong(f"its header has more than one {field}")
    rules = tuple(fields["Rule"][0].split())
    if unknown := [rule for rule in rules if rule not in known and rule not in BUGS]:
        raise wrong(f"there is no rule {unknown[0]!r}")
    if rules[0] not in known:
        raise wrong(f"the first rule must be one of the contract, not {rules[0]!r}")
    kernels = fields.get("Kernel", [])
    if any(value not in _KERNELS for value in kernels):
        raise wrong(f"there is no kernel {kernels[0]!r}")
    if kernels and series != DEFAULT:
        raise wrong("there is no kernel for debugging with this series")
    catches = tuple(_catch(value) for value in fields["Caught-by"])
    if None in catches:
        raise wrong("Caught-by is neither a program and a test nor config-matrix and a case")
    patch = Patch(name, content)
    if not patch.files():
        raise wrong("it changes no file")
    of_all = tuple(one for one in catches if one)
    return Mutant(patch, rules, fields["Breaks"][0], of_all, bool(kernels), kernel, series)


def _catch(value: str) -> Catch | None:
    match value.split():
        case ["config-matrix", case]:
            return Catch(How.BUILD, "", case)
        case ["splat", program, test]:
            return Catch(How.SPLAT, program, test)
        case [program, test] if program != "splat":
            return Catch(How.TEST, program, test)
    return None


def load(series: tuple[str, ...] = DEFAULT) -> list[Mutant]:
    """All mutants of these series: of the kernel in an order in which neighbours rebuild the same files, then of the
    program, which belongs to the default ones."""
    rules_of(series)
    places = [(KERNEL_MUTANTS, True), (PROGRAM_MUTANTS, False)]
    if series != DEFAULT:
        places = [(KERNEL_MUTANTS / "+".join(series), True)]
    found = [
        parse(path.name, path.read_bytes(), kernel, series)
        for directory, kernel in places
        for path in sorted(directory.glob("*.patch"))
    ]
    names = [mutant.name for mutant in found]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise LabError(Exit.PATCH, f"two mutants are called {double[0]}")
    # Headers of the kernel last: what includes them is half of mm/.
    return sorted(
        found,
        key=lambda one: (
            not one.kernel,
            one.debug,
            any(file.endswith(".h") for file in one.patch.files()),
            sorted(one.patch.files()),
            one.name,
        ),
    )


def select(names: list[str], series: tuple[str, ...] = DEFAULT) -> list[Mutant]:
    """The mutants of these names; all when there are none."""
    mutants = load(series)
    unknown = sorted(set(names) - {mutant.name for mutant in mutants})
    if unknown:
        known = ", ".join(mutant.name for mutant in mutants)
        raise LabError(Exit.USAGE, f"there is no mutant {unknown[0]!r}; there are: {known}")
    return [mutant for mutant in mutants if not names or mutant.name in names]
