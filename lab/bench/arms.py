# SPDX-License-Identifier: GPL-2.0-only
"""The sides of the comparison: what an administrator can set today, and the policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field

THP = "/sys/kernel/mm/transparent_hugepage"
SIZES_KIB = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Folio sizes of anonymous memory with base pages of 4 KiB."""


@dataclass(frozen=True)
class Arm:
    """One side of the comparison."""

    key: str
    label: str
    about: str
    enabled: str
    """The setting of THP as a whole, and of each size that `sizes` does not name."""
    sizes: Mapping[int, str] = field(default_factory=dict)
    """Size in KiB -> its own setting."""
    others: str | None = None
    """Setting of the sizes that `sizes` does not name, where it is not `enabled`."""
    writes: tuple[tuple[str, str], ...] = ()
    """More files and what is written to them."""
    policy: tuple[str, ...] | None = None
    """Arguments of `mthp_ext run`, attached to the root cgroup; None: a static arm."""
    extra: bool = False
    """Run only where it is named."""
    cases: tuple[str, ...] = ()
    """The cases it is for; empty: all."""

    @property
    def static(self) -> bool:
        """A setting that an administrator has without mthp_ext."""
        return self.policy is None

    def settings(self) -> list[tuple[str, str]]:
        """Every file to write, in order."""
        rest = self.others or self.enabled
        sizes = [(f"{THP}/hugepages-{kib}kB/enabled", self.sizes.get(kib, rest)) for kib in SIZES_KIB]
        return [(f"{THP}/enabled", self.enabled), *sizes, *self.writes]


def _special(name: str, about: str) -> Arm:
    return Arm(name, f"always+{name}", about, "always", policy=("--policy", name), extra=True)


ARMS = (
    Arm("always", "always", "every size for everyone", "always"),
    Arm("madvise", "madvise", "every size, for memory that asks for it", "madvise"),
    Arm("never", "never", "4 KiB only", "never"),
    Arm("only64", "64K only", "always, with 64 KiB as the only size", "always", {64: "inherit"}, "never"),
    Arm(
        "shrinker",
        "always+shrinker",
        "always, and folios of 2 MiB with more than 409 empty pages of 512 are split under reclaim",
        "always",
        writes=((f"{THP}/shrink_underused", "1"), (f"{THP}/khugepaged/max_ptes_none", "409")),
    ),
    Arm("mthp_ext", "always+mthp_ext", "the default policy", "always", policy=()),
    Arm("reactive", "always+reactive", "the proposal's rule", "always", policy=("--policy", "reactive")),
    Arm("headroom", "always+headroom", "by the distance to the limit", "always", policy=("--policy", "headroom")),
    Arm("fixed", "always+fixed 64K", "64 KiB at most", "always", policy=("--policy", "fixed", "--cap", "64K")),
    _special("database", "the policy for databases with snapshots: 64 KiB at most"),
    _special("small-services", "the policy for many small processes"),
    _special("vm-host", "the policy for virtual machines whose memory nobody advises"),
)
"""In the order of tables and of runs."""

ARM = {arm.key: arm for arm in ARMS}
USUAL = [arm.key for arm in ARMS if not arm.extra]
"""What is run when no arm is named."""
DEFAULT = "mthp_ext"
"""The arm that the gates judge."""
