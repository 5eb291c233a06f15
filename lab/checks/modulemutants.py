# SPDX-License-Identifier: GPL-2.0-only
"""`make mutants-module`: changes to the module that each break a rule; a named test of the contract must notice."""

from dataclasses import dataclass

from lab.checks import moduleguest
from lab.checks.result import Status, Suite, Test
from lab.errors import Exit, LabError
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import REPO

_SOURCE = REPO / "module" / "mthp_hook.c"


@dataclass(frozen=True)
class Mutant:
    """One change."""

    name: str
    old: str
    """Stands once in the source."""
    new: str
    test: str
    """What must notice, of lab/hook/src/contract.rs."""
    kernels: tuple[str, ...] = ("6.12", "newest")
    """Where it breaks something."""

    def source(self, text: str) -> str:
        """The module with it."""
        if text.count(self.old) != 1:
            raise LabError(Exit.PATCH, f"mutant {self.name}: stands {text.count(self.old)} times: {self.old!r}")
        return text.replace(self.old, self.new)


MUTANTS = (
    Mutant(
        "asks-for-smaps",
        "\tif (tva & TVA_SMAPS)\n\t\treturn 0;\n",
        "\tif (tva & TVA_SMAPS)\n\t\treturn BPF_MTHP_COLLAPSE;\n",
        "smaps_is_not_asked",
        ("6.12",),
    ),
    Mutant(
        "asks-for-smaps-by-type",
        "\tdefault:\n\t\treturn 0;\n\t}\n#endif\n",
        "\tdefault:\n\t\treturn BPF_MTHP_COLLAPSE;\n\t}\n#endif\n",
        "smaps_is_not_asked",
        ("newest",),
    ),
    Mutant(
        "asks-current",
        "\towner = rcu_dereference(vma->vm_mm->owner);\n",
        "\towner = current;\n",
        "a_collapse_is_of_the_cgroup_of_the_mm",
    ),
    Mutant(
        "first-policy-only",
        "\t\torders &= answer;\n",
        "\t\torders &= answer;\n\t\tbreak;\n",
        "each_policy_is_asked_about_what_those_above_left",
    ),
    Mutant(
        "leaf-first",
        "for (level = 0; level <= last && orders; level++)",
        "for (level = last; level >= 0 && orders; level--)",
        "each_policy_is_asked_about_what_those_above_left",
    ),
    Mutant(
        "walk-ends-early",
        "cgrp->level > mthp_deepest)",
        "cgrp->level < mthp_deepest)",
        "each_policy_is_asked_about_what_those_above_left",
    ),
    Mutant("answer-replaces", "\t\torders &= answer;\n", "\t\torders = answer;\n", "an_answer_only_narrows"),
    Mutant("dropped-not-counted", "\t\t\tmthp_dropped++;\n", "\t\t\t;\n", "what_was_not_offered_is_counted"),
    Mutant(
        "asks-for-shmem",
        "if (!orders || !vma_is_anonymous(vma) || !vma->vm_mm)",
        "if (!orders || !vma->vm_mm)",
        "shared_memory_is_not_asked",
    ),
    Mutant(
        "asks-what-is-forbidden",
        "if (!reason || mthp_is_forbidden(vma, vm_flags, reason))",
        "if (!reason)",
        "what_prctl_forbids_is_not_asked",
    ),
    Mutant(
        "advice-lost",
        "vm_flags & VM_HUGEPAGE ? BPF_MTHP_ADVISED : 0",
        "vm_flags & VM_HUGEPAGE ? 0 : 0",
        "advice_is_passed",
    ),
    Mutant(
        "swap-in-is-fault",
        "\t\t\treturn BPF_MTHP_SWAPIN;\n",
        "\t\t\treturn BPF_MTHP_FAULT;\n",
        "swap_in_is_told_from_a_fault",
    ),
    Mutant(
        "registered-by-answer",
        "return current->mm ? 0 : BPF_MTHP_KHUGEPAGED;",
        "return BPF_MTHP_KHUGEPAGED;",
        "registering_with_khugepaged_is_not_asked",
    ),
    Mutant(
        "second-policy",
        "\terr = -EEXIST;\n\tif (mthp_find(cgrp))",
        "\terr = -EEXIST;\n\tif (0)",
        "a_second_policy_is_refused",
    ),
    Mutant(
        "no-memory-needed",
        "if (!rcu_access_pointer(cgrp->subsys[memory_cgrp_id]))",
        "if (0)",
        "a_cgroup_without_memory_is_refused",
    ),
    Mutant(
        "anybody-attaches",
        "return mthp_may_write(ops) ? 0 : -EACCES;",
        "return mthp_may_write(ops) ? 0 : 0;",
        "who_may_not_write_the_cgroup_is_refused",
    ),
    Mutant(
        "any-cgroup-s-file",
        "may = kn->id == ops->cgroup_id;",
        "may = kn->id != 0;",
        "who_may_not_write_the_cgroup_is_refused",
    ),
    Mutant(
        "update-to-another-cgroup",
        "if (one && cgroup_id(one->cgrp) == ops->cgroup_id)",
        "if (one)",
        "an_update_is_for_the_same_cgroup",
    ),
    Mutant(
        "update-forgotten",
        "\t\trcu_assign_pointer(one->ops, ops);\n",
        "\t\t;\n",
        "an_update_is_for_the_same_cgroup",
    ),
    Mutant(
        "rmdir-keeps-the-link",
        "\t\t\tone->orphaned = true;\n",
        "\t\t\tone->orphaned = false;\n",
        "removing_the_cgroup_ends_the_link",
    ),
    Mutant(
        "ftrace-may-go",
        "FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_PERMANENT",
        "FTRACE_OPS_FL_RECURSION",
        "ftrace_stays_on_while_attached",
        # Later kernels have no such switch any more.
        ("6.12",),
    ),
    Mutant(
        "hook-stays",
        "\t\tif (!--mthp_nr_links)\n",
        "\t\tif (!--mthp_nr_links && 0)\n",
        "the_hook_goes_with_the_last_link",
    ),
    Mutant(
        "hook-goes-with-any-link",
        "if (mthp_hooked && !mthp_nr_links)",
        "if (mthp_hooked)",
        "the_hook_goes_with_the_last_link",
    ),
)


def run(kernel: Stock, names: tuple[str, ...] = ()) -> Suite:
    """Each of them on that kernel. The contract as such must hold there."""
    suite = Suite(f"module/mutants-{kernel.name}")
    text = _SOURCE.read_text()
    for mutant in MUTANTS:
        if kernel.name not in mutant.kernels or (names and mutant.name not in names):
            continue
        module = stockbuild.build_module(kernel, "mutant", source=mutant.source(text))
        seen = moduleguest.contract(kernel, module, "mutant")
        suite.seconds += seen.seconds
        ended = {test.name: test for test in seen.tests}
        found = ended.get(mutant.test, Test(mutant.test, Status.SKIPPED, "did not run"))
        others = ", ".join(f"{test.name} {test.status}" for test in seen.tests if test.status is not Status.PASSED)
        suite.check(
            f"{mutant.name}: {mutant.test}",
            found.status is Status.FAILED,
            f"the test {found.status}; others: {others or 'passed'}",
        )
        print(
            f"test-module: {suite.tests[-1].name}: {'caught' if not suite.tests[-1].detail else 'SURVIVED'}", flush=True
        )
    suite.settle()
    return suite
