# SPDX-License-Identifier: GPL-2.0-only
"""The tests that the series adds to the kernel's selftests/bpf: a module, BPF objects, and a test_progs of their own.

All of selftests/bpf takes half an hour to build. This takes what test_progs itself needs, the module for the tests, and
these tests.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc, vm
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit, LabError
from lab.kernel.build import Kernel
from lab.lock import locked
from lab.paths import BUILD
from lab.vm import Mode

PROGRAM = "test_progs"
TESTS = ("cgroup_psi", "struct_ops_cgroup")
"""Those of the series; each is a file in progs/ and one in prog_tests/."""
_MODULE = "bpf_testmod"
# fmt: off
_HELPERS = (
    "test_progs", "bpftool_helpers", "btf_helpers", "cap_helpers", "cgroup_helpers", "disasm", "disasm_helpers",
    "io_helpers", "jit_disasm_helpers", "json_writer", "netlink_helpers", "network_helpers", "sysctl_helpers",
    "test_loader", "testing_helpers", "trace_helpers", "unpriv_helpers", "xsk",
)
# fmt: on
"""What test_progs is made of, in selftests/bpf."""

# The kernel of the lab has no keyrings, and test_progs ends if it cannot add the key of its signed programs to one.
_NO_KEYS = """\
#include <stdarg.h>
#include <sys/syscall.h>

long __real_syscall(long nr, ...);

long __wrap_syscall(long nr, ...)
{
	long arg[6];
	va_list args;

	if (nr == SYS_add_key)
		return 1;
	va_start(args, nr);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	return __real_syscall(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
"""
_NO_CERTIFICATE = """\
unsigned char test_progs_verification_cert[] = { 0 };
unsigned int test_progs_verification_cert_len = sizeof(test_progs_verification_cert);
"""

_RESULT = re.compile(r"#\d+(?P<sub>/\d+)?\s+(?P<name>\S+?):(?P<end>OK|SKIP|FAIL)\b.*")
_SUMMARY = re.compile(r"Summary: \d+/(?P<passed>\d+) PASSED, \d+ SKIPPED, .*")
_ENDS = {"OK": Status.PASSED, "SKIP": Status.SKIPPED, "FAIL": Status.FAILED}


@dataclass(frozen=True)
class BpfTests:
    """What was built for one kernel."""

    program: Path
    module: Path

    def job(
        self, kernel: Kernel, mode: Mode, only: Sequence[str] = (), name: str = "", timeout_s: float = 900
    ) -> vm.Job:
        """A guest that runs the tests, or these subtests of them (`struct_ops_cgroup/rmdir`)."""
        return vm.Job(
            kernel=kernel.image,
            argv=[str(self.program), "-t", ",".join(only or TESTS)],
            programs=[self.program],
            # It looks for the module where it is started.
            files={f"/{self.module.name}": self.module},
            mode=mode,
            timeout_s=timeout_s,
            name=name or f"test-{PROGRAM}",
        )


class _Builder:
    def __init__(self, kernel: Kernel, selftests: Path) -> None:
        self.kernel = kernel
        self.source = kernel.tree / "tools" / "testing" / "selftests" / "bpf"
        self.libbpf = selftests / "libbpf"
        self.out = selftests / "bpf"
        self.log = BUILD / "log" / "bpf-selftests.log"
        self.env = proc.outside_make()
        self.jobs = proc.make_jobs()

    def _run(self, argv: Sequence[str | Path], what: str) -> None:
        proc.run([str(word) for word in argv], log=self.log, what=what, env=self.env)

    def module(self) -> Path:
        """bpf_testmod.ko for this very kernel: its BTF refers to that of vmlinux by number."""
        objects, out = self.out / "objects", self.out / "module"
        objects.mkdir(parents=True, exist_ok=True)
        out.mkdir(exist_ok=True)
        # A tree of its own: that of the kernel may hold the objects of a mutant, or of the next version, by now.
        shutil.copyfile(self.kernel.config, objects / ".config")
        make = ["make", "-C", str(self.kernel.tree), f"O={objects}", self.jobs]
        self._run([*make, "olddefconfig", "modules_prepare"], "preparing the module for selftests/bpf")
        vmlinux, found = objects / "vmlinux", out / f"{_MODULE}.ko"
        vmlinux.unlink(missing_ok=True)
        vmlinux.symlink_to(self.kernel.vmlinux)
        found.unlink(missing_ok=True)
        # Without a list of the kernel's symbols modpost cannot look for those that are not exported. insmod does.
        self._run(
            [*make, f"M={self.source / 'test_kmods'}", f"MO={out}", f"obj-m={_MODULE}.o", "KBUILD_MODPOST_WARN=1",
             "modules"],
            "building the module for selftests/bpf",
        )  # fmt: skip
        return found

    def _bpftool(self) -> Path:
        out = self.out / "bpftool"
        out.mkdir(parents=True, exist_ok=True)
        directory = self.kernel.tree / "tools" / "bpf" / "bpftool"
        self._run(
            [
                "make",
                "-C",
                str(directory),
                f"OUTPUT={out}/",
                self.jobs,
                "CC=gcc",
                "HOSTCC=gcc",
                "CLANG=clang-19",
                "SKIP_CRYPTO=1",
                "bootstrap",
            ],
            "building bpftool",
        )
        return out / "bootstrap" / "bpftool"

    def _headers(self) -> Path:
        """Types of the kernel, the skeleton, and what the build of all of selftests/bpf would generate."""
        include = self.out / "include"
        (include / "prog_tests").mkdir(parents=True, exist_ok=True)
        bpftool = self._bpftool()
        tools = self.kernel.tree / "tools"
        script = (
            'set -e; "$1" btf dump file "$2" format c > "$3/vmlinux.h"; '
            "dirs=$(clang-19 -v -E - </dev/null 2>&1 | "
            r"sed -n '/<...> search starts here:/,/End of search list./{ s| \(/.*\)|-idirafter \1|p }'); "
            "for name in $7; do "
            "clang-19 -g -O2 -Wall -Werror --target=bpf -mcpu=v3 -std=gnu11 -fno-strict-aliasing -fms-extensions "
            "-Wno-microsoft-anon-tag -Wno-compare-distinct-pointer-types -D__TARGET_ARCH_x86 "
            '-I"$3" -I"$4" -I"$5" -I"$6" $dirs -c "$5/progs/$name.c" '
            '-o "$3/$name.bpf.o"; "$1" gen skeleton "$3/$name.bpf.o" name "$name" > "$3/$name.skel.h"; done'
        )
        self._run(
            ["sh", "-c", script, "sh", bpftool, self.kernel.vmlinux, include, self.libbpf / "include", self.source,
             tools / "include" / "uapi", " ".join(TESTS)],
            "building the BPF programs of selftests/bpf",
        )  # fmt: skip
        (include / "prog_tests" / "tests.h").write_text("".join(f"DEFINE_TEST({test})\n" for test in TESTS))
        (include / "verification_cert.h").write_text(_NO_CERTIFICATE)
        (self.out / "no_keys.c").write_text(_NO_KEYS)
        return include

    def program(self) -> Path:
        """test_progs, with these tests alone."""
        tools = self.kernel.tree / "tools"
        include = self._headers()
        directories = (
            include, self.source, self.source / "libarena" / "include", self.libbpf / "include", tools / "lib",
            tools / "include", tools / "arch" / "x86" / "include", tools / "include" / "uapi",
        )  # fmt: skip
        sources = [
            *(self.source / f"{name}.c" for name in _HELPERS),
            *(self.source / "prog_tests" / f"{test}.c" for test in TESTS),
            tools / "lib" / "find_bit.c",
            self.out / "no_keys.c",
        ]
        found = self.out / PROGRAM
        self._run(
            ["gcc", "-D_GNU_SOURCE=", "-g", "-O0", "-rdynamic", "-std=gnu11", "-Wall", "-Werror",
             "-Wno-unused-but-set-variable", "-Wl,--wrap=syscall", *(f"-I{one}" for one in directories), *sources,
             self.libbpf / "libbpf.a", "-lelf", "-lz", "-lrt", "-lpthread", "-o", found],
            "building test_progs",
        )  # fmt: skip
        return found


def build(kernel: Kernel, selftests: Path) -> BpfTests:
    """Builds the tests for `kernel`; `selftests` is where the series' other selftests and their libbpf were built."""
    builder = _Builder(kernel, selftests)
    for test in TESTS:
        if not (builder.source / "prog_tests" / f"{test}.c").exists():
            raise LabError(Exit.BUILD, f"the series has no {test} in selftests/bpf")
    with locked("kernel"):
        module = builder.module()
        program = builder.program()
    return BpfTests(program, module)


def parse(text: str, suite: Suite) -> None:
    """Adds the subtests of what test_progs printed to `suite`, and a failure when they are not as many as it says."""
    notes: list[str] = []
    passed: int | None = None
    seen: dict[str, int] = {}
    for line in text.replace("\r", "").splitlines():
        if match := _SUMMARY.fullmatch(line):
            passed = int(match["passed"])
            continue
        match = _RESULT.fullmatch(line)
        if not match:
            notes = [*notes, line][-20:]
            continue
        # A line without a number of its own sums up the subtests. What failed is listed again at the end, with its log.
        if match["sub"]:
            status = _ENDS[match["end"]]
            test = Test(match["name"], status, "" if status is Status.PASSED else "\n".join(notes))
            if test.name in seen:
                suite.tests[seen[test.name]] = test
            else:
                seen[test.name] = len(suite.tests)
                suite.tests.append(test)
        notes = []
    if passed is None:
        suite.fail("(summary)", "test_progs ended before its summary")
    elif passed != suite.count(Status.PASSED):
        suite.fail("(summary)", f"test_progs says that {passed} subtests passed, seen {suite.count(Status.PASSED)}")
