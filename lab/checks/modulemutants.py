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
from lab.vm import unmodified

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
    kernels: tuple[str, ...] = stockbuild.NAMES
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

_TOTAL = "return group ? READ_ONCE(group->total[PSI_AVGS][state]) : 0;"

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
        ("7.2", "newest"),
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
        "for (level = READ_ONCE(mthp_topmost); level <= last; level++)",
        "for (level = last; level >= 0; level--)",
        "each_policy_is_asked_about_what_those_above_left",
    ),
    Mutant(
        "walk-ends-early",
        "cgrp->level > mthp_deepest)",
        "cgrp->level < mthp_deepest)",
        "each_policy_is_asked_about_what_those_above_left",
    ),
    Mutant(
        "walk-begins-late",
        "cgrp->level < mthp_topmost)",
        "0)",
        "a_policy_above_one_that_is_there_is_asked",
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
        # Longer than the test looks, twice four seconds. Not for ever: it would hold the module.
        _UNREG.replace("HZ", "16 * HZ"),
        "the_hook_goes_with_the_last_link",
    ),
    Mutant(
        "hook-goes-with-any-link",
        "if (mthp_hooked && !mthp_nr_links)",
        "if (mthp_hooked)",
        "the_hook_goes_with_the_last_link",
    ),
    # Those of the kfuncs.
    Mutant("stall-is-nothing", _TOTAL, "return 0;", "stall_is_that_of_the_files"),
    Mutant("stall-of-another-state", _TOTAL, _TOTAL.replace("state", "state ^ 1"), "stall_is_that_of_the_files"),
    Mutant(
        "stall-of-the-one-above",
        "\t\treturn cgrp->psi;\n",
        "\t\treturn cgrp->psi->parent;\n",
        "stall_is_that_of_the_files",
    ),
    Mutant("stall-not-flushed", "\tflush_delayed_work(&group->avgs_work);\n", "", "a_flush_brings_stall_up_to_date"),
    Mutant(
        "flush-without-a-worker",
        "\tif (mthp_stalls_unseen(group))\n\t\tschedule_delayed_work(&group->avgs_work, 0);\n",
        "\tmthp_stalls_unseen(group);\n",
        "a_flush_brings_stall_up_to_date",
    ),
    Mutant(
        "blind-flush-succeeds",
        "if (!group || !group->enabled)",
        "if (!group)",
        "a_flush_without_pressure_is_refused",
    ),
    Mutant(
        "root-has-its-child-s-stall",
        "? child->cgroup->psi->parent : NULL;",
        "? child->cgroup->psi : NULL;",
        "the_root_has_its_own_stall",
    ),
    Mutant(
        "root-has-no-stall",
        "? child->cgroup->psi->parent : NULL;",
        "? NULL : NULL;",
        "the_root_has_its_own_stall",
    ),
    Mutant(
        "lists-of-the-root",
        "css = rcu_dereference(cgrp->subsys[memory_cgrp_id]);",
        "css = rcu_dereference(cgrp_dfl_root.cgrp.subsys[memory_cgrp_id]);",
        "page_cache_that_was_read_once_is_cold",
    ),
    Mutant(
        "cold-of-the-wrong-list",
        "mz->lru_zone_size[zone][LRU_INACTIVE_FILE]",
        "mz->lru_zone_size[zone][LRU_ACTIVE_FILE]",
        "page_cache_that_was_read_once_is_cold",
    ),
    Mutant(
        "hot-is-cold",
        "mz->lru_zone_size[zone][LRU_INACTIVE_FILE]);",
        "mz->lru_zone_size[zone][LRU_INACTIVE_FILE]) + READ_ONCE(mz->lru_zone_size[zone][LRU_ACTIVE_FILE]);",
        "page_cache_that_was_read_once_is_cold",
    ),
    Mutant(
        "cold-without-generations",
        "lrugen->nr_pages[gen][LRU_GEN_FILE][zone]), 0L);",
        "lrugen->nr_pages[gen][LRU_GEN_FILE][zone]), 0L) * 0;",
        "page_cache_that_was_read_once_is_cold",
    ),
    Mutant(
        "anon-without-inactive",
        "READ_ONCE(mz->lru_zone_size[zone][LRU_INACTIVE_ANON])",
        "0",
        "anonymous_pages_are_those_on_its_lists",
    ),
    Mutant(
        "anon-without-active",
        "READ_ONCE(mz->lru_zone_size[zone][LRU_ACTIVE_ANON])",
        "0",
        "anonymous_pages_are_those_on_its_lists",
    ),
    Mutant(
        "anon-without-generations",
        "for (gen = 0; gen < MAX_NR_GENS; gen++)",
        "for (gen = 0; gen < 0; gen++)",
        "anonymous_pages_are_those_on_its_lists",
    ),
    Mutant("reserve-is-left", "- reserve;", "- 0 * reserve;", "what_is_left_is_that_of_the_machine"),
    Mutant(
        "page-cache-is-used",
        "global_node_page_state(NR_INACTIVE_FILE)",
        "0",
        "what_is_left_is_that_of_the_machine",
    ),
    Mutant(
        "active-page-cache-is-used",
        "global_node_page_state(NR_ACTIVE_FILE)",
        "0",
        "what_is_left_is_that_of_the_machine",
    ),
    Mutant("machine-of-nothing", "*total = totalram_pages();", "*total = 0;", "what_is_left_is_that_of_the_machine"),
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
    return guest.judge(f"module/mutants-{kernel.name}", vm.run(unmodified.loaded(kernel, job)), tap.parse)
