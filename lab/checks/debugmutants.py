# SPDX-License-Identifier: GPL-2.0-only
"""Errors of lifetime, put into the kernel for debugging on purpose: is each of them seen there?"""

import dataclasses
import re
import time
from dataclasses import dataclass
from pathlib import Path

from lab import results, setup, vm
from lab.checks import guest, soak
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.series import Patch
from lab.paths import KERNEL_DIR
from lab.vm import accel

DIRECTORY = KERNEL_DIR / "mutants" / "debug"
_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Mutant:
    """A patch that breaks the series, the test that shows it, and what the kernel then says."""

    patch: Patch
    test: str
    seen_as: str
    """How a complaint in the kernel log begins."""


def load(path: Path) -> Mutant:
    """Reads a patch with the lines "Test: PROGRAM" and "Seen-as: TEXT" above its first hunk."""
    content = path.read_bytes()
    head = content.decode().partition("\n--- a/")[0]
    values = dict(re.findall(r"^(Test|Seen-as): (.+)$", head, re.MULTILINE))
    if missing := {"Test", "Seen-as"} - set(values):
        raise LabError(Exit.PATCH, f"{path} does not say {' and '.join(sorted(missing))}: it takes lines of that name")
    return Mutant(Patch(path.name, content), values["Test"], values["Seen-as"])


def _seen(mutant: Mutant) -> tuple[bool, str]:
    """Builds and runs one: was it seen, and as what."""
    kernel = build.ensure(variant=build.DEBUG_MUTANT, extra=[mutant.patch])
    mode, _ = accel.of(kernel)
    job = guest.build_selftests(kernel).job(mutant.test, kernel, mode, name=f"mutant-{mutant.patch.name[:-6]}")
    job = dataclasses.replace(
        job, memory_mib=soak.MEMORY_MIB, timeout_s=_TIMEOUT_S, append=soak.APPEND, env={"LAB_LEAKS": "1"}
    )
    outcome = vm.run(job)
    found = [line for line in outcome.splats if line.startswith(mutant.seen_as)]
    if found:
        return True, found[0]
    return False, f"the kernel said {len(outcome.splats)} other things; log: {outcome.console}"


def main(names: list[str]) -> int:
    """All mutants, or those named; 1 if one was not seen. Writes build/results/debug-mutants.json."""
    paths = sorted(DIRECTORY.glob("*.patch"))
    if names:
        paths = [path for path in paths if path.stem in names]
    if not paths:
        raise LabError(Exit.USAGE, f"no such mutant in {DIRECTORY}")
    mutants = [load(path) for path in paths]
    setup.ensure(setup.Need.PROGRAM | setup.Need.KERNEL | setup.Need.VM)
    gates, metrics = [], {}
    for mutant in mutants:
        begin = time.monotonic()
        seen, text = _seen(mutant)
        name = mutant.patch.name.removesuffix(".patch")
        gates.append(results.gate(f"{name} is seen by {mutant.test}", float(seen), "== 1"))
        metrics[name] = {"seen_as": text, "seconds": round(time.monotonic() - begin, 1)}
        print(f"debug-mutants: {name}: {'seen' if seen else 'NOT SEEN'}: {text}", flush=True)
    path = results.write("debug-mutants", results.environment(None, "none"), metrics, gates)
    print(f"debug-mutants: {sum(gate.ok for gate in gates)} of {len(gates)} seen; results: {path}")
    return Exit.OK if all(gate.ok for gate in gates) else Exit.TESTS
