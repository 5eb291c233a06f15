# SPDX-License-Identifier: GPL-2.0-only
"""Looks into the built kernel: what stands where it asks a static key that is off?"""

import bisect
import struct
from dataclasses import dataclass
from pathlib import Path

from lab.cost import symbols
from lab.errors import Exit, LabError

KEY = "bpf_mthp_key"
"""The static key of the hook; with a rate limit around it, it still comes first."""
NOPS = (b"\x66\x90", b"\x0f\x1f\x44\x00\x00")
"""One instruction each, of 2 and of 5 bytes."""
_TABLE = ("__start___jump_table", "__stop___jump_table")
"""Around all entries. The section that they are in is another one from release to release."""
_ENTRY = struct.Struct("<iiq")
"""Where the code is, where it would jump to, and its key: each relative to itself. The key's lowest bits are flags."""
_FLAGS = 3


@dataclass(frozen=True)
class Site:
    """A place in the kernel's code that asks a key."""

    function: str
    code: bytes
    """What stands there, five bytes of it."""

    @property
    def is_nop(self) -> bool:
        """Nothing is done there as long as the key is off."""
        return self.code.startswith(NOPS)

    def __str__(self) -> str:
        return f"{self.function}: {self.code.hex(' ')}"


@dataclass(frozen=True)
class _Section:
    address: int
    offset: int
    size: int


def entries(table: bytes, address: int) -> list[tuple[int, int]]:
    """Addresses of code and key of each entry of a table that is loaded at `address`."""
    places = range(address, address + len(table), _ENTRY.size)
    each = zip(places, _ENTRY.iter_unpack(table), strict=True)
    return [(at + code, at + 8 + (key & ~_FLAGS)) for at, (code, _, key) in each]


def sections(image: bytes) -> dict[str, _Section]:
    """The sections of a 64-bit ELF file that are loaded."""
    if image[:5] != b"\x7fELF\x02":
        raise LabError(Exit.HOST, "not a 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", image, 40)
    size, number, names_at = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, start + i * size) for i in range(number)]
    names = headers[names_at][4]
    found = {}
    for name, kind, _, address, offset, length in headers:
        # Neither those without contents (8), nor those that are in no memory.
        if address and kind != 8:
            text = image[names + name : image.index(b"\0", names + name)].decode()
            found[text] = _Section(address, offset, length)
    return found


def sites(vmlinux: Path, key: str = KEY) -> list[Site]:
    """Where a built kernel asks `key`. LabError if its keys are no code that is patched."""
    image = vmlinux.read_bytes()
    known = sections(image)
    names = symbols.read(vmlinux)
    ends = {one.name: one.address for one in names if one.name in _TABLE}
    if set(ends) != set(_TABLE):
        raise LabError(Exit.TESTS, f"{vmlinux} has no {_TABLE[0]}: it was built without CONFIG_JUMP_LABEL")

    def offset(address: int) -> int:
        inside = next(one for one in known.values() if one.address <= address < one.address + one.size)
        return inside.offset + address - inside.address

    places = [one.address for one in names if one.name == key]
    if len(places) != 1:
        raise LabError(Exit.TESTS, f"{vmlinux} has {len(places)} symbols {key}")
    functions = [one for one in names if one.kind in "tTwW"]
    starts = [one.address for one in functions]
    first, end = (ends[name] for name in _TABLE)
    table = image[offset(first) : offset(first) + end - first]
    found = []
    for code, asked in entries(table, first):
        if asked != places[0]:
            continue
        function = functions[bisect.bisect_right(starts, code) - 1].name
        at = offset(code)
        found.append(Site(function, image[at : at + 5]))
    return found
