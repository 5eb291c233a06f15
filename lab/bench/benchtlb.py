# SPDX-License-Identifier: GPL-2.0-only
"""`make bench-tlb FILE=...`: a program of the user's own under each setting of huge pages. Page-table walks, faults,
coverage and memory on one page; nothing on the host changes, and no processor with counters is needed."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lab import programs, results, setup, vm
from lab.bench import execute, software, walks
from lab.bench.arms import ARM, Arm
from lab.bench.cell import Cell
from lab.bench.execute import fate
from lab.bench.payload import Payload
from lab.bench.run import Run
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Task
from lab.bench.style import CSS
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.paths import RESULTS
from lab.report import svg
from lab.report.parts import environment_section, grid, number
from lab.tlb.geometry import JOINS
from lab.vm import initramfs
from lab.vm.schedule import Finished

ARMS = [ARM[key] for key in ("always", "never", "only64", "mthp_ext")]
NAME = "bench-tlb"
_SOFTWARE = "own"
_GUEST = "/own"
_DEADLINE_S, _STOP_S = 10, 900
"""Guest time after which a program that goes on is stopped, some minutes here; and wall-clock time."""
_ELF = b"\x7fELF"
NOTE = (
    "Walks are counted by a model of a TLB in emulation, without a price: for the same work fewer are better, and how "
    "much faster that makes a real processor depends on its caches. A program that was stopped has no totals: it did "
    "another amount of work under each setting. Faults, coverage and memory are the kernel's own figures."
)


def payload(path: Path, memory_mib: int) -> Payload:
    """What of the user's goes into the guest: a program, or a directory with one named run; and the libraries that they
    are linked with. LabError if it is neither, or cannot run there."""
    if path.is_dir():
        files = {f"{_GUEST}/{one.relative_to(path)}": one for one in sorted(path.rglob("*")) if one.is_file()}
        start = path / "run"
        if not start.is_file():
            raise LabError(
                Exit.USAGE, f"{path} has no file named run; make one that starts your program: {_example(path)}"
            )
    elif path.is_file():
        files, start = {f"{_GUEST}/run": path}, path
    else:
        raise LabError(
            Exit.USAGE, f"{path}: there is no such program or directory; use make bench-tlb FILE=/path/to/it"
        )
    if not os.access(start, os.X_OK):
        raise LabError(Exit.USAGE, f"{start} cannot be executed; likely its mode: chmod +x {start}")
    _refuse_large(path, files.values(), memory_mib)
    binaries = [one for one in files.values() if _line(one)[:4] == _ELF]
    if start not in binaries:
        _refuse_interpreter(start, files)
    libraries = {library for binary in binaries for library in initramfs.libraries(binary)}
    return Payload(files={**files, **{str(library): library for library in libraries}})


def _example(path: Path) -> str:
    return f"printf '#!/bin/sh\\n./program\\n' > {path}/run; chmod +x {path}/run"


def _line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(256)
    except OSError as error:
        raise LabError(Exit.USAGE, f"{path} cannot be read ({error.strerror}): the guest gets a copy of it") from error


def _refuse_large(path: Path, files: Iterable[Path], memory_mib: int) -> None:
    """The guest's file system is in its memory, and so is the archive while it boots."""
    size_mib = sum(one.stat().st_size for one in files) // MIB
    if size_mib > memory_mib // 4:
        raise LabError(
            Exit.USAGE,
            f"{path} has {size_mib} MiB, more than a quarter of the guest's memory, in which its files lie: leave out "
            f"what the program does not need, or give more (python3 -m lab bench-tlb --memory {8 * size_mib} {path})",
        )


def _refuse_interpreter(start: Path, files: Mapping[str, Path]) -> None:
    """The guest has busybox' shell and what is given, nothing else of the host."""
    found = re.match(rb"#!\s*(\S+)", _line(start))
    if not found:
        raise LabError(Exit.USAGE, f"{start} is no program: neither an ELF file nor a script that begins with #!")
    interpreter = found[1].decode(errors="replace")
    if interpreter != "/bin/sh" and interpreter not in files:
        raise LabError(
            Exit.USAGE,
            f"{start} is for {interpreter}, which the guest does not have: write it for /bin/sh (busybox'), or give a "
            f"directory that holds the interpreter, and name that {_GUEST}/NAME",
        )


def case(name: str, memory_mib: int) -> Case:
    """The program in a cgroup of its own, without a limit."""
    return Case(
        scenario=_SOFTWARE,
        key="".join(c if c.isalnum() else "-" for c in name).strip("-") or "program",
        title=name,
        machine=Machine(memory_mib, 256),
        groups=(Group("program"),),
        tasks=(Task("program", Role.LOAD, ("/bin/sh", "-c", f"cd {_GUEST} && exec ./run"), group="program"),),
        software=(_SOFTWARE,),
        scores=(Metric("elapsed", "time in instructions", "s", -1, lambda run: run.elapsed_s),),
        deadline_s=_DEADLINE_S,
        main="program",
        lrus=("classic",),
        stop_s=_STOP_S,
    )


@dataclass(frozen=True)
class Row:
    """A figure of the page."""

    key: str
    label: str
    unit: str
    value: Callable[[Run], float | None]
    total: bool = False
    """Of the whole run: says nothing of one that was stopped, which did another amount of work in each arm."""

    def of(self, run: Run) -> float | None:
        """The figure of a run, if it has one."""
        return None if self.total and run.bounded else self.value(run)


_JOINED = tuple(4 << join for join in JOINS.values() if join)


def _counted(run: Run, *kib: int) -> float | None:
    if run.tlb is None:
        return None
    counts = run.tlb.counts()
    return float(sum(counts.walks.get(size, 0) for size in kib) if kib else counts.walked)


ROWS = (
    Row("walks_ki", "page-table walks per 1,000 instructions", "", walks.PER_INSTRUCTION.of),
    Row("walks", "page-table walks", "", _counted, total=True),
    Row("walks_4k", "of them to 4K pages", "", lambda run: _counted(run, 4), total=True),
    Row("walks_joined", "of them to joined base pages", "", lambda run: _counted(run, *_JOINED), total=True),
    Row("walks_2m", "of them to 2M pages", "", lambda run: _counted(run, 2048, 1 << 20), total=True),
    Row("faults", "page faults", "", lambda run: float(run.vmstat["pgfault"]), total=True),
    Row("cover_64k", "memory in folios of 64K or more", "share", lambda run: run.coverage(64)),
    Row("cover_2m", "memory in folios of 2M", "share", lambda run: run.coverage(2048)),
    Row("peak", "peak memory, MiB", "", lambda run: run.groups["program"].peak / MIB),
    Row("elapsed", "time in instructions, s", "", lambda run: run.elapsed_s, total=True),
)  # fmt: skip


def table(runs: Sequence[Run]) -> list[list[str]]:
    """The figures, an arm a column."""
    rows = [["", *(run.cell.arm.label for run in runs)]]
    for row in ROWS:
        values = [row.of(run) for run in runs]
        rows.append([row.label, *("-" if value is None else number(value, row.unit) for value in values)])
    return rows


def _programs(runs: Sequence[Run]) -> list[list[str]]:
    """Walks by program, of the six with the most; nothing where a run was stopped."""
    if any(run.bounded for run in runs):
        return []
    found = [walks.by_program([run]) for run in runs]
    sums = [{name: sum(modes.values()) for name, modes in one.items()} for one in found]
    names = sorted({name for one in sums for name in one}, key=lambda name: -max(one.get(name, 0) for one in sums))
    rows = [["walks by program", *(run.cell.arm.label for run in runs)]]
    return [*rows, *([name, *(number(one.get(name, 0)) for one in sums)] for name in names[:6])]


def page(title: str, runs: Sequence[Run], geometry: str, environment: dict[str, Any]) -> str:
    """One HTML file without references to anything outside it."""
    # The total, if there is one in every arm.
    shown = ROWS[1] if all(ROWS[1].of(run) is not None for run in runs) else ROWS[0]
    bars = [svg.Bar(run.cell.arm.label, run.cell.arm.key, shown.of(run), number(shown.of(run) or 0)) for run in runs]
    fates = "".join(f"<li>{escape(run.cell.arm.label)}: {escape(fate(run))}</li>" for run in runs if fate(run))
    return "\n".join(
        [
            "<!doctype html>",
            "<!-- SPDX-License-Identifier: GPL-2.0-only -->",
            '<html lang="en"><head><meta charset="utf-8">',
            f"<title>{escape(title)}: huge pages</title><style>{CSS}</style></head><body><main>",
            f"<header><h1>{escape(title)} under each setting of huge pages</h1><p>{escape(NOTE)}</p></header>",
            f"<div class='grid'>{svg.bars(shown.label, '', bars, '(less is better)')}</div>",
            *(_html(rows) for rows in (table(runs), _programs(runs)) if rows),
            f"<ul class='fates'>{fates}</ul><p class='note'>TLB: {escape(geometry)}.</p>",
            environment_section(environment),
            "</main></body></html>",
        ]
    )


def _html(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["".join(f"<{tag}>{escape(field)}</{tag}>" for tag, field in _tags(row)) for row in rows]
    lines = "".join(f"<tr>{line}</tr>" for line in body)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"


def _tags(row: Sequence[str]) -> list[tuple[str, str]]:
    return [("th", row[0]), *(("td", field) for field in row[1:])]


def main(path: Path | None, memory_mib: int, join: str = "off", arms: Sequence[Arm] = ARMS) -> int:
    """Runs the program under each setting and writes the page."""
    if path is None:
        raise LabError(
            Exit.USAGE, "no program is named: make bench-tlb FILE=/path/to/it, or a directory with one named run"
        )
    if not 256 <= memory_mib <= 1 << 20:
        raise LabError(Exit.USAGE, "--memory must be from 256 to 1048576 MiB")
    own = payload(path, memory_mib)
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    kernel = build.ensure()
    tlb = walks.load(kernel.vmlinux, join, None)
    # As it is when the runs begin: the tree may change meanwhile.
    environment = results.environment(None, "icount", program=path.name, coalesce=join, **tlb.model.environment())
    finished = measure(path.name, own, memory_mib, arms, kernel.image, tlb, min(2, len(os.sched_getaffinity(0))))
    return _report(finished.runs, environment, tlb.model.identity(), finished.complaints)


def measure(
    name: str, own: Payload, memory_mib: int, arms: Sequence[Arm], kernel: Path, tlb: walks.Tlb, width: int
) -> Finished[Run]:
    """A program under each setting, `width` guests at a time; LabError if none of them ran."""
    software.provide(_SOFTWARE, own)
    world = execute.World(kernel, vm.Mode.ICOUNT, programs.mthp_ext(), programs.guest(), None, tlb=tlb)
    cells = [Cell(case(name, memory_mib), arm, "classic", 0, modelled=True) for arm in arms]
    finished = execute.run_all(cells, world, width)
    finished.raise_if_nothing_was_run()
    return finished


def _report(runs: Sequence[Run], environment: Mapping[str, Any], identity: str, complaints: Sequence[str]) -> int:
    environment = {**environment, "kernel": runs[0].release}
    title, geometry = str(environment["program"]), f"{environment['tlb']}; coalescing: {environment['coalesce']}"
    metrics = {
        "arms": {run.cell.arm.key: {row.key: row.of(run) for row in ROWS} | {"fate": fate(run)} for run in runs},
        "walks_by_program": {run.cell.arm.key: walks.by_program([run]) for run in runs},
        "lost": {run.cell.arm.key: run.tlb.lost for run in runs if run.tlb},
        "model": identity,
    }
    paths = [results.write(NAME, environment, metrics, [])]
    text = "\n\n".join("\n".join(grid(rows)) for rows in (table(runs), _programs(runs)) if rows)
    text += "".join(f"\n{run.cell.arm.label}: {fate(run)}" for run in runs if fate(run))
    text += f"\n\nTLB: {geometry}.\n{NOTE}\n"
    spdx = "<!-- SPDX-License-Identifier: GPL-2.0-only -->"
    for ending, content in (
        ("html", page(title, runs, geometry, environment)),
        ("md", f"{spdx}\n# {title} under each setting of huge pages\n\n{text}"),
    ):
        paths.append(RESULTS / f"{NAME}.{ending}")
        paths[-1].write_text(content, encoding="utf-8")
    print(f"\n{text}\n" + "\n".join(f"Written: {one}" for one in paths))
    for complaint in complaints:
        print(f"lab: {complaint}")
    return Exit.GUEST_FAILED if complaints else Exit.OK
