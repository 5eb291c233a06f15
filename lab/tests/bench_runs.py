# SPDX-License-Identifier: GPL-2.0-only
"""Made-up records of guests, and runs read from them, for the tests of the benchmark suite."""

from typing import Any

from lab.bench import judging, run, scenarios, variants
from lab.bench.arms import ARM, ARMS, SIZES_KIB
from lab.bench.cell import Cell
from lab.bench.run import Run
from lab.bench.spec import MIB, Case, Role, Scale
from lab.bench.table import Table

CI = {case.name: case for case in scenarios.cases(Scale.CI)}
HIGH, FREE, THREADS = CI["redis/set-high"], CI["redis/set-none"], CI["bloat/threads"]
GROWN = CI["services/grown"]
ENVIRONMENT: dict[str, Any] = {"kernel": "7.3.4", "qemu_mode": "icount", "cpu": "<b>&", "scale": "ci"}


def report(rps: float, p99: float, worst: float = 40.0) -> list[str]:
    """redis-benchmark's, cut to what is read."""
    return [
        f"SET: rps={rps} (overall: {rps}) avg_msec=1.0 (overall: 1.0)",
        "Summary:",
        f"  throughput summary: {rps:.2f} requests per second",
        "  latency summary (msec):",
        "          avg       min       p50       p95       p99       max",
        f"        3.565     0.592     3.271     5.711     {p99:.3f}    {worst:.3f}",
    ]


def records(
    case: Case,
    rps: float = 50_000.0,
    p99: float = 12.0,
    peak_mib: int = 96,
    large: int = 20,
    killed: bool = False,
    by_host: bool = False,
    slow: float = 1.0,
    worst: float = 40.0,
    pages: int | None = None,
    swapped_out: int | None = None,
) -> list[dict[str, Any]]:
    """What a guest sends for a run of 4 s; where a limit arrives, the rate falls to a quarter of `rps` at 2 s, and to
    `slow` of that. By default as many pages are swapped out as in a row that binds."""
    counters = ("pswpin", "zswpwb", "workingset_refault_file")
    zero = dict.fromkeys(counters, 10 if pages is None else pages) | {"oom_kill": int(killed)}
    usual = 20_000 if pages is None else pages
    zero["pswpout"] = usual if swapped_out is None else swapped_out
    groups = {group.name: [peak_mib * MIB // 2, 0, 0] for group in case.groups}
    samples = [
        {"type": "sample", "t_ms": 1000 + 50 * i, "free": 1, "anon": 100 * MIB,
         "folios": {str(kib): large if kib == 2048 else 0 for kib in SIZES_KIB},
         "groups": {name: [v[0], 0, 10_000 * i] for name, v in groups.items()}}
        for i in range(40)
    ]  # fmt: skip
    total = {"current": 1, "peak": peak_mib * MIB, "swap": 0, "oom_kills": int(killed), "psi_some_us": 2_000_000,
             "psi_full_us": 1_000_000, "user_us": 5, "system_us": 6, "stat": {"anon": 1, "anon_thp": 0}}  # fmt: skip
    decision = {"type": "policy", "event": "decision", "t_ms": 1500, "to": "4K", "why": "headroom"}
    out = [
        {"type": "out", "task": "load", "t_ms": 4900, "text": line}
        for line in ([] if killed else report(rps, p99, worst))
    ]
    ends: list[dict[str, Any]] = []
    waves = [{"type": "wave", "t_ms": 1000 + 2000 * n, "group": wave.group, "file": wave.file, "value": value}
             for wave in case.waves for n, value in enumerate(wave.values)]  # fmt: skip
    alive = 10 if killed else 40
    reads = [(100 * n, round(rps / 10 * min(n, 20) + slow * rps / 40 * max(0, n - 20))) for n in range(alive)]
    read = [{"type": "meter", "meter": meter.name, "t_ms": 1000 + t_ms, "count": count}
            for meter in case.meters for t_ms, count in reads]  # fmt: skip
    for task in case.tasks:
        lives = task.role in (Role.SERVER, Role.BESIDE)
        dead = killed and task.role is Role.SERVER
        ends.append({"type": "task", "task": task.name, "started_ms": 1000, "ended_ms": 2000 if dead else 5000,
                     "code": None if lives else 0, "signal": 9 if lives else None,
                     "stopped": lives and not dead, "said": f"{task.name} said so",
                     "pid": 100 + len(ends)})  # fmt: skip
    return [
        {"type": "begin", "t_ms": 1000, "release": "7.3.4", "oom_kills": 0},
        *samples,
        {**decision, "cgroup": f"/{case.main}", "orders": {"fault": 0}},
        {**decision, "cgroup": "/", "orders": {"fault": 0}},
        *waves,
        *read,
        *out,
        *({"type": "group", "group": group.name, **total} for group in case.groups),
        *ends,
        {"type": "end", "t_ms": 5000, "bounded": by_host, "by_host": by_host, "vmstat": zero},
    ]


def one(case: Case, arm: str, repeat: int = 0, lru: str = "classic", **values: Any) -> Run:
    return run.read(Cell(case, ARM[arm], lru, repeat), records(case, **values), 20.0)


def table(*changed: Run, case: Case = HIGH) -> Table:
    """All arms of a case as often as is fixed for it, alike but for `changed`."""
    runs = [
        one(case, arm.key, repeat) for repeat in range(judging.runs(case)) for arm in ARMS if arm.meant_for(case.name)
    ]
    cells = {(r.cell.arm.key, r.cell.repeat) for r in changed}
    return Table([r for r in runs if (r.cell.arm.key, r.cell.repeat) not in cells] + list(changed))


def often(case: Case, arm: str, **values: Any) -> list[Run]:
    return [one(case, arm, repeat, **values) for repeat in range(judging.runs(case))]


def case_of(case: Case, key: str, repeat: int = 0, **values: Any) -> Run:
    """A run of any arm, a variant too."""
    return run.read(Cell(case, variants.named([key])[0], "classic", repeat), records(case, **values), 20.0)
