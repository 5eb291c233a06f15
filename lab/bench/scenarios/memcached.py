# SPDX-License-Identifier: GPL-2.0-only
"""A second store, so that Redis is not the only witness: memcached, which takes its memory in slabs of 1 MiB."""

import re
from dataclasses import dataclass
from itertools import dropwhile

from lab.bench.run import Run
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task

_ADDRESS = "127.0.0.1:11211"


@dataclass(frozen=True)
class _Size:
    window: int
    """Keys of each of the sixteen connections, thousands."""
    operations: int
    limit_mib: int
    """About half of what the server needs."""
    machine: Machine
    deadline_s: int


_SIZES = {
    Scale.SMOKE: _Size(3, 60_000, 32, Machine(512, 128), 10),
    Scale.CI: _Size(10, 400_000, 160, Machine(768, 512), 40),
    Scale.FULL: _Size(100, 6_000_000, 1024, Machine(6144, 4096), 600),
}


def rate(run: Run) -> float | None:
    """Operations per second, by memaslap's own report. None if the server died, or if memaslap did not come to its
    end: it says nothing before."""
    found = [match[1] for line in run.lines("load") if (match := re.search(r"\bTPS: (\d+)", line))]
    return float(found[-1]) if found and not run.died else None


def _total(lines: list[str]) -> list[str]:
    """What memaslap reports of all operations together; empty if it did not come that far."""
    return list(dropwhile(lambda line: not line.startswith("Total Statistics"), lines))


def latency(run: Run, name: str) -> float | None:
    """ "Avg" or "Max" of all operations in ms, by memaslap's own report."""
    row = next((line.split() for line in _total(run.lines("load")) if line.strip().startswith(f"{name}:")), None)
    return int(row[1]) / 1000 if row else None


def p99(lines: list[str]) -> float | None:
    """Latency in ms below which 99 % of all operations are, from memaslap's own histogram. Its steps are powers of 2;
    between them operations are taken to lie evenly on the logarithmic scale."""
    counts: dict[int, int] = {}
    for line in _total(lines):
        # "   8:    10920   284877    98407     5289": from 2^7 us on, 2^8 us on, and so on.
        if match := re.fullmatch(r"\s*(\d+):((?:\s+\d+){1,4})\s*", line):
            counts |= {int(match[1]) + n: int(count) for n, count in enumerate(match[2].split())}
    wanted = 0.99 * sum(counts.values())
    for step, count in sorted(counts.items()):
        if count and count >= wanted:
            return 2 ** (step - 1 + wanted / count) / 1000
        wanted -= count
    return None


def _case(size: _Size, limited: bool) -> Case:
    where = f"memory.max = {size.limit_mib}M" if limited else "no limit"
    return Case(
        scenario="memcached",
        key="max" if limited else "none",
        title=f"memcached, half SET, half GET, {where}",
        machine=size.machine,
        groups=(Group("memcached", {"memory.max": size.limit_mib * MIB} if limited else {}),),
        tasks=(
            Task(
                "server",
                Role.SERVER,
                ("{memcached}", "-u", "root", "-l", "127.0.0.1", "-t", "2", "-m", str(8 * size.limit_mib)),
                group="memcached",
                ready=_ADDRESS,
                quiet=True,
            ),
            Task(
                "load",
                Role.LOAD,
                ("{memcaslap}", "-s", _ADDRESS, "-T", "1", "-c", "16", "-x", str(size.operations),
                 "-w", f"{size.window}k", "-F", "/lab/memaslap.cnf",
                 # Latencies are reported only when it is to report now and then: once, at the end.
                 "-S", "3600s"),
            ),
        ),
        software=("memcached",),
        scores=(Metric("rate", "operations/s", "", +1, rate),),
        tail=Metric("p99", "p99 latency", "ms", -1, lambda run: None if run.died else p99(run.lines("load"))),
        more=(
            Metric("avg", "average latency", "ms", -1, lambda run: latency(run, "Avg")),
            Metric("max", "worst latency", "ms", -1, lambda run: latency(run, "Max")),
        ),
        deadline_s=size.deadline_s,
        main="memcached",
        data_mib=round(1.44 * size.limit_mib),
        roomy=not limited,
    )  # fmt: skip


def cases(scale: Scale) -> list[Case]:
    """Without a limit, and with one."""
    return [_case(_SIZES[scale], limited) for limited in (False, True)]
