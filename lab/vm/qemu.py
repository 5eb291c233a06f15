# SPDX-License-Identifier: GPL-2.0-only
"""The QEMU command line of a guest."""

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lab.errors import Exit, LabError


class Mode(StrEnum):
    """How guest instructions are executed."""

    KVM = "kvm"
    """By the processor; figures mean something beyond this lab."""
    TCG = "tcg"
    """Emulated, one host thread per guest CPU: the fastest emulation, its timing as noisy as the host."""
    SINGLE = "single"
    """Emulated, one host thread for all guest CPUs, which take turns: the only one in which a kernel survives that
    patches its own code while it runs."""
    ICOUNT = "icount"
    """Emulated by one thread, one instruction = 1 ns of guest time: repeats, but no time has a TLB or cache in it.
    Several CPUs take turns, and what one of them does is time for all."""


PORTS = ("verdict", "output", "results")
"""Names of the virtio-serial ports; each ends in a file of its own on the host."""


@dataclass(frozen=True)
class Files:
    """Host files of one run."""

    initramfs: Path
    console: Path
    ports: dict[str, Path]


@dataclass(frozen=True)
class Emulator:
    """A QEMU program, and what it needs to run from where it is."""

    program: str
    options: tuple[str, ...] = ()


def binary() -> str:
    """The QEMU program, or a LabError that says how to get it."""
    path = shutil.which("qemu-system-x86_64")
    if path is None:
        raise LabError(Exit.QEMU, "qemu-system-x86_64 is not installed; run `make setup`")
    return path


_CPU = "max,-erms,-fsrm"
"""The emulated processor. With ERMS or FSRM, kernel and C library zero and copy by `rep stosb` and `rep movsb`, which
QEMU executes byte by byte: 4,096 instructions for zeroing 4 KiB, 1 GB/s at an instruction a nanosecond, a tenth of what
processors do. Without, they move 8 bytes or a vector at a time; 512 instructions and 8 GB/s are near the truth."""

_MACHINE = "q35,graphics=off,sata=off,smbus=off,i8042=off"
"""Without the devices that nobody uses. The firmware's search for disks alone is a second of each emulated boot."""


def accelerator(mode: Mode) -> list[str]:
    """The options that select `mode`."""
    match mode:
        case Mode.KVM:
            return ["-accel", "kvm", "-cpu", "host"]
        case Mode.TCG:
            return ["-accel", "tcg,thread=multi", "-cpu", _CPU]
        case Mode.SINGLE:
            return ["-accel", "tcg,thread=single", "-cpu", _CPU]
        case Mode.ICOUNT:
            return ["-accel", "tcg,thread=single", "-cpu", _CPU, "-icount", "shift=0,sleep=off"]


def escape(path: Path) -> str:
    """A path as a value among QEMU's options."""
    return str(path).replace(",", ",,")


def _topology(memory_mib: int, cpus: int, nodes: int) -> list[str]:
    """Memory and processors. Several NUMA nodes have equal shares of memory, and a socket each for as long as there
    are processors."""
    sockets = min(nodes, cpus)
    if memory_mib % nodes or cpus % sockets:
        raise ValueError(f"{memory_mib} MiB and {cpus} CPUs do not divide into {nodes} nodes")
    argv = ["-m", f"{memory_mib}M", "-smp", f"{cpus},sockets={sockets}"]
    if nodes == 1:
        return argv
    cores = cpus // sockets
    for node in range(nodes):
        processors = f",cpus={node * cores}-{(node + 1) * cores - 1}" if node < sockets else ""
        argv += ["-object", f"memory-backend-ram,id=node{node},size={memory_mib // nodes}M"]
        argv += ["-numa", f"node,nodeid={node},memdev=node{node}{processors}"]
    return argv


def hardware(mode: Mode, memory_mib: int, cpus: int, nodes: int = 1) -> list[str]:
    """The machine. Without default devices and without configuration files it has what is written here and nothing
    else; -no-reboot ends QEMU where the guest would boot again."""
    argv = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", _MACHINE]
    return [*argv, *accelerator(mode), *_topology(memory_mib, cpus, nodes)]


def line(mode: Mode, cpus: int) -> str:
    """The kernel's command line; with panic=-1 a panic is a reboot."""
    # A machine so busy that the guest misses its first ticks would be taken for one without a timer. null_blk makes a
    # device at boot unless told not to.
    words = "console=ttyS0 panic=-1 oops=panic no_timer_check null_blk.nr_devices=0"
    # Linux calibrates the APIC's timer in a loop of PAUSE, each of which ends a slice of emulation here: 4 s of the
    # host for 0.1 s of the guest. One processor has the HPET.
    return f"{words} nolapic_timer" if mode is Mode.ICOUNT and cpus == 1 else words


def command(
    program: str, kernel: Path, files: Files, *, mode: Mode, memory_mib: int, cpus: int, append: str, nodes: int = 1
) -> list[str]:
    """The whole command line of a guest that boots this kernel."""
    argv = [program, *hardware(mode, memory_mib, cpus, nodes), "-kernel", str(kernel), "-initrd", str(files.initramfs)]
    argv += ["-append", f"{line(mode, cpus)} {append}".strip()]
    argv += ["-chardev", f"file,id=console,path={escape(files.console)}", "-serial", "chardev:console"]
    return argv + ports(files.ports)


def ports(files: dict[str, Path]) -> list[str]:
    """The options for the virtio-serial ports, each with its file."""
    argv = ["-device", "virtio-serial-pci"]
    for name in PORTS:
        argv += ["-chardev", f"file,id={name},path={escape(files[name])}"]
        argv += ["-device", f"virtserialport,chardev={name},name={name}"]
    return argv
