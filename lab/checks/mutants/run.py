# SPDX-License-Identifier: GPL-2.0-only
"""Builds each mutant, runs the tests it names, and says whether they noticed."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lab import results
from lab.checks import guest, matrix
from lab.checks.guest import Selftests
from lab.checks.mutants import guests, host
from lab.checks.mutants.judge import Fate, Seen, fate, sound
from lab.checks.mutants.patches import Catch, How, Mutant, select
from lab.checks.result import Status
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.kernel.series import DEFAULT
from lab.vm import Mode, accel


@dataclass
class Row:
    """One mutant's line."""

    mutant: Mutant
    fate: Fate = Fate.NOT_RUN
    why: str = ""
    seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    """All tests that failed, of those that ran."""


@dataclass
class _Usual:
    """What is needed to run mutants of one kind of kernel."""

    kernel: Kernel
    mode: Mode
    selftests: Selftests | None
    """None with the series pud, whose only program is built with each kernel."""
    debug: bool
    series: tuple[str, ...]

    def run(self, kernel: Kernel, catches: Iterable[Catch]) -> list[Seen]:
        """Runs the tests of `catches` on `kernel`, the usual one or one with a mutant."""
        if self.selftests is None:
            of_series = guests.run_pud if self.series == build.PUD.series else guests.run_policy
            return of_series(kernel, catches, self.mode)
        return guests.run(kernel, self.selftests, catches, self.mode, self.debug)


def _prepare(series: tuple[str, ...], debug: bool) -> _Usual:
    kernel = build.ensure(variant=guests.usual(series, debug))
    selftests = guest.build_selftests(kernel) if series == DEFAULT else None
    return _Usual(kernel, accel.of(kernel)[0], selftests, debug, series)


def _usual(rows: list[Row], debug: bool) -> _Usual:
    """Runs the named tests on the kernel without mutants; rows whose tests do not pass there are done."""
    usual = _prepare(rows[0].mutant.series, debug)
    catches = [catch for row in rows for catch in row.mutant.catches if catch.how is not How.BUILD]
    print(f"mutants: {len(set(catches))} named tests without a mutant", flush=True)
    _strike(rows, usual.run(usual.kernel, catches))
    return usual


def _strike(rows: list[Row], seen: list[Seen]) -> None:
    for row in rows:
        problems = [sound(catch, seen) for catch in row.mutant.catches if catch.how is not How.BUILD]
        row.why = "; ".join(sorted({problem for problem in problems if problem}))


def _measure(row: Row, run: Callable[[Mutant], list[Seen]]) -> None:
    begin = time.monotonic()
    try:
        seen = run(row.mutant)
    except LabError as error:
        if error.code is not Exit.BUILD:
            raise
        row.fate, row.why = Fate.BUILD_FAILED, str(error).splitlines()[0]
    else:
        row.fate = fate(row.mutant.catches, seen)
        for one in seen:
            row.failed += [f"{one.program} {name}" for name, status in one.tests.items() if status is Status.FAILED]
            row.failed += [f"{one.program}: the kernel complains"] * bool(one.splats)
        if row.fate is not Fate.CAUGHT:
            row.why = ", ".join(row.failed)
    row.seconds = time.monotonic() - begin


def _compile(row: Row, catch: Catch) -> None:
    """A mutant that a configuration must refuse to build."""
    begin = time.monotonic()
    before = matrix.problems(catch.test)
    if before:
        row.why = f"config-matrix {catch.test} fails without the mutant: {before[0]}"
        return
    row.failed = matrix.problems(catch.test, [row.mutant.patch])
    row.fate = Fate.CAUGHT if row.failed else Fate.SURVIVED
    row.seconds = time.monotonic() - begin


def _kernel_rows(rows: list[Row]) -> None:
    for debug in (False, True):
        these = [row for row in rows if row.mutant.kernel and row.mutant.debug is debug]
        in_guests = [row for row in these if row.mutant.catches[0].how is not How.BUILD]
        if in_guests:
            usual = _usual(in_guests, debug)
            for row in in_guests:
                if not row.why:

                    def run(mutant: Mutant, usual: _Usual = usual) -> list[Seen]:
                        return usual.run(guests.build_mutant(mutant), mutant.catches)

                    _measure(row, run)
                _show(row)
        for row in these:
            if row not in in_guests:
                _compile(row, row.mutant.catches[0])
                _show(row)


def _program_rows(rows: list[Row]) -> None:
    these = [row for row in rows if not row.mutant.kernel]
    if not these:
        return
    print("mutants: the program's named tests without a mutant", flush=True)
    host.prepare(None)
    _strike(these, host.run([catch for row in these for catch in row.mutant.catches]))
    for row in these:
        if not row.why:

            def run(mutant: Mutant) -> list[Seen]:
                host.prepare(mutant)
                return host.run(mutant.catches)

            _measure(row, run)
        _show(row)


def _show(row: Row) -> None:
    rules, named = " ".join(row.mutant.rules), ", ".join(str(catch) for catch in row.mutant.catches)
    print(f"{row.mutant.name:26} {rules:30} {row.fate:16} {row.seconds:4.0f} s  {named}", flush=True)
    if row.why:
        print(f"{'':26} {row.why}", flush=True)


def _write(rows: list[Row], some: bool, series: tuple[str, ...]) -> bool:
    metrics = {
        row.mutant.name: {
            "rules": list(row.mutant.rules),
            "breaks": row.mutant.breaks,
            "named": [str(catch) for catch in row.mutant.catches],
            "fate": str(row.fate),
            "failed": row.failed,
            "why": row.why,
            "seconds": round(row.seconds, 1),
        }
        for row in rows
    }
    gates = [results.Gate(row.mutant.name, str(row.fate), "caught", row.fate is Fate.CAUGHT) for row in rows]
    environment = results.environment(None, "as fast as it goes")
    name = "mutants" if series == DEFAULT else f"mutants-{'-'.join(series)}"
    path = results.write(name + "-some" * some, environment, {"mutants": metrics}, gates)
    counts = ", ".join(f"{number} {kind}" for kind in Fate if (number := sum(row.fate is kind for row in rows)))
    print(f"mutants: {counts}; results: {path}")
    return bool(rows) and all(row.fate is Fate.CAUGHT for row in rows)


def run(names: list[str], series: tuple[str, ...] = DEFAULT) -> int:
    """Runs the mutants of these names, all without names; 1 unless every one is caught by the tests it names."""
    rows = [Row(mutant) for mutant in select(names, series)]
    kernel = any(row.mutant.kernel for row in rows)
    try:
        _program_rows(rows)
        _kernel_rows(rows)
    finally:
        # Also when interrupted: the next `make kernel` must not meet a mutant.
        if kernel:
            guests.restore(series)
    return Exit.OK if _write(rows, bool(names), series) else Exit.TESTS
