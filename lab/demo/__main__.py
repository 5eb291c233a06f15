# SPDX-License-Identifier: GPL-2.0-only
"""`make demo`: the main job, end to end."""

import argparse
import os
import sys
import time
from pathlib import Path

from lab import programs, results, setup, vm
from lab.bench.run import Run as SceneRun
from lab.demo import arrival, cells, gates, metrics, page, schedule, text
from lab.demo.outcome import Run, Table
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.paths import RESULTS
from lab.vm import accel
from lab.vm import schedule as guests

_LIMIT_HELP = f"only this limit; {arrival.KEY}: one that arrives while Redis serves (may repeat)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m lab demo", description=__doc__)
    parser.add_argument("--scale", choices=list(cells.SCALES), default="demo", help="how large (default: %(default)s)")
    parser.add_argument("--mode", choices=[str(m) for m in vm.Mode], default="icount", help="default: %(default)s")
    parser.add_argument("--limit", action="append", choices=[*cells.LIMITS, arrival.KEY], help=_LIMIT_HELP)
    parser.add_argument("--arm", action="append", choices=list(cells.ARM), help="only this arm (may repeat)")
    parser.add_argument("--repeat", type=_positive, help="runs of each cell (default: by scale)")
    parser.add_argument("--jobs", type=_positive, help="cells at a time (default: one per core, at most 4)")
    parser.add_argument(
        "--stop-after",
        type=_seconds,
        metavar="SECONDS",
        help="wall-clock time after which a cell is stopped and rated by what it served (default: by scale)",
    )
    parser.add_argument("--kernel", type=Path, help="kernel image (default: the one `make kernel` builds)")
    parser.add_argument("--name", default="demo", help="names the results files (default: %(default)s)")
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
    setup.ensure(setup.Need.DEMO)
    kernel = args.kernel or build.ensure().image
    mode = vm.Mode(args.mode)
    if mode is vm.Mode.KVM and accel.best(kernel)[0] is not vm.Mode.KVM:
        raise LabError(Exit.QEMU, accel.best(kernel)[1])
    scale = cells.SCALES[args.scale]
    wanted, arms = args.limit or [*cells.LIMITS, arrival.KEY], args.arm or list(cells.ARM)
    limits = [limit for limit in cells.LIMITS if limit in wanted]
    plan = cells.plan(scale, limits, arms, args.repeat or scale.repeats)
    scene = arrival.plan(scale.name, arms) if arrival.KEY in wanted else []
    if not plan and not scene:
        raise LabError(Exit.USAGE, f"--limit {arrival.KEY} runs {', '.join(arrival.ARMS)} only")
    # Wall-clock modes must not share the cores.
    width = args.jobs or (min(4, len(os.sched_getaffinity(0))) if mode is vm.Mode.ICOUNT else 1)
    tools = schedule.Programs(programs.mthp_ext(), programs.redis_server(), programs.installed("redis-benchmark"))
    print(
        f"Redis SET, {scale.requests:,} requests on {scale.keys:,} keys of {cells.VALUE_BYTES} bytes; "
        f"limits of {scale.limit_bytes >> 20} MiB; {len(plan) + len(scene)} runs, {width} at a time, {mode}",
        flush=True,
    )
    finished = schedule.run_all(plan, kernel, mode, tools, width, args.stop_after)
    if plan:
        finished.raise_if_nothing_was_run()
    shown: guests.Finished[SceneRun] = guests.Finished([], [])
    if scene and not finished.interrupted:
        shown = arrival.run_all(scene, kernel, mode, width, args.stop_after)
        if not plan:
            shown.raise_if_nothing_was_run()
    planned = len(plan) + len(scene)
    return _report(args, scale, mode, finished, shown, planned, time.monotonic() - begun)


def _report(
    args: argparse.Namespace,
    scale: cells.Scale,
    mode: vm.Mode,
    finished: schedule.Finished,
    scene: guests.Finished[SceneRun],
    planned: int,
    seconds: float,
) -> int:
    runs: list[Run] = finished.runs
    table = Table(runs)
    # Figures of the smoke scale mean nothing, so only events are judged there.
    counted = mode is vm.Mode.ICOUNT and scale.name != "smoke"
    checked = [*gates.check(table, counted=counted), *arrival.check(scene.runs, counted=counted)]
    done = len(runs) + len(scene.runs)
    release = runs[0].release if runs else scene.runs[0].release
    environment = results.environment(
        release, str(mode), workload=scale.name, seconds=round(seconds), complete=done == planned
    )
    body = metrics.collect(table, scale)
    if scene.runs:
        body["cells"][arrival.KEY] = arrival.collect(scene.runs)
    path = results.write(args.name, environment, body, checked)
    document = RESULTS / f"{args.name}.html"
    temporary = document.with_suffix(".html.tmp")
    temporary.write_text(page.render(table, checked, scale, environment, scene.runs), encoding="utf-8")
    temporary.replace(document)

    print("\n" + text.report(table, checked, scale.limit_bytes, str(mode), arrival.text(scene.runs)))
    print(f"\n{seconds / 60:.1f} minutes. Results: {path}\n               Page: {document}")
    for complaint in (*finished.complaints, *scene.complaints):
        print(f"lab: {complaint}", file=sys.stderr)
    if finished.interrupted or scene.interrupted:
        print(f"lab: interrupted; {done} runs were kept", file=sys.stderr)
        return Exit.INTERRUPTED
    if errors := [*finished.errors, *scene.errors]:
        return int(errors[0].code)
    return Exit.TESTS if any(one.missed for one in checked) else Exit.OK


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as failure:
        print(f"lab: {failure}", file=sys.stderr)
        sys.exit(failure.code)
