# SPDX-License-Identifier: GPL-2.0-only
"""One run of a case: an arm, an LRU flavour, a repeat; and its job file for the guest."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lab.bench.arms import Arm
from lab.bench.spec import MIB, Case, Task

SEED = 1_700_000_000
"""Of the first run's keys; the same for all arms. Each repeat takes other keys."""
SAMPLE_MS = 50
LRUS = {"classic": "0", "mglru": "7"}
"""LRU flavour -> what /sys/kernel/mm/lru_gen/enabled gets; 7: with all its parts."""


@dataclass(frozen=True)
class Cell:
    """One run, in a guest of its own."""

    case: Case
    arm: Arm
    lru: str
    repeat: int
    modelled: bool = False
    """With the TLB model, for its walks alone: rates come from the other runs."""

    @property
    def name(self) -> str:
        """Names the run's directory."""
        arm = self.arm.key.replace("=", "-")
        what = "walks" if self.modelled else "bench"
        return f"{what}-{self.case.scenario}-{self.case.key}-{self.lru}-{arm}-{self.repeat + 1}"

    @property
    def label(self) -> str:
        """For people."""
        what = "walks of run" if self.modelled else "run"
        return f"{self.case.name}, {self.lru}, {self.arm.label}, {what} {self.repeat + 1}"

    def job(self, paths: Mapping[str, str], mthp_ext: str) -> dict[str, Any]:
        """The cell as lab-guest reads it; `paths` are the guest paths that tasks may name."""
        case = self.case
        return {
            "writes": [*self.arm.settings(), ("/sys/kernel/mm/lru_gen/enabled", LRUS[self.lru]), *case.writes],
            "swap_bytes": case.machine.swap_mib * MIB,
            "swap_wait_us": case.machine.swap_wait_us,
            "swap_mib_per_s": case.machine.swap_mib_per_s,
            "disk_bytes": case.machine.disk_mib * MIB,
            "min_free_kbytes": case.machine.min_free_kbytes,
            "groups": [
                {
                    "name": group.name,
                    "settings": [(file, str(value)) for file, value in group.settings.items()],
                    "sampled": group.sampled,
                }
                for group in case.groups
            ],
            "policy": None if self.arm.policy is None else [mthp_ext, "run", "--json", *self.arm.policy],
            "tasks": [self._task(task, paths) for task in case.tasks],
            "waves": [
                {"group": wave.group, "file": wave.file, "values": list(wave.values), "again": wave.again,
                 "every_ms": wave.every_ms}
                for wave in case.waves
            ],
            "meters": [asdict(meter) for meter in case.meters],
            "deadline_ms": case.deadline_s * 1000,
            "duration_ms": None if case.duration_s is None else round(case.duration_s * 1000),
            "sample_ms": SAMPLE_MS,
        }  # fmt: skip

    def _task(self, task: Task, paths: Mapping[str, str]) -> dict[str, Any]:
        return {
            "name": task.name,
            "group": task.group,
            "argv": [_fill(word, paths) for word in task.argv],
            "arg0": task.arg0,
            "env": {name: _fill(value, paths) for name, value in task.env.items()},
            "role": str(task.role),
            "ready": task.ready,
            "seed": SEED + self.repeat if task.seeded else None,
            "quiet": task.quiet,
            "thp_off": self.arm.by_tenant and (task.group or "").partition("/")[0] in self.case.thp_off,
        }


def _fill(word: str, paths: Mapping[str, str]) -> str:
    # Not str.format: shell scripts are full of braces.
    for name, path in paths.items():
        word = word.replace(f"{{{name}}}", path)
    return word


def digest(cell: Cell, job: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    """Hash of all that decides what a run measures: the cell as the guest gets it, the guest itself, and `parts`,
    the machine and the hashes of the kernel and of the programs."""
    body = {"job": job, "parts": dict(parts), "repeat": cell.repeat}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]
