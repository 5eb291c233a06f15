# SPDX-License-Identifier: GPL-2.0-only
"""A compiler at work: processes that live for a second, each with some ten MiB. libbpf of the kernel as the source; at
scale full the kernel itself."""

from dataclasses import dataclass

from lab.bench import readers
from lab.bench.common import MAIN_SYSTEM, MAIN_USER
from lab.bench.spec import MIB, Case, Group, Machine, Role, Scale, Task


@dataclass(frozen=True)
class _Size:
    files: str | None
    """Of libbpf; None: the kernel."""
    jobs: int
    limit_mib: int
    machine: Machine
    deadline_s: int


_SIZES = {
    Scale.SMOKE: _Size("hashmap strset nlattr zip", 4, 16, Machine(1024, 512), 300),
    Scale.CI: _Size("btf btf_dump elf gen_loader hashmap linker nlattr zip", 4, 48, Machine(1024, 512), 300),
    Scale.FULL: _Size(None, 16, 512, Machine(6144, 4096, disk_mib=512), 3600),
}


def _case(size: _Size, limited: bool) -> Case:
    where = f"memory.high = {size.limit_mib}M" if limited else "no limit"
    what = "the kernel" if size.files is None else f"{len(size.files.split())} files of libbpf"
    target = () if size.files is None else (f"FILES={size.files}",)
    return Case(
        scenario="kernbench",
        key="high" if limited else "none",
        title=f"gcc builds {what} with -j{size.jobs}, {where}",
        machine=size.machine,
        groups=(Group("build", {"memory.high": size.limit_mib * MIB} if limited else {}),),
        tasks=(
            Task(
                "load",
                Role.LOAD,
                ("{make}", "--silent", f"-j{size.jobs}", "-C", "/tmp", "-f", "/lab/Makefile", "CC={gcc}", *target),
                group="build",
                env={"PATH": "/usr/bin:/bin"},
            ),
        ),
        software=("kernel" if size.files is None else "compiler",),
        scores=(readers.ELAPSED,),
        more=(MAIN_USER, MAIN_SYSTEM),
        deadline_s=size.deadline_s,
        main="build",
        roomy=not limited,
    )


def cases(scale: Scale) -> list[Case]:
    """Without a limit, and with one."""
    return [_case(_SIZES[scale], limited) for limited in (False, True)]
