# SPDX-License-Identifier: GPL-2.0-only
"""A database with shared memory and private sorts: several processes map the same pages and fill buffers of their own.
Their page tables count what is shared once for each of them. SQLite; a server like PostgreSQL would bring a service and
some twenty libraries."""

from lab.bench import readers
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task

_SESSIONS = 3
_SIZES = {
    # rows, sorts of each session, MiB of the limit, of a sort's memory
    Scale.SMOKE: (20_000, 1, 10, 16),
    Scale.CI: (250_000, 2, 96, 128),
    Scale.FULL: (6_000_000, 4, 2048, 2048),
}
_OPEN = ("{sqlite3}", "-vfs", "unix-none", "/dev/shm/db")
"""Without file locks, which the lab's kernel has not; nobody writes once the rows are there."""


def _case(scale: Scale, limited: bool) -> Case:
    rows, sorts, limit_mib, sort_mib = _SIZES[scale]
    where = f"memory.high = {limit_mib}M" if limited else "no limit"
    fill = (
        "PRAGMA journal_mode = OFF; CREATE TABLE t(k INTEGER, s TEXT); "
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
        "INSERT INTO t SELECT random(), hex(randomblob(40)) FROM n;"
    )
    # All but the last row are skipped: every row is sorted and none printed.
    sort = f"SELECT k FROM (SELECT k, s FROM t ORDER BY s) LIMIT 1 OFFSET {rows - 1};"
    setting = f"PRAGMA mmap_size = {4 << 30}; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{sort_mib * 1024}; "
    session = f"{' '.join(_OPEN)} '{setting}{sort * sorts}' &"
    # `wait` alone forgets how they ended.
    script = f"{session} a=$!; {session} b=$!; {session} c=$!; wait $a && wait $b && wait $c"
    return Case(
        scenario="database",
        key="sort-high" if limited else "sort-none",
        title=f"{_SESSIONS} sessions of SQLite sort {rows:,} rows that they share, {where}",
        machine=Machine(6 * limit_mib + 320, 4 * limit_mib),
        groups=(Group("db", {"memory.high": limit_mib * MIB} if limited else {}),),
        tasks=(
            Task("fill", Role.SETUP, (*_OPEN, fill), group="db", quiet=True),
            Task("load", Role.LOAD, ("{dash}", "-c", script), group="db", quiet=True),
        ),
        software=("shell", "sqlite"),
        scores=(Metric("elapsed", "elapsed", "s", -1, readers.elapsed("load")),),
        deadline_s=180,
        main="db",
        roomy=not limited,
        slow=store.SLOW if limited else (),
    )


def cases(scale: Scale) -> list[Case]:
    """Without a limit, and with one."""
    return [_case(scale, limited) for limited in (False, True)]
