# SPDX-License-Identifier: GPL-2.0-only
"""`make test-kernel-deb`: the packages of `make kernel-deb` in a machine (lab/checks/machine.py), booted twice, the
second time by the menu that update-grub has written there."""

from functools import partial
from pathlib import Path

from lab import programs, setup
from lab.checks import machine, systemd
from lab.checks.machine import Machine
from lab.deb import kernel as packages
from lab.paths import REPO

_PROGRAM = "/usr/local/sbin/mthp_ext"


def _install(image: Path, of: Machine, root: Path) -> None:
    machine.put(root, {"/lab/kernel.deb": image, _PROGRAM: programs.mthp_ext()})
    of.chroot(root, "dpkg -i /lab/kernel.deb && rm /lab/kernel.deb", "installing the kernel's package")


def main() -> int:
    """1 if a check failed."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM | setup.Need.ROOT | setup.Need.DISK)
    image = packages.ensure().image
    of = Machine("kernel-deb", REPO / "lab" / "checks" / "kernel-deb.sh", _PROGRAM, partial(_install, image), boots=2)
    return systemd.show("test-kernel-deb", machine.test(of))
