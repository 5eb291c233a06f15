# SPDX-License-Identifier: GPL-2.0-only
"""A disk that the firmware boots: a GPT with an EFI system partition and a root, made of files without mounting one."""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError
from lab.vm import qemu
from lab.vm.qemu import Mode

BOOTED = "EFI/BOOT/BOOTX64.EFI"
"""What the firmware starts of a disk that it knows nothing else of."""
_MIB = 1 << 20
_ESP_MIB = 64
_FIRMWARE = Path("/usr/share/OVMF")


@dataclass(frozen=True)
class Disk:
    """The image, and what the firmware remembers."""

    image: Path
    variables: Path


def layout(root_mib: int, uuid: str) -> str:
    """What sfdisk is told: the EFI system partition, then the root."""
    first = 1 + _ESP_MIB
    return (
        "label: gpt\n"
        f"start=1MiB, size={_ESP_MIB}MiB, type=uefi, name=ESP\n"
        f"start={first}MiB, size={root_mib}MiB, type=linux, name=root, uuid={uuid}\n"
    )


def make(directory: Path, tree: Path, loader: Path, root_mib: int, uuid: str, log: Path) -> Disk:
    """Makes the disk in `directory`: `tree` is its root, whose file system has this UUID, `loader` what is booted."""
    disk = Disk(directory / "disk.img", directory / "OVMF_VARS.fd")
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        esp, root = Path(scratch) / "esp.img", Path(scratch) / "root.img"
        sizes = {esp: _ESP_MIB, root: root_mib, disk.image: root_mib + _ESP_MIB + 2}
        for path, mib in sizes.items():
            with path.open("wb") as file:
                file.truncate(mib * _MIB)
        # Features that came with e2fsprogs 1.47 are left out, as not every GRUB reads them.
        features = ["-O", "^orphan_file,^metadata_csum_seed"]
        plan = Path(scratch) / "plan"
        plan.write_text(layout(root_mib, uuid))
        folders = [f"::{parent}" for parent in reversed(Path(BOOTED).parents) if parent.name]
        for argv in (
            ["mke2fs", "-q", "-t", "ext4", *features, "-U", uuid, "-L", "root", "-d", str(tree), str(root)],
            ["mformat", "-i", str(esp), "-F", "-v", "ESP", "::"],
            ["mmd", "-i", str(esp), *folders],
            ["mcopy", "-i", str(esp), str(loader), f"::{BOOTED}"],
            ["bash", "-c", 'sfdisk -q "$0" <"$1"', str(disk.image), str(plan)],
            _place(esp, disk.image, 1),
            _place(root, disk.image, 1 + _ESP_MIB),
        ):
            proc.run(argv, log=log, what=f"making the disk ({argv[0]})", code=Exit.BUILD, append=True)
    shutil.copyfile(_firmware("VARS"), disk.variables)
    return disk


def _place(part: Path, image: Path, at_mib: int) -> list[str]:
    return ["dd", f"if={part}", f"of={image}", "bs=1M", f"seek={at_mib}", "conv=notrunc,sparse", "status=none"]


def _firmware(kind: str) -> Path:
    for name in (f"OVMF_{kind}_4M.fd", f"OVMF_{kind}.fd"):
        if (path := _FIRMWARE / name).exists():
            return path
    raise LabError(Exit.QEMU, f"there is no OVMF_{kind} in {_FIRMWARE}; run `make setup`")


def command(
    program: str, disk: Disk, console: Path, ports: dict[str, Path], *, mode: Mode, memory_mib: int
) -> list[str]:
    """QEMU as a machine that has this disk, and no kernel but what is on it. It ends with the guest's power, and where
    the guest would boot again."""
    argv = [program, *qemu.hardware(mode, memory_mib, 2)]
    argv += ["-drive", f"if=pflash,format=raw,readonly=on,file={_firmware('CODE')}"]
    argv += ["-drive", f"if=pflash,format=raw,file={qemu.escape(disk.variables)}"]
    argv += ["-drive", f"if=none,id=disk,format=raw,cache=unsafe,file={qemu.escape(disk.image)}"]
    argv += ["-device", "virtio-blk-pci,drive=disk,bootindex=1"]
    argv += ["-chardev", f"file,id=console,path={qemu.escape(console)}", "-serial", "chardev:console"]
    return argv + qemu.ports(ports)


def kernel_of(root: Path) -> tuple[Path, str]:
    """The only kernel of a root, and its release."""
    found = sorted((root / "boot").glob("vmlinuz-*"))
    if len(found) != 1:
        raise LabError(Exit.BUILD, f"{root} has not one kernel, but: {[path.name for path in found]}")
    return found[0], re.sub(r"^vmlinuz-", "", found[0].name)
