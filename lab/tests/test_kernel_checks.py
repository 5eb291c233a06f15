# SPDX-License-Identifier: GPL-2.0-only
"""What the configuration matrix, the patch-by-patch build and sparse conclude from what they see."""

import tempfile
import unittest
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

from lab.checks import bisect, checkpatch, matrix, sametext, sparse
from lab.errors import Exit, LabError
from lab.kernel import config, kbuild
from lab.kernel.series import Patch, load, load_all


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

    def test_names_with_the_width_of_the_machine(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            files = {"include/config/auto.conf": "CONFIG_64BIT=y\n", "mm/Makefile": "obj-y += init_$(BITS).o\n"}
            self._write(tree, files)
            self.assertEqual(kbuild.Kbuild(tree, tree, 0).builds(["mm/init_64.o", "mm/init_32.o"]), ["mm/init_64.o"])

    def test_a_directory_above_may_name_the_objects(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            files = {
                "include/config/auto.conf": "CONFIG_ON=y\n",
                "arch/x86/Kbuild": "obj-$(CONFIG_ON) += kvm/\n",
                "arch/x86/kvm/Makefile": "obj-y += kvm.o\nkvm-y := mmu/mmu.o\nkvm-$(CONFIG_OFF) := mmu/off.o\n",
                "arch/x86/kvm/mmu/mmu.c": "",
            }
            self._write(tree, files)
            wanted = ["arch/x86/kvm/mmu/mmu.o", "arch/x86/kvm/mmu/off.o"]
            self.assertEqual(kbuild.Kbuild(tree, tree, 0).builds(wanted), wanted[:1])

    def _ready(self, actual: str, certain: dict[str, str] | None = None) -> tuple[list[str], list[str], bool]:
        """What ready() returns where the configuration comes out so, and whether an old object is there after it."""
        with tempfile.TemporaryDirectory() as name:
            objects = Path(name)
            self._write(objects, {".config": actual, "mm/b.o": "of another configuration"})
            with (
                mock.patch.object(kbuild.Kbuild, "configure"),
                mock.patch.object(kbuild.Kbuild, "must"),
                mock.patch.object(kbuild.Kbuild, "builds", return_value=["mm/a.o"]),
            ):
                build = kbuild.Kbuild(objects, objects, 0)
                found = build.ready({"CONFIG_A": "y", "CONFIG_B": "y"}, ["mm/a.o", "mm/b.o"], objects / "log", certain)
                return *found, (objects / "mm/b.o").exists()

    def test_what_is_not_compiled_is_said_and_taken_away(self) -> None:
        self.assertEqual(self._ready("CONFIG_A=y\nCONFIG_B=y\n"), (["mm/a.o"], ["mm/b.o"], False))

    def test_an_option_that_drops_out_is_an_error(self) -> None:
        with self.assertRaisesRegex(LabError, "CONFIG_B=y, but it is n"):
            self._ready("CONFIG_A=y\n")
        self.assertEqual(self._ready("CONFIG_A=y\n", {"CONFIG_A": "y"})[0], ["mm/a.o"])


class Users(unittest.TestCase):
    """Callers of what a series changes in headers."""

    PATCH = Patch(
        "p",
        b"diff --git a/include/linux/a.h b/include/linux/a.h\n"
        b"--- a/include/linux/a.h\n+++ b/include/linux/a.h\n"
        b"@@ -1,9 +1,9 @@ static inline int before(void)\n }\n \n"
        b" static inline int body_changes(int a)\n {\n-\treturn a & 1;\n+\treturn a & 3;\n }\n \n"
        b" #define stays(a) (a)\n \n"
        b"@@ -20,9 +20,9 @@ static inline bool far_above(int a,\n \t\t\t      int b)\n {\n-\tint c;\n+\tlong c;\n"
        b"@@ -40,2 +40,4 @@ struct one {\n-#define\tmacro_goes(a) (a)\n+\tint member;\n"
        b"diff --git a/mm/b.c b/mm/b.c\n--- a/mm/b.c\n+++ b/mm/b.c\n"
        b"@@ -1 +1 @@ static int of_a_c_file(void)\n-\ta;\n+\tb;\n",
    )

    def test_what_is_changed_is_what_its_lines_are_within(self) -> None:
        self.assertEqual(kbuild.changed([self.PATCH]), {"body_changes", "far_above", "macro_goes"})

    def test_the_series_changes_what_it_says(self) -> None:
        names = kbuild.changed(load_all(("pud",)))
        self.assertLessEqual({"pud_present", "mod_mthp_stat", "split_huge_pud"}, names)
        self.assertNotIn("pmd_leaf", names)
        self.assertNotIn("pud_leaf", names)

    def test_callers_directly_and_through_a_header(self) -> None:
        files = {
            "mm/direct.c": "x = pud_present(a);",
            "mm/through.c": "x = wrapper(a);",
            "mm/other.c": "x = pud_presents(a);",
            "arch/x86/mm/ident_map.c": "x = pud_present(a);",
            "arch/x86/boot/early.c": "x = pud_present(a);",
            "arch/arm64/mm/own.c": "x = pud_present(a);",
            "mm/touched.c": "x = pud_present(a);",
            "include/linux/w.h": "static inline int wrapper(int a)\n{\n\treturn pud_present(a);\n}\n",
        }
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            for path, text in files.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_text(text)
            found = kbuild.callers(tree, {"pud_present"})
            self.assertEqual(found, ["arch/x86/mm/init_64.o", "mm/direct.o", "mm/through.o", "mm/touched.o"])
            patches = [*load_all(("pud",)), _patch("mm/touched.c")]
            users = kbuild.users(("pud",), patches, tree)
        self.assertLessEqual({"mm/direct.o", "mm/ksm.o"}, set(users))
        self.assertEqual(set(users) & set(kbuild.touched(patches)), set())


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

    def test_other_machines_lack_what_is_not_of_the_first_one_alone(self) -> None:
        defined = {"generic": {"/o/mm/a.o"}, "of_x86": {"/o/arch/x86/mm/a.o"}, "weak": {"/o/mm/a.o", "/o/arch/x86/b.o"}}
        self.assertEqual(matrix.common(defined, Path("/o")), {"generic", "weak"})

    def test_what_a_machine_has_in_its_own_directory_is_there(self) -> None:
        nm = "/o/a.o:         U gone\n/o/a.o:         U there\n"
        self.assertEqual(
            matrix.unmet(set(self.REFERENCE), nm, lambda names: names - {"gone"}), ["gone is used but not there: a.o"]
        )
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            (tree / "arch/arm64/mm").mkdir(parents=True)
            (tree / "arch/arm64/mm/a.c").write_text(
                "pte_t *there(struct mm_struct *mm,\n\t\tint a)\n{\n\tgone(a);\n}\nint gone(int a);\n"
            )
            build = kbuild.Kbuild(tree, tree, 0, ("ARCH=arm64",))
            self.assertEqual(build.of_the_machine({"there", "gone"}), {"there"})
            self.assertEqual(build.of_the_machine(set()), set())

    def test_the_linker_says_what_is_not_there(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            log = Path(name) / "log"
            log.write_text("  LD vmlinux\nld: mm/a.o: in function `f':\na.c:(.text+0x1): undefined reference to `g'\n")
            self.assertEqual(len(matrix.build_errors(log)), 1)


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

    def test_a_case_that_is_whole_has_all_that_is_wanted(self) -> None:
        case = matrix.Case("x", on=("ONE",), whole=True)
        lab = {"CONFIG_ANON_PUD_THP": "y", "CONFIG_MORE": "y", "CONFIG_LESS": "n"}
        good = {**lab, "CONFIG_ONE": "y"}
        self.assertEqual(matrix.judge_config(case, good, "ANON_PUD_THP", lab), [])
        self.assertEqual(
            matrix.judge_config(case, {**good, "CONFIG_MORE": "n"}, "ANON_PUD_THP", lab), ["CONFIG_MORE=y, but it is n"]
        )
        self.assertEqual(
            matrix.judge_config(replace(case, whole=False), {**good, "CONFIG_MORE": "n"}, "ANON_PUD_THP", lab), []
        )
        self.assertEqual(matrix.certain(case, lab, "ANON_PUD_THP"), good)

    def test_the_reference_of_the_series_pud_has_all_of_dax(self) -> None:
        """Without FS_DAX and DEV_DAX vma_is_dax() is false at compile time."""
        wanted = config.checked(("pud",))
        for name in (
            "FS_DAX",
            "DEV_DAX",
            "DEVICE_PRIVATE",
            "NUMA_BALANCING",
            "MEM_SOFT_DIRTY",
            "X86_USER_SHADOW_STACK",
        ):
            self.assertEqual(wanted[f"CONFIG_{name}"], "y", name)
            self.assertEqual(config.stepwise(("pud",))[f"CONFIG_{name}"], "y", name)
        self.assertTrue(matrix.cases(("pud",))[0].whole)
        self.assertNotIn("CONFIG_FS_DAX", config.checked(("mthp",)))

    def test_nothing_of_the_series_pud_is_booted(self) -> None:
        # Or it would begin.
        begun = mock.patch.object(matrix, "locked", side_effect=AssertionError)
        with begun, self.assertRaises(LabError) as refused:
            matrix.run(boot=True, series=("pud",))
        self.assertIs(refused.exception.code, Exit.USAGE)

    def test_an_impossible_case_ends_the_run_before_anything_is_compiled(self) -> None:
        """Also where it is the last one."""
        lab = config.checked(("pud",))

        def configure(_: kbuild.Kbuild, wanted: dict[str, str], log: Path) -> dict[str, str]:
            lost = {"CONFIG_HIGHMEM4G": "n"} if log.stem == "i386" else {}
            return {**wanted, **lost}

        with (
            mock.patch.object(matrix, "locked", return_value=nullcontext(0)),
            mock.patch.object(matrix, "source"),
            mock.patch.object(matrix, "Worktree"),
            mock.patch.object(matrix, "users", return_value=[]),
            mock.patch.object(kbuild.Kbuild, "configure", autospec=True, side_effect=configure) as configured,
            mock.patch.object(kbuild.Kbuild, "ready") as compiled,
            mock.patch("lab.results.write") as written,
            mock.patch("lab.results.environment"),
            mock.patch("builtins.print"),
        ):
            self.assertIs(matrix.run(series=("pud",)), Exit.TESTS)
        compiled.assert_not_called()
        self.assertEqual(configured.call_count, len(matrix.cases(("pud",))))
        self.assertEqual(lab["CONFIG_ANON_PUD_THP"], "y")
        missed = [gate.name for gate in written.call_args.args[3] if not gate.ok]
        self.assertIn("i386: problems", missed)


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

    ARM64_TABLE = (
        "0000000000000000 l    d  .text\t0000000000000000 .text\n"
        "0000000000000000 l       .text\t0000000000000000 .Ltmp0\n"
        "0000000000000000 l       .text\t0000000000000000 $x\n"
        "0000000000000008 g     F .text\t0000000000000010 first\n"
        "0000000000000008 l     O .data\t0000000000000004 setting\n"
        "000000000000000a l       .data\t0000000000000000 $d\n"
    )
    ARM64 = (
        "0000000000000000 <.Ltmp0>:\n       0:      \tnop\n\n"
        "0000000000000008 <first>:\n"
        "       8:      \ttbnz\tw9, #0x3, 0x14 <first+0xc>\n"
        "       c:      \tadrp\tx8, 0x0 <.Ltmp0>\n"
        "\t\t000000000000000c:  R_AARCH64_ADR_PREL_PG_HI21\t.data+0xc\n"
        "      10:      \tbl\t0x10 <first+0x8>\n"
        "\t\t0000000000000010:  R_AARCH64_CALL26\tvm_normal_page\n"
        "      14:      \tret\n"
    )

    def test_the_same_of_arm64_by_llvm(self) -> None:
        """Immediates count, labels and where branches lie do not."""
        found = self._functions(self.ARM64, self.ARM64_TABLE, b"")
        wanted = ["tbnz\tw9, #0x3, <first+0xc>", "adrp\tx8, [setting+0x4]", "bl\t [vm_normal_page+0x0]", "ret"]
        self.assertEqual(
            [line.replace("\t [", " [") for line in found["first"]], [line.replace("\t [", " [") for line in wanted]
        )
        self.assertEqual(list(found), ["first"])
        other = self._functions(self.ARM64.replace("#0x3", "#0x4"), self.ARM64_TABLE, b"")
        self.assertNotEqual(other, found)

    def _finding(
        self, base: sametext.Texts, series: sametext.Texts, objects: list[str] | None = None
    ) -> sametext.Finding:
        hot = {name: ["ret"] for name in sametext.HOT if name not in sametext.INLINED["x86"]}
        many = {f"f{number}": ["ret"] for number in range(1000)}
        plain = {"hot.o": {**hot, **many}}
        return sametext.judge(
            sametext.MACHINES[0], objects or ["hot.o", *base], {**plain, **base}, {**plain, **base}, {**plain, **series}
        )

    def _missed(self, found: sametext.Finding) -> list[str]:
        return [gate.name.removeprefix("x86: ") for gate in found.gates() if not gate.ok]

    def test_all_is_well_where_nothing_differs(self) -> None:
        self.assertEqual(self._missed(self._finding({}, {})), [])

    def test_what_cannot_be_compared_is_no_success(self) -> None:
        found = self._finding({"a.o": {"f": ["ret"]}}, {})
        self.assertEqual((self._missed(found), found.not_compared), (["objects not compared"], ["a.o"]))
        left_out = self._finding({}, {}, ["hot.o", "mm/debug_vm_pgtable.o"])
        self.assertEqual(self._missed(left_out), [])
        self.assertIn("mm/debug_vm_pgtable.o", left_out.document()["left out"])

    def test_a_hot_function_that_vanished_is_no_success(self) -> None:
        name = next(one for one in sametext.HOT if one not in sametext.INLINED["x86"])
        with mock.patch.object(sametext, "HOT", (*sametext.HOT, "renamed")):
            found = self._finding({}, {})
            gone = sametext.judge(found.machine, ["hot.o"], *[{"hot.o": {name: ["ret"]}}] * 3)
        self.assertIn("hot functions neither found nor known as inlined", self._missed(gone))
        with mock.patch.dict(sametext.INLINED, {"x86": frozenset({name, *sametext.INLINED["x86"]})}):
            base = {"b.o": {f"{name}.isra.0": ["ret"]}}
            self.assertEqual(
                self._missed(self._finding(base, base)), ["hot functions neither found nor known as inlined"]
            )

    def test_what_later_patches_change_is_known(self) -> None:
        known = next(iter(sametext.LATER))
        found = self._finding({"a.o": {known: ["ret"]}}, {"a.o": {known: ["nop", "ret"]}})
        self.assertEqual(self._missed(found), [])
        found = self._finding({"a.o": {"f": ["ret"]}}, {"a.o": {"f": ["nop", "ret"]}})
        self.assertEqual(self._missed(found), ["functions that later patches change, and why is not known"])
        self.assertEqual(found.unexplained(), ["a.o f"])

    def test_a_hot_function_may_not_differ_by_later_patches(self) -> None:
        name = next(one for one in sametext.HOT if one not in sametext.INLINED["x86"])
        base, series = {"b.o": {f"{name}.cold": ["ret"]}}, {"b.o": {f"{name}.cold": ["nop", "ret"]}}
        self.assertIn("hot functions that differ by more than the fixes", self._missed(self._finding(base, series)))


class Parts(unittest.TestCase):
    def test_an_object_that_no_step_compiles_is_seen(self) -> None:
        rows = [bisect.Row(1, "a", [], compiled=["mm/a.o"]), bisect.Row(2, "b", [], compiled=["mm/a.o", "mm/b.o"])]
        self.assertEqual(bisect.never_compiled(["mm/a.o", "mm/b.o", "mm/c.o"], rows), ["mm/c.o"])

    def test_steps_have_what_tests_use_and_tracepoints(self) -> None:
        for series in (("pud",), ("mthp",)):
            wanted = config.stepwise(series)
            for name in ("FTRACE", "ENABLE_DEFAULT_TRACERS", "USERFAULTFD"):
                self.assertEqual(wanted[f"CONFIG_{name}"], "y", (series, name))

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
