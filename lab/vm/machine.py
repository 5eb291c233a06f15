# SPDX-License-Identifier: GPL-2.0-only
"""A job in a virtual machine of its own: what it is, how it runs, how it ended."""

import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Protocol

from lab import proc, programs, space
from lab.errors import Exit, LabError
from lab.paths import BUILD
from lab.vm import control, hang, initramfs, qemu
from lab.vm.qemu import Emulator, Mode
from lab.vm.verdict import Evidence, Verdict, judge, parse_record, splats, stalls

_POLL_S = 0.02
_CHANNEL_LIMIT = 512 << 20
_RUN_MIB = 256
"""Free space that a guest should find for its file system and its logs."""
_FULL_MIB = 1
"""With less free space, what QEMU could not write is the likely reason of a failure."""
_LINE_LIMIT = 1 << 20
GRACE_S = 900.0
"""Wall-clock seconds that a job has to end when it was asked to stop: on a slow machine that takes long, too."""
_UP = b"Run /init as init process"
"""What the kernel says when it starts PID 1; before that nothing of a job has run."""


class Plugin(Protocol):
    """What is loaded into QEMU beside the guest, such as the TLB model."""

    @property
    def emulator(self) -> Emulator:
        """The QEMU that it is for."""

    def arguments(self, out: Path) -> list[str]:
        """For QEMU's command line; what it finds goes to `out`."""

    def records(self, out: Path) -> list[dict[str, Any]]:
        """What it found, once QEMU has ended."""


@dataclass(frozen=True)
class Job:
    """What to run in a guest of its own, as root, below the lab's PID 1."""

    kernel: Path
    argv: list[str]
    """Program (an absolute guest path) and arguments."""
    programs: list[Path] = field(default_factory=list)
    """Host binaries, copied to the same path together with the shared libraries they load."""
    files: dict[str, Path] = field(default_factory=dict)
    """Guest path -> host file, copied as it is."""
    data: dict[str, bytes] = field(default_factory=dict)
    """Guest path -> content."""
    memory_mib: int = 1024
    cpus: int = 2
    nodes: int = 1
    """NUMA nodes, which share memory equally; with fewer CPUs than nodes the last ones have none."""
    mode: Mode = Mode.TCG
    timeout_s: float = 300.0
    """Wall-clock seconds until QEMU is killed."""
    stop_s: float | None = None
    """Wall-clock seconds after which the job is asked to stop and to report what it has. It must listen for that
    (lab/guest/src/stop.rs) and end before `timeout_s`."""
    boot_s: float = 180.0
    """Wall-clock seconds until PID 1 must have been started: some 3 under emulation, up to 75 with the kernel for
    debugging. A guest that is later is killed and booted once more."""
    append: str = ""
    """Added to the kernel command line."""
    env: dict[str, str] = field(default_factory=dict)
    """Added to argv's environment. LAB_CONTROLLERS chooses the cgroup v2 controllers that PID 1 enables."""
    name: str = "job"
    """Names the run's directory under build/vm/."""
    plugin: Plugin | None = None
    """What to load, in its own QEMU. What it found follows the job's own records."""
    emulator: Emulator | None = None
    """Another QEMU than the host's, without a plugin."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended and what it left."""

    verdict: Verdict
    exit_code: int | None
    """argv's exit code; None when it was killed or nobody knows."""
    records: list[dict[str, Any]]
    """The JSON objects that came through the results channel, in order."""
    output: Path
    """argv's stdout and stderr."""
    console: Path
    """The guest's kernel log."""
    seconds: float
    """Wall-clock time from QEMU's start to its end."""
    why: str = ""
    """Why the verdict is not PASSED; empty when it is."""
    splats: tuple[str, ...] = ()
    """Kernel warnings and bugs in the console log."""
    stalls: tuple[str, ...] = ()
    """What the kernel took for stalls; a busy host makes it take itself for one."""
    hung: str = ""
    """What is known of a first boot that never came to PID 1, when this is the second; else empty."""

    @property
    def reason(self) -> str:
        """`why`, with the console log's path."""
        return f"{self.why}; console log: {self.console}" if self.why else ""

    @property
    def cause(self) -> str:
        """What failed, in one line and where possible in the words of the program that failed; empty for PASSED."""
        if self.verdict is not Verdict.FAILED:
            return self.why
        reported = [record["cause"] for record in self.records if record.get("type") == "failure"]
        return str(reported[-1]) if reported else proc.last_line(self.output) or self.why

    def check(self, what: str) -> None:
        """Raises a LabError with the verdict's own exit code unless the run passed."""
        if self.verdict is Verdict.PASSED:
            return
        more = f" ({self.why})" if self.cause != self.why else ""
        raise LabError(
            self.verdict.exit_code,
            f"{what}: {self.cause}{more}; console log: {self.console}; the end of {self.output}:\n"
            f"{proc.tail(self.output)}",
            cause=self.cause,
            log=self.output,
        )


class _Channel:
    """Reads a growing file of JSON lines."""

    def __init__(self, path: Path, on_record: Callable[[dict[str, Any]], None] | None) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self._on_record = on_record
        self.records: list[dict[str, Any]] = []
        self.bad = 0

    def poll(self) -> None:
        while data := self._file.read(1 << 20):
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            for line in lines:
                self._take(line)
            if len(self._rest) > _LINE_LIMIT:
                self._rest = b""
                self.bad += 1

    def _take(self, line: bytes) -> None:
        record = parse_record(line)
        if record is None:
            self.bad += 1
            return
        self.records.append(record)
        if self._on_record:
            self._on_record(record)

    def close(self) -> None:
        self.poll()
        if self._rest:
            # Cut off in the middle of a line.
            self.bad += 1
        self._file.close()


def _directory(name: str) -> tuple[Path, IO[str]]:
    """An empty directory for one run, and the lock that keeps it from a second run of the same name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ValueError(f"not a name for a run: {name!r}")
    base = BUILD / "vm"
    base.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = base / (name if number == 1 else f"{name}.{number}")
        lock = (base / f".{path.name}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            number += 1
            continue
        if path.exists():
            shutil.rmtree(path)
        path.mkdir()
        return path, lock


def _job_file(job: Job, nonce: str) -> bytes:
    records = [f"nonce={nonce}", *(f"arg={word}" for word in job.argv)]
    # With it the job knows that the port to listen on is there.
    env = job.env | ({"LAB_CONTROL": "1"} if job.stop_s is not None else {})
    records += [f"env={name}={value}" for name, value in env.items()]
    if any("\0" in record for record in records):
        raise ValueError("a NUL byte in argv or environment")
    return "".join(f"{record}\0" for record in records).encode()


def run(job: Job, on_record: Callable[[dict[str, Any]], None] | None = None) -> Outcome:
    """Boots `job` and waits for its end; `on_record` is called for each result as it comes.

    QEMU's emulation with a thread for each processor sometimes hangs while a guest boots. Nothing of the
    job has run by then, so such a boot is repeated once; stderr and the Outcome say so.

    Only what prevents a run from starting is raised, as LabError; how it ended is in the Outcome.
    """
    emulator = job.plugin.emulator if job.plugin else job.emulator or Emulator(qemu.binary())
    init = programs.guest()
    if not job.kernel.is_file():
        raise LabError(Exit.QEMU, f"no kernel image at {job.kernel}; run `make kernel`")
    space.need(_RUN_MIB, BUILD / "vm", "a guest")
    directory, lock = _directory(job.name)
    with lock:
        outcome = _boot(job, emulator, init, directory, on_record)
        if not outcome.hung:
            return outcome
        # What it left is evidence; the second boot writes to files of its own.
        left = list(directory.iterdir())
        first = directory / "hung-boot"
        first.mkdir()
        for path in left:
            path.rename(first / path.name)
        print(f"{job.name}: {outcome.hung}; booted once more; see {first}", file=sys.stderr, flush=True)
        again = _boot(job, emulator, init, directory, on_record)
        if again.hung:
            return replace(again, why=f"twice: {again.why}; the first boot: {first}")
        return replace(again, hung=f"{outcome.hung}; see {first}")


def _boot(
    job: Job, emulator: Emulator, init: Path, directory: Path, on_record: Callable[[dict[str, Any]], None] | None
) -> Outcome:
    nonce = secrets.token_hex(16)
    files = qemu.Files(
        initramfs=directory / "initramfs.cpio",
        console=directory / "console.log",
        ports={"verdict": directory / "verdict", "output": directory / "output.log"}
        | {"results": directory / "results.jsonl"},
    )
    image = BytesIO()
    job_file = {"/lab/job": _job_file(job, nonce)}
    initramfs.build(image, init, job.programs, job.files, {**job.data, **job_file})
    files.initramfs.touch(mode=0o600)
    files.initramfs.write_bytes(image.getbuffer())
    del image
    for path in (files.console, *files.ports.values()):
        path.touch()
    argv = qemu.command(
        emulator.program,
        job.kernel,
        files,
        mode=job.mode,
        memory_mib=job.memory_mib,
        cpus=job.cpus,
        append=job.append,
        nodes=job.nodes,
    )
    argv += emulator.options
    found = directory / "tlb.jsonl"
    if job.plugin:
        argv += job.plugin.arguments(found)
    try:
        outcome = _watch(job, argv, files, directory / "qemu.log", nonce, on_record)
        return replace(outcome, records=[*outcome.records, *job.plugin.records(found)]) if job.plugin else outcome
    finally:
        # Large, holds the nonce, and is rebuilt from the job at any time.
        files.initramfs.unlink(missing_ok=True)


def _watch(
    job: Job,
    argv: list[str],
    files: qemu.Files,
    log: Path,
    nonce: str,
    on_record: Callable[[dict[str, Any]], None] | None,
) -> Outcome:
    channel = _Channel(files.ports["results"], on_record)
    over = ""
    up = False
    with log.open("wb") as out, hang.Monitor() as monitor, control.Control(job.stop_s) as bound:
        begin = time.monotonic()
        process = proc.start(
            [*argv, *monitor.options, *bound.options],
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=[monitor.descriptor, bound.descriptor],
        )
        try:
            while process.poll() is None and not over:
                time.sleep(_POLL_S)
                channel.poll()
                seconds = time.monotonic() - begin
                bound.ask(seconds)
                up = up or _UP in files.console.read_bytes()
                over = _over(job, files, seconds, up)
            seconds = time.monotonic() - begin
            if over and process.poll() is None:
                (log.parent / "processors.log").write_text(hang.state(process.pid, monitor))
        finally:
            killed = process.poll() is None
            proc.stop(process)
        channel.close()

    console = _text(files.console)
    evidence = Evidence(
        nonce=nonce,
        verdict=_text(files.ports["verdict"]),
        console=console,
        status=process.returncode,
        over=over if killed else "",
        bad_records=channel.bad,
    )
    verdict, code, why = judge(evidence)
    if verdict is not Verdict.PASSED:
        complaint = _text(log).strip()
        if verdict is Verdict.DIED and complaint:
            why += f" (QEMU said: {complaint})"
        if space.free_mib(files.console) < _FULL_MIB:
            why += f" (the disk of {files.console.parent} is full)"
    return Outcome(
        verdict=verdict,
        exit_code=code,
        records=channel.records,
        output=files.ports["output"],
        console=files.console,
        seconds=seconds,
        why=why,
        splats=splats(console),
        stalls=stalls(console),
        hung="" if up else evidence.over if seconds > job.boot_s else _aborted(job, evidence),
    )


def _aborted(job: Job, evidence: Evidence) -> str:
    """What to say of a QEMU that found a mistake of its own before the guest had come up: seen once, with QEMU 7.2, in
    `msix_table_mmio_write()`. With KVM it is how some hosts show that KVM does not work."""
    aborted = evidence.status == -signal.SIGABRT and job.mode is not Mode.KVM
    return "QEMU aborted before PID 1" if aborted else ""


def _over(job: Job, files: qemu.Files, seconds: float, up: bool) -> str:
    """Why the run must end now, or nothing."""
    if seconds > job.timeout_s:
        asked = f", asked to stop after {job.stop_s:g} s" if job.stop_s is not None else ""
        return f"no end after {job.timeout_s:g} s{asked}"
    if seconds > job.boot_s and not up:
        return f"no PID 1 after {job.boot_s:g} s"
    for path in (files.console, *files.ports.values()):
        if path.stat().st_size > _CHANNEL_LIMIT:
            return f"more than {_CHANNEL_LIMIT >> 20} MiB in {path.name}"
    return ""


def _text(path: Path) -> str:
    """The end of a file that a guest wrote, whatever is in it."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - (64 << 20)))
        return file.read().decode(errors="replace")
