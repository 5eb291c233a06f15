# SPDX-License-Identifier: GPL-2.0-only
"""A compiler, and what it compiles in the guest: a part of libbpf, or the kernel."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from lab import proc
from lab.bench.payload import Payload, tool
from lab.errors import Exit, LabError
from lab.kernel import build, source
from lab.lock import locked

_MAKEFILE = b"""
all: $(FILES:=.o)
%.o: /src/tools/lib/bpf/%.c
	$(CC) -O2 -I/src/tools/lib/bpf -I/src/tools/include -I/src/tools/include/uapi \\
		-D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 -c -o $@ $<
"""


def _ask(gcc: Path, *argv: str) -> str:
    return proc.output([str(gcc), *argv], what="asking gcc", code=Exit.HOST).strip()


def _gcc(files: Mapping[str, Path], makefile: bytes) -> Payload:
    """gcc as far as object files and make, to build `files` by `makefile`."""
    gcc = tool("gcc")
    # Debian has it under a longer name, which gcc does not look for.
    assembler = tool(Path(_ask(gcc, "-print-prog-name=as")).name)
    return Payload(
        {"gcc": gcc, "make": tool("make")},
        (Path(_ask(gcc, "-print-prog-name=cc1")), assembler),
        {"/usr/bin/as": assembler, **files},
        {"/lab/Makefile": makefile},
    )


def libbpf() -> Payload:
    """libbpf of the kernel's source, with every header it includes."""
    with locked("kernel"):
        tree = source.get().tree
    sources = sorted((tree / "tools" / "lib" / "bpf").glob("*.c"))
    include = [f"-I{tree / 'tools' / place}" for place in ("lib/bpf", "include", "include/uapi")]
    # Some headers are included by others only when the compiler optimises.
    # By the names that are looked for: Debian 13 has a link from /usr/include to elsewhere.
    names = ["-M", "-fno-canonical-system-headers", "-O2", "-D_GNU_SOURCE"]
    rules = _ask(tool("gcc"), *names, *include, *(str(path) for path in sources))
    headers = {Path(word) for word in rules.replace("\\", " ").split() if word.endswith(".h")}
    files = {str(path): path for path in headers if not path.is_relative_to(tree)}
    for path in [*sources, *headers]:
        if path.is_relative_to(tree):
            files[f"/src/{path.resolve().relative_to(tree.resolve())}"] = path
    return _gcc(files, _MAKEFILE)


_COMMAND = re.compile(r"savedcmd_(\S+\.o) := gcc (.*) -c -o \S+ (\S+\.c)\s*")
_NOT = ("scripts/", "tools/", "usr/", "arch/x86/boot/", "arch/x86/tools/", "kernel/configs.o")
"""Programs of the build itself and of the boot, and a file into which another one is put."""
_LAID_DOWN = "/build"
"""Where the guest has what the kernel's build generates: headers, the configuration."""
_PLACE = "/mnt"


def rule(path: Path, objects: Path) -> tuple[str, set[Path]] | None:
    """What make needs to compile as the file `path` (.NAME.o.cmd of the object tree `objects`) says the kernel's build
    did, and the files that this reads; None if it was no C file of the kernel, compiled by gcc alone."""
    lines = path.read_text(encoding="utf-8").splitlines()
    match = _COMMAND.fullmatch(lines[0]) if lines else None
    if not match or match[1].startswith(_NOT):
        return None
    name, options, main = match.groups()
    words = (word.rstrip("\\").strip() for line in lines[1:] if "$(" not in line for word in line.split())
    read = {objects / word for word in [main, *words] if word.endswith((".c", ".h"))}
    # Each on the disk, and without what debuggers want: hundreds of MiB.
    target = f"{_PLACE}/{name.replace('/', '-')}"
    options = re.sub(r"-Wp,-MMD,\S+ ", "", options).replace("$", "$$")
    return f"{target}:\n\t@cd {_LAID_DOWN} && $(CC) {options} -g0 -c -o $@ {main}\n", read


def kernel() -> Payload:
    """The kernel as the lab builds it: every C file, compiled as there, with every header; it is not linked."""
    with locked("kernel"):
        objects = source.get().directory / build.DEFAULT.objects
        found = [one for path in sorted(objects.rglob(".*.o.cmd")) if (one := rule(path, objects))]
    if not found:
        raise LabError(Exit.HOST, f"the kernel was not built on this machine: {objects} has no objects; `make kernel`")
    # Headers are included as "../NAME", too.
    every = {Path(os.path.normpath(path)) for _, read in found for path in read}
    # All files depend on it, and kbuild lists single options instead.
    every.add(objects / "include/generated/autoconf.h")
    files = {
        f"{_LAID_DOWN}/{path.relative_to(objects)}" if path.is_relative_to(objects) else str(path): path
        for path in every
    }
    rules = [text for text, _ in found]
    names = " ".join(text.partition(":")[0] for text in rules)
    return _gcc(files, f"all: {names}\n\n{''.join(rules)}".encode())
