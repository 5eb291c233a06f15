# SPDX-License-Identifier: GPL-2.0-only
"""Programs of Debian packages that are not to be installed: memcached would start a service on the user's machine."""

import shutil
import tempfile
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError
from lab.lock import locked
from lab.paths import BUILD, cache

_LOG = BUILD / "log" / "packages.log"


def program(package: str, inner: str) -> Path:
    """The file `inner` of a package: the installed one, else one unpacked into the cache. apt fetches and verifies it;
    the libraries it loads are of packages that lab/setup.py installs."""
    if (installed := Path("/", inner)).exists():
        return installed.resolve()
    with locked("packages"):
        directory = cache() / "packages" / package
        if not (directory / inner).exists():
            _unpack(package, directory)
        if not (directory / inner).exists():
            raise LabError(Exit.INSTALL, f"the package {package} has no {inner}; install {package} by hand")
    return directory / inner


def _unpack(package: str, directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as name:
        work = Path(name)
        proc.run(["apt-get", "download", package], log=_LOG, what=f"fetching {package}", code=Exit.INSTALL, cwd=work)
        found = list(work.glob("*.deb"))
        if len(found) != 1:
            raise LabError(Exit.INSTALL, f"apt-get download {package} left {len(found)} packages; log: {_LOG}")
        proc.run(
            ["dpkg-deb", "-x", str(found[0]), str(work / "tree")],
            log=_LOG,
            what=f"unpacking {package}",
            code=Exit.INSTALL,
            append=True,
        )
        shutil.rmtree(directory, ignore_errors=True)
        (work / "tree").rename(directory)
