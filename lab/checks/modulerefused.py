# SPDX-License-Identifier: GPL-2.0-only
"""What the module's build, its load and the kernel refuse: each provoked once, and what is said then."""

import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from lab import proc
from lab.checks import moduleguest
from lab.checks.result import Suite
from lab.kernel import stockbuild
from lab.kernel.build import Kernel
from lab.kernel.stockbuild import Stock
from lab.paths import BUILD, REPO

_NAMESAKE = """// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
MODULE_DESCRIPTION("Has the name, and is something else");
MODULE_LICENSE("GPL");
"""
_DIRECTORY = "/refused"
_OUT = BUILD / "module-refused"
_FUNCTION = "__thp_vma_allowable_orders"


def unknown_callers(source: str) -> str:
    """The module for a kernel that swaps in by functions of other names."""
    for name in ("do_swap_page", "alloc_swap_folio", "thp_swapin_suitable_orders"):
        source = source.replace(f'"{name}"', f'"mthp_no_{name}"')
    return source


def without_types(source: str) -> str:
    """The module as a build that skips type information would leave it."""
    begin = source.index('asm(".pushsection .BTF')
    return source[:begin] + source[source.index(";", begin) + 1 :]


def blind(source: str) -> str:
    """The module as it would be on a kernel that does not look at what it is given."""
    return source.replace("->regs.cx = orders;", "->regs.cx |= orders;")


def in_guest(kernel: Stock, module: Path) -> Suite:
    """lab/checks/module-refused.sh, with modules for it."""
    source = (REPO / "module" / "mthp_hook.c").read_text()
    build = stockbuild.build_module
    modules = {
        "usual": module,
        "other": build(kernel, "other", btf=another_build(types_of(stockbuild.vmlinux(kernel)))),
        "without": build(kernel, "without", source=without_types(source)),
        "namesake": build(kernel, "namesake", source=_NAMESAKE),
        "blind": build(kernel, "blind", source=blind(source)),
        "unknown": build(kernel, "unknown", source=unknown_callers(source)),
    }
    files = {f"{_DIRECTORY}/{name}/{path.name}": path for name, path in modules.items()}
    files["/try.sh"] = REPO / "module" / "try.sh"
    path = REPO / "lab" / "checks" / "module-refused.sh"
    return moduleguest.script(kernel, "refused", path, [_DIRECTORY], files)


def unsigned(kernel: Stock, module: Path) -> Suite:
    """lab/checks/module-signed.sh: what a kernel says that wants signatures, as under secure boot."""
    inside = f"{_DIRECTORY}/{module.name}"
    path = REPO / "lab" / "checks" / "module-signed.sh"
    return moduleguest.script(kernel, "signed", path, [inside], {inside: module}, "module.sig_enforce=1")


def types_of(elf: Path) -> bytes:
    """The section .BTF of a kernel."""
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        raw = Path(scratch) / "raw.btf"
        argv = ["objcopy", "--dump-section", f".BTF={raw}", str(elf), "/dev/null"]
        log = BUILD / "log" / f"module-refused-{elf.parent.name}.log"
        proc.run(argv, log=log, what=f"reading the types of {elf}")
        return raw.read_bytes()


def another_build(raw: bytes) -> bytes:
    """The types of another build of the same kernel: one more of them, a pointer."""
    magic, version, flags, header, types, length, strings, size = struct.unpack_from("<HBBIIIII", raw)
    end = header + types + length
    more = struct.pack("<III", 0, 2 << 24, 1)
    head = struct.pack("<HBBIIIII", magic, version, flags, header, types, length + len(more), strings + len(more), size)
    return head + raw[len(head) : end] + more + raw[end:]


class Types:
    """BTF whose types can be changed in place."""

    _REST: ClassVar = {1: 4, 3: 12, 14: 4, 17: 4}
    _EACH: ClassVar = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}

    def __init__(self, raw: bytes) -> None:
        self.raw = bytearray(raw)
        header, types, length, strings, _ = struct.unpack_from("<4xIIIII", self.raw)
        self._types, self._end, self._strings = header + types, header + types + length, header + strings

    def _name(self, at: int) -> str:
        begin = self._strings + struct.unpack_from("<I", self.raw, at)[0]
        return self.raw[begin : self.raw.index(0, begin)].decode()

    def each(self) -> Iterator[tuple[int, int, int, str]]:
        """Id, place, kind and name of each type."""
        at, number = self._types, 1
        while at < self._end:
            info = struct.unpack_from("<I", self.raw, at + 4)[0]
            kind, elements = info >> 24 & 0x1F, info & 0xFFFF
            yield number, at, kind, self._name(at)
            at += 12 + self._REST.get(kind, 0) + self._EACH.get(kind, 0) * elements
            number += 1

    def place(self, kind: int, name: str) -> tuple[int, int]:
        """Id and place of a type."""
        return next((number, at) for number, at, of, called in self.each() if (of, called) == (kind, name))

    def put(self, at: int, word: int) -> None:
        """Changes a word."""
        struct.pack_into("<I", self.raw, at, word)

    def word(self, at: int) -> int:
        """A word."""
        return int(struct.unpack_from("<I", self.raw, at)[0])

    def prototype(self) -> int:
        """Place of the prototype of the function that is hooked."""
        wanted = self.word(self.place(12, _FUNCTION)[1] + 8)
        return next(at for number, at, _, _ in self.each() if number == wanted)


def doctored(raw: bytes) -> dict[str, bytes]:
    """Kernels whose function is another one: what is different -> their types."""
    changed = {}
    for what, parameter, kind, name in (
        ("takes an int for its reason", 2, 1, "int"),
        ("takes an int for its orders", 3, 1, "int"),
        ("takes another enum for its reason", 2, 6, "psi_states"),
        ("returns an int", None, 1, "int"),
    ):
        types = Types(raw)
        number, _ = types.place(kind, name)
        at = types.prototype()
        types.put(at + 8 if parameter is None else at + 12 + 8 * parameter + 4, number)
        changed[what] = bytes(types.raw)
    types = Types(raw)
    at = types.place(12, _FUNCTION)[1]
    types.put(at + 8, types.word(types.place(12, "vm_normal_page")[1] + 8))
    changed["takes other arguments"] = bytes(types.raw)
    types = Types(raw)
    types.put(types.place(12, _FUNCTION)[1], types.word(types.place(12, "vm_normal_page")[1]))
    changed["is gone"] = bytes(types.raw)
    types = Types(raw)
    at = types.prototype()
    if questions := [at for _, at, kind, name in types.each() if (kind, name) == (6, "tva_type")]:
        # As a question that is put between the others would move them.
        types.put(questions[0] + 12 + 8 + 4, 7)
        changed["has another number for page faults"] = bytes(types.raw)
    else:
        types.put(at + 12 + 8 * 2, types.word(at + 12 + 8 * 3))
        changed["has something else in the place of tva_flags"] = bytes(types.raw)
    return changed


def _types_made_anew(kernel: Stock) -> tuple[bool, str]:
    """Makes the types for one kernel after another in one directory, by files that are older than what was made first;
    whether they differ."""
    directory = _OUT / "anew"
    directory.mkdir(parents=True, exist_ok=True)
    for one in ("Makefile", "mkbtf.c"):
        shutil.copy2(REPO / "module" / one, directory / one)

    def make(btf: Path) -> bytes:
        log = BUILD / "log" / "module-refused.log"
        argv = ["make", "-C", str(directory), "HOSTCC=cc", f"BTF={btf}", "mthp_btf.h"]
        proc.run(argv, log=log, what="making the types of the module", env=proc.outside_make())
        return (directory / "mthp_hook.btf").read_bytes()

    given = directory / "another.btf"
    given.write_bytes(another_build(types_of(stockbuild.vmlinux(kernel))))
    first = make(stockbuild.vmlinux(kernel))
    os.utime(given, (0, 0))
    second = make(given)
    return first != second, "they are those of the kernel before"


def at_build(kernels: Sequence[Stock], series: Kernel) -> Suite:
    """What mkbtf refuses, on the host: it reads the kernel's types before anything is compiled."""
    suite = Suite("module/refused-build")
    begin = time.monotonic()
    _OUT.mkdir(parents=True, exist_ok=True)
    mkbtf = _OUT / "mkbtf"
    argv = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(mkbtf), str(REPO / "module" / "mkbtf.c")]
    proc.run(argv, log=BUILD / "log" / "module-refused.log", what="building mkbtf")

    def refuses(name: str, content: bytes, wanted: str) -> None:
        given, out = _OUT / "given.btf", _OUT / "out.btf"
        given.write_bytes(content)
        out.unlink(missing_ok=True)
        done = subprocess.run(
            [str(mkbtf), str(given), str(out), str(_OUT / "out.h")], capture_output=True, text=True, check=False
        )
        ok = done.returncode == 1 and wanted in done.stderr and not out.exists()
        suite.check(name, ok, f"exit code {done.returncode}, {done.stderr!r}, wanted {wanted!r}")

    for kernel in kernels:
        raw = types_of(stockbuild.vmlinux(kernel))
        for what, content in doctored(raw).items():
            wanted = f"no {_FUNCTION}" if what == "is gone" else f"this kernel has another {_FUNCTION}()"
            refuses(f"{kernel.name}: a kernel whose function {what}", content, wanted)
        refuses(f"{kernel.name}: types that are cut off", raw[: len(raw) // 2], "the BTF is cut off")
        name = f"{kernel.name}: the types are those of the kernel named last"
        suite.check(name, *_types_made_anew(kernel))
    refuses("what is no BTF", b"no BTF", "is no BTF")
    refuses("a kernel with the series", types_of(series.vmlinux), "this kernel has the hook itself")
    suite.seconds = time.monotonic() - begin
    suite.settle()
    return suite
