# SPDX-License-Identifier: GPL-2.0-only
"""The proposal's job below limits up to those of a container: `room` counts K in folios and the share in parts of the
limit, so what holds at 96 MiB need not at 4 GiB. Minutes to half an hour a run, so only where SCENARIO names them."""

from dataclasses import replace

from lab.bench.scenarios import redis, store, zipf
from lab.bench.spec import Case, Machine, Scale

_LIMITS_MIB = (384, 1536)
"""4 and 16 times that of `redis/set-high`, with as much of everything else."""
_LARGEST_MIB = 4096
_MACHINE = Machine(12288, 6144)
"""Of the largest: what is in swap there compresses, or is as much as the limit at most."""


def _size(limit_mib: int, machine: Machine | None = None) -> store.Size:
    """`redis/set-high` with another limit: data, machine and deadline in proportion."""
    plain = store.SIZES[Scale.CI]
    times = limit_mib / plain.limit_mib
    keys, memory = round(plain.keys * times), round(plain.machine.memory_mib * times)
    scaled = Machine(memory, round(plain.machine.swap_mib * times))
    return store.Size(keys, keys, limit_mib, machine or scaled, round(plain.deadline_s * times))


def _of(case: Case, limit_mib: int, what: str) -> Case:
    return replace(
        case, scenario="larger", key=f"{what}-{limit_mib}M", named=True, lrus=("classic",), stop_s=2 * case.stop_s
    )


def cases(scale: Scale) -> list[Case]:
    """SET below two limits on the way, and three jobs below one of 4 GiB; at scale ci alone, as they have their own
    sizes."""
    if scale is not Scale.CI:
        return []
    way = [_of(redis.case(_size(limit), "set", "SET", "high"), limit, "high") for limit in _LIMITS_MIB]
    largest = _size(_LARGEST_MIB, _MACHINE)
    jobs = {
        "high": redis.case(largest, "set", "SET", "high"),
        "max": redis.case(largest, "set", "SET", "max"),
        # Filling takes most of the time, and has the same deadline.
        "zipf": replace(zipf.case(zipf.scaled(_LARGEST_MIB, _MACHINE)), deadline_s=largest.deadline_s),
    }
    return [*way, *(_of(case, _LARGEST_MIB, what) for what, case in jobs.items())]
