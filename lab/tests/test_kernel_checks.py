# SPDX-License-Identifier: GPL-2.0-only
"""What the configuration matrix, the patch-by-patch build and sparse conclude from what they see."""

import tempfile
import unittest
from collections import Counter
from pathlib import Path

from lab.checks import bisect, checkpatch, matrix, sametext, sparse
from lab.errors import LabError
from lab.kernel import kbuild
from lab.kernel.series import Patch, load


def _patch(*files: str) -> Patch:
    return Patch("p", "".join(f"--- a/{file}\n+++ b/{file}\n" for file in files).encode())


class Touched(unittest.TestCase):
    def test_c_files_of_the_kernel_alone_and_included_ones_by_their_object(self) -> None:
        patches = [
            _patch("mm/memory.c", "include/linux/huge_mm.h", "mm/Kconfig"),
            _patch("mm/memory.c", "kernel/sched/psi.c", "tools/lib/bpf/libbpf.c", "Documentation/x.c"),
        ]
        self.assertEqual(kbuild.touched(patches), ["kernel/sched/build_utility.o", "mm/memory.o"])

    def test_the_series_touches_what_it_is_about(self) -> None:
        self.assertLessEqual({"mm/bpf_mthp.o", "kernel/bpf/bpf_struct_ops.o"}, set(kbuild.touched(load())))


class Builds(unittest.TestCase):
    def _write(self, tree: Path, files: dict[str, str]) -> None:
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)

    def test_kbuild_is_asked_in_each_directory_above(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            files = {
                "include/config/auto.conf": "CONFIG_ON=y\n",
                "k/Makefile": "obj-y += bpf/\nobj-$(CONFIG_OFF) += cgroup/\n",
                "k/bpf/Makefile": "obj-$(CONFIG_ON) += a.o both.o\nobj-$(CONFIG_OFF) += b.o\nboth-y := one.o\n",
                "k/cgroup/Makefile": "obj-y += c.o\n",
            }
            self._write(tree, files)
            build = kbuild.Kbuild(tree, tree, 0)
            found = build.builds(["k/bpf/a.o", "k/bpf/b.o", "k/bpf/one.o", "k/cgroup/c.o"])
        self.assertEqual(found, ["k/bpf/a.o", "k/bpf/one.o"])

    def test_of_arch_the_machine_s_own_directory_by_its_kbuild(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            files = {
                "include/config/auto.conf": "CONFIG_ON=y\n",
                "arch/x86/Kbuild": "obj-$(CONFIG_ON) += mm/\nobj-$(CONFIG_OFF) += kvm/\n",
                "arch/x86/Makefile": "BITS := 64\n",
                "arch/x86/mm/Makefile": "obj-y += pgtable.o\n",
                "arch/x86/kvm/Makefile": "obj-y += x86.o\n",
            }
            self._write(tree, files)
            wanted = ["arch/x86/mm/pgtable.o", "arch/x86/kvm/x86.o"]
            for variables, expected in (((), wanted[:1]), (("ARCH=i386",), wanted[:1]), (("ARCH=arm64",), [])):
                with self.subTest(variables=variables):
                    self.assertEqual(kbuild.Kbuild(tree, tree, 0, variables).builds(wanted), expected)


class Style(unittest.TestCase):
    said = (
        "ERROR:SPACING: space prohibited before that ':' (ctx:WxV)\n"
        "#209: FILE: include/uapi/linux/bpf.h:6903:\n+\t\t\t__u32 :32;\n \t\t\t      ^\n\n"
    )

    def test_padding_as_its_neighbours_is_no_complaint(self) -> None:
        self.assertEqual(checkpatch.but_padding(self.said), "")
        other = self.said.replace("__u32 :32;", "a = b ? c :d;")
        self.assertEqual(checkpatch.but_padding(self.said + other), other)
        self.assertNotEqual(checkpatch.but_padding(self.said.replace("bpf.h", "if.h")), "")


class Warnings(unittest.TestCase):
    def test_of_every_tool(self) -> None:
        log = "  CC mm/a.o\na.c:1:2: warning: unused\nWarning: a.c:3 not described\nWARNING: modpost: x\nno warning\n"
        self.assertEqual(len(kbuild.warnings(log)), 3)


class Symbols(unittest.TestCase):
    REFERENCE = frozenset({"there", "gone", "unused"})

    def test_a_missing_stub_is_found(self) -> None:
        nm = "/o/a.o:00000000 T there\n/o/a.o:         U gone\n/o/b.o:         U printk\n"
        self.assertEqual(matrix.unmet(set(self.REFERENCE), nm), ["gone is used but not there: a.o"])

    def test_what_others_define_is_not_our_business(self) -> None:
        self.assertEqual(matrix.unmet(set(self.REFERENCE), "/o/a.o:         U printk\n"), [])

    def test_a_64_bit_division_is_found_without_a_reference(self) -> None:
        self.assertEqual(len(matrix.unmet(set(), "/o/a.o:         U __udivdi3\n")), 1)


class Configuration(unittest.TestCase):
    CASE = matrix.Case("x", off=("PSI",), on=("ARM64_64K_PAGES",))

    def test_an_option_that_stays_on_is_a_problem(self) -> None:
        good = {"CONFIG_BPF_TRANSPARENT_HUGEPAGE": "y", "CONFIG_ARM64_64K_PAGES": "y"}
        self.assertEqual(matrix.judge_config(self.CASE, good), [])
        self.assertEqual(len(matrix.judge_config(self.CASE, {**good, "CONFIG_PSI": "y"})), 1)
        self.assertEqual(len(matrix.judge_config(self.CASE, {})), 2)

    def test_the_reference_comes_first_and_names_are_checked(self) -> None:
        self.assertEqual([case.name for case in matrix.select(["PSI"])], ["all-on", "PSI"])
        self.assertEqual(len(matrix.select([])), len(matrix.CASES))
        with self.assertRaises(LabError):
            matrix.select(["PSY"])

    def test_names_are_unique(self) -> None:
        for cases in (matrix.cases(), matrix.cases(("pud",))):
            self.assertEqual(len({case.name for case in cases}), len(cases))

    def test_the_series_pud_has_cases_and_an_option_of_its_own(self) -> None:
        self.assertIs(matrix.cases(), matrix.CASES)
        self.assertEqual([case.name for case in matrix.select(["ANON_PUD_THP"], ("pud",))], ["all-on", "ANON_PUD_THP"])
        with self.assertRaises(LabError):
            matrix.select(["PSI"], ("pud",))
        good = {"CONFIG_ANON_PUD_THP": "y", "CONFIG_ARM64_64K_PAGES": "y"}
        self.assertEqual(matrix.judge_config(self.CASE, good, "ANON_PUD_THP"), [])
        self.assertEqual(len(matrix.judge_config(self.CASE, good)), 1)


class SameText(unittest.TestCase):
    """The comparison of code with ANON_PUD_THP=n and of the base."""

    TABLE = (
        "0000000000000000 l    d  .text\t0000000000000000 .text\n"
        "0000000000000000 g     F .text\t0000000000000010 first\n"
        "0000000000000020 l     F .text\t0000000000000010 second\n"
        "0000000000000008 l     O .data\t0000000000000004 setting\n"
    )
    CODE = (
        "Disassembly of section .text:\n\n"
        "0000000000000000 <first>:\n"
        "   0:\tcall   5 <first+0x5>\n"
        "\t\t\t1: R_X86_64_PLT32\t.text+0x1c\n"
        "   5:\tmov    0x0(%rip),%eax        # b <first+0xb>\n"
        "\t\t\t7: R_X86_64_PC32\t.data+0x4\n"
        "   b:\tmov    $0x0,%rdi\n"
        "\t\t\te: R_X86_64_32S\t.rodata.str1.1+0x4\n"
        "  12:\tjne    0 <first>\n"
        "  14:\tnop\n"
        "0000000000000020 <second>:\n"
        "  20:\tret\n"
    )

    def _functions(self, code: str, table: str, strings: bytes) -> dict[str, list[str]]:
        symbols = sametext.Symbols(sametext.parse_symbols(table), {".rodata.str1.1": strings})
        return sametext.functions(code, symbols)

    def test_places_are_called_by_what_is_there(self) -> None:
        self.assertEqual(
            self._functions(self.CODE, self.TABLE, b"one\0two\0"),
            {
                "first": [
                    "call [second+0x0]",
                    "mov    0x0(%rip),%eax [setting+0x0]",
                    "mov    $0x0,%rdi [b'two']",
                    "jne    <first>",
                ],
                "second": ["ret"],
            },
        )

    def test_what_only_moved_is_the_same_and_another_string_is_not(self) -> None:
        before = self._functions(self.CODE, self.TABLE, b"one\0two\0")
        code = self.CODE.replace(".text+0x1c", ".text+0x2c").replace(".data+0x4", ".data+0xc")
        table = self.TABLE.replace("0000000000000020 l", "0000000000000030 l").replace("0008 l", "0010 l")
        self.assertEqual(self._functions(code, table, b"new\0two\0"), before)
        self.assertNotEqual(self._functions(self.CODE, self.TABLE, b"one\0six\0"), before)

    def test_a_difference_says_whether_the_fixes_alone_make_it(self) -> None:
        base = {"a.o": {"same": ["ret"], "fixed": ["ret"], "later": ["ret"], "gone": ["ret"]}}
        fixes = {"a.o": {"same": ["ret"], "fixed": ["nop", "ret"], "later": ["ret"], "gone": ["ret"]}}
        series = {"a.o": {"same": ["ret"], "fixed": ["nop", "ret"], "later": ["int3"], "new": ["ret"]}}
        found = sametext.compare(base, fixes, series)
        self.assertEqual(
            [(one.name, one.of_fixes, one.before, one.after) for one in found],
            [("fixed", True, 1, 2), ("gone", False, 1, 0), ("later", False, 1, 1), ("new", False, 0, 1)],
        )


class Parts(unittest.TestCase):
    def test_what_must_be_built(self) -> None:
        for files, wanted in (
            (("Documentation/a.rst", "MAINTAINERS"), []),
            (("kernel/bpf/a.c", "MAINTAINERS"), ["kernel"]),
            (("include/uapi/linux/bpf.h", "tools/include/uapi/linux/bpf.h"), ["kernel", "libbpf", "bpftool"]),
            (("tools/bpf/bpftool/link.c",), ["bpftool"]),
            (("tools/testing/selftests/Makefile", "tools/testing/selftests/mthp/a.c"), ["selftests"]),
        ):
            self.assertEqual(bisect.parts(_patch(*files)), wanted, files)


class Sparse(unittest.TestCase):
    TREE = Path("/src/linux")

    def test_complaints_lose_their_lines(self) -> None:
        log = (
            "  CHECK   /src/linux/mm/a.c\n"
            "/src/linux/mm/a.c:10:3: warning: incorrect type\n"
            "/src/linux/mm/a.c:20: warning: incorrect type\n"
            "/src/linux/mm/a.c:5:1:    expected int\n"
            "/src/linux/include/b.h:5:1: error: bad\n"
        )
        found = sparse.complaints(log, self.TREE)
        self.assertEqual(found, {"mm/a.c: warning: incorrect type": 2, "include/b.h: error: bad": 1})

    def test_only_more_of_the_same_is_new(self) -> None:
        line = "a.c: warning: w"
        self.assertEqual(sparse.fresh(Counter({line: 2}), Counter({line: 2}), set()), [])
        self.assertEqual(sparse.fresh(Counter({line: 3}), Counter({line: 2}), set()), [line])

    def test_kfuncs_need_no_header_others_do(self) -> None:
        text = "__bpf_kfunc void one(struct cgroup *c)\n{\n}\n__bpf_kfunc u64\ntwo(int a)\nvoid three(void)\n"
        self.assertEqual(sparse.kfuncs(text), {"one", "two"})
        found = Counter(
            f"a.c: warning: symbol '{name}' was not declared. Should it be static?" for name in ("one", "three")
        )
        self.assertEqual(len(sparse.fresh(found, Counter(), sparse.kfuncs(text))), 1)
