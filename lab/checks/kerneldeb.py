# SPDX-License-Identifier: GPL-2.0-only
"""`make test-kernel-deb`: the packages of `make kernel-deb` on a disk with a Debian of its own, booted by the firmware
through the disk's boot loader: twice, the second time by the menu that update-grub has written in the guest."""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import proc, programs, setup, space
from lab.bench import run as records
from lab.bench.cell import Cell
from lab.bench.execute import NONSENSE
from lab.checks import cleanroot, systemd
from lab.checks.result import Suite
from lab.deb import kernel as packages
from lab.demo import cells, gates, outcome
from lab.errors import Exit, LabError
from lab.kernel.debian import host_config, mirrors
from lab.lock import locked
from lab.paths import BUILD, REPO, cache
from lab.vm import accel, disk, qemu
from lab.vm.disk import Disk
from lab.vm.verdict import parse_record

NAME = "kernel-deb"
_SUITE = "trixie"
_PACKAGES = (
    "systemd-sysv", "udev", "initramfs-tools", "kmod", "zstd", "grub2-common", "grub-efi-amd64-bin",
    "libelf1t64", "zlib1g", "procps", "redis-tools",
)  # fmt: skip
_PATHS = {"redis-server": "/usr/bin/redis-check-rdb", "redis-benchmark": "/usr/bin/redis-benchmark"}
"""Of the guest's own Redis."""
_PROGRAM = "/usr/local/sbin/mthp_ext"
_MODULES = (
    "part_gpt",
    "ext2",
    "search",
    "search_fs_uuid",
    "normal",
    "configfile",
    "linux",
    "echo",
    "test",
    "all_video",
)
"""GRUB's, built in: what it takes to find its menu. The others are on the disk."""
_LOG = BUILD / "log" / "kernel-deb-disk.log"
_HERE = REPO / "lab" / "checks"
_ROOT_MIB, _NEED_MIB = 3072, 5 << 10
_MEMORY_MIB = 1536
_BOOT_S = 1800.0
BY_HAND = "lab.menu=by-hand"
"""On the command line of the kernel that the first menu boots."""
_DEFAULTS = 'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_TERMINAL=console\nGRUB_CMDLINE_LINUX="console=ttyS0 panic=-1"\n'
_UNIT = """\
[Unit]
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash /lab/checks.sh
[Install]
WantedBy=multi-user.target
"""


def menu(release: str, root: str) -> str:
    """The menu of the first boot: of the second, update-grub writes it."""
    return (
        f"search --no-floppy --fs-uuid --set=root {root}\n"
        "set timeout=0\n"
        f"menuentry first {{\n\tlinux /boot/vmlinuz-{release} root=UUID={root} ro console=ttyS0 panic=-1 {BY_HAND}\n"
        f"\tinitrd /boot/initrd.img-{release}\n}}\n"
    )


def plan() -> list[Cell]:
    """The Redis rows of the demo that say most, one run each."""
    scale = cells.SCALES["demo"]
    return [
        *cells.plan(scale, ["high"], ["always", "mthp_ext"], 1),
        *cells.plan(scale, ["max"], ["mthp_ext"], 1),
    ]


def split(text: str) -> list[list[dict[str, Any]]]:
    """The records of each cell: the guest writes a line {"type": "cell"} before them."""
    found: list[list[dict[str, Any]]] = []
    for line in text.splitlines():
        record = parse_record(line.encode())
        if record is None:
            raise ValueError(f"not a record: {line[:200]!r}")
        if record.get("type") == "cell":
            found.append([])
        elif not found:
            raise ValueError("records before the first cell")
        else:
            found[-1].append(record)
    return found


def judge(wanted: Sequence[Cell], text: str, release: str, suite: Suite) -> None:
    """Adds the demo's gates over the rows that the guest ran."""
    try:
        parts = split(text)
        runs = [records.read(cell, part, 0.0) for cell, part in zip(wanted, parts, strict=True)]
    except NONSENSE as error:
        suite.fail("Redis: every row was measured", repr(error))
        return
    doubts = [doubt for run in runs if (doubt := outcome.doubt(run))]
    other = [run.release for run in runs if run.release != release]
    suite.check("Redis: every row was measured, under this kernel", not doubts and not other, f"{doubts} {other}")
    for one in gates.check(outcome.Table(runs), counted=True):
        suite.gate(one, "Redis: ")


def _chroot(root: Path, script: str, what: str) -> None:
    mounts = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" /usr/bin/env -i '
    words = 'PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive /bin/sh -ec "$1"'
    argv = [*cleanroot.isolated(mounts + words), str(root), script]
    proc.run(argv, log=_LOG, what=what, append=True)


def _tree(root: Path, image: Path, place: str) -> Path:
    """A Debian in `root` with the kernel installed by dpkg; the boot loader's file. `place`: the UUID of its disk."""
    found = mirrors(host_config())
    if not found:
        raise LabError(Exit.SOURCE, "no entry of the host's apt sources serves Debian's main component")
    store = cache() / "clean-root" / _SUITE / "debs"
    (store / "partial").mkdir(parents=True, exist_ok=True)
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", f"--cache-dir={store}"]
    proc.run([*argv, _SUITE, str(root), found[0].uri], log=_LOG, what=f"debootstrap of {_SUITE}", code=Exit.INSTALL)
    files = {
        "etc/fstab": f"UUID={place} / ext4 defaults 0 1\n",
        "etc/hostname": "guest\n",
        "etc/default/grub": _DEFAULTS,
        "lab/early.cfg": f"search --no-floppy --fs-uuid --set=root {place}\nset prefix=($root)/boot/grub\n"
        "configfile $prefix/grub.cfg\n",
        "etc/systemd/system/lab-checks.service": _UNIT,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copyfile(image, root / "lab" / image.name)
    _chroot(root, f"dpkg -i /lab/{image.name}", "installing the kernel's package")
    # As grub-install does, which wants disks; the menu comes after dpkg, or its hook would ask for those as well.
    grub = f"grub-mkimage -O x86_64-efi -p /boot/grub -c /lab/early.cfg -o /lab/grub.efi {' '.join(_MODULES)}"
    own = "mkdir -p /boot/grub && cp -r /usr/lib/grub/x86_64-efi /boot/grub/"
    _chroot(root, f"{own}\n{grub}\nsystemctl enable lab-checks.service", "making the boot loader")
    (root / "lab" / image.name).unlink()
    _, release = disk.kernel_of(root)
    (root / "boot/grub/grub.cfg").write_text(menu(release, place))
    return root / "lab" / "grub.efi"


def _fill(root: Path, wanted: Sequence[Cell]) -> None:
    """What is tested and what tests it."""
    for name, source in ((_PROGRAM, programs.mthp_ext()), ("/lab/guest", programs.guest())):
        target = root / name.removeprefix("/")
        shutil.copyfile(source, target)
        target.chmod(0o755)
    shutil.copyfile(_HERE / "kernel-deb.sh", root / "lab" / "checks.sh")
    for number, cell in enumerate(wanted, 1):
        (root / "lab" / f"cell-{number}.json").write_text(json.dumps(cell.job(_PATHS, _PROGRAM)))


def _boot(number: int, disc: Disk, directory: Path, mode: qemu.Mode, suite: Suite) -> str:
    """Runs the machine once until it is off; what came through the port for results."""
    console = directory / f"console-{number}.log"
    ports = {name: directory / f"{name}-{number}.log" for name in qemu.PORTS}
    for path in (console, *ports.values()):
        path.touch()
    argv = disk.command(qemu.binary(), disc, console, ports, mode=mode, memory_mib=_MEMORY_MIB)
    log, said = directory / f"qemu-{number}.log", ports["output"]
    systemd.watch(argv, log, console, said, _BOOT_S, suite, f"boot {number}")
    return ports["results"].read_text(errors="replace")


def test(image: Path) -> Suite:
    """Boots the kernel of a package from a disk."""
    if os.geteuid() != 0:
        raise LabError(Exit.PRIVILEGE, "a Debian root needs mounts and chroot, so this must run as root.")
    suite, wanted = Suite(f"vm/{NAME}"), plan()
    with locked(NAME + "-guest"):
        directory = BUILD / "vm" / NAME
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        space.need(_NEED_MIB, directory, "a disk with a Debian on it")
        _LOG.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            root, place = Path(scratch) / "root", str(uuid.uuid4())
            root.mkdir(mode=0o755)
            loader = _tree(root, image, place)
            _fill(root, wanted)
            vmlinuz, release = disk.kernel_of(root)
            mode = accel.of_image(vmlinuz, root / "boot" / f"config-{release}")[0]
            disc = disk.make(directory, root, loader, _ROOT_MIB, place, _LOG)
        try:
            _boot(1, disc, directory, mode, suite)
            text = _boot(2, disc, directory, mode, suite)
        finally:
            disc.image.unlink()
        judge(wanted, text, release, suite)
        suite.settle()
    return suite


def main() -> int:
    """1 if a check failed."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM | setup.Need.ROOT | setup.Need.DISK)
    return systemd.show("test-kernel-deb", test(packages.ensure().image))
