# SPDX-License-Identifier: GPL-2.0-only
"""What the module costs a page fault on an unmodified kernel, counted in instructions as `make bench-hook` does."""

import shlex
import time
from dataclasses import replace
from pathlib import Path

from lab.checks.result import Suite
from lab.cost import measure, plan
from lab.cost.figures import Figures
from lab.errors import LabError
from lab.kernel.stockbuild import Stock
from lab.results import Gate, gate
from lab.vm import unmodified

_LOADED = 2
"""Instructions that faults may differ by with the module loaded and nothing attached: those that their runs do."""
_BOUNDS = {"sibling": "<= 170", "empty": "<= 300", "default": "<= 550"}


def gates(before: Figures, after: Figures) -> list[Gate]:
    """A fault of 4 KiB at depth 4, where 64 KiB is on and does not fit."""
    place = plan.PLAIN[4]
    base, loaded = before.fault(plan.NONE, place, 4), after.fault(plan.NONE, place, 4)
    more = None if base is None or loaded is None else abs(loaded - base)
    found = [gate(f"loaded, nothing attached: instructions more or less than {base}", more, f"<= {_LOADED}")]
    for arm in plan.module().arms:
        if arm.name in _BOUNDS:
            extra = after.extra(arm, plan.NONE, place, 4)
            found.append(gate(f"{arm.label}: instructions added", extra, _BOUNDS[arm.name]))
    return found


def run(kernel: Stock, module: Path) -> Suite:
    """Faults without the module, and with it."""
    suite = Suite(f"module/cost-{kernel.name}")
    begin = time.monotonic()

    def guest(what: plan.Plan, name: str, *modules: Path) -> Figures:
        job = measure.job(kernel.image, what, f"module-cost-{name}-{kernel.name}")
        # What loading a module leaves to do would be counted.
        job = replace(job, argv=["/bin/sh", "-c", "sleep 5; exec " + shlex.join(job.argv)])
        return measure.of(unmodified.loaded(kernel, replace(job, append=unmodified.QUIET), *modules))

    try:
        for one in gates(guest(plan.without_module(), "without"), guest(plan.module(), "with", module)):
            suite.gate(one)
            print(f"{suite.name}: {one.name}: {one.value} ({one.bound})", flush=True)
    except LabError as error:
        suite.fail("(could not be measured)", str(error))
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
