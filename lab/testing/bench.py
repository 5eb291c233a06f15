# SPDX-License-Identifier: GPL-2.0-only
"""Runs two cases of the benchmark suite at their smallest: one with a limit that moves, one in which `always` is
killed. Judged by events, and by ratios that instruction-counted time makes repeat even at this size."""

import time

from lab import programs, results
from lab.bench import execute, gates, page, scenarios
from lab.bench.plan import plan
from lab.bench.spec import Scale
from lab.bench.table import Table
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.testing.result import Status, Suite, Test
from lab.vm import Mode

_CASES = ["square/high", "bloat/sparse-max"]
_ARMS = ["never", "mthp_ext"]


def run(kernel: Kernel) -> Suite:
    """Eight runs, and one of `always` that must be killed."""
    begin = time.monotonic()
    small = scenarios.cases(Scale.SMOKE, _CASES)
    cells = plan([case for case in small if case.key == "high"], _ARMS, ["classic"], 3)
    cells += plan([case for case in small if case.key == "sparse-max"], _ARMS, ["classic"], 1)
    cells += plan([case for case in small if case.key == "sparse-max"], ["always"], ["classic"], 1)
    suite = Suite("bench", logs=[BUILD / "vm" / cell.name / "console.log" for cell in cells])
    world = execute.World(kernel.image, Mode.ICOUNT, programs.mthp_ext(), programs.guest(), None)
    finished = execute.run_all(cells, world, 2)
    if finished.interrupted:
        raise KeyboardInterrupt
    for error in finished.errors:
        suite.fail("a cell", str(error))
    table = Table(finished.runs)

    def check(name: str, ok: bool, detail: str) -> None:
        suite.tests.append(Test(name, Status.PASSED if ok else Status.FAILED, "" if ok else detail))

    judged = gates.check(table, counted=False)
    for one in judged:
        check(f"gate: {one.name}", one.ok, f"{one.value} ({one.bound})")
    for world_ in table.worlds:
        score = world_.case.scores[0]
        # The best of its runs: at this size the limit is six huge pages, and a run in which one of them is over it
        # sleeps for a second. Who cannot follow the limit has no good run.
        values, base = table.values(world_, "mthp_ext", score), table.median(world_, "never", score)
        ratio = max(values) / base if values and base else None
        one = results.gate(f"{world_.key}: {score.label} of mthp_ext / never", ratio, ">= 0.9")
        check(f"gate: {one.name}", one.ok, f"{one.value} ({one.bound})")
        always = table.runs(world_, "always")
        if always:
            check("always is killed where never lives", always[0].oom_kills > 0, "it lived: the case shows nothing")
        else:
            flips = [one.flips(world_.case.main) for one in table.runs(world_, "mthp_ext")]
            check("the policy follows the limit", bool(flips) and min(flips) >= 2, f"{flips} decisions")
    document = page.render(table, judged, results.environment(kernel.release, str(Mode.ICOUNT), scale="smoke"))
    check("the page shows every case", all(page.anchor(w) in document for w in table.worlds), "one is missing")
    check("all cases were run", len(table.worlds) == len(_CASES), f"{[w.key for w in table.worlds]}")
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
