# SPDX-License-Identifier: GPL-2.0-only
"""The sides of the comparison: what an administrator can set today, and the policies."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from lab.paths import REPO

THP = "/sys/kernel/mm/transparent_hugepage"
SIZES_KIB = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Folio sizes of anonymous memory with base pages of 4 KiB."""
_ADVISING = ("advised/*", "vmhost/*")
"""Cases whose programs ask for huge pages."""
_SPLITS = ("redis/*-high", "redis/*-max", "late/*", "heap/*", "square/high")
"""Cases in which reclaim meets large folios in use."""


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
    """The cases it is for, as patterns; empty: all."""
    by_tenant: bool = False
    """Base pages for the tenants that do best so, by prctl(): a setting of each unit rather than of the host."""

    def meant_for(self, case: str) -> bool:
        """Whether it is run in the case of this name."""
        return not self.cases or any(fnmatch(case, pattern) for pattern in self.cases)

    @property
    def static(self) -> bool:
        """A setting that an administrator has without mthp_ext."""
        return self.policy is None

    def settings(self) -> list[tuple[str, str]]:
        """Every file to write, in order."""
        rest = self.others or self.enabled
        sizes = [(f"{THP}/hugepages-{kib}kB/enabled", self.sizes.get(kib, rest)) for kib in SIZES_KIB]
        return [(f"{THP}/enabled", self.enabled), *sizes, *self.writes]


def _policy(file: Path) -> Arm:
    """A policy that is built in. One that is a cap alone, and leaves its size to the user, gets 64 KiB."""
    name, policy = file.stem, tomllib.loads(file.read_text())
    size, *cap = ("64K", "--cap", "64K") if policy["rules"] == ["cap"] and "cap" not in policy else ("",)
    label = f"always+{name} {size}".rstrip()
    return Arm(name, label, policy["about"], "always", policy=("--policy", name, *cap), extra=True)


def _only(key: str, label: str, about: str, *sizes_kib: int) -> Arm:
    return Arm(key, label, f"always, with {about}", "always", dict.fromkeys(sizes_kib, "inherit"), "never")


def _capped(key: str, label: str, about: str, cap: str) -> Arm:
    """What the kernel could do by itself, as a policy that is a cap alone."""
    policy = ("--policy", "fixed", "--cap", cap)
    return Arm(key, label, f"always, and {about}", "always", policy=policy, extra=True, cases=_SPLITS)


ARMS = (
    Arm("always", "always", "every size for everyone", "always"),
    # Where no program asks for huge pages it is `never` under another name, and not run again.
    Arm("madvise", "madvise", "every size, for memory that asks for it", "madvise", cases=_ADVISING),
    Arm("never", "never", "4 KiB only", "never"),
    _only("only16", "16K only", "16 KiB as the only size", 16),
    _only("only32", "32K only", "32 KiB as the only size", 32),
    _only("only64", "64K only", "64 KiB as the only size", 64),
    _only("only64-2m", "64K+2M", "64 KiB and 2 MiB as the only sizes", 64, 2048),
    Arm(
        "shrinker",
        "always+shrinker",
        "always, and folios of 2 MiB with more than 409 empty pages of 512 are split under reclaim",
        "always",
        writes=((f"{THP}/shrink_underused", "1"), (f"{THP}/khugepaged/max_ptes_none", "409")),
        # Folios of which four fifths were never written: only sparse programs have any.
        cases=("mixed/*", "bloat/*", "services/*", "underused/*", "shapes/*", "advised/small"),
    ),
    Arm(
        "oracle",
        "by tenant",
        "always, but base pages (PR_SET_THP_DISABLE) for the tenants that do best so",
        "always",
        cases=("mixed/*",),
        by_tenant=True,
    ),
    Arm("mthp_ext", "always+mthp_ext", "the default policy", "always", policy=()),
    Arm(
        "mthp_madvise",
        "madvise+mthp_ext",
        "the default policy on a host set to madvise",
        "madvise",
        policy=(),
        cases=("advised/*",),
    ),
    *(_policy(file) for file in sorted((REPO / "policies").glob("*.toml")) if file.stem != "default"),
    _capped("splits", "always+splits", "reclaim may split what it meets in use", "reclaim=4K"),
    _capped("from-swap", "always, base pages from swap", "what comes back from swap comes in base pages", "swapin=4K"),
    _capped(
        "splits-swapin",
        "always+splits, base pages from swap",
        "reclaim may split, and base pages come from swap",
        "reclaim=4K,swapin=4K",
    ),
)
"""In the order of tables and of runs."""

ARM = {arm.key: arm for arm in ARMS}
USUAL = [arm.key for arm in ARMS if not arm.extra]
"""What is run when no arm is named."""
DEFAULT = "mthp_ext"
"""The arm that the gates judge."""
ON_MADVISE = "mthp_madvise"
"""The same on a host set to `madvise`, judged where programs advise."""
