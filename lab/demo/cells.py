# SPDX-License-Identifier: GPL-2.0-only
"""What is compared: limits, arms, scales, and the order in which the cells run."""

import json
from dataclasses import asdict, dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Arm:
    """One side of the comparison."""

    key: str
    label: str
    thp: str
    """What every THP size is set to."""
    policy: str | None
    """Policy that `mthp_ext run` attaches to the root cgroup, if any."""


ARMS = (
    Arm("always", "always", "always", None),
    Arm("never", "never", "never", None),
    Arm("reactive", "always+reactive", "always", "reactive"),
    Arm("mthp_ext", "always+mthp_ext", "always", "default"),
)
ARM = {arm.key: arm for arm in ARMS}

LIMITS = {"none": "no limit", "high": "memory.high", "max": "memory.max"}
"""Key of a limit -> how it is shown; "high" and "max" are the files of the server's cgroup."""


@dataclass(frozen=True)
class Scale:
    """Sizes of the workload and of the guest."""

    name: str
    keys: int
    requests: int
    limit_bytes: int
    """memory.high or memory.max: about half of what the server needs."""
    memory_mib: int
    swap_bytes: int
    deadline_s: int
    """Guest time after which a run is stopped and its rate computed from what was served."""
    stop_s: int
    """Wall-clock time after which a run is stopped and rated likewise, whatever the guest's clock shows."""
    repeats: int


SCALES = {
    scale.name: scale
    for scale in (
        # Half a minute: shows that the machinery works, its figures mean nothing.
        Scale("smoke", 20_000, 20_000, 12 * MIB, 512, 128 * MIB, 10, 300, 1),
        # The proposal's command scaled to a 2-core machine under emulation.
        Scale("demo", 200_000, 200_000, 96 * MIB, 768, 512 * MIB, 60, 1500, 2),
        # The proposal's own size.
        Scale("full", 3_000_000, 3_000_000, 2048 * MIB, 8192, 6144 * MIB, 600, 6 * 3600, 1),
    )
}

VALUE_BYTES, CLIENTS, PIPELINE = 1024, 16, 32
"""redis-benchmark -d, -c and -P, as in the proposal."""

MIN_FREE_KBYTES = 2048
"""vm.min_free_kbytes in every arm: switching a THP size on would raise it and decide the run by itself."""

SAMPLE_MS = 50

SEED = 1_700_000_000
"""Of the first run's keys; the same for all arms. Each repeat takes other keys."""


@dataclass(frozen=True)
class Cell:
    """One run of the benchmark in a guest of its own."""

    limit: str
    arm: Arm
    scale: Scale
    repeat: int

    @property
    def name(self) -> str:
        """Names the cell's directory and its line of progress."""
        return f"{self.limit}-{self.arm.key}-{self.repeat + 1}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{LIMITS[self.limit]}, {self.arm.label}, run {self.repeat + 1}"

    def job(self, mthp_ext: str, server: str, benchmark: str) -> bytes:
        """The cell as lab-guest reads it; the arguments are guest paths."""
        return json.dumps(
            {
                "thp": self.arm.thp,
                "policy": self.arm.policy,
                "mthp_ext": mthp_ext,
                "server": server,
                "benchmark": benchmark,
                "limit": self.limit,
                "limit_bytes": self.scale.limit_bytes,
                "swap_bytes": self.scale.swap_bytes,
                "min_free_kbytes": MIN_FREE_KBYTES,
                "keys": self.scale.keys,
                "requests": self.scale.requests,
                "value_bytes": VALUE_BYTES,
                "clients": CLIENTS,
                "pipeline": PIPELINE,
                "seed": SEED + self.repeat,
                "deadline_ms": self.scale.deadline_s * 1000,
                "sample_ms": SAMPLE_MS,
            }
        ).encode()


def plan(scale: Scale, limits: list[str], arms: list[str], repeats: int) -> list[Cell]:
    """All cells, arms interleaved within each repeat. `always` under a limit runs once, and first: it is bounded in
    time rather than in requests and takes as long as several others, which then run beside it."""
    cells = [
        Cell(limit, ARM[arm], scale, repeat)
        for repeat in range(repeats)
        for limit in limits
        for arm in arms
        if repeat == 0 or not _slow(limit, arm)
    ]
    return sorted(cells, key=lambda cell: not _slow(cell.limit, cell.arm.key))


def _slow(limit: str, arm: str) -> bool:
    return arm == "always" and limit == "high"


def command(scale: Scale) -> str:
    """The benchmark's command, without the way to the server."""
    return f"redis-benchmark -t set -r {scale.keys} -n {scale.requests} -d {VALUE_BYTES} -c {CLIENTS} -P {PIPELINE}"


def describe(scale: Scale) -> dict[str, object]:
    """The workload for the results file."""
    return {
        **asdict(scale),
        "command": command(scale),
        "min_free_kbytes": MIN_FREE_KBYTES,
        "sample_ms": SAMPLE_MS,
    }
