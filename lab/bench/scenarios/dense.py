# SPDX-License-Identifier: GPL-2.0-only
"""The usual container: it fills most of its limit, and there is no swap. Who counts on reclaim kills it; who keeps away
from the limit gives up what it could have."""

from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Scale

_SHARES = (70, 85, 95)
"""Of the limit that the server fills, percent."""


def _case(size: store.Size, share: int) -> Case:
    # Twice the limit of the other scenarios is what the server needs.
    limit_mib = 2 * size.limit_mib * 100 // share
    title = f"Redis, SET, fills {share} % of memory.max = {limit_mib}M, no swap"
    settings = {"memory.max": limit_mib * MIB, "memory.swap.max": 0}
    return store.case("dense", f"x{share}", title, size, settings)


def cases(scale: Scale) -> list[Case]:
    """Three."""
    return [_case(store.SIZES[scale], share) for share in _SHARES]
