# SPDX-License-Identifier: GPL-2.0-only
"""Guests with an unmodified kernel of Debian's, which needs modules for what the lab's kernel has built in."""

import shlex
from dataclasses import replace
from pathlib import Path

from lab import vm
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import BUILD

MODULES = "/lib/modules"
"""Where a guest has them."""
QUIET = "damon_stat.enabled=0 cryptomgr.notests=1"
"""Debian's kernels sample all memory, which marks pages as referenced here and there. They also test their ciphers in
the first second: a program that starts then has half of the processor, one that starts behind a policy all of it."""


def loaded(kernel: Stock, job: vm.Job, *modules: Path) -> vm.Job:
    """The job after these modules were loaded, and swap's device before them."""
    needed = stockbuild.with_dependencies(kernel, "zram", BUILD / "stock-modules" / kernel.release)
    paths = [f"{MODULES}/{path.name}" for path in (*needed, *modules)]
    script = "".join(f"insmod {path} || exit 90; " for path in paths) + "exec " + shlex.join(job.argv)
    return replace(
        job,
        argv=["/bin/sh", "-c", script],
        files={**job.files, **dict(zip(paths, (*needed, *modules), strict=True))},
    )
