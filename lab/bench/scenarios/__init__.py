# SPDX-License-Identifier: GPL-2.0-only
"""The scenarios, one file each. A file says what it is about, and has cases(scale), which are its Cases."""

from collections.abc import Sequence
from dataclasses import replace
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
    larger,
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
        larger,
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


_CLASSIC_ONLY = (
    # Nothing is reclaimed, so nothing asks an LRU.
    "redis/*-none", "dense/*",
    # A limit elsewhere, or other swap, of a row that runs under both.
    "tree/*", "swap/*", "redis/read-max",
    "database/*", "cpus/*", "underused/*", "heap/*", "kernbench/*", "memcached/*", "roomy/*", "advised/*",
)  # fmt: skip
"""Rows that run under the classic LRU only, as patterns: runs are better spent on repeats."""


def cases(scale: Scale, wanted: Sequence[str] = ()) -> list[Case]:
    """The cases of all scenarios but those that have to be named, or of those that match a pattern of `wanted`
    ("redis", "redis/set-*"); LabError if a pattern matches none."""
    every = [_flavoured(case) for module in ALL.values() for case in module.cases(scale)]
    for pattern in wanted:
        if not any(_matches(case, pattern) for case in every):
            raise LabError(
                Exit.USAGE, f"no scenario matches {pattern!r}; there are: {', '.join(case.name for case in every)}"
            )
    if not wanted:
        return [case for case in every if not case.named]
    return [case for case in every if any(_matches(case, pattern) for pattern in wanted)]


def _flavoured(case: Case) -> Case:
    only = any(fnmatch(case.name, pattern) for pattern in _CLASSIC_ONLY)
    return replace(case, lrus=("classic",)) if only else case


def _matches(case: Case, pattern: str) -> bool:
    return fnmatch(case.name, pattern) or fnmatch(case.scenario, pattern)
