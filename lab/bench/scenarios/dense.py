# SPDX-License-Identifier: GPL-2.0-only
"""The usual container: it fills most of its limit, and there is no swap. A policy that counts on reclaim kills it; one
that keeps away from the limit gives up what it could have."""

from dataclasses import replace

from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Scale

_SHARES = (70, 85, 95)
"""Of the limit that the server fills, percent."""


def _case(scale: Scale, share: int) -> Case:
    size = store.SIZES[scale]
    limit_mib = store.NEEDED_MIB[scale] * 100 // share
    title = f"Redis, SET, fills {share} % of memory.max = {limit_mib}M, no swap"
    settings = {"memory.max": limit_mib * MIB, "memory.swap.max": 0}
    # Nothing is reclaimed, so nothing is a reason to do without large folios.
    # At 95 % `always` may be killed: the measure is what it has without a limit.
    return replace(store.case("dense", f"x{share}", title, size, settings), roomy=True, free="redis/set-none")


def cases(scale: Scale) -> list[Case]:
    """Three; below 70 %, `roomy` is next."""
    return [_case(scale, share) for share in _SHARES]
