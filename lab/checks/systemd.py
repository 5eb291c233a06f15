# SPDX-License-Identifier: GPL-2.0-only
"""`make test-systemd`: the unit under systemd as PID 1, in a guest with the lab's kernel whose file system is made of
Debian packages. `make test-deb` has a guest of the same kind (lab/checks/deb.py)."""

import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab import proc, programs, setup, space
from lab.checks import tap
from lab.checks.ansible import out_in_one_command
from lab.checks.result import Status, Suite
from lab.errors import Exit
from lab.kernel import build
from lab.kernel.build import Kernel
from lab.lock import locked
from lab.paths import BUILD, REPO, cache
from lab.vm import Mode, accel, initramfs, qemu
from lab.vm.cpio import CpioWriter
from lab.vm.verdict import splats

_SEEDS = ("systemd", "bash", "coreutils", "curl", "grep", "mount", "procps", "sed", "util-linux")
_NOT_NEEDED = re.compile(r"perl(?!-base)|debconf|^(usrmerge|usr-is-merged|install-info|gcc-\d+$|libelogind|dmsetup)")
"""Of what those depend on: what only installs them, and alternatives."""
_INSTALLERS = re.compile(r"perl|^(dpkg|tar|debianutils|gcc-)")
"""Not needed either, where no package is installed."""
_LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/lib/udev/hwdb.d")
_LOG = BUILD / "log" / "systemd-root.log"
_HERE = REPO / "lab" / "checks"
_ROOT_MIB = 1024
_TIMEOUT_S = 900.0
_PORT = "output"

_MASKED = (
    "systemd-hwdb-update",
    "systemd-journal-catalog-update",
    "systemd-journal-flush",
    "systemd-update-done",
    "systemd-update-utmp",
    "systemd-random-seed",
    "systemd-sysusers",
    "systemd-machine-id-commit",
    "systemd-firstboot",
    "systemd-pstore",
    "ldconfig",
    "systemd-binfmt",
    "systemd-modules-load",
    "systemd-network-generator",
)
"""Services of a boot that change nothing for the unit, and take their time emulated."""

_SYSTEMD = "/usr/lib/systemd/systemd"
_PIVOTABLE = f"""#!/bin/bash -e
export PATH=/usr/sbin:/usr/bin
mount --no-mtab --bind / /mnt
cd /mnt
mount --no-mtab --move . /
exec chroot . {_SYSTEMD}
"""
"""The initramfs once more, mounted over itself: the kernel pivots from mounts that have one below them."""

_ETC = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\ntty:x:5:\nadm:x:4:\nutmp:x:43:\nsystemd-journal:x:999:\nnogroup:x:65534:\n",
    "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "/etc/os-release": "ID=debian\nNAME=Debian\n",
    "/etc/hostname": "guest\n",
    "/etc/systemd/system/default.target": "[Unit]\nRequires=lab-checks.service\nAfter=lab-checks.service\n",
    # It ends the guest whatever becomes of the script.
    "/etc/systemd/system/lab-checks.service": "[Unit]\nRequires=basic.target\nAfter=basic.target\n"
    "SuccessAction=poweroff-force\nFailureAction=poweroff-force\n"
    "[Service]\nType=oneshot\nTimeoutStartSec=infinity\n"
    "ExecStart=/bin/bash -c '"
    'for port in /sys/class/virtio-ports/*; do if [ "$$(cat $$port/name)" = output ]; then '
    "exec /bin/bash /lab/checks.sh >/dev/$${port##*/} 2>&1; fi; done; exit 1'\n",
}  # fmt: skip


@dataclass(frozen=True)
class Guest:
    """A guest with systemd as PID 1, and what it is for."""

    name: str
    script: Path
    """What it runs, with lab/checks/systemd-common.sh beside it: TAP on stdout."""
    fill: Callable[[CpioWriter], None]
    """Adds what is tested."""
    seeds: tuple[str, ...] = ()
    """Debian packages beside the usual ones."""
    installs: bool = False
    """Whether it installs packages, and so needs dpkg with a record of what is there."""
    containers: bool = False
    """Whether it runs containers, and so needs a root that they can pivot away from. An initramfs is none."""


def _packages(guest: Guest) -> list[str]:
    """What the root is made of: the seeds and what they depend on."""
    depends = ["--recurse", *(f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces"))]
    text = proc.output(
        ["apt-cache", "depends", *depends, "--no-enhances", *_SEEDS, *guest.seeds],
        what="listing packages",
        code=Exit.INSTALL,
    )
    names = sorted(set(re.findall(r"^[a-z0-9][\w.+-]*$", text, re.MULTILINE)))
    left = [name for name in names if not _NOT_NEEDED.search(name)]
    return left if guest.installs else [name for name in left if not _INSTALLERS.search(name)]


def _record(debs: list[Path]) -> str:
    """dpkg's record of these packages as installed ones."""
    parts = []
    for deb in debs:
        control = proc.output(["dpkg-deb", "--field", str(deb)], what="reading a package", code=Exit.INSTALL)
        # Else dpkg would look for the files with their sums.
        control = re.sub(r"^Conffiles:\n(?: .*\n)*", "", control, flags=re.MULTILINE)
        parts.append(control.replace("\n", "\nStatus: install ok installed\n", 1))
    return "\n".join(parts)


def _root(guest: Guest) -> Path:
    """The unpacked packages; kept for as long as their versions are these."""
    names = _packages(guest)
    policy = proc.output(["apt-cache", "policy", *names], what="asking for versions", code=Exit.INSTALL)
    chosen = re.findall(r"^(\S+):\n(?:.*\n)*?  Candidate: (\S+)", policy, re.MULTILINE)
    key = hashlib.sha256(repr([chosen, _LEFT_OUT]).encode()).hexdigest()[:16]
    with locked("systemd-root"):
        store = cache() / "systemd-root" / guest.name
        root = store / key
        if root.is_dir():
            return root
        store.mkdir(parents=True, exist_ok=True)
        for old in store.iterdir():
            shutil.rmtree(old)
        space.need(_ROOT_MIB, store, "a root with systemd")
        with tempfile.TemporaryDirectory(dir=store) as scratch:
            work = Path(scratch)
            tree = work / "tree"
            for name in ("bin", "sbin", "lib", "lib64"):
                (tree / "usr" / name).mkdir(parents=True)
                (tree / name).symlink_to(f"usr/{name}")
            _log("fetching the packages of a root", ["apt-get", "download", *names], work, append=False)
            for deb in sorted(work.glob("*.deb")):
                # Not `dpkg-deb -x`, which puts directories in the place of the links of merged /usr.
                unpack = 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"'
                _log(f"unpacking {deb.name}", ["bash", "-o", "pipefail", "-c", unpack, str(deb), str(tree)], work)
            if guest.installs:
                (tree / "var" / "lib" / "dpkg" / "info").mkdir(parents=True, exist_ok=True)
                (tree / "var" / "lib" / "dpkg" / "status").write_text(_record(sorted(work.glob("*.deb"))))
            for name in _LEFT_OUT:
                shutil.rmtree(tree / name, ignore_errors=True)
            tree.rename(root)
    return root


def _log(what: str, argv: list[str], cwd: Path, *, append: bool = True) -> None:
    proc.run(argv, log=_LOG, what=what, code=Exit.INSTALL, cwd=cwd, append=append)


def add(archive: CpioWriter, top: Path) -> None:
    """All of a directory."""
    for path in sorted(top.rglob("*")):
        name = f"/{path.relative_to(top)}"
        if path.is_symlink():
            if name not in archive:
                archive.symlink(name, str(path.readlink()))
        elif path.is_dir():
            archive.directory(name, path.stat().st_mode & 0o7777)
        elif path.is_file() and name not in archive:
            archive.file(name, path.read_bytes(), path.stat().st_mode & 0o7777)


def install(archive: CpioWriter) -> None:
    """What `make install` installs of this checkout."""
    binary = programs.mthp_ext()
    with tempfile.TemporaryDirectory() as scratch:
        installed = Path(scratch) / "installed"
        argv = ["make", "-C", str(REPO), "install", f"DESTDIR={installed}", f"PROGRAM={binary}"]
        _log("make install", argv, REPO)
        add(archive, installed)
    for library in initramfs.libraries(binary):
        name = f"/usr{library}" if library.parts[1].startswith("lib") else str(library)
        if name not in archive:
            archive.file(name, library.read_bytes(), 0o755)


def _fill(archive: CpioWriter) -> None:
    """What is installed, and the command of docs/fleet.md that ends all of it."""
    install(archive)
    line = out_in_one_command((REPO / "docs" / "fleet.md").read_text())
    archive.file("/lab/out.sh", f"{line}\n".encode())


def _image(guest: Guest, out: Path) -> None:
    """Writes the guest's file system."""
    root = _root(guest)
    with out.open("wb") as file:
        archive = CpioWriter(file)
        if guest.containers:
            archive.file("/init", _PIVOTABLE.encode(), 0o755)
        else:
            archive.symlink("/init", _SYSTEMD)
        archive.character_device("/dev/console", 5, 1)
        for name in ("/proc", "/sys", "/run", "/root", "/home", "/tmp", "/var/log", "/var/tmp", "/mnt"):
            archive.directory(name)
        archive.file("/lab/checks.sh", guest.script.read_bytes(), 0o755)
        archive.file("/lab/common.sh", (_HERE / "systemd-common.sh").read_bytes())
        for name, text in _ETC.items():
            archive.file(name, text.encode())
        for unit in _MASKED:
            archive.symlink(f"/etc/systemd/system/{unit}.service", "/dev/null")
        add(archive, root)
        guest.fill(archive)
        archive.finish()


def watch(argv: list[str], log: Path, console: Path, said: Path, limit_s: float, suite: Suite, who: str) -> None:
    """Runs a machine until it is off; adds the tests that came through its port `said`, and what is wrong with how it
    ended, to the suite."""
    begin, over = time.monotonic(), ""
    with log.open("wb") as out:
        process = proc.start(argv, stdout=out, stderr=subprocess.STDOUT)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            over = f"no end after {limit_s:g} s"
        finally:
            proc.stop(process)
    suite.seconds += time.monotonic() - begin
    suite.logs += [said, console]
    before = len(suite.tests)
    tap.parse(said.read_text(errors="replace"), suite)
    if len(suite.tests) == before or over or process.returncode != 0:
        suite.fail(f"({who})", f"{over or f'QEMU: {process.returncode}'}\n{proc.tail(console)}")
    if found := splats(console.read_text(errors="replace")):
        suite.fail(f"({who}: the kernel's log)", "\n".join(found[:20]))


def run(guest: Guest, kernel: Kernel, mode: Mode) -> Suite:
    """The checks of a guest's script."""
    with locked(f"{guest.name}-guest"):
        return _run(guest, kernel, mode)


def _run(guest: Guest, kernel: Kernel, mode: Mode) -> Suite:
    directory = BUILD / "vm" / guest.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    files = qemu.Files(
        directory / "initramfs.cpio",
        directory / "console.log",
        {name: directory / f"{name}.log" for name in qemu.PORTS},
    )
    _image(guest, files.initramfs)
    for path in (files.console, *files.ports.values()):
        path.touch()
    append = "transparent_hugepage=always systemd.show_status=0"
    argv = qemu.command(qemu.binary(), kernel.image, files, mode=mode, memory_mib=1536, cpus=2, append=append)
    suite, said = Suite(f"vm/{guest.name}"), files.ports[_PORT]
    try:
        watch(argv, directory / "qemu.log", files.console, said, _TIMEOUT_S, suite, "the guest")
    finally:
        files.initramfs.unlink()
    suite.settle()
    return suite


def show(target: str, suite: Suite) -> Exit:
    """Each test on a line; whether all passed."""
    for test in suite.tests:
        print(f"{target}: {test.status}: {test.name}" + (f"\n{test.detail}" if test.detail else ""))
    print(f"{target}: {suite.seconds:.0f} s; logs: {', '.join(str(path) for path in suite.logs)}")
    return Exit.TESTS if suite.count(Status.FAILED) else Exit.OK


def main() -> int:
    """Runs the checks of lab/checks/systemd.sh; 1 if one failed."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM)
    kernel = build.ensure()
    guest = Guest("systemd", _HERE / "systemd.sh", _fill)
    return show("test-systemd", run(guest, kernel, accel.of(kernel)[0]))
