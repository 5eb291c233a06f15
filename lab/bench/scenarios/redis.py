# SPDX-License-Identifier: GPL-2.0-only
"""The proposal's main job: Redis filled over its limit, without and with snapshots; and one that is mostly read."""

import re
from collections.abc import Sequence
from dataclasses import replace

from lab.bench import readers
from lab.bench.run import Run
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Metric, Role, Scale, Task

_LIMITS = {"none": None, "high": "memory.high", "max": "memory.max"}


_INFO = f"{{redis-cli}} -s {store.SOCKET} INFO persistence"


def _snapshot(keys: int) -> Task:
    """Begins one when there are so many keys, and waits for its end. After a time instead, a faster server would have
    more to save; and to save a key takes several times what a request does."""
    cli = f"{{redis-cli}} -s {store.SOCKET}"
    script = (
        f"{cli} -r -1 -i 0.005 DBSIZE | while read -r n; do [ $n -lt {keys} ] || break; done; {cli} BGSAVE; "
        f"while ! {_INFO} | grep _keys_total:[1-9]; do sleep 0.1; done; "
        f'while :; do case "$({_INFO})" in *rdb_bgsave_in_progress:0*) exit 0;; esac; sleep 0.5; done'
    )
    return Task("snapshot", Role.LOAD, ("/bin/sh", "-c", script))


def _work(run: Run) -> float | None:
    """Requests served and keys saved, for each second until both are done: where they share a processor, who saves
    faster serves slower."""
    if run.died or run.elapsed_s <= 0:
        return None
    served = readers.calls(run.lines("info"), "set")
    end, said = run.ends["snapshot"], [*run.lines("snapshot"), *run.lines("saved")]
    saved = _number(said, "keys_total" if end.code == 0 and not end.stopped else "keys_processed")
    return None if served is None or saved is None else (served + saved) / run.elapsed_s


def _number(lines: Sequence[str], name: str) -> int | None:
    """The largest that INFO gave for current_save_NAME: before a snapshot and after it that is 0."""
    found = [int(match[1]) for line in lines if (match := re.match(rf"current_save_{name}:(\d+)", line))]
    return max(found, default=None)


def case(size: store.Size, key: str, what: str, limit: str) -> Case:
    """Redis, filled by the proposal's command: no limit, or half of what it needs as memory.high or memory.max."""
    file = _LIMITS[limit]
    where = "no limit" if file is None else f"{file} = {size.limit_mib}M"
    settings = {} if file is None else {file: size.limit_mib * MIB}
    plain = store.case("redis", f"{key}-{limit}", f"Redis, {what}, {where}", size, settings)
    return replace(plain, roomy=file is None, slow=store.SLOW if limit == "high" and key != "bgsave" else ())


def _bgsave(size: store.Size, case: Case) -> Case:
    # Room for the copies that the child's snapshot forces, for the snapshot and for the one before it.
    data = 2 * size.limit_mib
    machine = replace(size.machine, memory_mib=size.machine.memory_mib + 4 * data, disk_mib=3 * data)
    # At the usual 20 and 10 % the kernel lets the child sleep over its dirty pages, of which a full cgroup may have
    # next to none: by its guess of what the disk can do, and the same arm did 22,000 or 25,000.
    knobs = "cd /proc/sys/vm; echo 100 > dirty_ratio; echo 99 > dirty_background_ratio"
    tasks = (
        Task("dirty", Role.SETUP, ("/bin/sh", "-c", knobs)),
        store.server(snapshots=True),
        *case.tasks[1:],
        # Near the end of the limit's memory; the load makes some five eighths of all keys.
        _snapshot(size.keys * 3 // 8),
        store.info("saved", "persistence"),
    )
    work = Metric("work", "requests and saved keys/s", "", +1, _work)
    # While the child lives, memory is shared with it or copied page by page: what share of it is large depends on
    # when it came, so no coverage is asked for.
    return replace(
        case, machine=machine, tasks=tasks, scores=(work,), more=(*case.scores, *case.more), roomy=False,
        deadline_s=2 * case.deadline_s, made_for=None if case.roomy else "database",
    )  # fmt: skip


def _read_mostly(size: store.Size, case: Case) -> Case:
    # Two connections of sixteen write, without end.
    tasks = (
        store.server(),
        store.benchmark("fill", Role.SETUP, "set", size.keys, size.requests, quiet=True),
        store.benchmark("load", Role.LOAD, "get", size.keys, size.requests, store.CLIENTS - 2),
        store.benchmark("writes", Role.BESIDE, "set", size.keys, 10**9, 2, quiet=True),
        store.PROBE,
    )
    return replace(case, tasks=tasks, scores=(store.rps("get"),))


def cases(scale: Scale) -> list[Case]:
    """Three limits without snapshots, three with, and one that is mostly read."""
    size = store.SIZES[scale]
    plain = [case(size, "set", "SET", limit) for limit in _LIMITS]
    saved = [_bgsave(size, case(size, "bgsave", "SET with BGSAVE", limit)) for limit in _LIMITS]
    # Without a limit nothing is reclaimed, and reads show what writes do.
    read = _read_mostly(size, case(size, "read", "seven of eight GET", "max"))
    return [*plain, *saved, read]
