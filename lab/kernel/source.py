# SPDX-License-Identifier: GPL-2.0-only
"""Gets an unpacked, unpatched kernel source into the cache."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab import proc, space
from lab.errors import Exit, LabError
from lab.kernel import debian, tarball
from lab.paths import cache

_FETCHED_MIB, _UNPACKED_MIB = 400, 1900
"""The package with apt's lists and the tarball in it, and the source tree."""


@dataclass(frozen=True)
class Base:
    """A base version: its name and its directory in the cache."""

    version: str
    """As the source names it: Debian's package version, or the kernel.org version."""
    directory: Path

    @property
    def tree(self) -> Path:
        """The source tree; the lab applies the series in it."""
        return self.directory / "linux"


def _base(version: str) -> Base:
    return Base(version, cache() / "source" / version.replace(":", "_").replace("/", "_"))


def get(update: bool = False, more_mib: int = 0) -> Base:
    """The base to build: what KERNEL_TARBALL or KERNEL_URL names, else the one fetched before, else the newest
    that Debian has. `update` asks Debian again although there is one; `more_mib` is the space that the caller will
    need for what it does with a new source. The caller holds the cache's lock."""
    if path := os.environ.get("KERNEL_TARBALL"):
        return _from_tarball(Path(path).absolute(), more_mib)
    if url := os.environ.get("KERNEL_URL"):
        need_space(_UNPACKED_MIB + more_mib, "fetching and building the kernel")
        return _from_tarball(tarball.download(url, cache() / "download"), more_mib)
    chosen = cache() / "base.json"
    if not update and chosen.exists():
        base = _base(json.loads(chosen.read_text())["version"])
        if base.tree.is_dir():
            return base
    need_space(_FETCHED_MIB + _UNPACKED_MIB + more_mib, "fetching and building the kernel")
    base = _from_debian()
    temporary = chosen.with_suffix(".tmp")
    temporary.write_text(json.dumps({"version": base.version}))
    temporary.replace(chosen)
    return base


def _from_debian() -> Base:
    print(f"kernel: looking for the newest {debian.PACKAGE} in {', '.join(debian.SUITES)}", flush=True)
    attempts = debian.Attempts()
    fetched = debian.fetch(cache() / "apt", attempts)
    if fetched is None:
        tried = "\n".join(f"  - {line}" for line in attempts.lines)
        raise LabError(
            Exit.SOURCE,
            f"no kernel source could be fetched. Tried, through the mirrors of the host's own apt sources:\n{tried}\n"
            "Likely this host has no network, or no Debian mirror in its apt sources. Repair that, or give a "
            "kernel.org tarball: KERNEL_TARBALL=/path/to/linux-7.3.4.tar.xz make kernel (or KERNEL_URL=...); "
            f"its SHA-256 must be in {tarball.PINS}.",
        )
    deb, version = fetched
    base = _base(version)
    if not base.tree.is_dir():
        print(f"kernel: unpacking {debian.PACKAGE} {version}", flush=True)
        with _unpacking(base) as part:
            proc.run(
                ["dpkg-deb", "-x", str(deb), str(part / "deb")],
                log=part / "dpkg.log",
                what=f"unpacking {deb.name}",
                code=Exit.SOURCE,
            )
            archives = list((part / "deb" / "usr" / "src").glob("linux-source-*.tar.*"))
            if len(archives) != 1:
                raise LabError(Exit.SOURCE, f"{deb.name} {version} does not hold one linux-source tarball: {archives}")
            _untar(archives[0], part)
            part.done()
    # Lists and package are of no use any more, and large.
    shutil.rmtree(cache() / "apt", ignore_errors=True)
    return base


def _from_tarball(path: Path, more_mib: int) -> Base:
    version = tarball.verify(path)
    base = _base(f"{version}-{tarball.sha256(path)[:12]}")
    if not base.tree.is_dir():
        need_space(_UNPACKED_MIB + more_mib, "unpacking and building the kernel")
        print(f"kernel: unpacking {path.name}", flush=True)
        with _unpacking(base) as part:
            _untar(path, part)
            part.done()
    return base


class _Unpacking:
    """A directory that becomes the base only when everything in it is there."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._path = base.directory.with_name(f".unpack-{base.directory.name}")

    def __enter__(self) -> "_Unpacking":
        # Left by a run that was killed; the cache's lock says that nobody uses it now.
        shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(parents=True)
        return self

    def __truediv__(self, name: str) -> Path:
        return self._path / name

    def done(self) -> None:
        """Puts the unpacked tree in its place."""
        os.sync()
        self._base.directory.mkdir(parents=True, exist_ok=True)
        (self._path / "linux").replace(self._base.tree)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _unpacking(base: Base) -> _Unpacking:
    return _Unpacking(base)


def _untar(archive: Path, part: _Unpacking) -> None:
    target = part / "linux"
    target.mkdir()
    env = {**os.environ, "XZ_OPT": "-T0"}
    proc.run(
        ["tar", "-xf", str(archive), "-C", str(target), "--strip-components=1", "--no-same-owner"],
        log=part / "tar.log",
        what=f"unpacking {archive.name}",
        code=Exit.SOURCE,
        env=env,
    )
    if not (target / "Kbuild").is_file():
        raise LabError(Exit.SOURCE, f"{archive.name} is not a kernel source: it has no Kbuild")


def need_space(mib: int, what: str) -> None:
    """LabError if less than `mib` MiB are free in the cache."""
    space.need(mib, cache(), what, "name another directory: MTHP_CACHE=/path/to/it")


def compiler_identity() -> str:
    """What the object code depends on besides the source: compiler, linker and BTF generator."""
    lines = []
    for argv in (["gcc", "--version"], ["ld", "--version"], ["pahole", "--version"]):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except OSError as error:
            raise LabError(Exit.BUILD, f"{argv[0]} is not installed ({error.strerror}); run `make setup`") from error
        lines.append(done.stdout.splitlines()[0] if done.stdout else done.stderr.strip())
    return "\n".join(lines)
