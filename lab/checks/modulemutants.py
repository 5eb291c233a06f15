# SPDX-License-Identifier: GPL-2.0-only
"""`make mutants-module`: changes to the module that each break a rule; a named test of the contract must notice."""

from dataclasses import dataclass, replace

from lab import programs, vm
from lab.checks import guest, moduleguest, tap
from lab.checks.result import Suite
from lab.errors import Exit, LabError
from lab.kernel import stockbuild
from lab.kernel.stockbuild import Stock
from lab.paths import REPO

_SOURCE = REPO / "module" / "mthp_hook.c"
_SCRIPT = REPO / "lab" / "checks" / "module-mutants.sh"
_DIRECTORY = "/mutants"
"""Of a guest."""


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


_UNREG = """\
		hash_del_rcu(&one->node);
		raw_spin_unlock_irq(&mthp_links_lock);
		if (!--mthp_nr_links)
			schedule_delayed_work(&mthp_unhook_work, HZ);
	}
	mutex_unlock(&mthp_mutex);
	if (one) {
"""

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
    Mutant("dropped-not-counted", "mthp_dropped++;", "mthp_dropped += 0;", "what_was_not_offered_is_counted"),
    Mutant(
        "asks-for-shmem",
        "if (!orders || !vma_is_anonymous(vma) || !vma->vm_mm)",
        "if (!orders || !vma->vm_mm)",
        "shared_memory_is_not_asked",
    ),
    Mutant(
        "asks-what-is-forbidden",
        "return reason && !mthp_is_forbidden(vma, vm_flags, reason) ? reason : 0;",
        "return reason && !mthp_is_forbidden(vma, vm_flags, reason) ? reason : reason;",
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
        'return current->mm || strcmp(current->comm, "khugepaged") ? 0 : BPF_MTHP_KHUGEPAGED;',
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
        "asked-after-the-end",
        _UNREG,
        _UNREG.replace("hash_del_rcu(&one->node);", ";").replace("if (one) {", "if (0) {"),
        "a_closed_link_asks_nobody",
    ),
    Mutant(
        "ftrace-may-go",
        ".flags\t= FTRACE_OPS_FL_PERMANENT,",
        ".flags\t= 0,",
        "ftrace_stays_on_while_attached",
        # Later kernels have no such switch any more.
        ("6.12",),
    ),
    Mutant(
        "hook-stays",
        _UNREG,
        # Not for ever: it would hold the module.
        _UNREG.replace("HZ", "8 * HZ"),
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
    """Each of them on that kernel, one after the other in one guest: lab/checks/module-mutants.sh. The contract as such
    must hold there."""
    text = _SOURCE.read_text()
    chosen = [one for one in MUTANTS if kernel.name in one.kernels and (not names or one.name in names)]
    built = {}
    for mutant in chosen:
        module = stockbuild.build_module(kernel, f"mutant-{mutant.name}", source=mutant.source(text))
        built[f"{_DIRECTORY}/{mutant.name}.ko"] = module
    hook = programs.package("lab-hook")
    words = [str(hook), _DIRECTORY, *(f"{one.name}:{one.test}" for one in chosen)]
    job = moduleguest.bare(kernel, "mutants", ["/bin/sh", f"/{_SCRIPT.name}", *words], hook)
    job = replace(job, files={f"/{_SCRIPT.name}": _SCRIPT, **built})
    return guest.judge(f"module/mutants-{kernel.name}", vm.run(moduleguest.loaded(kernel, job)), tap.parse)
