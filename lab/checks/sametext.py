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

_HEADER = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t(.*)$")
_RELOCATION = re.compile(r"^\s*[0-9a-f]+: (R_\w+)\t(.*)$")
_PLACE = re.compile(r"^(.*?)([+-]0x[0-9a-f]+)?$")
_TARGET = re.compile(r"\b[0-9a-f]+ <([^>]+)>")
_CALLED = re.compile(r"\s+<[^>]+>$")
_COMMENT = re.compile(r"\s+#.*$")
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
        if match and match[4] != match[2]:
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
            lines = [] if header[1].startswith(".altinstr") else found.setdefault(header[1], [])
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


def read(path: Path) -> dict[str, list[str]]:
    """The functions of an object file."""
    symbols = Symbols(parse_symbols(_output("objdump", "-t", str(path))))
    content = path.read_bytes()
    for line in _output("readelf", "-S", "-W", str(path)).splitlines():
        match = _SECTION_ROW.match(line)
        if match and ".str" in match[1]:
            start = int(match[2], 16)
            symbols.strings[match[1]] = content[start : start + int(match[3], 16)]
    return functions(_output("objdump", "-dr", "--no-show-raw-insn", str(path)), symbols)


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


def _compile(build: Kbuild, wanted: dict[str, str], objects: Sequence[str], name: str) -> Texts:
    log = _LOGS / f"{name}.log"
    actual = build.configure(wanted, log)
    if actual.get("CONFIG_ANON_PUD_THP", "n") != "n":
        raise LabError(Exit.CONFIG, "CONFIG_ANON_PUD_THP is still on")
    build.must("prepare", log=log, what=f"make prepare ({name})")
    there = build.builds(objects)
    build.must(*there, log=log, what=f"compiling ({name})")
    kept = BUILD / "same-text" / name
    for one in there:
        (kept / one).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(build.objects / one, kept / one)
    return {one: read(kept / one) for one in there}


def _show(base: Texts, differences: Sequence[Difference]) -> list[str]:
    """Prints the table of hot functions, then the others that differ; the hot ones that more than the fixes change."""
    by_name: dict[str, list[Difference]] = {}
    for one in differences:
        by_name.setdefault(one.name.removesuffix(".cold"), []).append(one)
    everywhere = {name for one in base.values() for name in one}
    bad = []
    print(f"{'function':28} {'instructions':>12}  text")
    for name in HOT:
        these = by_name.get(name, [])
        if name not in everywhere and not these:
            print(f"{name:28} {'':12}  inlined")
            continue
        size = max((len(those[name]) for those in base.values() if name in those), default=0)
        more = sum(one.after - one.before for one in these)
        if not these:
            what = "identical"
        elif all(one.of_fixes for one in these):
            what = f"differs by 0001 to {_FIXES:04} alone, {more:+} instructions"
        else:
            what = f"differs, {more:+} instructions"
            bad.append(name)
        print(f"{name:28} {size:12}  {what}")
    for one in differences:
        if one.name.removesuffix(".cold") not in HOT:
            why = f"0001 to {_FIXES:04}" if one.of_fixes else "later patches, too"
            print(f"  {one.place} {one.name}: {one.before} -> {one.after} instructions, {why}")
    return bad


def run() -> int:
    """Compiles what the series touches, and users of its headers, three times; 1 if a hot function differs by more than
    the fixes."""
    patches = load(ROOT / _SERIES[0])
    objects = [*touched(patches), *users(_SERIES)]
    wanted = config.merge(config.fragments(_SERIES)) | {"CONFIG_ANON_PUD_THP": "n"}
    with locked("kernel") as lock:
        base = source.get()
        worktree = Worktree(base).of(_SERIES)
        build = Kbuild(worktree.base.tree, base.directory / "objects-same-text", lock)
        print(f"same-text: {len(objects)} objects of Linux {base.version}, ANON_PUD_THP=n, logs in {_LOGS}", flush=True)
        try:
            worktree.set(patches[:_FIXES])
            fixes = _compile(build, wanted, objects, "fixes")
        finally:
            worktree.set(patches)
        series = _compile(build, wanted, objects, "series")
        stock = Kbuild(Worktree(base).stock(), base.directory / "objects-same-text-base", lock)
        plain = _compile(stock, wanted, objects, "base")
    differences = compare(plain, fixes, series)
    bad = _show(plain, differences)
    total = sum(len(one) for one in plain.values())
    changed = sum(one.before > 0 for one in differences)
    later = [one for one in differences if not one.of_fixes]
    gates = [
        results.gate("hot functions that differ by more than the fixes", len(bad), "== 0"),
        # Else the names are wrong, or nothing was compiled.
        results.gate("hot functions found", len({name for one in plain.values() for name in one} & set(HOT)), ">= 20"),
        results.gate("functions", total, ">= 1000"),
    ]
    metrics = {
        "objects": sorted(plain),
        "functions": total,
        "identical": total - changed,
        "differ by the fixes alone": [f"{one.place} {one.name}" for one in differences if one.of_fixes],
        "differ by later patches": [f"{one.place} {one.name}" for one in later],
    }
    environment = results.environment(
        None, "none", base=base.version, compiler=source.compiler_identity().splitlines()[0]
    )
    where = results.write("same-text", environment, metrics, gates)
    of_fixes = len(differences) - len(later)
    print(
        f"same-text: {total - changed} of {total} functions identical, {of_fixes} differ by 0001 to {_FIXES:04} alone, "
        f"{len(later)} by later patches; results: {where}"
    )
    return Exit.OK if all(gate.ok for gate in gates) else Exit.TESTS
