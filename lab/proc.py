# SPDX-License-Identifier: GPL-2.0-only
"""Starting and stopping child processes so that nothing outlives the lab."""

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from lab.errors import Exit, LabError

GIT = ("git", "-c", "safe.directory=*")
"""git for a checkout that may belong to somebody else, as in a container: it has been trusted with more by then."""

_PR_SET_PDEATHSIG = 1
_groups: set[int] = set()
_lock = threading.Lock()
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    # Runs between fork and exec: covers a lab that is killed with SIGKILL and cannot stop its children.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start(
    argv: Sequence[str],
    *,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts `argv` without input, in a process group of its own that `stop` and `stop_all` end."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=None if env is None else dict(env),
        start_new_session=True,
        preexec_fn=_die_with_parent,
        pass_fds=pass_fds,
    )
    with _lock:
        _groups.add(process.pid)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kills the process group of `process`, whatever state it is in, and reaps it."""
    _kill(process.pid)
    process.wait()
    with _lock:
        _groups.discard(process.pid)


def stop_gently(process: subprocess.Popen[bytes]) -> None:
    """Asks with SIGTERM first: make then removes the files that it had half written."""
    if process.poll() is None:
        _kill(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
    stop(process)


def _kill(group: int, number: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        # Everybody in it has ended already.
        return


def stop_all() -> None:
    """Kills every process group that `start` made and `stop` has not ended."""
    with _lock:
        groups = list(_groups)
        _groups.clear()
    for group in groups:
        _kill(group)


def make_jobs() -> str:
    """The option of make for as many jobs as there are processors to run on."""
    return f"-j{len(os.sched_getaffinity(0))}"


def outside_make() -> dict[str, str]:
    """The environment for a make of the kernel's tools. The lab itself may be a command of make, and what that was
    given is not for them: with DEBUG=1, for one, bpftool is built in another way."""
    of_make = ("MAKEFLAGS", "MAKELEVEL", "DIR", "BASE", "DEBUG")
    return {name: value for name, value in {**os.environ, "LC_ALL": "C"}.items() if name not in of_make}


def made(argv: Sequence[str], *, log: Path, env: Mapping[str, str], pass_fds: Sequence[int]) -> bool:
    """Runs a make with its output in `log`. Whether it succeeded; one that is interrupted may clean up."""
    with log.open("wb") as out:
        process = start(argv, stdout=out, stderr=subprocess.STDOUT, env=env, pass_fds=pass_fds)
        try:
            return process.wait() == 0
        finally:
            stop_gently(process)


def run(
    argv: Sequence[str],
    *,
    log: Path,
    what: str,
    code: Exit = Exit.BUILD,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    append: bool = False,
) -> None:
    """Runs `argv` with its output in `log`; LabError with the log's last lines when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab" if append else "wb") as out:
        try:
            process = start(argv, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, env=env)
        except OSError as error:
            raise LabError(code, f"{what}: cannot start {argv[0]}: {error.strerror}") from error
        try:
            status = process.wait()
        finally:
            stop(process)
    if status != 0:
        raise LabError(code, f"{what} failed ({_status(status)}); the end of {log}:\n{tail(log)}")


def _status(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit code {status}"


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, indented; what cannot be decoded is replaced."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"  (cannot be read: {error.strerror})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (empty)"


def last_line(path: Path) -> str:
    """The last line of a log that is not empty, or nothing."""
    lines = [line.strip() for line in tail(path).splitlines() if line.strip()] if _size(path) else []
    return lines[-1] if lines else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def output(argv: Sequence[str], *, what: str, code: Exit, cwd: Path | None = None) -> str:
    """The standard output of a short command; LabError with its complaint when it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=cwd, check=False)
    except OSError as error:
        raise LabError(code, f"{what}: cannot start {argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise LabError(code, f"{what}: {argv[0]} said: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def stop_on_signals() -> None:
    """Makes SIGTERM and SIGHUP end the lab the way Ctrl-C does, through every `finally`."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handler: Callable[[int, FrameType | None], None] = interrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)
