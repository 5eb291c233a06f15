# SPDX-License-Identifier: GPL-2.0-only
"""A job of a fixed size in a cgroup under memory.high, judged by how long it takes."""

from lab.bench import readers
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Machine, Task


def case(
    scenario: str, key: str, title: str, machine: Machine, limit_mib: int, tasks: tuple[Task, ...], *software: str
) -> Case:
    """Its cgroup has the name of the scenario."""
    return Case(
        scenario=scenario,
        key=key,
        title=f"{title}, memory.high = {limit_mib}M",
        machine=machine,
        groups=(Group(scenario, {"memory.high": limit_mib * MIB}),),
        tasks=tasks,
        software=software,
        scores=(readers.ELAPSED,),
        deadline_s=180,
        main=scenario,
        slow=store.SLOW,
    )
