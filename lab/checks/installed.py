# SPDX-License-Identifier: GPL-2.0-only
"""`make test-machine`: a Debian 13 with its own kernel, in a machine (lab/checks/machine.py). apt installs both
packages there, without a network; DKMS builds the module, the service loads it, and Redis is served under a policy.
"""

from functools import partial
from pathlib import Path

from lab import setup
from lab.checks import cleanroot, machine, module, systemd
from lab.checks.machine import Machine
from lab.deb import build as deb
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import REPO

_PROGRAM = "/usr/sbin/mthp_ext"
_APT = "apt-get -y -q --no-install-recommends"
_OF_RELEASE = "6.12"
"""The kernel that is not of backports, as what it depends on."""


def _install(kernel: Stock, package: Path, of: Machine, root: Path) -> None:
    """The kernel, and what apt is to install in the machine: downloaded, as it has no network there."""
    cleanroot.with_backports(root, machine.SUITE)
    machine.put(root, {"/lab/mthp-ext.deb": package, "/lab/mthp-ext-dkms.deb": deb.dkms(package)})
    suite = machine.SUITE if kernel.name == _OF_RELEASE else f"{machine.SUITE}-backports"
    (root / "lab" / "suite").write_text(suite)
    apt = f"{_APT} -t {suite}"
    first = f"apt-get update -q\n{apt} install linux-image-{kernel.release}\napt-get clean"
    of.chroot(root, first, "installing the kernel")
    wanted = f"linux-headers-{kernel.release} /lab/mthp-ext.deb /lab/mthp-ext-dkms.deb"
    of.chroot(root, f"{apt} --download-only install {wanted}", "fetching what the packages need")


def _of(kernel: Stock, package: Path) -> Machine:
    script = REPO / "lab" / "checks" / "installed.sh"
    return Machine(f"installed-{kernel.name}", script, _PROGRAM, partial(_install, kernel, package))


def main(kernels: tuple[str, ...] = stockbuild.NAMES) -> int:
    """1 if a check failed."""
    need = setup.Need.PROGRAM | setup.Need.VM | setup.Need.ROOT | setup.Need.DISK | setup.Need.DEB
    setup.ensure(need)
    package = deb.package()
    print(f"test-machine: {package.name}", flush=True)
    shown = [
        systemd.show("test-machine", machine.test(_of(one, package))) for one in module.there(kernels, "test-machine")
    ]
    return max(shown)
