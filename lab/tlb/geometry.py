# SPDX-License-Identifier: GPL-2.0-only
"""Sizes of the modelled TLB, and what they stand for."""

import re
from dataclasses import dataclass, field

from lab.errors import Exit, LabError

_WAYS = 16
_STRUCTURES = ("l1_small", "l1_large", "l2", "pde", "pdpte")
_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST = 1 / 32
"""Share of the TLB that must remain. At a sixtieth a request walked a hundred times."""
JOINS = {"off": 0, "16K": 2, "64K": 4}
"""Coalescing: one entry for that much contiguous memory in base pages. Zen joins 16 KiB, Arm's contpte 64 KiB."""


@dataclass(frozen=True)
class Shape:
    """Of a set-associative structure."""

    sets: int
    ways: int

    @property
    def entries(self) -> int:
        """All of them."""
        return self.sets * self.ways

    def scaled(self, share: float) -> "Shape":
        """With this share of the entries, at least one."""
        entries = max(1, round(self.entries * share))
        ways = min(self.ways, entries)
        return Shape(max(1, round(entries / ways)), ways)

    def __str__(self) -> str:
        return f"{self.sets}x{self.ways}"


@dataclass(frozen=True)
class Geometry:
    """Of a data TLB and its page-walk caches; by default about that of a server processor of 2020 to 2024."""

    l1_small: Shape = field(default=Shape(16, 6))
    l1_large: Shape = field(default=Shape(8, 4))
    l2: Shape = field(default=Shape(128, _WAYS))
    pde: Shape = field(default=Shape(16, 4))
    pdpte: Shape = field(default=Shape(4, 4))
    join: str = "off"
    giants: tuple[Shape, Shape] | None = None
    """Entries of L1 and L2 for 1 GiB; None: such a page is entered as pieces of 2 MiB, of which there are more."""

    def words(self) -> list[str]:
        """As the plugin reads it."""
        shapes = [f"{name.replace('_', '-')}={getattr(self, name)}" for name in _STRUCTURES]
        if self.giants:
            shapes += [f"l{level}-giant={shape}" for level, shape in enumerate(self.giants, 1)]
        return [*shapes, f"coalesce={JOINS[self.join]}"]

    def standing_for(self, real_bytes: int, modelled_bytes: int) -> "Geometry":
        """The reach of every structure in the proportion of the modelled data to the real. L1 goes along: it would be
        larger than L2, and its hits do not keep an entry of L2 young, so that both would hold different pages. LabError
        where it would be too small for what does not grow with data."""
        share = min(1.0, modelled_bytes / real_bytes)
        if share < _LEAST:
            real, most = real_bytes / (1 << 30), modelled_bytes / _LEAST / (1 << 30)
            raise LabError(
                Exit.USAGE,
                f"{modelled_bytes >> 20} MiB cannot stand for {real:.3g} GiB: the TLB would be too small for stacks "
                f"and buffers, which do not grow with data; name {most:.2g}G or less, or take a larger scale",
            )
        return Geometry(**{name: getattr(self, name).scaled(share) for name in _STRUCTURES}, join=self.join)

    @property
    def reach(self) -> str:
        """Memory that L1 and L2 together map at most, for readers."""
        small, large = (one.entries + self.l2.entries for one in (self.l1_small, self.l1_large))
        return f"{small * 4 / 1024:.3g} MiB in base pages, {large * 2:,} MiB in 2 MiB"

    @property
    def text(self) -> str:
        """For readers."""
        join = "" if self.join == "off" else f"; contiguous base pages share an entry for {self.join}iB"
        giants = f", {self.giants[0].entries} and {self.giants[1].entries} of 1 GiB" if self.giants else ""
        return (
            f"L1 {self.l1_small.entries} entries of 4 KiB and {self.l1_large.entries} of 2 MiB, L2 {self.l2.entries}, "
            f"page-walk caches {self.pde.entries} and {self.pdpte.entries}{giants}{join}; reach {self.reach}"
        )


def size(text: str) -> int:
    """Bytes in "1.5G"; LabError if it is no size."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])", text)
    if not found or float(found[1]) == 0:
        raise LabError(Exit.USAGE, f"{text!r} is not a size: write a number and M, G or T, such as 1G")
    return round(float(found[1]) * _UNITS[found[2]])
