# SPDX-License-Identifier: GPL-2.0-only
"""Guests with an unmodified kernel of Debian's and the module for it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab import programs, vm
from lab.checks import guest, tap
from lab.checks.result import Suite
from lab.kernel.stockbuild import Stock
from lab.vm import Mode
from lab.vm.unmodified import QUIET, loaded


def bare(kernel: Stock, name: str, argv: Sequence[str], *binaries: Path) -> vm.Job:
    """A guest with one processor and counted time: a stock kernel patches its own code while it runs, which it survives
    so only, emulated."""
    return vm.Job(
        kernel=kernel.image,
        argv=list(argv),
        programs=list(binaries),
        cpus=1,
        mode=Mode.ICOUNT,
        timeout_s=900,
        append=QUIET,
        name=f"module-{name}-{kernel.name}",
    )


def contract(kernel: Stock, module: Path) -> Suite:
    """What policies are asked, and for how long: lab/hook/src/contract.rs."""
    hook = programs.package("lab-hook")
    outcome = vm.run(loaded(kernel, bare(kernel, "contract", [str(hook), "contract"], hook), module))
    return guest.judge(f"module/contract-{kernel.name}", outcome, tap.parse)


def script(
    kernel: Stock, name: str, path: Path, words: Sequence[str], files: Mapping[str, Path], append: str = ""
) -> Suite:
    """A script that prints TAP; it loads what it wants to itself. Its first argument is mthp_ext. `append`: to the
    kernel's command line."""
    binary = programs.mthp_ext()
    inside = f"/{path.name}"
    guests = bare(kernel, name, ["/bin/sh", inside, str(binary), *words], binary)
    outcome = vm.run(replace(guests, files={inside: path, **files}, append=f"{guests.append} {append}".strip()))
    return guest.judge(f"module/{name}-{kernel.name}", outcome, tap.parse)
