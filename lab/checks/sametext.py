# SPDX-License-Identifier: GPL-2.0-only
"""What the series pud costs where it is not chosen: the code of each function with CONFIG_ANON_PUD_THP=n, compared
with that of the base."""

import re
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import results
from lab.errors import Exit, LabError
from lab.kernel import config, source
from lab.kernel.kbuild import Kbuild, touched, users
from lab.kernel.series import ROOT, load
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.paths import BUILD

_LOGS = BUILD / "log" / "same-text"
_SERIES = ("pud",)
_FIXES = 4
"""The first patches of the series: they concern DAX as it is and change code whatever is chosen."""

HOT = (
    "handle_mm_fault",
    "__handle_mm_fault",
    "do_huge_pmd_anonymous_page",
    "do_huge_pmd_wp_page",
    "do_wp_page",
    "do_anonymous_page",
    "do_swap_page",
    "unmap_vmas",
    "__zap_vma_range",
    "zap_vma_range_batched",
    "zap_huge_pmd",
    "copy_page_range",
    "copy_huge_pmd",
    "change_protection",
    "change_huge_pmd",
    "move_page_tables",
    "gup_fast_fallback",
    "__get_user_pages",
    "follow_page_pte",
    "page_vma_mapped_walk",
    "try_to_unmap_one",
    "try_to_migrate_one",
    "folio_referenced_one",
    "folio_add_new_anon_rmap",
    "folio_remove_rmap_ptes",
    "folio_remove_rmap_pmd",
    "mm_find_pmd",
    "__split_huge_pmd",
    "vma_adjust_trans_huge",
    "walk_pgd_range",
    "walk_page_range_mm_unsafe",
    "shrink_folio_list",
    "walk_pud_range",
    "migrate_pages_batch",
    "mincore_pte_range",
    "smaps_pte_range",
    "pagemap_pmd_range",
)
"""Where time is spent: faults, zapping, fork, mprotect, mremap, gup, the rmap, reclaim, migration and walks. What the
compiler inlines is part of its caller."""

INLINED: dict[str, frozenset[str]] = {
    "x86": frozenset(),
    "arm64": frozenset({"__handle_mm_fault", "do_anonymous_page", "walk_pud_range"}),
}
"""Of them, those that have no code of their own on that machine."""

LATER: dict[str, str] = {
    "hugepage_init": "registers the size, at boot",
    "migrate_pages": "a folio of this size is split first",
    "alloc_contig_frozen_range_noprof": "its caller says whether it may wait",
}
"""Functions that more than the fixes change, with what for. None of them is hot."""

LEFT_OUT = {
    "arch/x86/kvm/mmu/mmu.o": "KVM",
    "arch/x86/xen/mmu_pv.o": "Xen, with which page tables are written by calls",
    "mm/debug_vm_pgtable.o": "DEBUG_VM, which nobody ships and which changes all others",
    "mm/kasan/init.o": "KASAN, likewise",
}
"""Objects that are not compared: what they need and the configuration of this check does without."""

_LOOKS = ("DEBUG_VM", "DEBUG_VM_PGTABLE", "PAGE_TABLE_CHECK", "PAGE_TABLE_CHECK_ENFORCED")
"""What looks at page tables, with which no kernel is shipped."""


@dataclass(frozen=True)
class Machine:
    """What code is compiled for, and what reads it."""

    name: str
    objdump: str
    variables: tuple[str, ...] = ()
    whole: bool = False
    """Whether all options that are wanted exist there."""

    def left_out(self, path: str) -> bool:
        """Whether this object is not to be compared here."""
        return path in LEFT_OUT or (self.name != "x86" and path.startswith("arch/x86/"))


MACHINES = (
    Machine("x86", "objdump", whole=True),
    Machine("arm64", "llvm-objdump-19", ("ARCH=arm64", "LLVM=-19")),
)

_HEADER = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+: *\t(.*)$")
_RELOCATION = re.compile(r"^\s*[0-9a-f]+: +(R_\w+)\t(.*)$")
_PLACE = re.compile(r"^(.*?)([+-]0x[0-9a-f]+)?$")
_TARGET = re.compile(r"\b(?:0x)?[0-9a-f]+ <([^>]+)>")
_CALLED = re.compile(r"\s+<[^>]+>$")
_COMMENT = re.compile(r"\s+# .*$")
"""Of x86; arm64 has its immediates after a #, without a space."""
_LABEL = ("$", ".L")
"""How names begin that say where something is, and not what."""
_SYMBOL = re.compile(r"^([0-9a-f]+) .{7} (\S+)\t([0-9a-f]+) (?:\.hidden )?(\S+)$")
_SECTION_ROW = re.compile(r"^\s*\[\s*\d+\] (\S+)\s+\S+\s+[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+) ")
_NUMBER = re.compile(r"\.\d+$")
"""What gcc adds to the names of tables and static variables; any code before them changes it."""
_PADDING = ("nop", "int3", "xchg   %ax,%ax", "cs nopw", "data16")


@dataclass
class Symbols:
    """What the places of an object are called: which lie where changes with every function that is longer."""

    places: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Section -> its symbols, by offset."""
    strings: dict[str, bytes] = field(default_factory=dict)
    """Sections of string literals, whose content says what is meant."""

    def name(self, section: str, offset: int) -> str:
        """What is at `offset` of `section`, as independent of the layout as it can be said."""
        if section in self.strings:
            return repr(self.strings[section][offset:].split(b"\0", 1)[0])
        known = self.places.get(section, [])
        index = bisect_right(known, (offset, "\U0010ffff")) - 1
        if index < 0:
            return f"{section}+{offset:#x}"
        start, name = known[index]
        return f"{_NUMBER.sub('', name)}+{offset - start:#x}"


def parse_symbols(table: str) -> dict[str, list[tuple[int, str]]]:
    """Section -> symbols with their offsets, of objdump -t."""
    found: dict[str, list[tuple[int, str]]] = {}
    for line in table.splitlines():
        match = _SYMBOL.match(line)
        if match and match[4] != match[2] and not match[4].startswith(_LABEL):
            found.setdefault(match[2], []).append((int(match[1], 16), match[4]))
    return {section: sorted(places) for section, places in found.items()}


def _relocated(kind: str, place: str, symbols: Symbols) -> str:
    match = _PLACE.match(place)
    assert match
    name, addend = match[1], int(match[2] or "0", 16)
    if name.startswith(".altinstr"):
        return name
    if name not in symbols.places and name not in symbols.strings:
        return f"{name}{addend:+#x}"
    # Relative to the end of the instruction, as a rule four bytes on.
    return symbols.name(name, addend + (4 if kind in ("R_X86_64_PC32", "R_X86_64_PLT32") else 0))


def functions(code: str, symbols: Symbols) -> dict[str, list[str]]:
    """Function -> its instructions, of objdump -dr, without what only says where something is."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in code.splitlines():
        if header := _HEADER.match(line):
            # Not what replaces instructions at boot: what may be replaced is in the functions.
            lines = [] if header[1].startswith((".altinstr", *_LABEL)) else found.setdefault(header[1], [])
        elif relocation := _RELOCATION.match(line):
            if lines:
                text = _CALLED.sub("", lines[-1])
                lines[-1] = f"{text} [{_relocated(relocation[1], relocation[2], symbols)}]"
        elif instruction := _INSTRUCTION.match(line):
            text = _COMMENT.sub("", instruction[1])
            lines.append(_TARGET.sub(r"<\1>", text).strip())
    for lines in found.values():
        while lines and lines[-1].startswith(_PADDING) and "[" not in lines[-1]:
            lines.pop()
    return found


def _output(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode != 0:
        raise LabError(Exit.HOST, f"{' '.join(argv)} failed: {done.stderr.strip()}")
    return done.stdout


def read(path: Path, objdump: str = "objdump") -> dict[str, list[str]]:
    """The functions of an object file."""
    symbols = Symbols(parse_symbols(_output(objdump, "-t", str(path))))
    content = path.read_bytes()
    for line in _output("readelf", "-S", "-W", str(path)).splitlines():
        match = _SECTION_ROW.match(line)
        if match and ".str" in match[1]:
            start = int(match[2], 16)
            symbols.strings[match[1]] = content[start : start + int(match[3], 16)]
    return functions(_output(objdump, "-dr", "--no-show-raw-insn", str(path)), symbols)


Texts = Mapping[str, Mapping[str, Sequence[str]]]
"""Object -> function -> instructions."""


@dataclass(frozen=True)
class Difference:
    """A function that is not as in the base."""

    place: str
    name: str
    of_fixes: bool
    """The first patches alone make it what it is with all of them."""
    before: int
    """Instructions; 0 where there is no such function."""
    after: int


def compare(base: Texts, fixes: Texts, series: Texts) -> list[Difference]:
    """The functions that differ between the base and the series, by object and name."""
    found = []
    for place in sorted(base.keys() | series.keys()):
        old, fixed, new = base.get(place, {}), fixes.get(place, {}), series.get(place, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                of_fixes = fixed.get(name) == new.get(name)
                found.append(Difference(place, name, of_fixes, len(old.get(name, ())), len(new.get(name, ()))))
    return found


def wanted() -> dict[str, str]:
    """The configuration of the comparison: with DAX, and as kernels are shipped."""
    off = ("ANON_PUD_THP", *_LOOKS)
    return config.checked(_SERIES) | {f"CONFIG_{name}": "n" for name in off}


def _certain(machine: Machine) -> dict[str, str]:
    known = wanted()
    if machine.whole:
        return known
    on = (
        "TRANSPARENT_HUGEPAGE",
        "ZONE_DEVICE",
        "FS_DAX",
        "DEV_DAX",
        "USERFAULTFD",
        "HUGETLBFS",
        "NUMA",
        "MEMCG",
        "KSM",
    )
    off = ("ANON_PUD_THP", *_LOOKS)
    return {f"CONFIG_{name}": known[f"CONFIG_{name}"] for name in (*on, *off)}


def _compile(build: Kbuild, machine: Machine, objects: Sequence[str], name: str) -> Texts:
    log = _LOGS / f"{machine.name}-{name}.log"
    there, _ = build.ready(wanted(), objects, log, _certain(machine))
    build.must(*there, log=log, what=f"compiling ({machine.name}, {name})")
    kept = BUILD / "same-text" / machine.name / name
    for one in there:
        (kept / one).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(build.objects / one, kept / one)
    return {one: read(kept / one, machine.objdump) for one in there}


def _bare(name: str) -> str:
    """A function's name without what the compiler adds to that of a part or a variant: .cold, .isra.0."""
    return name.split(".", 1)[0]


@dataclass
class Finding:
    """What came of a machine."""

    machine: Machine
    objects: list[str]
    base: Texts
    differences: list[Difference]
    not_compared: list[str]

    @property
    def functions(self) -> int:
        """Of the base."""
        return sum(len(one) for one in self.base.values())

    @property
    def identical(self) -> int:
        """Of them, those that are the same with the series."""
        return self.functions - sum(one.before > 0 for one in self.differences)

    def hot(self, name: str) -> list[Difference]:
        """How a hot function differs, with its parts."""
        return [one for one in self.differences if _bare(one.name) == name]

    def bad(self) -> list[str]:
        """Hot functions that differ by more than the fixes."""
        return [name for name in HOT if any(not one.of_fixes for one in self.hot(name))]

    def missing(self) -> list[str]:
        """Hot functions that have no code and are not said to be inlined, and those that are said to be and have."""
        found = {_bare(name) for one in self.base.values() for name in one} & set(HOT)
        return sorted((set(HOT) - found) ^ INLINED[self.machine.name])

    def later(self) -> list[Difference]:
        """What later patches change."""
        return [one for one in self.differences if not one.of_fixes]

    def unexplained(self) -> list[str]:
        """Of that, what is not known."""
        return [f"{one.place} {one.name}" for one in self.later() if _bare(one.name) not in LATER]

    def gates(self) -> list[results.Gate]:
        """What holds of each machine."""
        name = self.machine.name
        return [
            results.gate(f"{name}: hot functions that differ by more than the fixes", len(self.bad()), "== 0"),
            results.gate(f"{name}: hot functions neither found nor known as inlined", len(self.missing()), "== 0"),
            results.gate(
                f"{name}: functions that later patches change, and why is not known", len(self.unexplained()), "== 0"
            ),
            results.gate(f"{name}: objects not compared", len(self.not_compared), "== 0"),
            results.gate(f"{name}: functions", self.functions, ">= 1000"),
        ]

    def document(self) -> dict[str, Any]:
        """For the results."""
        return {
            "objects": sorted(self.base),
            "left out": sorted(path for path in self.objects if path not in self.base),
            "functions": self.functions,
            "identical": self.identical,
            "hot and inlined": sorted(INLINED[self.machine.name]),
            "differ by the fixes alone": [f"{one.place} {one.name}" for one in self.differences if one.of_fixes],
            "differ by later patches": [f"{one.place} {one.name}" for one in self.later()],
        }


def judge(machine: Machine, objects: Sequence[str], base: Texts, fixes: Texts, series: Texts) -> Finding:
    """What the three say. An object that is not in all of them is not compared."""
    compared = base.keys() & fixes.keys() & series.keys()
    missing = [path for path in objects if path not in compared and not machine.left_out(path)]
    kept = [{path: text[path] for path in compared} for text in (base, fixes, series)]
    return Finding(machine, list(objects), kept[0], compare(*kept), missing)


def _show(found: Finding) -> None:
    """Prints the table of hot functions, then the others that differ."""
    print(f"{found.machine.name + ':':28} {'instructions':>12}  text")
    for name in HOT:
        these = found.hot(name)
        sizes = [len(those[one]) for those in found.base.values() for one in those if _bare(one) == name]
        if not sizes and not these:
            print(f"{name:28} {'':12}  inlined")
            continue
        more = sum(one.after - one.before for one in these)
        if not these:
            what = "identical"
        elif all(one.of_fixes for one in these):
            what = f"differs by 0001 to {_FIXES:04} alone, {more:+} instructions"
        else:
            what = f"differs, {more:+} instructions"
        print(f"{name:28} {max(sizes, default=0):12}  {what}")
    for one in found.differences:
        if _bare(one.name) not in HOT:
            why = f"0001 to {_FIXES:04}" if one.of_fixes else f"later patches: {LATER.get(_bare(one.name), '?')}"
            print(f"  {one.place} {one.name}: {one.before} -> {one.after} instructions, {why}")
    for path in found.objects:
        if path not in found.base:
            why = "nobody said why" if path in found.not_compared else LEFT_OUT.get(path, "of another machine")
            print(f"  {path}: not compared, {why}")


def run() -> int:
    """Compiles what the series touches, and users of its headers, three times for each machine; 1 if a hot function
    differs by more than the fixes."""
    patches = load(ROOT / _SERIES[0])
    texts: dict[tuple[Machine, str], Texts] = {}
    with locked("kernel") as lock:
        base = source.get()
        worktree = Worktree(base).of(_SERIES)
        worktree.set(patches)
        objects = [*touched(patches), *users(_SERIES, patches, worktree.base.tree)]

        def compiled(name: str, tree: Path) -> None:
            for machine in MACHINES:
                suffix = "" if machine.whole else f"-{machine.name}"
                where = base.directory / f"objects-same-text{'-base' if name == 'base' else ''}{suffix}"
                texts[machine, name] = _compile(Kbuild(tree, where, lock, machine.variables), machine, objects, name)

        print(f"same-text: {len(objects)} objects of Linux {base.version}, ANON_PUD_THP=n, logs in {_LOGS}", flush=True)
        try:
            worktree.set(patches[:_FIXES])
            compiled("fixes", worktree.base.tree)
        finally:
            worktree.set(patches)
        compiled("series", worktree.base.tree)
        compiled("base", Worktree(base).stock())
    found = [judge(one, objects, *(texts[one, name] for name in ("base", "fixes", "series"))) for one in MACHINES]
    gates = [gate for one in found for gate in one.gates()]
    for one in found:
        _show(one)
    environment = results.environment(
        None, "none", base=base.version, compiler=source.compiler_identity().splitlines()[0]
    )
    metrics = {one.machine.name: one.document() for one in found}
    where = results.write("same-text", environment, metrics, gates)
    for gate in gates:
        if not gate.ok:
            print(f"same-text: gate missed: {gate.name}: {gate.value}, not {gate.bound}")
    for one in found:
        later = len(one.later())
        print(
            f"same-text: {one.machine.name}: {len(one.base)} of {len(objects)} objects, {one.identical} of "
            f"{one.functions} functions identical, {len(one.differences) - later} differ by 0001 to {_FIXES:04} alone, "
            f"{later} by later patches"
        )
    print(f"same-text: results: {where}")
    return Exit.OK if all(gate.ok for gate in gates) else Exit.TESTS
