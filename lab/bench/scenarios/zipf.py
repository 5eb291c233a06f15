# SPDX-License-Identifier: GPL-2.0-only
"""Keys of unequal popularity, for a minute after a warm-up: with all keys equally warm a large folio that stays costs
nothing, and a row of three seconds is over before pressure and khugepaged have said a word."""

import re
from dataclasses import dataclass

from lab.bench.run import Run
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Machine, Meter, Metric, Role, Scale, Task


@dataclass(frozen=True)
class _Size:
    keys: int
    limit_mib: int
    """About half of what the server needs."""
    machine: Machine
    warm_up_s: int
    time_s: int
    """The warm-up included."""


_SIZES = {
    Scale.SMOKE: _Size(12_600, 12, Machine(512, 128), 0, 1),
    Scale.CI: _Size(126_000, 96, Machine(768, 512), 10, 70),
    Scale.FULL: _Size(1_900_000, 2048, Machine(8192, 6144), 30, 150),
}
_EXPONENT, _GET = 99, 90
"""Percent: the skew that YCSB has, and nine of ten read."""


def report(lines: list[str]) -> dict[str, float]:
    """What the client says at its end: "rps", and latencies in ms; empty if it did not come that far."""
    found = [line for line in lines if line.startswith("zipf: ")]
    return {name: float(value) for name, value in re.findall(r"(\w+)=([0-9.]+)", found[-1])} if found else {}


def _figure(name: str, label: str, unit: str, better: int) -> Metric:
    return Metric(name, label, unit, better, lambda run: None if run.died else report(run.lines("load")).get(name))


def _rps(run: Run) -> float | None:
    """By the client's own report, or of what the server has served until the client was stopped."""
    if run.died:
        return None
    said = report(run.lines("load"))
    if said:
        return said["rps"]
    counts = run.meters.get("got", [])
    return counts[-1][1] / run.elapsed_s if counts and run.elapsed_s > 0 else None


def _case(scale: Scale, limited: bool) -> Case:
    size = _SIZES[scale]
    where = f"memory.high = {size.limit_mib}M" if limited else "no limit"
    sizes = (size.keys, _EXPONENT, _GET, store.VALUE_BYTES, store.CLIENTS, store.PIPELINE, size.warm_up_s, size.time_s)
    load = Task("load", Role.LOAD, (*store.CLIENT, *(str(number) for number in sizes)), seeded=True)
    return Case(
        scenario="zipf",
        key="high" if limited else "none",
        title=f"Redis, nine of ten GET, keys by Zipf's law, {size.time_s - size.warm_up_s} s steady, {where}",
        machine=size.machine,
        groups=(Group("redis", {"memory.high": size.limit_mib * MIB} if limited else {}),),
        tasks=(store.server(), store.fill(size.keys), load, store.PROBE),
        software=("redis",),
        scores=(Metric("rps", "requests/s", "", +1, _rps),),
        tail=_figure("p99", "p99 latency", "ms", -1),
        more=(
            _figure("avg", "average latency", "ms", -1),
            _figure("p50", "p50 latency", "ms", -1),
            _figure("p95", "p95 latency", "ms", -1),
            _figure("max", "worst latency", "ms", -1),
        ),
        # Of GET alone: nine of ten.
        meters=(Meter("got", store.SOCKET, "INFO commandstats", "cmdstat_get:calls=", 1000),),
        deadline_s=size.time_s + 20,
        main="redis",
        roomy=not limited,
        slow=store.SLOW if limited else (),
    )


def cases(scale: Scale) -> list[Case]:
    """Without a limit, and with one."""
    return [_case(scale, limited) for limited in (False, True)]
