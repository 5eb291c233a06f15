# SPDX-License-Identifier: GPL-2.0-only
"""The programs and files that cases take into their guests, by name."""

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache as remember
from pathlib import Path

from lab import proc, programs
from lab.bench import compiler, packages
from lab.bench.payload import Payload, tool
from lab.errors import Exit, LabError
from lab.paths import REPO
from lab.vm import initramfs


def _redis() -> Payload:
    return Payload(
        {
            "redis-server": programs.redis_server().resolve(),
            "redis-benchmark": tool("redis-benchmark"),
            "redis-cli": tool("redis-cli"),
        }
    )


def _stress() -> Payload:
    return Payload({"stress": tool("stress")})


def _shell() -> Payload:
    """dash and what UnixBench's script calls, and a text to work on."""
    names = ("dash", "sort", "od", "grep", "tee", "wc", "rm", "cat")
    return Payload({name: tool(name) for name in names}, files={"/lab/text": REPO / "LICENSE"})


_LOADED = """
import mmap, sys
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print(module.__file__)
"""


def _python() -> Payload:
    """Debian's interpreter with as much of its library as it needs to start, and jemalloc."""
    python = tool("python3") if not Path("/usr/bin/python3").exists() else Path("/usr/bin/python3").resolve()
    # What it loads before a program of its command line: 3.13 has linecache among that, 3.11 has not.
    answer = proc.output(
        [str(python), "-I", "-S", "-c", _LOADED],
        what="asking Python for its library",
        code=Exit.HOST,
    )
    modules = [Path(line) for line in answer.splitlines()]
    folders = {module.parent for module in modules if module.parent.name == "encodings"}
    encodings = [path for package in folders for path in package.glob("*.py")]
    library = next(iter(sorted(Path("/usr/lib").glob("*-linux-gnu/libjemalloc.so.2"))), None)
    if library is None:
        raise LabError(Exit.HOST, "libjemalloc2 is not installed; run `make setup`")
    return Payload(
        {"python": python, "jemalloc": library},
        files={str(path): path for path in [*modules, *encodings] if path.is_file()},
    )


_MEMASLAP = b"key\n24 24 1\nvalue\n1024 1024 1\ncmd\n0 0.5\n1 0.5\n"
"""Keys of 24 bytes, values of 1024, half SET and half GET."""


def _memcached() -> Payload:
    server = packages.program("memcached", "usr/bin/memcached")
    return Payload(
        {"memcached": server, "memcaslap": tool("memcaslap")},
        data={"/lab/memaslap.cnf": _MEMASLAP},
    )


def _qemu() -> Payload:
    """QEMU, and its accelerator where that is a module."""
    modules = sorted(Path("/usr/lib").glob("*-linux-gnu/qemu/*tcg*x86_64.so"))
    return Payload({"qemu": tool("qemu-system-x86_64")}, tuple(modules))


_OUTSIDE = re.compile(rb"/usr/share/nodejs/[\w./-]+\.js")


def _node() -> Payload:
    """Node.js, and those of its builtins that Debian keeps in packages of their own: without one of them it aborts."""
    node = tool("node")
    binaries = [node, *(one for one in initramfs.libraries(node) if one.name.startswith("libnode"))]
    outside = {Path(name.decode()) for binary in binaries for name in _OUTSIDE.findall(binary.read_bytes())}
    if lacking := sorted(path for path in outside if not path.is_file()):
        raise LabError(
            Exit.HOST,
            f"{node} reads {lacking[0]} at its start, which is not there: its packages are not whole. Try "
            "`apt-get install --reinstall nodejs node-acorn node-cjs-module-lexer node-undici`, or leave the row "
            "heap/node-high out (SCENARIO names the others)",
        )
    return Payload({"node": node}, files={str(path): path for path in sorted(outside)})


def _sqlite() -> Payload:
    return Payload({"sqlite3": tool("sqlite3")})


_SOFTWARE: dict[str, Callable[[], Payload]] = {
    "redis": _redis,
    "stress": _stress,
    "shell": _shell,
    "python": _python,
    "compiler": compiler.libbpf,
    "kernel": compiler.kernel,
    "memcached": _memcached,
    "qemu": _qemu,
    "node": _node,
    "sqlite": _sqlite,
}
NAMES = tuple(_SOFTWARE)
"""What a case may ask for."""


def provide(name: str, own: Payload) -> None:
    """Adds what is not the lab's own, in place of what had the name before."""
    _SOFTWARE[name] = lambda: own
    payload.cache_clear()


@remember
def payload(name: str) -> Payload:
    """What `name` brings; LabError if the host does not have it."""
    return _SOFTWARE[name]()


@remember
def file_hash(path: Path) -> str:
    """Of a file's content; LabError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LabError(Exit.HOST, f"cannot read {path}: {error.strerror}") from error


def merge(names: Iterable[str]) -> Payload:
    """All of several pieces of software in one."""
    parts = [payload(name) for name in names]
    return Payload(
        {name: path for part in parts for name, path in part.paths.items()},
        tuple(path for part in parts for path in part.programs),
        {guest: path for part in parts for guest, path in part.files.items()},
        {guest: content for part in parts for guest, content in part.data.items()},
    )


def hashes(everything: Payload, *always: Path) -> dict[str, str]:
    """Path -> hash of all that `everything` takes into the guest, with the libraries that it and the programs `always`
    load, and the shell that every guest has."""
    binaries = [*everything.paths.values(), *everything.programs]
    loaded = {library for program in [*binaries, *always] for library in initramfs.libraries(program)}
    contents = {guest: hashlib.sha256(content).hexdigest() for guest, content in everything.data.items()}
    files = [*binaries, *everything.files.values(), *sorted(loaded), initramfs.BUSYBOX]
    return contents | {str(path): file_hash(path) for path in files}
