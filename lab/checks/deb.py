# SPDX-License-Identifier: GPL-2.0-only
"""`make test-deb`: the Debian package is the same when it is built elsewhere, lintian has nothing against it, dpkg
installs, upgrades, removes and purges it in a guest with systemd, and Ansible takes its role."""

import shutil
import tempfile
from functools import partial
from pathlib import Path

from lab import proc, programs, setup
from lab.checks import ansible, systemd
from lab.checks.result import Suite
from lab.deb import build as deb
from lab.errors import Exit
from lab.kernel import build
from lab.paths import BUILD, REPO
from lab.vm import accel
from lab.vm.cpio import CpioWriter

_SEEDS = (
    "dpkg",
    "dash",
    "libc-bin",
    "perl-base",
    "init-system-helpers",
    "debianutils",
    "diffutils",
    "findutils",
    "tar",
    "zlib1g",
)
LIBELF = {"12": "libelf1", "13": "libelf1t64"}
_CARGO_LOG = BUILD / "log" / "cargo-install.log"
_OLD = "0.0.9-1"
_OLD_CONFIG = "# As an older version had it.\n"


def _older(tree: Path) -> None:
    """Makes the source that of a version before, with another configuration."""
    config = tree / "packaging" / "etc" / "config.toml"
    config.write_text(config.read_text() + _OLD_CONFIG)


def _fill(old: Path, new: Path, archive: CpioWriter) -> None:
    archive.file("/lab/old.deb", old.read_bytes())
    archive.file("/lab/new.deb", new.read_bytes())
    if "/usr/bin/sh" not in archive:
        archive.symlink("/usr/bin/sh", "dash")


def host(new: Path) -> Suite:
    """What can be said of the package without a guest."""
    suite = Suite("deb")
    suite.check("lintian has nothing against it", not (text := deb.complaints(new)), text)
    # Elsewhere, with nothing that was compiled before.
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="deb-again-") as scratch:
        again = deb.package(Path(scratch))
        for one, other in ((new, again), (deb.dkms(new), deb.dkms(again))):
            sums = deb.sha256(one), deb.sha256(other)
            if sums[0] != sums[1]:
                shutil.copy2(other, new.parent / f"again-{other.name}")
            what = one.name.partition("_")[0]
            suite.check(f"{what}: built twice, in two places, it is the same", sums[0] == sums[1], " ".join(sums))
    suite.check("`cargo install` installs the binary alone, and it runs", *_cargo_install())
    suite.settle()
    return suite


def _cargo_install() -> tuple[bool, str]:
    """As docs/install.md has it; without a network, as all that it takes was compiled above."""
    with tempfile.TemporaryDirectory() as scratch:
        words = ["install", "--path", ".", "--locked", "--offline", "--root", scratch]
        env = {**programs.environment(), "CARGO_TARGET_DIR": str(BUILD / "cargo")}
        proc.run([programs.cargo(), *words], log=_CARGO_LOG, what="cargo install", cwd=REPO, env=env)
        there = [path.name for path in (Path(scratch) / "bin").iterdir()]
        argv = [str(Path(scratch) / "bin" / "mthp_ext"), "policies"]
        said = proc.output(argv, what="running what cargo installed", code=Exit.TESTS)
        return there == ["mthp_ext"] and "headroom" in said, f"{there}: {said}"


def main() -> int:
    """Runs all; 1 if a check failed."""
    setup.ensure(setup.Need.DEB | setup.Need.PROGRAM | setup.Need.VM)
    kernel = build.ensure()
    old = deb.package(deb.DIRECTORY, _OLD, _older)
    new = deb.package(deb.DIRECTORY)
    script = REPO / "lab" / "checks" / "deb.sh"
    guest = systemd.Guest("deb", script, partial(_fill, old, new), (*_SEEDS, LIBELF[deb.release()]), installs=True)
    suites = [systemd.run(guest, kernel, accel.of(kernel)[0]), host(new), ansible.host()]
    codes = [systemd.show("test-deb", suite) for suite in suites]
    return max(codes, default=Exit.TESTS)
