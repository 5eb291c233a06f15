# SPDX-License-Identifier: GPL-2.0-only
"""Builds the Rust programs the lab runs."""

import os
import shutil
import subprocess
import threading
from pathlib import Path

from lab import proc, space
from lab.errors import Exit, LabError
from lab.paths import BUILD, CARGO_TARGET, REPO, home

_CARGO_MIB = 600
"""What the first build leaves."""
_lock = threading.Lock()
_built: dict[str, Path] = {}


def environment() -> dict[str, str]:
    """The environment cargo runs in: rustup's directory is on PATH even before the user logs in again."""
    env = dict(os.environ)
    path = env.get("PATH", "/usr/bin:/bin")
    mine = home()
    env["PATH"] = f"{mine / '.cargo' / 'bin'}:{path}" if mine else path
    env["CARGO_TARGET_DIR"] = str(CARGO_TARGET)
    return env


def cargo() -> str:
    """The cargo program, or a LabError that says how to get it."""
    path = shutil.which("cargo", path=environment()["PATH"])
    if path is None:
        raise LabError(Exit.BUILD, "cargo is not installed; run `make setup`")
    return path


def package(name: str) -> Path:
    """Builds the release binary of workspace package `name` and returns its path; cheap when nothing changed."""
    with _lock:
        if name not in _built:
            if not CARGO_TARGET.is_dir():
                space.need(_CARGO_MIB, BUILD, "building the Rust programs")
            proc.run(
                [cargo(), "build", "--release", "--locked", "--package", name],
                log=BUILD / "log" / f"cargo-{name}.log",
                what=f"building {name}",
                cwd=REPO,
                env=environment(),
            )
            _built[name] = CARGO_TARGET / "release" / name
        return _built[name]


def guest() -> Path:
    """The guest's PID 1."""
    return package("lab-guest")


def mthp_ext() -> Path:
    """The mthp_ext binary."""
    return package("mthp_ext")


def version(argv: list[str]) -> str:
    """First line of a tool's version report; empty when it is not there."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else ""


_PATH = "/usr/local/bin:/usr/bin:/bin"


def installed(name: str) -> Path:
    """A program of a package that `make setup` installs."""
    if found := shutil.which(name, path=_PATH):
        return Path(found)
    raise LabError(Exit.HOST, f"{name} is not installed; run `make setup`")


def redis_server() -> Path:
    """The Redis server: redis-server where it is installed, else the same file under its other name, which it
    only minds when it is called by it (redis-tools has it without the service that redis-server brings)."""
    for name in ("redis-server", "redis-check-rdb"):
        if found := shutil.which(name, path=_PATH):
            return Path(found)
    raise LabError(Exit.HOST, "redis is not installed; run `make setup`")
