# SPDX-License-Identifier: GPL-2.0-only
"""A machine with a Debian 13 of its own on a disk, booted by the firmware through the disk's boot loader; some rows of
the demo run in it. `make test-kernel-deb` and `make test-machine` say what is on the disk."""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import proc, programs, space
from lab.bench import run as records
from lab.bench.cell import Cell
from lab.bench.execute import NONSENSE
from lab.checks import cleanroot, systemd
from lab.checks.result import Suite
from lab.demo import cells, gates, outcome
from lab.errors import Exit, LabError
from lab.lock import locked
from lab.paths import BUILD, REPO, cache
from lab.vm import accel, disk, qemu
from lab.vm.disk import Disk
from lab.vm.verdict import parse_record

SUITE = "trixie"
_PACKAGES = (
    "ca-certificates", "systemd-sysv", "udev", "initramfs-tools", "kmod", "zstd", "grub2-common", "grub-efi-amd64-bin",
    "libelf1t64", "zlib1g", "procps", "redis-tools",
)  # fmt: skip
_PATHS = {
    "redis-server": "/usr/bin/redis-check-rdb",
    "redis-benchmark": "/usr/bin/redis-benchmark",
    "redis-cli": "/usr/bin/redis-cli",
}
"""Of the guest's own Redis."""
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
_HERE = REPO / "lab" / "checks"
_ROOT_MIB, _NEED_MIB = 3072, 5 << 10
_MEMORY_MIB = 1536
_BOOT_S = 3600.0
BY_HAND = "lab.menu=by-hand"
"""On the command line of the kernel that the first menu boots."""
_DEFAULTS = 'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_TERMINAL=console\nGRUB_CMDLINE_LINUX="console=ttyS0 panic=-1"\n'
_MANAGER = "[Manager]\nDefaultTimeoutStartSec=30min\nDefaultDeviceTimeoutSec=30min\n"
"""Emulated beside other work, the journal alone may take longer than the 90 s that each has by default."""
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


@dataclass(frozen=True)
class Machine:
    """What is on the disk beside a Debian, and what is done there."""

    name: str
    script: Path
    """Runs at each boot, with lab/checks/machine-common.sh beside it: TAP on the port "output"."""
    program: str
    """Where mthp_ext is, for the rows."""
    install: Callable[["Machine", Path], None]
    """Given this and the root: installs a kernel, and what else is wanted."""
    boots: int = 1

    @property
    def log(self) -> Path:
        """Of how the disk was made."""
        return BUILD / "log" / f"{self.name}-disk.log"

    def chroot(self, root: Path, script: str, what: str) -> None:
        """Runs lines of shell in the root; the host's way into the network is theirs."""
        mounts = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" /usr/bin/env -i '
        words = 'PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"'
        argv = [*cleanroot.isolated(mounts + words), str(root), *cleanroot.proxies(), "/bin/sh", "-ec", script]
        proc.run(argv, log=self.log, what=what, append=True)


def put(root: Path, files: Mapping[str, Path]) -> None:
    """Copies files into the root, by their paths there."""
    for name, source in files.items():
        target = root / name.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)


def menu(release: str, root: str) -> str:
    """The menu of the first boot: of the second, update-grub writes it."""
    return (
        f"search --no-floppy --fs-uuid --set=root {root}\n"
        "set timeout=0\n"
        f"menuentry first {{\n\tlinux /boot/vmlinuz-{release} root=UUID={root} ro console=ttyS0 panic=-1 {BY_HAND}\n"
        f"\tinitrd /boot/initrd.img-{release}\n}}\n"
    )


def plan() -> list[Cell]:
    """The Redis rows of the demo that say most by events, one run each: the policy is through, `always` is killed. That
    comes last, as kills are counted from the boot on."""
    # By the wall clock, of an emulated machine.
    scale = replace(cells.SCALES["demo"], deadline_s=900)
    rows = (("high", "mthp_ext"), ("max", "mthp_ext"), ("max", "always"))
    return [cell for limit, arm in rows for cell in cells.plan(scale, [limit], [arm], 1)]


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
    table = outcome.Table(runs)
    for one in gates.check(table, counted=False):
        suite.gate(one, "Redis: ")
    through = [outcome.finished(run) for run in table.runs("high", "mthp_ext")]
    suite.check("Redis: memory.high: mthp_ext serves every request", through == [True], str(through))
    killed = [outcome.killed_s(run) for run in table.runs("max", "always")]
    suite.check("Redis: memory.max: always is OOM-killed", all(killed) and len(killed) == 1, str(killed))


def _tree(of: Machine, root: Path, place: str) -> Path:
    """A Debian in `root` with what the machine has; the boot loader's file. `place`: the UUID of its disk."""
    store = cache() / "clean-root" / SUITE / "debs"
    (store / "partial").mkdir(parents=True, exist_ok=True)
    cleanroot.debian(SUITE, root, store, ",".join(_PACKAGES), of.log)
    files = {
        "etc/fstab": f"UUID={place} / ext4 defaults 0 1\n",
        "etc/hostname": "guest\n",
        "etc/default/grub": _DEFAULTS,
        "lab/early.cfg": f"search --no-floppy --fs-uuid --set=root {place}\nset prefix=($root)/boot/grub\n"
        "configfile $prefix/grub.cfg\n",
        "etc/systemd/system/lab-checks.service": _UNIT,
        "etc/systemd/system.conf.d/lab.conf": _MANAGER,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    of.install(of, root)
    # As grub-install does, which wants disks; the menu comes after dpkg, or its hook would ask for those as well.
    grub = f"grub-mkimage -O x86_64-efi -p /boot/grub -c /lab/early.cfg -o /lab/grub.efi {' '.join(_MODULES)}"
    own = "mkdir -p /boot/grub && cp -r /usr/lib/grub/x86_64-efi /boot/grub/"
    of.chroot(root, f"{own}\n{grub}\nsystemctl enable lab-checks.service", "making the boot loader")
    _, release = disk.kernel_of(root)
    (root / "boot/grub/grub.cfg").write_text(menu(release, place))
    return root / "lab" / "grub.efi"


def _fill(of: Machine, root: Path, wanted: Sequence[Cell]) -> None:
    """What tests it."""
    put(
        root,
        {
            "/lab/guest": programs.guest(),
            "/lab/checks.sh": of.script,
            "/lab/common.sh": _HERE / "machine-common.sh",
        },
    )
    for number, cell in enumerate(wanted, 1):
        (root / "lab" / f"cell-{number}.json").write_text(json.dumps(cell.job(_PATHS, of.program)))


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


def test(of: Machine) -> Suite:
    """Makes the disk, and boots it as often as is wanted."""
    if os.geteuid() != 0:
        raise LabError(Exit.PRIVILEGE, "a Debian root needs mounts and chroot, so this must run as root.")
    suite, wanted = Suite(f"vm/{of.name}"), plan()
    with locked(f"{of.name}-guest"):
        directory = BUILD / "vm" / of.name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        space.need(_NEED_MIB, directory, "a disk with a Debian on it")
        of.log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            root, place = Path(scratch) / "root", str(uuid.uuid4())
            root.mkdir(mode=0o755)
            loader = _tree(of, root, place)
            _fill(of, root, wanted)
            vmlinuz, release = disk.kernel_of(root)
            mode = accel.of_image(vmlinuz, root / "boot" / f"config-{release}")[0]
            disc = disk.make(directory, root, loader, _ROOT_MIB, place, of.log)
        try:
            text = [_boot(number, disc, directory, mode, suite) for number in range(1, of.boots + 1)][-1]
        finally:
            disc.image.unlink()
        judge(wanted, text, release, suite)
        suite.settle()
    return suite
