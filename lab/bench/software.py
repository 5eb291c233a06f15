# SPDX-License-Identifier: GPL-2.0-only
"""The programs and files that cases take into their guests, by name."""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path

from lab import proc, programs
from lab.errors import Exit, LabError
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


_SOFTWARE: dict[str, Callable[[], Payload]] = {
    "redis": _redis,
    "stress": _stress,
    "shell": _shell,
    "python": _python,
}
NAMES = tuple(_SOFTWARE)
"""What a case may ask for."""


@remember
def payload(name: str) -> Payload:
    """What `name` brings; LabError if the host does not have it."""
    return _SOFTWARE[name]()


@remember
def file_hash(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def merge(names: Iterable[str]) -> Payload:
    """All of several pieces of software in one."""
    parts = [payload(name) for name in names]
    return Payload(
        {name: path for part in parts for name, path in part.paths.items()},
        tuple(path for part in parts for path in part.programs),
        {guest: path for part in parts for guest, path in part.files.items()},
    )


def hashes(everything: Payload) -> dict[str, str]:
    """Path -> hash of all that `everything` takes into the guest."""
    binaries = [*everything.paths.values(), *everything.programs]
    return {str(path): file_hash(path) for path in [*binaries, *everything.files.values()]}
