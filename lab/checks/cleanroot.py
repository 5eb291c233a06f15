# SPDX-License-Identifier: GPL-2.0-only
"""Runs make targets of this checkout's HEAD in a clean Debian root, as a newcomer would: with git, make and python3.

Everything inside is in a mount and a PID namespace of its own: whatever ends this command ends the root's processes and
mounts with it.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab import proc, setup, space
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.kernel.debian import host_config, mirrors
from lab.lock import locked
from lab.paths import BUILD, REPO, cache

SUITES = ("bookworm", "trixie")
"""Debian 12 and 13: the systems the project is kept working on."""
SHORT = "test-short"
"""The target that shows in minutes whether the other suite works."""
_PACKAGES = "ca-certificates,git,make,python3,sudo"
_USER = "newcomer"
_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_MIB = 8 << 10
"""Room for the root: packages, the checkout, its build directory."""


def other_suite() -> str:
    """The supported suite that this host is not of: what only fails there, nobody sees here."""
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        text = ""
    match = re.search(r'^VERSION_CODENAME="?(\w+)', text, re.MULTILINE)
    return SUITES[0] if match and match[1] == SUITES[1] else SUITES[1]


def main(suite: str, targets: Sequence[str], as_user: bool, lend: bool = False) -> int:
    """Runs each of `targets` in a new root of `suite`; 1 if one of them failed. `lend`: test-short takes the usual
    kernel that this host has built, rather than a quarter of an hour to build one with the compiler of the root."""
    if suite not in SUITES:
        raise LabError(Exit.USAGE, f"there is no suite {suite!r}; there are: {', '.join(SUITES)}")
    if lend and set(targets) != {SHORT}:
        raise LabError(Exit.USAGE, f"only {SHORT} takes a kernel that is lent; the other targets build one")
    if os.geteuid() != 0:
        raise LabError(Exit.PRIVILEGE, "a clean Debian root needs mounts and chroot, so this must run as root.")
    setup.ensure(setup.Need.ROOT)
    usual = build.ensure() if lend else None
    with locked(f"clean-root-{suite}"):
        store = cache() / "clean-root" / suite
        for name in ("cache", "debs/partial"):
            (store / name).mkdir(parents=True, exist_ok=True)
        if usual:
            build.lend(usual, store / "cache")
        else:
            build.forget_lent(store / "cache")
        with scratch(store, _MIB, "a clean root") as root:
            _make(suite, root, store / "debs", as_user)
            return _run(suite, root, store, targets, as_user)


@contextmanager
def scratch(store: Path, mib: int, what: str) -> Iterator[Path]:
    """A directory for a root in `store`, which needs so much space there; removed at the end. The caller holds the
    store's lock. LabError if the space is not there."""
    # Of a run that was killed; nothing is mounted there any more.
    for left in store.glob("root-*"):
        _remove(left)
    space.need(mib, store, what)
    root = Path(tempfile.mkdtemp(prefix="root-", dir=store))
    try:
        yield root
    finally:
        _remove(root)


def isolated(script: str) -> list[str]:
    """A shell that runs `script` with mounts and processes of its own, which end with it. Its name and its arguments
    come after."""
    apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    return [*apart, "/bin/sh", "-c", script]


def proxies() -> list[str]:
    """The host's, as words for env."""
    return [f"{name}={os.environ[name]}" for name in _PROXIES if name in os.environ]


def _remove(root: Path) -> None:
    subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=False)


def debian(suite: str, root: Path, debs: Path, packages: str, log: Path) -> None:
    """Makes a minimal Debian in `root`, with these packages, which are kept in `debs`."""
    found = mirrors(host_config())
    if not found:
        raise LabError(
            Exit.SOURCE, "no entry of the host's apt sources serves Debian's main component; a root needs a mirror."
        )
    # mktemp's mode would keep the root's own users out.
    root.chmod(0o755)
    argv = ["debootstrap", "--variant=minbase", f"--include={packages}", f"--cache-dir={debs}", suite, str(root)]
    proc.run([*argv, found[0].uri], log=log, what=f"debootstrap of {suite}", code=Exit.INSTALL)
    for certificate in sorted(_CERTIFICATES.glob("*.crt")):
        shutil.copy(certificate, root / _CERTIFICATES.relative_to("/"))
    for path in (Path("/etc/resolv.conf"), Path("/etc/hosts")):
        if path.exists():
            shutil.copyfile(path, root / path.relative_to("/"))
    _inside(root, "update-ca-certificates", log)


def with_backports(root: Path, suite: str) -> None:
    """Adds the suite's backports to what apt reads in the root."""
    sources = root / "etc" / "apt" / "sources.list"
    sources.write_text(sources.read_text() + sources.read_text().replace(suite, f"{suite}-backports"))


def _inside(root: Path, lines: str, log: Path) -> None:
    argv = ["chroot", str(root), "/bin/sh", "-ec", lines]
    proc.run(argv, log=log, what="setting up the root", code=Exit.BUILD, append=True)


def _make(suite: str, root: Path, debs: Path, as_user: bool) -> None:
    """A minimal Debian in `root`, with the checkout's HEAD in /srv/project."""
    begin = time.monotonic()
    log = BUILD / "log" / f"clean-root-{suite}.log"
    debian(suite, root, debs, _PACKAGES, log)
    if as_user:
        sudoer = f"echo '{_USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{_USER}"
        _inside(root, f"useradd -m {_USER}\n{sudoer}", log)
    project = root / "srv" / "project"
    # The process that serves a clone does not get the options of its caller.
    clone = [*proc.GIT, "clone", "-q", "--no-local", "--upload-pack", " ".join([*proc.GIT, "upload-pack"])]
    proc.run([*clone, str(REPO), str(project)], log=log, what="cloning HEAD", code=Exit.BUILD, append=True)
    print(f"clean root: {suite}, HEAD of {REPO}, made in {time.monotonic() - begin:.0f} s", flush=True)


def script(root: Path, store: Path, as_user: bool) -> str:
    """What a shell in namespaces of its own does to become a process of the root that runs make with its arguments."""
    place = shlex.quote(str(root))
    mounts = [
        f"mount -t proc proc {place}/proc",
        f"mount -t sysfs sysfs {place}/sys",
        f"mount --rbind /dev {place}/dev",
        f"mkdir -p {place}/srv/cache",
        f"mount --bind {shlex.quote(str(store / 'cache'))} {place}/srv/cache",
        f"mount --bind {shlex.quote(str(store / 'debs'))} {place}/var/cache/apt/archives",
    ]
    home = f"/home/{_USER}" if as_user else "/root"
    environment = [
        f"HOME={home}",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "TERM=dumb",
        "LANG=C.UTF-8",
        "MTHP_CACHE=/srv/cache",
        *proxies(),
    ]
    owner = _USER if as_user else "root"
    run = ["chroot", str(root), *(["sudo", "-u", _USER] if as_user else []), "env", "-i", *environment]
    return "\n".join(
        [
            "set -e",
            *mounts,
            f"chroot {place} chown -R {owner}: /srv/project /srv/cache",
            f'exec {shlex.join([*run, "make", "-C", "/srv/project"])} "$@" </dev/null',
        ]
    )


def _run(suite: str, root: Path, store: Path, targets: Sequence[str], as_user: bool) -> int:
    failed = 0
    argv = [*isolated(script(root, store, as_user)), "sh"]
    for target in targets:
        begin = time.monotonic()
        print(f"clean root: {suite}: make {target}", flush=True)
        process = proc.start([*argv, target])
        try:
            status = process.wait()
        finally:
            proc.stop(process)
        print(f"clean root: {suite}: make {target}: exit {status} after {time.monotonic() - begin:.0f} s", flush=True)
        failed += status != 0
    return Exit.TESTS if failed else Exit.OK
