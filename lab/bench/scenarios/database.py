# SPDX-License-Identifier: GPL-2.0-only
"""A database with shared memory and private sorts: several processes map the same pages and fill buffers of their own.
Their page tables count what is shared once for each of them. SQLite; a server like PostgreSQL would bring a service and
some twenty libraries."""

from lab.bench.scenarios import job
from lab.bench.spec import Case, Machine, Role, Scale, Task

_SESSIONS = 3
_SIZES = {
    # rows, sorts of each session, MiB of the limit, of a sort's memory
    Scale.SMOKE: (20_000, 1, 10, 16),
    Scale.CI: (250_000, 2, 96, 128),
    Scale.FULL: (6_000_000, 4, 2048, 2048),
}
TABLE = "CREATE TABLE t(k INTEGER, s TEXT);"
SORT = "SELECT sum(n) FROM (SELECT row_number() OVER (ORDER BY s) AS n FROM t);"
"""With SQLite's sorter. A subquery in order under LIMIT becomes random inserts into a B-tree instead."""
_OPEN = ("{sqlite3}", "-vfs", "unix-none", "/dev/shm/db")
"""Without file locks, which the lab's kernel has not; nobody writes once the rows are there."""


def _case(scale: Scale) -> Case:
    rows, sorts, limit_mib, sort_mib = _SIZES[scale]
    fill = (
        f"PRAGMA journal_mode = OFF; {TABLE} "
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
        "INSERT INTO t SELECT random(), hex(randomblob(40)) FROM n;"
    )
    setting = f"PRAGMA mmap_size = {4 << 30}; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{sort_mib * 1024}; "
    session = f"{' '.join(_OPEN)} '{setting}{SORT * sorts}' &"
    # `wait` alone forgets how they ended.
    script = f"{session} a=$!; {session} b=$!; {session} c=$!; wait $a && wait $b && wait $c"
    tasks = (
        Task("fill", Role.SETUP, (*_OPEN, fill), group="database", quiet=True),
        Task("load", Role.LOAD, ("{dash}", "-c", script), group="database", quiet=True),
    )
    title = f"{_SESSIONS} sessions of SQLite sort {rows:,} rows that they share"
    machine = Machine(6 * limit_mib + 320, 4 * limit_mib)
    return job.case("database", "sort-high", title, machine, limit_mib, tasks, "shell", "sqlite")


def cases(scale: Scale) -> list[Case]:
    """One: without a limit it shows no more than `redis` and `heap` do."""
    return [_case(scale)]
