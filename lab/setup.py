# SPDX-License-Identifier: GPL-2.0-only
"""Installs what the lab needs on Debian, and says so before it does; a fraction of a second when all is there."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import Flag, auto
from pathlib import Path

from lab import proc, programs, terminal
from lab.errors import Exit, LabError
from lab.lock import locked
from lab.paths import BUILD, REPO, cache


class Need(Flag):
    """What a command is about to do, and so what must be installed."""

    KERNEL = auto()
    PROGRAM = auto()
    VM = auto()
    REDIS = auto()
    LINT = auto()
    CHECKS = auto()
    WORKLOADS = auto()
    ROOT = auto()
    DEB = auto()
    KERNEL_DEB = auto()
    DISK = auto()
    DEMO = PROGRAM | KERNEL | VM | REDIS
    BENCH = DEMO | WORKLOADS
    ALL = BENCH | LINT | CHECKS


# Debian packages by need; "a|b": either will do, the first is the one to install. The names are the same in
# Debian 12 and 13. redis-tools, not redis-server: the latter would start a service on the user's machine, and
# the server is the same file as redis-check-rdb (programs.redis_server).
_PACKAGES: dict[Need, tuple[str, ...]] = {
    Need.KERNEL: (
        "gcc", "make", "flex", "bison", "bc", "libc6-dev", "libelf-dev", "pahole", "lz4", "zstd", "xz-utils",
        "git", "perl", "ca-certificates",
    ),
    Need.PROGRAM: ("clang-19", "llvm-19", "gcc", "make", "libc6-dev", "libelf-dev", "zlib1g-dev", "pkgconf|pkg-config"),
    Need.VM: ("qemu-system-x86", "busybox-static|busybox"),
    Need.REDIS: ("redis-tools",),
    # Not memcached itself, which would start a service: lab/bench/packages.py unpacks it. The libraries it loads come
    # with libmemcached-tools and redis-tools.
    Need.WORKLOADS: (
        "stress", "python3-minimal", "libpython3-stdlib", "libjemalloc2", "dash", "grep", "coreutils", "gcc", "make",
        "binutils", "libc6-dev", "libelf-dev", "zlib1g-dev", "libmemcached-tools", "nodejs", "sqlite3",
        # bpftool is built for the example policies of the series.
        "libssl-dev",
    ),
    Need.LINT: ("python3-venv",),
    Need.DEB: (
        "clang-19", "llvm-19", "gcc", "make", "libc6-dev", "libelf-dev", "zlib1g-dev", "pkgconf|pkg-config",
        "debhelper", "dh-dkms", "dpkg-dev", "fakeroot", "lintian", "git",
        # With which Ansible's apt reads packages.
        "python3-apt",
    ),
    # What bindeb-pkg names as Build-Depends, beside what each kernel needs.
    Need.KERNEL_DEB: ("debhelper", "dpkg-dev", "kmod", "libdw-dev", "libssl-dev", "rsync", "cpio"),
    # Disk images with a boot path of their own, made without mounting anything.
    Need.DISK: ("ovmf", "mtools", "e2fsprogs", "fdisk"),
    Need.ROOT: ("debootstrap", "util-linux", "git"),
    # Another architecture by clang, which is a second compiler too and tens of times smaller than a cross gcc.
    Need.CHECKS: ("clang-19", "llvm-19", "lld-19", "sparse"),
}  # fmt: skip

RUST_OLDEST = (1, 85)
# Sets of packages that bring Rust with rustfmt and clippy, best first. Debian 12's rustc is too old for the project;
# the one it carries for its browsers is not.
_RUST: tuple[tuple[str, ...], ...] = (
    ("rustc", "cargo", "rustfmt", "rust-clippy"),
    ("rustc-web", "cargo-web", "rustfmt-web", "rust-web-clippy"),
)
_RUST_LINTERS = ("cargo-fmt", "cargo-clippy")
_LOG = BUILD / "log" / "setup.log"
_LOCKED = re.compile(r"Could not get lock [^\n]*|Unable to (?:lock|acquire the dpkg)[^\n]*")
_LOCK_S, _LOCK_POLL_S = 300.0, 5.0
"""How long another program may hold apt's lock (a fresh machine updates itself), and how often apt is tried."""
_LOCK_FILE = REPO / "lab" / "requirements.lock"


def installed(names: Sequence[str]) -> set[str]:
    """Which of these packages are installed."""
    try:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise LabError(
            Exit.HOST,
            f"this is not a Debian system (dpkg-query: {error.strerror}), and the lab runs on Debian 12 and 13 only: "
            "use a container or a virtual machine of one. docs/install.md builds the program and a kernel elsewhere.",
        ) from error
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0] for row in rows if len(row) == 2 and row[1] == "installed"}


def missing(wanted: Sequence[str], there: set[str]) -> list[str]:
    """The packages to install so that each entry ("a|b": either) is met, without repeats."""
    found = [entry.split("|")[0] for entry in wanted if not set(entry.split("|")) & there]
    return list(dict.fromkeys(found))


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor of the first version in `text`; (0, 0) if there is none."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def rust_is_there() -> bool:
    """Whether cargo and rustc can be started and are new enough."""
    path = programs.environment()["PATH"]
    for tool in ("cargo", "rustc"):
        found = shutil.which(tool, path=path)
        if found is None or parse_version(programs.version([found, "--version"])) < RUST_OLDEST:
            return False
    return True


def rust_linters_are_there() -> bool:
    """Whether rustfmt and clippy belong to the cargo that is used. LabError where they do not and that cargo is not
    Debian's: its linters do not come with apt."""
    path = programs.environment()["PATH"]
    lacking = [tool for tool in _RUST_LINTERS if shutil.which(tool, path=path) is None]
    if not lacking:
        return True
    cargo = shutil.which("cargo", path=path)
    if cargo and not cargo.startswith("/usr/bin/"):
        raise LabError(
            Exit.INSTALL,
            f"{' and '.join(lacking)} are missing beside {cargo}, which is not Debian's. With rustup they come with "
            "`rustup component add rustfmt clippy`.",
        )
    return False


def candidate(package: str) -> str:
    """The version apt would install; empty when it knows none."""
    done = subprocess.run(
        ["apt-cache", "policy", package], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    match = re.search(r"^\s*Candidate: (\S+)$", done.stdout, re.MULTILINE)
    return match[1] if match and match[1] != "(none)" else ""


def rust_packages() -> tuple[str, ...]:
    """The first set of packages that apt can install in a version that is new enough."""
    for names in _RUST:
        if parse_version(candidate(names[0]).partition(":")[2] or candidate(names[0])) >= RUST_OLDEST:
            return names
    wanted = ".".join(str(part) for part in RUST_OLDEST)
    raise LabError(
        Exit.INSTALL,
        f"no Rust {wanted} or newer: neither on PATH nor in this system's apt sources "
        f"(looked for {', '.join(names[0] for names in _RUST)}). Install it from rust-lang.org (rustup) and try again.",
    )


def _root(lacking: Sequence[str]) -> list[str]:
    """What to put before a command that needs root; `lacking` is named when there is no way."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo:
        # With nobody there to type a password, sudo must not ask for one.
        if terminal.is_terminal(sys.stdin):
            return [sudo]
        if subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
            return [sudo, "-n"]
    raise LabError(
        Exit.PRIVILEGE,
        f"missing here: {' '.join(lacking)}; and this is neither root nor can it become root "
        f"({'sudo would ask for a password, and there is no terminal' if sudo else 'sudo is not installed'}). "
        "Run `make setup` as root once; everything else works without root.",
    )


def _apt(root: list[str], *args: str, what: str) -> None:
    # Without a wait of its own it names the program that holds the lock at once, and the user need not wonder.
    options = ["-o", "DPkg::Lock::Timeout=0"]
    argv = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get", *options, *args]
    begin = time.monotonic()
    waiting = False
    while True:
        before = _LOG.stat().st_size
        status = _call(argv, root)
        if status == 0:
            return
        said = _LOG.read_bytes()[before:].decode(errors="replace")
        locked_by = _LOCKED.search(said)
        if locked_by is None:
            end = "\n".join(f"  {line}" for line in said.splitlines()[-20:])
            raise LabError(Exit.INSTALL, f"{what} failed (exit code {status}); the end of {_LOG}:\n{end}")
        if time.monotonic() - begin > _LOCK_S:
            raise LabError(
                Exit.INSTALL,
                f"{what}: another program has held apt's lock for {_LOCK_S:g} s: {locked_by[0]}; wait for its end and "
                "try again",
            )
        if not waiting:
            print(f"setup: waiting for up to {_LOCK_S:g} s: {locked_by[0]}", flush=True)
            waiting = True
        time.sleep(_LOCK_POLL_S)


def _call(argv: Sequence[str], root: Sequence[str]) -> int:
    """Runs a command with its output added to the log; its exit code."""
    with _LOG.open("ab") as log:
        if root and terminal.is_terminal(sys.stdin):
            # sudo may have to ask on the terminal, which a session of its own would not have.
            return subprocess.run(argv, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        process = proc.start(argv, stdout=log, stderr=subprocess.STDOUT)
        try:
            return process.wait()
        finally:
            proc.stop(process)


def ensure(need: Need, say_done: bool = False) -> None:
    """Installs what `need` still lacks; raises LabError when that cannot be."""
    wanted: list[str] = []
    for one, names in _PACKAGES.items():
        if one in need:
            wanted += names
    alternatives = [name for entry in wanted for name in entry.split("|")]
    lacking = missing(wanted, installed(alternatives))
    rust = bool(need & (Need.PROGRAM | Need.VM | Need.DEB)) and not rust_is_there()
    if Need.LINT in need and not rust:
        rust = not rust_linters_are_there()
    if lacking or rust:
        _install(lacking, rust)
    if Need.LINT in need:
        linters()
    if say_done:
        print("setup: everything is installed", flush=True)


def _install(lacking: list[str], rust: bool) -> None:
    if shutil.which("apt-get") is None:
        raise LabError(Exit.HOST, f"this system has no apt-get; install by hand: {' '.join(lacking)}")
    what = [*lacking, *(["Rust"] if rust else [])]
    root = _root(what)
    _LOG.parent.mkdir(parents=True, exist_ok=True)
    _LOG.write_bytes(b"")
    print(f"setup: missing here: {' '.join(what)}", flush=True)
    _apt(root, "update", what="apt-get update")
    packages = [*lacking, *(rust_packages() if rust else ())]
    print(f"setup: installing with apt-get{' through sudo' if root else ''}: {' '.join(packages)}", flush=True)
    # Whatever would have to go for these packages belongs to the user, who must decide that.
    _apt(root, "install", "-y", "--no-install-recommends", "--no-remove", *packages, what="apt-get install")
    still = missing(packages, installed(packages))
    if still or (rust and not (rust_is_there() and rust_linters_are_there())):
        raise LabError(
            Exit.INSTALL, f"apt-get reports success, but not all is there ({' '.join(still) or 'Rust'}); log: {_LOG}"
        )


def linters() -> Path:
    """The Python that has ruff and mypy."""
    return python_with(_LOCK_FILE)


def python_with(lock_file: Path) -> Path:
    """The Python that has the pinned, hashed wheels of a lock file, in a virtual environment of the cache."""
    identity = hashlib.sha256(lock_file.read_bytes() + sys.version.encode()).hexdigest()[:12]
    directory = cache() / f"venv-{identity}"
    python, complete = directory / "bin" / "python", directory / "complete"
    if complete.exists():
        return python
    with locked("venv"):
        if complete.exists():
            return python
        pins = [line.split()[0] for line in lock_file.read_text().splitlines() if re.match(r"[a-z]", line)]
        print(f"setup: installing into {directory}: {' '.join(pins)}", flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        _LOG.parent.mkdir(parents=True, exist_ok=True)
        proc.run([sys.executable, "-m", "venv", str(directory)], log=_LOG, what="making a venv", code=Exit.INSTALL)
        proc.run(
            [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--require-hashes",
             "--only-binary", ":all:", "--requirement", str(lock_file)],
            log=_LOG,
            what=f"installing {lock_file.name}",
            code=Exit.INSTALL,
            append=True,
        )  # fmt: skip
        complete.touch()
    return python
