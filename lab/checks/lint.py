# SPDX-License-Identifier: GPL-2.0-only
"""The linters, each counted as one test."""

import subprocess
import time
from collections.abc import Mapping, Sequence

from lab import programs, setup
from lab.checks.result import Suite
from lab.paths import REPO


def _check(suite: Suite, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        argv, cwd=REPO, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    said = (done.stdout + done.stderr).strip()[-6000:]
    suite.check(name, done.returncode == 0, said or f"exit code {done.returncode}")


def run() -> Suite:
    """ruff and mypy over the lab, rustfmt and clippy over the workspace."""
    suite = Suite("linters")
    begin = time.monotonic()
    python = str(setup.linters())
    _check(suite, "ruff check", [python, "-m", "ruff", "check", "--no-cache", "."])
    _check(suite, "ruff format", [python, "-m", "ruff", "format", "--no-cache", "--check", "."])
    cache = ["--cache-dir", str(REPO / "build" / "mypy")]
    _check(suite, "mypy", [python, "-m", "mypy", *cache])

    env = programs.environment()
    cargo = programs.cargo()
    _check(suite, "rustfmt", [cargo, "fmt", "--all", "--check", "--", "--color", "never"], env)
    clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]
    _check(suite, "clippy", [cargo, *clippy], env)
    suite.seconds = time.monotonic() - begin
    return suite
