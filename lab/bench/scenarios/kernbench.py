# SPDX-License-Identifier: GPL-2.0-only
"""A compiler at work: processes that live for a second, each with some ten MiB; libbpf of the kernel as the source."""

from lab.bench import readers
from lab.bench.common import MAIN_SYSTEM, MAIN_USER
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task

_SMALL = "hashmap strset nlattr zip"
_SOME = "btf btf_dump elf gen_loader hashmap linker nlattr zip"
_MOST = (
    "bpf bpf_prog_linfo btf btf_dump btf_iter btf_relocate elf features gen_loader hashmap libbpf_probes linker "
    "netlink nlattr relo_core ringbuf strset usdt zip"
)
_SIZES = {
    # files, memory.high in MiB
    Scale.SMOKE: (_SMALL, 16),
    Scale.CI: (_SOME, 48),
    Scale.FULL: (f"{_MOST} libbpf", 64),
}


def _case(files: str, limit_mib: int | None) -> Case:
    where = "no limit" if limit_mib is None else f"memory.high = {limit_mib}M"
    return Case(
        scenario="kernbench",
        key="none" if limit_mib is None else "high",
        title=f"gcc builds {len(files.split())} files of libbpf with -j4, {where}",
        machine=Machine(1024, 512),
        groups=(Group("build", {} if limit_mib is None else {"memory.high": limit_mib * MIB}),),
        tasks=(
            Task(
                "load",
                Role.LOAD,
                ("{make}", "--silent", "-j4", "-C", "/tmp", "-f", "/lab/Makefile", "CC={gcc}", f"FILES={files}"),
                group="build",
                env={"PATH": "/usr/bin:/bin"},
            ),
        ),
        software=("compiler",),
        scores=(Metric("elapsed", "elapsed", "s", -1, readers.elapsed("load")),),
        more=(MAIN_USER, MAIN_SYSTEM),
        deadline_s=300,
        main="build",
        roomy=limit_mib is None,
    )


def cases(scale: Scale) -> list[Case]:
    """Without a limit, and with one."""
    files, limit_mib = _SIZES[scale]
    return [_case(files, None), _case(files, limit_mib)]
