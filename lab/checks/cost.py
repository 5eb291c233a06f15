# SPDX-License-Identifier: GPL-2.0-only
"""The cost of one call of the hook, counted in instructions: what of `make bench-hook` needs no unpatched kernel."""

import time

from lab.checks.result import Suite
from lab.cost import disasm, gates, measure, plan
from lab.errors import LabError
from lab.kernel.build import Kernel
from lab.paths import BUILD
from lab.results import gate


def run(kernel: Kernel) -> Suite:
    """The empty program and the default policy at depth 4, at page faults and at reclaim."""
    guests = ("hook-smoke", *(f"hook-reclaims-{kib}" for kib in plan.SIZES_KIB))
    suite = Suite("hook cost", logs=[BUILD / "vm" / name / "console.log" for name in guests])
    begin = time.monotonic()
    try:
        figures = measure.run(kernel, plan.smoke(), "hook-smoke")
        found = disasm.references(kernel.vmlinux)
        reclaim = measure.reclaimed(kernel, "hook-reclaims")
        for one in [
            *gates.calls(figures),
            *gates.reclaims(reclaim),
            gate("instructions that may take a reference", len(found), "== 0"),
        ]:
            suite.gate(one)
    except LabError as error:
        suite.fail("(could not be measured)", str(error))
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
