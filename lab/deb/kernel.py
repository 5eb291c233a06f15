# SPDX-License-Identifier: GPL-2.0-only
"""Debian packages of a kernel that a machine can boot: the series on Debian's own configuration, by bindeb-pkg.

The build is large. It has a source tree and a lock of its own, so that all else of the lab goes on meanwhile, continues
where it was interrupted, and leaves nothing but the packages.
"""

import json
import lzma
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab import proc, setup
from lab.deb import build as deb
from lab.errors import Exit, LabError
from lab.kernel import build, config, debian, source
from lab.kernel.series import DEFAULT, load_all
from lab.kernel.source import Base
from lab.kernel.worktree import Worktree
from lab.lock import locked
from lab.paths import BUILD, KERNEL_DIR, cache

FLAVOURS = {"cloud-amd64": 12 << 10, "amd64": 60 << 10}
"""Debian's flavours, and the MiB that building one takes: 9.1 GiB measured, and an estimate."""
FRAGMENTS = (config.DIRECTORY / "hook.config", config.DIRECTORY / "deb.config")
_LOG = BUILD / "log" / "kernel-deb.log"
_NO_DEBUG_PACKAGE = "pkg.linux-upstream.nokerneldbg"
"""DWARF is only what BTF is made of."""
_COST = "cost.json"
_DOUBTED_S = 600.0
"""Longer than any command of a build takes to write its file."""
_KEPT = re.compile(r"linux-(?:image|headers)-\S+\.deb")
"""Not linux-libc-dev, which would take the place of Debian's."""
_FACT = re.compile(
    r"CONFIG_(?:\w*VERSION\w*|(?:AS|CC|GCC|LD|RUSTC|PAHOLE|OPENSSL|BINDGEN|TOOLS)_\w+|\w*RUST\w*|NOVA_CORE|X86_NATIVE_CPU"
    r"|BUILD_SALT|DEBUG_INFO_COMPRESSED_ZSTD|MODULE_SIG_KEY_TYPE_MLDSA_\d+)"
)
"""Options that follow from the compiler and the libraries, and Rust's."""


@dataclass(frozen=True)
class Packages:
    """Finished packages of one kernel."""

    directory: Path
    release: str
    """What uname -r says."""

    def _one(self, kind: str) -> Path:
        [found] = self.directory.glob(f"linux-{kind}-{self.release}_*.deb")
        return found

    @property
    def image(self) -> Path:
        """Kernel and modules."""
        return self._one("image")

    @property
    def headers(self) -> Path:
        """What modules of others are built with."""
        return self._one("headers")

    @property
    def cost(self) -> dict[str, float]:
        """Of the build: cpu_s, wall_s, objects_mib."""
        return dict(json.loads((self.directory / _COST).read_text()))


def local_version(flavour: str) -> str:
    """After the upstream version, in the place where Debian's kernels have +deb13-FLAVOUR. "+m" sorts after "+d", so
    that of two kernels of one upstream version a boot loader takes this one."""
    return f"+mthp-{flavour}"


def version(base: str, when: datetime, *, dirty: bool) -> str:
    """The packages' version: higher with each commit to the series or its configuration. The kernel's own version
    string has what comes after the hyphen, and 64 characters for all of it."""
    return f"{base}+mthp{when:%Y%m%d.%H%M%S}{'.dirty' if dirty else ''}"


def _now(base: str) -> str:
    paths = [str(KERNEL_DIR / "series" / name) for name in DEFAULT] + [str(config.DIRECTORY)]
    seconds = int(deb.git("log", "-1", "--format=%ct", "--", *paths))
    return version(
        base, datetime.fromtimestamp(seconds, UTC), dirty=bool(deb.git("status", "--porcelain", "--", *paths))
    )


def merged(text: str, wanted: dict[str, str]) -> str:
    """A configuration with the lines of `wanted` in the place of its own."""
    kept = [line for line in text.splitlines() if not set(config.parse(line)) & set(wanted)]
    lines = [f"# {name} is not set" if value == "n" else f"{name}={value}" for name, value in wanted.items()]
    return "\n".join([*kept, *lines]) + "\n"


def changed(before: str, after: str, wanted: dict[str, str]) -> list[str]:
    """What differs between two configurations beside `wanted` and what follows from the compiler."""
    old, new = config.parse(before), config.parse(after)
    return [
        f"{name}: {old.get(name, 'n')} -> {new.get(name, 'n')}"
        for name in sorted(set(old) | set(new))
        if old.get(name, "n") != new.get(name, "n") and name not in wanted and not _FACT.fullmatch(name)
    ]


def _configuration(base: Base, flavour: str) -> str:
    """Debian's, of the version of the base, fetched once."""
    name = f"config.amd64_none_{flavour}"
    kept = base.directory / name
    if not kept.exists():
        attempts = debian.Attempts()
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            fetched = debian.fetch(Path(work) / "apt", attempts, debian.CONFIG)
            if fetched is None:
                tried = "\n".join(f"  - {line}" for line in attempts.lines)
                raise LabError(
                    Exit.SOURCE,
                    f"Debian's configuration could not be fetched ({debian.CONFIG}). Tried, through the mirrors of the "
                    f"host's own apt sources:\n{tried}\nLikely this host has no network, or no Debian mirror.",
                )
            package, of = fetched
            if of != base.version:
                print(f"kernel-deb: the configuration is of {of}, the source of {base.version}", flush=True)
            unpack = ["dpkg-deb", "-x", str(package), work]
            proc.run(unpack, log=_LOG, what=f"unpacking {package.name}", code=Exit.SOURCE)
            [packed] = (Path(work) / "usr" / "src" / debian.CONFIG).glob(f"{name}.xz")
            temporary = kept.with_suffix(".tmp")
            temporary.write_bytes(lzma.decompress(packed.read_bytes()))
            temporary.replace(kept)
    return kept.read_text()


def ensure(flavour: str = "cloud-amd64") -> Packages:
    """The packages of the series as it is now, built if they are not there yet."""
    if flavour not in FLAVOURS:
        raise LabError(Exit.USAGE, f"there is no flavour {flavour!r}; there are: {', '.join(FLAVOURS)}")
    setup.ensure(setup.Need.KERNEL | setup.Need.KERNEL_DEB)
    patches = load_all(DEFAULT)
    with locked("kernel-deb") as lock:
        with locked("kernel"):
            base = source.get()
            worktree = Worktree(base).beside("deb")
            worktree.set(patches)
        debians = _configuration(base, flavour)
        wanted = config.merge(FRAGMENTS) | {"CONFIG_LOCALVERSION": f'"{local_version(flavour)}"'}
        parts = [path.read_bytes() for path in FRAGMENTS] + [debians.encode(), flavour.encode()]
        key = build.key(base.version, patches, parts, source.compiler_identity())
        directory = cache() / "kernel-deb" / f"{flavour}-{key}"
        if not directory.is_dir():
            place = worktree.base.directory / flavour
            known = _mib(place) if place.is_dir() else 0
            source.need_space(max(FLAVOURS[flavour] - known, 2 << 10), f"building a kernel for {flavour}")
            one = _Build(worktree.base.tree, place, _now(base.version), lock)
            one.run(debians, wanted, directory)
        return found(directory)


def found(directory: Path) -> Packages:
    """The packages in a directory."""
    [image] = directory.glob("linux-image-*.deb")
    return Packages(directory, image.name.removeprefix("linux-image-").partition("_")[0])


def _mib(directory: Path) -> int:
    return sum(path.lstat().st_blocks for path in directory.rglob("*")) >> 11


def _drop_last(objects: Path) -> None:
    """After a build that was killed: removes what it wrote last, of which some may be cut off. Not all, as of the lab's
    own kernel: here an hour would be lost."""
    times = {path: path.stat().st_mtime for path in objects.rglob("*") if path.is_file() and not path.is_symlink()}
    last = max(times.values(), default=0.0)
    for path, at in times.items():
        if at > last - _DOUBTED_S:
            path.unlink()


def _cpu_s() -> float:
    """Of all processes that this one waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class _Build:
    tree: Path
    place: Path
    """bindeb-pkg puts the packages here, beside the object tree."""
    version: str
    lock: int

    @property
    def objects(self) -> Path:
        return self.place / "objects"

    def run(self, debians: str, wanted: dict[str, str], directory: Path) -> None:
        """Builds with `wanted` over Debian's configuration, and keeps the packages in `directory`."""
        self.objects.mkdir(parents=True, exist_ok=True)
        marker = self.objects / ".lab-building"
        if marker.exists():
            _drop_last(self.objects)
        marker.touch()
        begin, cpu = time.monotonic(), _cpu_s()
        _LOG.parent.mkdir(parents=True, exist_ok=True)
        print(f"kernel-deb: building {self.version}, for an hour or more; log: {_LOG}", flush=True)
        (self.objects / ".config").write_text(merged(debians, wanted))
        try:
            self._make("olddefconfig")
            now = (self.objects / ".config").read_text()
            config.check(wanted, now)
            for line in changed(debians, now, wanted):
                print(f"kernel-deb: unlike Debian's configuration: {line}", flush=True)
            for old in self.place.glob("*.*"):
                old.unlink()
            self._make("bindeb-pkg")
        finally:
            # make has ended by itself or been asked to, and removed what it had half written.
            marker.unlink()
            # Of a build in several parts, all of them.
            self._spent(time.monotonic() - begin, _cpu_s() - cpu)
        self._publish(directory)

    def _make(self, target: str) -> None:
        names = ["KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=mthp_ext", "KBUILD_BUILD_HOST=localhost"]
        names += [f"KDEB_PKGVERSION={self.version}", "KDEB_CHANGELOG_DIST=trixie-backports"]
        argv = ["make", "-C", str(self.tree), f"O={self.objects}", proc.make_jobs(), *names, target]
        env = {**proc.outside_make(), "KBUILD_VERBOSE": "0", "DEB_BUILD_PROFILES": _NO_DEBUG_PACKAGE}
        with _LOG.open("ab") as log:
            process = proc.start(argv, stdout=log, stderr=subprocess.STDOUT, env=env, pass_fds=(self.lock,))
            try:
                status = build.wait(process, _LOG, "kernel-deb")
            finally:
                proc.stop_gently(process)
        if status != 0:
            raise LabError(Exit.BUILD, f"{target} failed; log: {_LOG}\n{build.errors(_LOG)}")

    def _spent(self, wall_s: float, cpu_s: float) -> None:
        path = self.objects / _COST
        before: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        cost = {
            "wall_s": before.get("wall_s", 0.0) + wall_s,
            "cpu_s": before.get("cpu_s", 0.0) + cpu_s,
            "objects_mib": float(_mib(self.place)),
        }
        path.write_text(json.dumps(cost) + "\n")

    def _publish(self, directory: Path) -> None:
        store = directory.parent
        store.mkdir(parents=True, exist_ok=True)
        made = kept(path.name for path in self.place.glob("*.deb"))
        if len(made) != 2:
            raise LabError(Exit.BUILD, f"bindeb-pkg left not an image and headers, but {made}; log: {_LOG}")
        with tempfile.TemporaryDirectory(dir=store, prefix=".part-") as scratch:
            part = Path(scratch) / "finished"
            part.mkdir()
            for name in made:
                shutil.copyfile(self.place / name, part / name)
            shutil.copyfile(self.objects / _COST, part / _COST)
            shutil.copyfile(self.objects / ".config", part / "config")
            for old in store.glob(f"{directory.name.rpartition('-')[0]}-*"):
                shutil.rmtree(old)
            part.rename(directory)
        # With it goes the key that signed the modules.
        shutil.rmtree(self.place)


def kept(names: Iterable[str]) -> list[str]:
    """Of the files that bindeb-pkg leaves, the packages to install."""
    return sorted(name for name in names if _KEPT.fullmatch(name) and "-dbg_" not in name)


def main(flavour: str) -> int:
    """`make kernel-deb`."""
    packages = ensure(flavour)
    cost = packages.cost
    print(
        f"kernel-deb: {packages.release}, {cost['cpu_s'] / 60:.0f} CPU minutes in {cost['wall_s'] / 60:.0f} minutes, "
        f"{cost['objects_mib'] / 1024:.1f} GiB of objects, which are gone"
    )
    print(f"  {packages.image}\n  {packages.headers}")
    return Exit.OK
