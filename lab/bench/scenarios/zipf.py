# SPDX-License-Identifier: GPL-2.0-only
"""Keys of unequal popularity, for a while after a warm-up: with all keys equally warm a large folio that stays costs
nothing, and a row of three seconds is over before pressure and khugepaged can act."""

from dataclasses import dataclass, replace

from lab.bench.run import Run
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Machine, Meter, Metric, Scale


@dataclass(frozen=True)
class Size:
    """Of the workload."""

    keys: int
    limit_mib: int
    """About half of what the server needs."""
    machine: Machine
    warm_up_s: int
    time_s: int
    """The warm-up included."""


_SIZES = {
    Scale.SMOKE: Size(12_600, 12, Machine(512, 128), 0, 1),
    Scale.CI: Size(126_000, 96, Machine(768, 512), 5, 25),
    Scale.FULL: Size(1_900_000, 2048, Machine(8192, 6144), 30, 150),
}
_EXPONENT, _GET = 99, 90
"""Percent: the skew that YCSB has, and nine of ten read."""


def _rps(run: Run) -> float | None:
    """By the client's own report, or of what the server has served until the client was stopped."""
    if run.died:
        return None
    said = store.report(run.lines("load"))
    if said:
        return said["rps"]
    counts = run.meters.get("got", [])
    # The meter counts GET alone.
    return counts[-1][1] * 100 / _GET / run.elapsed_s if counts and run.elapsed_s > 0 else None


def scaled(limit_mib: int, machine: Machine) -> Size:
    """That of scale ci with another limit and as many keys more; as long, after eight times the warm-up."""
    plain = _SIZES[Scale.CI]
    keys, warm_up_s = round(plain.keys * limit_mib / plain.limit_mib), 8 * plain.warm_up_s
    time_s = plain.time_s - plain.warm_up_s + warm_up_s
    return replace(plain, keys=keys, limit_mib=limit_mib, machine=machine, warm_up_s=warm_up_s, time_s=time_s)


def case(size: Size) -> Case:
    """Redis under half of what it needs as memory.high."""
    load = store.client(size.keys, _EXPONENT, _GET, size.warm_up_s, size.time_s)
    return Case(
        scenario="zipf",
        key="high",
        title=f"Redis, nine of ten GET, keys by Zipf's law, {size.time_s - size.warm_up_s} s steady, "
        f"memory.high = {size.limit_mib}M",
        machine=size.machine,
        groups=(Group("redis", {"memory.high": size.limit_mib * MIB}),),
        tasks=(store.server(), store.fill(size.keys), load, store.PROBE),
        software=("redis",),
        scores=(Metric("rps", "requests/s", "", +1, _rps),),
        tail=store.client_figure("p99", "p99 latency"),
        more=(
            store.client_figure("avg", "average latency"),
            store.client_figure("p50", "p50 latency"),
            store.client_figure("p95", "p95 latency"),
            store.client_figure("max", "worst latency"),
        ),
        meters=(Meter("got", store.SOCKET, "INFO commandstats", "cmdstat_get:calls=", 1000),),
        deadline_s=size.time_s + 20,
        main="redis",
        slow=store.SLOW,
    )


def cases(scale: Scale) -> list[Case]:
    """One: without a limit nothing is reclaimed, and which keys are popular makes no difference."""
    return [case(_SIZES[scale])]
