# SPDX-License-Identifier: GPL-2.0-only
"""The QEMU that the TLB model runs in: the host's where it is one that the model was checked with, else Debian's,
unpacked into the cache. The host's stays as it is."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab import proc, programs
from lab.errors import Exit, LabError
from lab.kernel.debian import Attempts, PrivateApt, host_config, mirrors
from lab.lock import locked
from lab.paths import BUILD, cache
from lab.vm import qemu

SERIES = "10.0"
"""The only one: an older one lets no plugin read registers and memory, a newer one must pass the model's test first."""
_SUITES = {"bookworm": "bookworm-backports", "trixie": "trixie"}
"""Release of the host -> where Debian has that series, built against the host's libraries."""
_PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
_LOG = BUILD / "log" / "tlb-qemu.log"
_FIRMWARE = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")


def fits(version: str) -> bool:
    """Whether this line of `qemu --version` names a QEMU that the model was checked with."""
    return re.search(rf"version {re.escape(SERIES)}\.\d+", version) is not None


def find(renew: bool = False) -> qemu.Emulator:
    """The emulator, fetched if need be, or if there is a newer one and `renew`; LabError if none can be had."""
    program = qemu.binary()
    mine = programs.version([program, "--version"])
    if fits(mine):
        return qemu.Emulator(program)
    with locked("tlb-qemu"):
        # Built against the libraries of a release: after an upgrade of the host another one is needed.
        release = _release()
        kept = sorted(cache().glob(f"tlb-qemu-{release}-*/complete"), key=lambda path: path.stat().st_mtime)
        directory = kept[-1].parent if kept else None
        if directory is None or renew:
            try:
                directory = _fetch(release, mine)
            except LabError as error:
                if directory is None or error.code is not Exit.SOURCE:
                    raise
    return _check(directory)


def _release() -> str:
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    found = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _fetch(release: str, mine: str) -> Path:
    """Where Debian's is unpacked."""
    suite = _SUITES.get(release)
    if suite is None:
        raise LabError(
            Exit.SOURCE,
            f"the TLB model needs QEMU {SERIES}; the host's is {mine or 'unknown'}, and Debian has none for "
            f"{release or 'this system'}: use Debian {' or '.join(_SUITES)}, or measure without the model",
        )
    config, attempts = host_config(), Attempts()
    with tempfile.TemporaryDirectory(dir=cache()) as name:
        work = Path(name)
        for number, mirror in enumerate(mirrors(config)):
            apt = PrivateApt(work / f"apt{number}", config, mirror, suite)
            ok, text = apt.call("apt-get", "update", "--error-on=any")
            if not ok:
                attempts.add(f"{suite} (mirror of {mirror.where})", text)
                continue
            return _download(apt, work, release, suite)
    tried = "\n  ".join(attempts.lines or ["the host's apt sources name no Debian mirror"])
    raise LabError(
        Exit.SOURCE,
        f"the TLB model needs QEMU {SERIES}; the host's is {mine or 'unknown'}, and no mirror of Debian's could be "
        f"asked, likely for lack of a network; try again with one, or measure without the model:\n  {tried}",
    )


def offered(madison: str) -> str:
    """The version of QEMU in the answer of `apt-cache madison`; empty if none is of the series."""
    versions = [line.split("|")[1].strip() for line in madison.splitlines() if line.count("|") >= 2]
    return next((one for one in versions if re.match(rf"(\d+:)?{re.escape(SERIES)}\.\d", one)), "")


def _download(apt: PrivateApt, work: Path, release: str, suite: str) -> Path:
    """The mirror answered, so whatever fails now is no lack of a network."""
    ok, text = apt.call("apt-cache", "madison", _PACKAGES[0])
    version = offered(text) if ok else ""
    if not version:
        raise LabError(
            Exit.QEMU,
            f"{suite} has no QEMU {SERIES} any more, which the TLB model was checked with: it may have moved, see "
            f"_SUITES in lab/tlb/emulator.py; apt says: {' '.join(text.split())[:300] or 'nothing'}",
        )
    directory = cache() / f"tlb-qemu-{release}-{version.replace(':', '.')}"
    if (directory / "complete").exists():
        return directory
    ok, text = apt.call("apt-get", "download", *_PACKAGES)
    debs = sorted((apt.directory / "download").glob("*.deb"))
    if not ok or len(debs) != len(_PACKAGES):
        raise LabError(
            Exit.QEMU, f"QEMU {version} of {suite} is listed and cannot be downloaded: {' '.join(text.split())[:300]}"
        )
    _unpack(debs, work / "tree", directory)
    return directory


def _unpack(debs: list[Path], tree: Path, directory: Path) -> None:
    for number, deb in enumerate(debs):
        what = f"unpacking {deb.name}"
        proc.run(["dpkg-deb", "-x", str(deb), str(tree)], log=_LOG, what=what, code=Exit.QEMU, append=number > 0)
    (tree / "complete").touch()
    shutil.rmtree(directory, ignore_errors=True)
    tree.rename(directory)
    print(f"tlb: QEMU {SERIES} unpacked into {directory}; the host's stays as it is", flush=True)


def _check(directory: Path) -> qemu.Emulator:
    program = directory / "usr/bin/qemu-system-x86_64"
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    lacking = re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)
    if lacking:
        raise LabError(
            Exit.QEMU,
            f"{program} needs libraries that the host's QEMU of this release brings, and lacks {', '.join(lacking)}: "
            "install qemu-system-x86 (`make setup`), or measure without the TLB model",
        )
    version = programs.version([str(program), "--version"])
    if not fits(version):
        raise LabError(
            Exit.QEMU,
            f"{program} is {version or 'no program that runs'}, not QEMU {SERIES}: likely another release's; remove "
            f"{directory}, and it is fetched again",
        )
    firmware = [str(directory / part) for part in _FIRMWARE if (directory / part).is_dir()]
    return qemu.Emulator(str(program), tuple(word for path in firmware for word in ("-L", path)))
