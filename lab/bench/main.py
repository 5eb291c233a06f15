# SPDX-License-Identifier: GPL-2.0-only
"""`make bench`: the benchmark suite, end to end."""

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import programs, results, setup, vm
from lab.bench import compare, execute, gates, judging, plan, scenarios, text, variants, walks
from lab.bench.arms import ARM
from lab.bench.cell import LRUS, Cell
from lab.bench.journal import Journal
from lab.bench.run import Run
from lab.bench.spec import MIB, Case, Scale
from lab.bench.table import Table
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.report import parts
from lab.tlb.geometry import JOINS, Geometry, size
from lab.vm import accel, schedule

_REPEAT_HELP = (
    f"runs of each cell (default: {judging.RUNS}, {judging.RUNS_SWAPPING} in rows that swap; at smoke 1); fewer are "
    "not judged, more are refused"
)


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m lab bench", description=__doc__)
    parser.add_argument("--scenario", type=_words, default=[], help='"redis", "redis/set-*", several with commas')
    parser.add_argument(
        "--arm", type=_words, default=[], help=f"of {', '.join(ARM)}, ablation, sweep; several with commas"
    )
    parser.add_argument("--scale", default="ci", help="smoke, ci or full (default: %(default)s)")
    parser.add_argument("--mode", default="icount", help="icount, tcg or kvm (default: %(default)s)")
    parser.add_argument("--lru", type=_words, default=[], help="classic or mglru (default: both)")
    parser.add_argument("--repeat", type=int, help=_REPEAT_HELP)
    parser.add_argument("--jobs", type=int, help="guests at a time (default: one per core, at most 4)")
    parser.add_argument("--kernel", type=Path, help="kernel image (default: the one `make kernel` builds)")
    parser.add_argument(
        "--stop-after", type=float, metavar="SECONDS", help="wall-clock time after which a run is stopped and rated"
    )
    tlb = parser.add_argument_group("the TLB model, in mode icount")
    tlb.add_argument(
        "--walks", type=int, default=0, metavar="RUNS", help="of each cell, beside those that are rated (default: 0)"
    )
    tlb.add_argument("--tlb-stands-for", type=size, metavar="SIZE", help="data that the cases stand for, such as 1G")
    tlb.add_argument("--coalesce", choices=list(JOINS), default="off", help="contiguous memory that shares an entry")
    journal = parser.add_mutually_exclusive_group()
    journal.add_argument("--fresh", action="store_true", help="measure again what the journal has: all of it")
    journal.add_argument("--kept", action="store_true", help="measure nothing, report what the journal has")
    parser.add_argument("--list", action="store_true", help="only show what would be run")
    parser.add_argument("--name", default="bench", help="names the results files (default: %(default)s)")
    return parser


def _known(what: str, words: list[str], known: list[str]) -> list[str]:
    for word in words:
        if word not in known:
            raise LabError(Exit.USAGE, f"{what} {word!r} is not known; there are: {', '.join(known)}")
    return words or known


def _refuse_choice(repeat: int | None, fresh: bool, part: bool, cases: Sequence[Case]) -> None:
    """LabError where runs could be chosen by their results: a row repeated more often than was fixed before, or one
    that is measured again."""
    more = [case for case in cases if repeat is not None and repeat > judging.runs(case)]
    if more:
        case = more[0]
        raise LabError(
            Exit.USAGE,
            f"REPEAT={repeat} is more than the {judging.runs(case)} runs that lab/bench/judging.py has fixed for "
            f"{case.name}: a result could be chosen by its runs. Change it there, for all arms, before measuring",
        )
    if fresh and part:
        raise LabError(
            Exit.USAGE,
            "--fresh measures the whole suite again or nothing: a row that missed could be measured until it holds "
            "(leave SCENARIO, ARM and LRU away)",
        )


def main(argv: list[str]) -> int:
    """Runs the suite; 0 when every gate holds."""
    args = _parser().parse_args(argv)
    scale = Scale(_known("scale", [args.scale], [str(one) for one in Scale])[0])
    mode = vm.Mode(_known("mode", [args.mode], [str(one) for one in vm.Mode])[0])
    arms = variants.named(args.arm)
    lrus = _known("LRU flavour", args.lru, list(LRUS))
    for what, number, most in (
        ("REPEAT", args.repeat, 100),
        ("--jobs", args.jobs, 64),
        ("WALKS", args.walks or None, 100),
    ):
        if number is not None and not 1 <= number <= most:
            raise LabError(Exit.USAGE, f"{what} must be from 1 to {most}")
    if args.stop_after is not None and not 1 <= args.stop_after <= 7 * 86400:
        raise LabError(Exit.USAGE, "--stop-after must be from 1 to 604800 seconds")
    if not re.fullmatch(r"[\w.-]*\w", args.name):
        raise LabError(Exit.USAGE, f"--name {args.name!r} must be a plain word: it names files in build/results")
    if args.kernel and not args.kernel.is_file():
        raise LabError(Exit.USAGE, f"--kernel {args.kernel}: there is no such file")
    cases = scenarios.cases(scale, args.scenario)
    _refuse_choice(args.repeat, args.fresh, bool(args.scenario or args.arm or args.lru), cases)
    repeats = args.repeat or (1 if scale is Scale.SMOKE else None)
    _refuse_model(args, mode, cases)
    cells = plan.plan(cases, arms, lrus, repeats)
    cells += walks.plan(cells, args.walks)
    if not cells:
        raise LabError(Exit.USAGE, "nothing to run: none of these arms is for these scenarios under this LRU flavour")
    if args.list:
        for cell in cells:
            print(cell.label)
        return Exit.OK
    begun = time.monotonic()
    setup.ensure(setup.Need.BENCH)
    built = None if args.kernel else build.ensure()
    kernel = built.image if built else args.kernel
    tlb = (
        walks.load(built.vmlinux if built else _beside(kernel), args.coalesce, args.tlb_stands_for)
        if args.walks
        else None
    )
    if mode is vm.Mode.KVM and accel.best(kernel)[0] is not vm.Mode.KVM:
        raise LabError(Exit.QEMU, accel.best(kernel)[1])
    # Wall-clock modes must not share the cores.
    width = args.jobs or (min(4, len(os.sched_getaffinity(0))) if mode is vm.Mode.ICOUNT else 1)
    world = execute.World(
        kernel, mode, programs.mthp_ext(), programs.guest(), Journal(), args.fresh, tlb, stop_s=args.stop_after
    )
    kept = [cell for cell in cells if not args.kept or execute.is_kept(cell, world)]
    if not kept:
        raise LabError(Exit.USAGE, "nothing to report: the journal has no run of these cells, kernel and programs")
    print(f"bench: at most {len(kept)} runs at scale {scale}, {width} at a time, {mode}", flush=True)
    # As it is when the runs begin: the tree may change meanwhile.
    environment = results.environment(
        None,
        str(mode),
        scale=str(scale),
        # Rates come from the host's own QEMU, walks from this one.
        **({"tlb": tlb.model.environment()["tlb"], "tlb_qemu": tlb.model.environment()["qemu"]} if tlb else {}),
    )
    # Of some arms the best may not be there; other clocks are not even enough.
    whole = not args.arm and not args.kept and mode is vm.Mode.ICOUNT and scale is not Scale.SMOKE
    finished = (_run_worth if whole else execute.run_all)(kept, world, width)
    finished.raise_if_nothing_was_run()
    asked = len(plan.worth(cells, Table(finished.runs)) if not args.arm else cells)
    return _report(args.name, scale, world, finished, asked, environment, time.monotonic() - begun)


def _run_worth(cells: Sequence[Cell], world: execute.World, width: int) -> schedule.Finished[Run]:
    """The first run of each, then all that can decide something. More runs may show that an arm which was far behind
    is not: those of the others are taken then."""
    finished = execute.run_all([cell for cell in cells if not cell.repeat], world, width)
    begun = {cell.name for cell in cells if not cell.repeat}
    while not (finished.interrupted or finished.not_run):
        more = [cell for cell in plan.worth(cells, Table(finished.runs)) if cell.name not in begun]
        if not more:
            break
        print(f"bench: {len(more)} runs more; {len(cells) - len(begun) - len(more)} are left out for now", flush=True)
        begun |= {cell.name for cell in more}
        finished = finished.then(execute.run_all(more, world, width, known_to_work=bool(finished.runs)))
    return finished


def _refuse_model(args: argparse.Namespace, mode: vm.Mode, cases: Sequence[Case]) -> None:
    """LabError where something is asked of the TLB model that it cannot do, before anything is built."""
    if not args.walks and (args.tlb_stands_for is not None or args.coalesce != "off"):
        raise LabError(
            Exit.USAGE, "--tlb-stands-for and --coalesce are about the TLB model: say --walks 1 (or more) too"
        )
    if args.walks and mode is not vm.Mode.ICOUNT:
        raise LabError(Exit.USAGE, f"--walks needs mode icount, not {mode}: the TLB model counts in that one alone")
    if args.walks and args.kernel:
        _beside(args.kernel)
    for case in cases:
        if args.tlb_stands_for is not None and case.data_mib is not None:
            Geometry().standing_for(args.tlb_stands_for, case.data_mib * MIB)


def _beside(kernel: Path) -> Path:
    """The vmlinux of a kernel image that was named."""
    vmlinux = kernel.with_name("vmlinux")
    if not vmlinux.is_file():
        raise LabError(
            Exit.USAGE,
            f"{vmlinux} is missing: the TLB model reads from it where the kernel has the running task; put the image's "
            "there, or leave --walks away",
        )
    return vmlinux


def _report(
    name: str,
    scale: Scale,
    world: execute.World,
    finished: schedule.Finished[Run],
    asked: int,
    environment: dict[str, Any],
    seconds: float,
) -> int:
    from lab.bench import output

    mode, tlb = world.mode, world.tlb
    table = Table(finished.runs, tlb)
    # Figures of the smoke scale mean nothing, so only events are judged there.
    sized = scale is not Scale.SMOKE
    checked = gates.check(table, counted=mode is vm.Mode.ICOUNT and sized, sized=sized)
    complete = len(finished.runs) == asked
    environment = {
        **environment,
        "kernel": finished.runs[0].release,
        "runs": len(finished.runs),
        "seconds_of_all_runs": round(sum(run.wall_s for run in finished.runs)),
        "complete": complete,
    }
    paths = output.write(name, table, checked, environment)
    print()
    for row in table.worlds:
        print("\n".join(text.case_table(table, row)), end="\n\n")
    if removed := compare.ablation(table):
        print("\n".join([*parts.grid(removed), *compare.tlb_lines(table, compare.ablated(table))]), end="\n\n")
    for _, row, rows in compare.sweeps(table):
        print("\n".join([row.key, *parts.grid(rows), *compare.tlb_lines(table, [row])]), end="\n\n")
    print("\n".join(text.heat_map(table)))
    print(f"Regret: result divided by the best static arm's (*); less than 1 is worse. {text.ONCE}.")
    print(parts.NOTE[str(mode)])
    if cut := text.clock_line(table):
        print(cut)
    if checked:
        print("\n" + "\n".join(parts.gate_report(sorted(checked, key=parts.order))))
    print(f"\n{seconds / 60:.1f} minutes. " + "\n".join(f"Written: {path}" for path in paths))
    if not complete:
        print(f"lab: {text.INCOMPLETE}", file=sys.stderr)
    for complaint in finished.complaints:
        print(f"lab: {complaint}", file=sys.stderr)
    if finished.interrupted:
        print(f"lab: interrupted; {len(finished.runs)} runs are kept, and the same command goes on", file=sys.stderr)
        return Exit.INTERRUPTED
    if finished.errors:
        return int(finished.errors[0].code)
    return Exit.TESTS if any(one.missed for one in checked) else Exit.OK
