# SPDX-License-Identifier: GPL-2.0-only
"""Builds the guest's file system: busybox, the programs of a job with the libraries they load, its files."""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import BinaryIO

from lab.errors import Exit, LabError
from lab.vm.cpio import CpioWriter

BUSYBOX = Path("/bin/busybox")
_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$")
_HIDDEN = ("/dev/", "/proc/", "/sys/")
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
_GROUP = b"root:x:0:\nnogroup:x:65534:\n"


def parse_ldd(text: str) -> list[Path]:
    """The files an `ldd` report names, the loader included; LabError when a library was not found."""
    missing = [line.strip() for line in text.splitlines() if line.rstrip().endswith("not found")]
    if missing:
        raise LabError(
            Exit.HOST, f"a program for the guest lacks libraries on this host: {', '.join(missing)}; run `make setup`"
        )
    # A library found by $ORIGIN comes with "bin/../lib" in its path.
    return [Path(os.path.normpath(match[1])) for line in text.splitlines() if (match := _LIBRARY.match(line))]


@cache
def libraries(program: Path) -> list[Path]:
    """The shared libraries `program` needs, found by the host's own loader; empty for a static one."""
    done = subprocess.run(
        ["ldd", str(program)], capture_output=True, text=True, check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    )
    if done.returncode != 0:
        report = done.stdout + done.stderr
        if "not a dynamic executable" in report or "statically linked" in report:
            return []
        raise LabError(Exit.HOST, f"ldd cannot read {program}: {report.strip()}")
    return parse_ldd(done.stdout)


def _applets() -> list[str]:
    done = subprocess.run([str(BUSYBOX), "--list"], capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise LabError(Exit.HOST, f"{BUSYBOX} --list failed: {done.stderr.strip()}; run `make setup`")
    return done.stdout.split()


def read(path: Path) -> bytes:
    """A host file's content, or a LabError that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError(Exit.HOST, f"cannot read {path} for the guest: {error.strerror}") from error


def build(
    out: BinaryIO,
    init: Path,
    programs: Iterable[Path] = (),
    files: Mapping[str, Path] | None = None,
    data: Mapping[str, bytes] | None = None,
) -> None:
    """Writes an initramfs to `out`.

    `init` becomes /init; `programs` keep their host paths; `files` maps guest paths to host files (mode bits are
    kept); `data` maps guest paths to contents, mode 0600. /bin/NAME exists for every busybox applet.
    """
    archive = CpioWriter(out)
    # Debian's merged /usr, so that an interpreter path means the same file as on the host.
    archive.directory("/usr")
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            archive.directory(f"/usr/{name}")
            archive.symlink(f"/{name}", f"usr/{name}")
        else:
            archive.directory(f"/{name}")
    for name in ("dev", "etc", "proc", "root", "run", "sys", "var", "mnt"):
        archive.directory(f"/{name}")
    archive.directory("/tmp", 0o1777)
    archive.character_device("/dev/console", 5, 1)

    def place(guest: str, source: Path) -> None:
        target = _canonical(guest)
        if target.startswith(_HIDDEN):
            raise LabError(
                Exit.HOST, f"{guest} cannot be given to the guest, whose own file systems cover it; keep it elsewhere"
            )
        if target not in archive:
            archive.file(target, read(source), source.stat().st_mode & 0o7777)

    wanted = [("/init", init), *((str(path), path) for path in programs)]
    for guest, source in [*wanted, *(files or {}).items()]:
        if not source.exists():
            raise LabError(Exit.HOST, f"no such file for the guest: {source}")
        place(guest, source)
    place("/bin/busybox", BUSYBOX)
    for source in [BUSYBOX, *(source for _, source in wanted)]:
        for library in libraries(source):
            place(str(library), library)
    for guest, content in (data or {}).items():
        archive.file(_canonical(guest), content, 0o600)
    for path, content in (("/etc/passwd", _PASSWD), ("/etc/group", _GROUP)):
        if path not in archive:
            archive.file(path, content)
    for applet in _applets():
        if (path := _canonical(f"/bin/{applet}")) not in archive:
            archive.symlink(path, "busybox")
    archive.finish()


def _canonical(guest: str) -> str:
    """/bin/x and /usr/bin/x are one file where the host has merged them."""
    top = guest.strip("/").split("/", 1)[0]
    return f"/usr{guest}" if top in ("bin", "sbin", "lib", "lib64") and Path("/", top).is_symlink() else guest
