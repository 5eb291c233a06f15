# SPDX-License-Identifier: GPL-2.0-only
"""`make test-dkms`: the package of the module in a root of Debian 13 with two of its kernels: built, upgraded, removed,
purged. What it has built is loaded by those kernels, in guests, and keeps the contract of the hook."""

import os
import shlex
import shutil
import time
from pathlib import Path

from lab import proc, setup
from lab.checks import cleanroot, moduleguest, systemd, tap
from lab.checks.result import Suite
from lab.deb import build as deb
from lab.errors import Exit, LabError
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.lock import locked
from lab.paths import BUILD, REPO, cache

_SUITE = "trixie"
_KERNELS = ("6.12", "newest")
_PACKAGES = "ca-certificates"
_OLD = "0.0.9-1"
_LOG = BUILD / "log" / "dkms.log"
_ROOT_MIB = 3 << 10


def _run(root: Path, debs: Path, kernels: list[Stock]) -> Suite:
    """lab/checks/dkms.sh in the root; mounts end with its process."""
    place = shlex.quote(str(root))
    script = "\n".join(
        [
            "set -e",
            f"mount -t proc proc {place}/proc",
            f"mount --bind {shlex.quote(str(debs))} {place}/var/cache/apt/archives",
            # DKMS makes a key of random numbers, and writes to /dev/null.
            *(f"touch {place}/dev/{name}; mount --bind /dev/{name} {place}/dev/{name}" for name in ("null", "urandom")),
            f'exec chroot {place} /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" </dev/null',
        ]
    )
    argv = [*cleanroot.isolated(script), "sh", "/bin/bash", "/lab/dkms.sh", *(kernel.release for kernel in kernels)]
    begin = time.monotonic()
    proc.run(argv, log=_LOG, what="running dkms.sh in a root", code=Exit.TESTS)
    suite = Suite("dkms", logs=[_LOG])
    suite.seconds = time.monotonic() - begin
    tap.parse(_LOG.read_text(errors="replace"), suite)
    suite.settle()
    return suite


def _prepare(root: Path, debs: Path, old: Path, new: Path) -> None:
    cleanroot.debian(_SUITE, root, debs, _PACKAGES, _LOG.with_name("dkms-root.log"))
    cleanroot.with_backports(root, _SUITE)
    (root / "lab").mkdir()
    shutil.copy2(REPO / "lab" / "checks" / "dkms.sh", root / "lab")
    for name, path in (("old", old), ("new", new)):
        shutil.copy2(path, root / "lab" / f"{name}.deb")


def main() -> int:
    """Runs all; 1 if a check failed."""
    if os.geteuid() != 0:
        raise LabError(Exit.PRIVILEGE, "a Debian root needs mounts and chroot, so this must run as root.")
    setup.ensure(setup.Need.DEB | setup.Need.PROGRAM | setup.Need.ROOT | setup.Need.VM)
    old, new = (deb.dkms(deb.package(deb.DIRECTORY, version)) for version in (_OLD, ""))
    kernels = [stockbuild.stock(name) for name in _KERNELS]
    store = cache() / "dkms"
    with locked("dkms"):
        debs = store / "debs"
        (debs / "partial").mkdir(parents=True, exist_ok=True)
        with cleanroot.scratch(store, _ROOT_MIB, "a root with two kernels' headers") as root:
            _prepare(root, debs, old, new)
            suites = [_run(root, debs, kernels)]
            for kernel in kernels:
                module = store / "mthp_hook.ko"
                module.unlink(missing_ok=True)
                built = root / "lab" / f"{kernel.release}.ko"
                if built.exists():
                    shutil.copy2(built, module)
                    suites.append(moduleguest.contract(kernel, module))
                else:
                    suites[0].fail(f"(the contract on {kernel.name})", "there is no module of it")
    return max(systemd.show("test-dkms", suite) for suite in suites)
