# SPDX-License-Identifier: GPL-2.0-only
"""The scenarios, one file each. A file says what it is about, and has cases(scale), which are its Cases."""

from collections.abc import Sequence
from fnmatch import fnmatch

from lab.bench.scenarios import (
    advised,
    bloat,
    cpus,
    database,
    dense,
    heap,
    hostpressure,
    kernbench,
    late,
    memcached,
    mixed,
    redis,
    roomy,
    services,
    shapes,
    shell8,
    square,
    swap,
    tree,
    underused,
    vmhost,
    zipf,
)
from lab.bench.spec import Case, Scale
from lab.errors import Exit, LabError

ALL = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        mixed,
        redis,
        zipf,
        memcached,
        roomy,
        dense,
        hostpressure,
        tree,
        swap,
        vmhost,
        square,
        late,
        advised,
        bloat,
        services,
        underused,
        shapes,
        heap,
        database,
        kernbench,
        shell8,
        cpus,
    )
}
"""Name -> module, in the order of the report."""


def cases(scale: Scale, wanted: Sequence[str] = ()) -> list[Case]:
    """The cases of all scenarios, or of those that match a pattern of `wanted` ("redis", "redis/set-*"); LabError if
    a pattern matches none."""
    every = [case for module in ALL.values() for case in module.cases(scale)]
    for pattern in wanted:
        if not any(_matches(case, pattern) for case in every):
            raise LabError(
                Exit.USAGE, f"no scenario matches {pattern!r}; there are: {', '.join(case.name for case in every)}"
            )
    return [case for case in every if not wanted or any(_matches(case, pattern) for pattern in wanted)]


def _matches(case: Case, pattern: str) -> bool:
    return fnmatch(case.name, pattern) or fnmatch(case.scenario, pattern)
