# SPDX-License-Identifier: GPL-2.0-only
"""The programs and files that cases take into their guests, by name."""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path

from lab import initramfs, proc, programs
from lab.bench import packages
from lab.errors import Exit, LabError
from lab.kernel import source
from lab.lock import locked
from lab.paths import REPO


@dataclass(frozen=True)
class Payload:
    """What one piece of software brings."""

    paths: dict[str, Path] = field(default_factory=dict)
    """Name that tasks use -> host binary, kept at its path with the libraries it loads."""
    programs: tuple[Path, ...] = ()
    """More binaries and shared objects, which no task names."""
    files: dict[str, Path] = field(default_factory=dict)
    """Guest path -> host file."""
    data: dict[str, bytes] = field(default_factory=dict)
    """Guest path -> content."""


def tool(name: str) -> Path:
    """A program of the host; LabError if it is not installed."""
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        raise LabError(Exit.HOST, f"{name} is not installed; run `make setup`")
    return Path(found).resolve()


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


def _python() -> Payload:
    """Debian's interpreter with as much of its library as it needs to start, and jemalloc."""
    python = tool("python3") if not Path("/usr/bin/python3").exists() else Path("/usr/bin/python3").resolve()
    answer = proc.output(
        [str(python), "-I", "-S", "-c", "import encodings; print(encodings.__path__[0])"],
        what="asking Python for its library",
        code=Exit.HOST,
    )
    encodings = Path(answer.strip())
    library = next(iter(sorted(Path("/usr/lib").glob("*-linux-gnu/libjemalloc.so.2"))), None)
    if library is None:
        raise LabError(Exit.HOST, "libjemalloc2 is not installed; run `make setup`")
    return Payload(
        {"python": python, "jemalloc": library},
        files={str(path): path for path in encodings.glob("*.py")},
    )


_MAKEFILE = b"""
all: $(FILES:=.o)
%.o: /src/tools/lib/bpf/%.c
	$(CC) -O2 -I/src/tools/lib/bpf -I/src/tools/include -I/src/tools/include/uapi \\
		-D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 -c -o $@ $<
"""


def _compiler() -> Payload:
    """gcc as far as object files, make, and libbpf of the kernel's source with every header it includes."""
    with locked("kernel"):
        tree = source.get().tree
    gcc = tool("gcc")

    def answer(*argv: str, where: Path | None = None) -> str:
        return proc.output([str(gcc), *argv], what="asking gcc", code=Exit.HOST, cwd=where).strip()

    # Debian has it under a longer name, which gcc does not look for.
    assembler = tool(Path(answer("-print-prog-name=as")).name)
    sources = sorted((tree / "tools" / "lib" / "bpf").glob("*.c"))
    include = [f"-I{tree / 'tools' / place}" for place in ("lib/bpf", "include", "include/uapi")]
    # Some headers are included by others only when the compiler optimises.
    rules = answer("-M", "-O2", "-D_GNU_SOURCE", *include, *(str(path) for path in sources))
    headers = {Path(word) for word in rules.replace("\\", " ").split() if word.endswith(".h")}
    files = {str(path): path for path in headers if not path.is_relative_to(tree)}
    for path in [*sources, *headers]:
        if path.is_relative_to(tree):
            files[f"/src/{path.resolve().relative_to(tree.resolve())}"] = path
    return Payload(
        {"gcc": gcc, "make": tool("make")},
        (Path(answer("-print-prog-name=cc1")), assembler),
        {"/usr/bin/as": assembler, **files},
        {"/lab/Makefile": _MAKEFILE},
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


_SOFTWARE: dict[str, Callable[[], Payload]] = {
    "redis": _redis,
    "stress": _stress,
    "shell": _shell,
    "python": _python,
    "compiler": _compiler,
    "memcached": _memcached,
    "qemu": _qemu,
}
NAMES = tuple(_SOFTWARE)
"""What a case may ask for."""


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


@remember
def _libraries(program: Path) -> list[Path]:
    return initramfs.libraries(program)


def hashes(everything: Payload, *always: Path) -> dict[str, str]:
    """Path -> hash of all that `everything` takes into the guest, with the libraries that it and the programs `always`
    load, and the shell that every guest has."""
    binaries = [*everything.paths.values(), *everything.programs]
    loaded = {library for program in [*binaries, *always] for library in _libraries(program)}
    contents = {guest: hashlib.sha256(content).hexdigest() for guest, content in everything.data.items()}
    files = [*binaries, *everything.files.values(), *sorted(loaded), initramfs.BUSYBOX]
    return contents | {str(path): file_hash(path) for path in files}
