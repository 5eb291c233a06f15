# SPDX-License-Identifier: GPL-2.0-only
"""Runs the demo at its smallest, so that what `make demo` needs is checked by `make test`."""

import time

from lab import programs, results
from lab.checks.result import Status, Suite, Test
from lab.demo import cells, gates, page, schedule, text
from lab.demo.outcome import Table
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.vm import Mode

_ARMS = ["never", "mthp_ext"]


def run(kernel: Kernel) -> Suite:
    """Two cells under memory.max, judged by their events; figures of this size mean nothing."""
    suite = Suite("demo", logs=[BUILD / "vm" / f"demo-max-{arm}-1" / "console.log" for arm in _ARMS])
    begin = time.monotonic()
    scale = cells.SCALES["smoke"]
    benchmark = programs.installed("redis-benchmark")
    tools = schedule.Programs(programs.mthp_ext(), programs.redis_server(), benchmark)
    finished = schedule.run_all(cells.plan(scale, ["max"], _ARMS, 1), kernel.image, Mode.ICOUNT, tools, 2)
    if finished.interrupted:
        raise KeyboardInterrupt
    for complaint in finished.complaints:
        suite.fail("a cell", complaint)
    table = Table(finished.runs)

    def check(name: str, ok: bool, detail: str) -> None:
        suite.tests.append(Test(name, Status.PASSED if ok else Status.FAILED, "" if ok else detail))

    for arm in _ARMS:
        runs = table.runs("max", arm)
        fate = text.fate(runs) or "it did not finish"
        check(f"{arm} serves every request", bool(runs) and all(one.finished for one in runs), fate)
    policy = table.runs("max", "mthp_ext")
    check("the policy narrows under a limit", any(one.flips for one in policy), "no decision was reported")
    judged = gates.check(table, counted=False)
    for one in judged:
        check(f"gate: {one.name}", one.ok, f"{one.value} ({one.bound})")
    environment = results.environment(kernel.release, str(Mode.ICOUNT))
    document = page.render(table, judged, scale, environment)
    shown = all(cells.ARM[arm].label in document for arm in _ARMS) and kernel.release in document
    check("the page shows both arms", shown, "an arm or the kernel's release is missing")
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
