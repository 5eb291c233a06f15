# SPDX-License-Identifier: GPL-2.0-only
"""Runs the demo at its smallest, so that what `make demo` needs is checked by `make test`."""

import time

from lab import programs, results
from lab.bench import execute
from lab.checks.result import Suite
from lab.demo import cells, gates, outcome, page, text
from lab.demo.outcome import Table
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.vm import Mode

_ARMS = ["never", "mthp_ext"]


def run(kernel: Kernel) -> Suite:
    """Two cells under memory.max, judged by their events; figures of this size mean nothing."""
    begin = time.monotonic()
    scale = cells.SCALES["smoke"]
    plan = cells.plan(scale, ["max"], _ARMS, 1)
    suite = Suite("demo", logs=[BUILD / "vm" / cell.name / "console.log" for cell in plan])
    world = execute.World(kernel.image, Mode.ICOUNT, programs.mthp_ext(), programs.guest(), None)
    finished = execute.run_all(plan, world, 2)
    if finished.interrupted:
        raise KeyboardInterrupt
    for complaint in [*finished.complaints, *filter(None, map(outcome.doubt, finished.runs))]:
        suite.fail("a cell", complaint)
    table = Table(finished.runs)

    for arm in _ARMS:
        runs = table.runs("max", arm)
        fate = text.fate(runs) or "it did not finish"
        suite.check(f"{arm} serves every request", bool(runs) and all(map(outcome.finished, runs)), fate)
    policy = table.runs("max", "mthp_ext")
    suite.check("the policy narrows under a limit", any(map(outcome.decisions, policy)), "no decision was reported")
    judged = gates.check(table, counted=False)
    for one in judged:
        suite.gate(one, "gate: ")
    environment = results.environment(kernel.release, str(Mode.ICOUNT))
    document = page.render(table, judged, scale, environment)
    shown = all(cells.ARM[arm].label in document for arm in _ARMS) and kernel.release in document
    suite.check("the page shows both arms", shown, "an arm or the kernel's release is missing")
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
