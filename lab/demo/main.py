# SPDX-License-Identifier: GPL-2.0-only
"""`make demo`: the main job, end to end."""

import argparse
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab import programs, results, setup, vm
from lab.bench import execute
from lab.bench.run import Run
from lab.bench.scenarios import store
from lab.demo import arrival, cells, gates, metrics, outcome, page, text
from lab.demo.outcome import Table
from lab.errors import Exit, LabError
from lab.kernel import build, stockbuild
from lab.paths import RESULTS
from lab.vm import accel, schedule, unmodified

_LIMIT_HELP = f"only this limit; {arrival.KEY}: one that arrives while Redis serves (may repeat)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m lab demo", description=__doc__)
    parser.add_argument("--scale", choices=list(cells.SCALES), default="demo", help="how large (default: %(default)s)")
    parser.add_argument("--mode", choices=[str(m) for m in vm.Mode], default="icount", help="default: %(default)s")
    parser.add_argument("--limit", action="append", choices=[*cells.LIMITS, arrival.KEY], help=_LIMIT_HELP)
    parser.add_argument("--arm", action="append", choices=list(cells.EVERY), help="only this arm (may repeat)")
    parser.add_argument("--repeat", type=_positive, help="runs of each cell (default: by scale)")
    parser.add_argument("--jobs", type=_positive, help="cells at a time (default: one per core, at most 4)")
    parser.add_argument(
        "--stop-after",
        type=_seconds,
        metavar="SECONDS",
        help="wall-clock time after which a cell is stopped and rated by what it served (default: by scale)",
    )
    kernel = parser.add_mutually_exclusive_group()
    kernel.add_argument("--kernel", type=Path, help="kernel image (default: the one `make kernel` builds)")
    kernel.add_argument("--stock", choices=stockbuild.NAMES, help="an unmodified kernel of Debian's, with the module")
    parser.add_argument("--name", help="names the results files (default: demo, or demo-stock-KERNEL)")
    return parser


def _positive(word: str) -> int:
    value = int(word)
    if not 1 <= value <= 100:
        raise argparse.ArgumentTypeError("1 to 100")
    return value


def _seconds(word: str) -> float:
    value = float(word)
    if not 1 <= value <= 7 * 86400:
        raise argparse.ArgumentTypeError("1 to 604800")
    return value


def main(argv: list[str]) -> int:
    """Runs the demo; 0 when every gate holds."""
    args = _parser().parse_args(argv)
    begun = time.monotonic()
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM | setup.Need.REDIS if args.stock else setup.Need.DEMO)
    stock = stockbuild.stock(args.stock) if args.stock else None
    kernel = stock.image if stock else args.kernel or build.ensure().image
    mode = vm.Mode(args.mode)
    if mode is vm.Mode.KVM and accel.best(kernel)[0] is not vm.Mode.KVM:
        raise LabError(Exit.QEMU, accel.best(kernel)[1])
    scale = cells.SCALES[args.scale]
    wanted, arms = args.limit or [*cells.LIMITS, arrival.KEY], args.arm or list(cells.ARM)
    limits = [limit for limit in cells.LIMITS if limit in wanted]
    plan = cells.plan(scale, limits, arms, args.repeat or scale.repeats)
    scene = arrival.plan(scale, arms) if arrival.KEY in wanted else []
    if not plan and not scene:
        raise LabError(Exit.USAGE, f"--limit {arrival.KEY} runs {', '.join(arrival.ARMS)} only")
    # Wall-clock modes must not share the cores.
    width = args.jobs or (min(4, len(os.sched_getaffinity(0))) if mode is vm.Mode.ICOUNT else 1)
    world = execute.World(kernel, mode, programs.mthp_ext(), programs.guest(), None, stop_s=args.stop_after)
    if stock:
        world = replace(world, carried=partial(_on_stock, stock, stockbuild.build_module(stock)))
    planned = len(plan) + len(scene)
    print(
        f"Redis SET, {scale.size.requests:,} requests on {scale.size.keys:,} keys of {store.VALUE_BYTES} bytes; "
        f"limits of {scale.size.limit_mib} MiB; {planned} runs, {width} at a time, {mode}",
        flush=True,
    )
    finished = execute.run_all([*plan, *scene], world, width)
    finished.raise_if_nothing_was_run()
    return _report(args, scale, mode, finished, planned, time.monotonic() - begun)


def _on_stock(kernel: stockbuild.Stock, built: Path, job: vm.Job) -> vm.Job:
    """The guest of a cell on such a kernel, with the module in every arm."""
    loaded = unmodified.loaded(kernel, job, built)
    # It patches its own code while it runs, which it survives with one processor only, emulated.
    return replace(loaded, cpus=1, append=f"{job.append} {unmodified.QUIET}".strip())


def name_of(stock: str | None) -> str:
    """Of the results files; a page names them, which takes no dot."""
    return f"demo-stock-{stock.replace('.', '-')}" if stock else "demo"


def _report(
    args: argparse.Namespace,
    scale: cells.Scale,
    mode: vm.Mode,
    finished: schedule.Finished[Run],
    planned: int,
    seconds: float,
) -> int:
    scene = [run for run in finished.runs if run.cell.case.scenario == arrival.KEY]
    measured = [run for run in finished.runs if run.cell.case.scenario == cells.SCENARIO]
    doubted = [(run, outcome.doubt(run)) for run in measured]
    doubts = [doubt for _, doubt in doubted if doubt]
    table = Table([run for run, doubt in doubted if not doubt])
    if doubts and len(doubts) == len(finished.runs):
        raise LabError(Exit.GUEST_FAILED, "no run can be true: " + "; ".join(doubts))
    # Figures of the smoke scale mean nothing, so only events are judged there.
    counted = mode is vm.Mode.ICOUNT and scale.name != "smoke"
    reclaim = not args.stock
    checked = [
        *gates.check(table, counted=counted, reclaim=reclaim),
        *arrival.check(scene, counted=counted, reclaim=reclaim),
    ]
    done = len(finished.runs) - len(doubts)
    environment = results.environment(
        finished.runs[0].release, str(mode), workload=scale.name, seconds=round(seconds), complete=done == planned
    )
    body = metrics.collect(table, scale)
    if scene:
        body["cells"][arrival.KEY] = arrival.collect(scene)
    name = args.name or name_of(args.stock)
    path = results.write(name, environment, body, checked)
    document = RESULTS / f"{name}.html"
    temporary = document.with_suffix(".html.tmp")
    temporary.write_text(page.render(table, checked, scale, environment, scene), encoding="utf-8")
    temporary.replace(document)

    print("\n" + text.report(table, checked, scale.limit_bytes, str(mode), arrival.text(scene)))
    print(f"\n{seconds / 60:.1f} minutes. Results: {path}\n               Page: {document}")
    for complaint in (*finished.complaints, *doubts):
        print(f"lab: {complaint}", file=sys.stderr)
    if finished.interrupted:
        print(f"lab: interrupted; {done} runs were kept", file=sys.stderr)
        return Exit.INTERRUPTED
    if finished.errors:
        return int(finished.errors[0].code)
    if doubts:
        return Exit.GUEST_FAILED
    return Exit.TESTS if any(one.missed for one in checked) else Exit.OK
