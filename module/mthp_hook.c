// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hook bpf_mthp_ops for kernels that lack it.
 *
 * BPF policies narrow the orders of large folios that anonymous memory of a cgroup, and of those
 * below it, may use. Contract and type are those of the kernel series (mm/bpf_mthp.c). What
 * differs: the policy names its cgroup itself, as stock links have no target; and questions are
 * asked where __thp_vma_allowable_orders() is called, by editing its argument on entry. That
 * function only narrows, so narrowing what it is given narrows what it returns.
 *
 * Nothing is patched, and nothing of it is called, while no policy is attached, and has not been
 * for a second.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bpf.h>
#include <linux/bpf_verifier.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/cgroup.h>
#include <linux/file.h>
#include <linux/ftrace.h>
#include <linux/hashtable.h>
#include <linux/huge_mm.h>
#include <linux/kallsyms.h>
#include <linux/kernfs.h>
#include <linux/kprobes.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/module.h>
#include <linux/psi.h>
#include <linux/tracepoint.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

/* By mkbtf, from the BTF of the kernel this is built for. */
#include "mthp_btf.h"

/* What the kernel knows of the types below. A note: the linker would want to load what is not. */
asm(".pushsection .BTF, \"\", @note\n\t.incbin \"" MTHP_BTF_FILE "\"\n\t.popsection");

#if !defined(CONFIG_X86_64) || !defined(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)
#error "x86-64 and CONFIG_DYNAMIC_FTRACE_WITH_ARGS are needed: an argument is edited on entry"
#endif

#define MTHP_FUNCTION "__thp_vma_allowable_orders"

/* Kernels before 6.13 have the registers in the struct itself. */
#ifndef arch_ftrace_regs
#define arch_ftrace_regs(fregs) (fregs)
#endif

/* Names and values are part of the interface, as are those of the flags. */
enum bpf_mthp_reason {
	BPF_MTHP_FAULT		= 1,
	BPF_MTHP_SWAPIN		= 2,
	BPF_MTHP_KHUGEPAGED	= 3,
	BPF_MTHP_COLLAPSE	= 4,
};

enum bpf_mthp_flags {
	BPF_MTHP_ADVISED	= 1 << 0,
};

struct bpf_mthp_ops {
	unsigned long (*mthp_choose)(struct cgroup *cgrp, struct cgroup *attached,
				     enum bpf_mthp_reason reason, u64 flags, unsigned long orders);
	/* The cgroup to attach to. A map is for one cgroup, and keeps it in updates. */
	u64 cgroup_id;
	/* Its cgroup.procs, open for writing: the right to attach, when the map is filled. */
	s32 procs_fd;
};

/* A link that is attached. */
struct mthp_link {
	/* In mthp_links. Changes under mthp_mutex and mthp_links_lock, read under RCU. */
	struct hlist_node node;
	/* A reference is held until the link ends. Constant. */
	struct cgroup *cgrp;
	/*
	 * Changes under mthp_mutex, read under RCU. In a map that the link holds, and that is
	 * freed a grace period after the link has let go of it.
	 */
	struct bpf_mthp_ops __rcu *ops;
	/* No reference. May be used under mthp_links_lock, while this is in mthp_links. */
	struct bpf_link *link;
	/* The cgroup was removed, and nobody has seen to it yet. Under mthp_links_lock. */
	bool orphaned;
	struct rcu_head rcu;
};

/*
 * Serialises ->reg(), ->unreg() and ->update(), and the hook that goes on and off with them.
 * Taken under locks of the BPF core; ftrace takes its own under it, and waits for all tasks where
 * the hook goes off. A struct_ops link of whatever kind that is made meanwhile waits, too.
 */
static DEFINE_MUTEX(mthp_mutex);

/* By cgroup. */
static DEFINE_HASHTABLE(mthp_links, 8);

/*
 * Inside mthp_mutex, and inside the locks that tracepoints are called under. Raw: on a real-time
 * kernel before 7.0 they are called with preemption off.
 */
static DEFINE_RAW_SPINLOCK(mthp_links_lock);

/*
 * Under mthp_mutex. The hook is on while there are links, and up to a second longer; it holds a
 * reference to the module.
 */
static unsigned int mthp_nr_links;
static bool mthp_hooked;

/*
 * No link is attached above or below these levels. They grow before a link outside of them is
 * published, and begin anew with the first. Written under mthp_mutex.
 */
static int mthp_topmost __read_mostly, mthp_deepest __read_mostly;

/* Code that asks in order to swap in. Constant after init. */
static struct mthp_code {
	unsigned long start, size;
} mthp_swapin[3] __ro_after_init;
static int mthp_nr_swapin __ro_after_init;

static bool mthp_tells_swapin __ro_after_init;
module_param_named(swapin, mthp_tells_swapin, bool, 0444);
MODULE_PARM_DESC(swapin, "whether swap-in is told from other page faults (read only)");

/* Answers with sizes that were not offered. Not exact: it is a sign of a faulty program. */
static unsigned long mthp_dropped;
module_param_named(dropped, mthp_dropped, ulong, 0444);
MODULE_PARM_DESC(dropped, "answers with sizes that were not offered (read only)");

#if MTHP_TVA_FORM == 1
#define MTHP_TVA unsigned long
#else
#define MTHP_TVA enum tva_type
#endif
static_assert(__same_type(__thp_vma_allowable_orders,
			  unsigned long (struct vm_area_struct *, vm_flags_t, MTHP_TVA,
					 unsigned long)));

/* Not in line: newer kernels make the mask anew each time, on the stack. Faults do without it. */
static noinline bool mthp_is_special(vm_flags_t vm_flags)
{
	return vm_flags & VM_NO_KHUGEPAGED;
}

/* Do prctl() or the mapping forbid what is asked for? Both come before any policy. */
static __always_inline bool mthp_is_forbidden(struct vm_area_struct *vma, vm_flags_t vm_flags,
					      enum bpf_mthp_reason reason)
{
	if (reason >= BPF_MTHP_KHUGEPAGED && mthp_is_special(vm_flags))
		return true;
#if MTHP_TVA_FORM == 1
	return vma_thp_disabled(vma, vm_flags);
#else
	return vma_thp_disabled(vma, vm_flags, reason == BPF_MTHP_COLLAPSE);
#endif
}

static __always_inline enum bpf_mthp_reason mthp_fault_or_swapin(unsigned long caller)
{
	const struct mthp_code *one;

	for (one = mthp_swapin; one < mthp_swapin + mthp_nr_swapin; one++)
		if (caller - one->start < one->size)
			return BPF_MTHP_SWAPIN;
	return BPF_MTHP_FAULT;
}

/*
 * Others ask khugepaged's question to register an mm with it, which is for good. Processes do, and
 * kernel threads that fault for one; so does DAMON's when it advises. The name of a kernel thread
 * is its own.
 */
static noinline int mthp_khugepaged(void)
{
	return current->mm || strcmp(current->comm, "khugepaged") ? 0 : BPF_MTHP_KHUGEPAGED;
}

/* Why does @caller ask? 0: not for a policy. */
static __always_inline int mthp_reason(MTHP_TVA tva, unsigned long caller)
{
#if MTHP_TVA_FORM == 1
	if (tva & TVA_SMAPS)
		return 0;
	if (tva & TVA_IN_PF)
		return mthp_fault_or_swapin(caller);
	return tva & TVA_ENFORCE_SYSFS ? mthp_khugepaged() : BPF_MTHP_COLLAPSE;
#else
	switch (tva) {
	case TVA_PAGEFAULT:
		return mthp_fault_or_swapin(caller);
	case TVA_KHUGEPAGED:
		return mthp_khugepaged();
	case TVA_FORCED_COLLAPSE:
		return BPF_MTHP_COLLAPSE;
	default:
		return 0;
	}
#endif
}

static struct mthp_link *mthp_find(struct cgroup *cgrp)
{
	struct mthp_link *one;

	hash_for_each_possible_rcu(mthp_links, one, node, (unsigned long)cgrp,
				   lockdep_is_held(&mthp_mutex))
		if (one->cgrp == cgrp)
			return one;
	return NULL;
}

/* The reason to ask policies about what is forbidden by nothing else; 0: they are not asked. */
static __always_inline int mthp_question(struct vm_area_struct *vma, vm_flags_t vm_flags,
					 MTHP_TVA tva, unsigned long caller)
{
	int reason = mthp_reason(tva, caller);

	return reason && !mthp_is_forbidden(vma, vm_flags, reason) ? reason : 0;
}

/* The same out of line, where it is rarely wanted. */
static noinline bool mthp_is_question(struct vm_area_struct *vma, vm_flags_t vm_flags, MTHP_TVA tva,
				      unsigned long caller)
{
	return mthp_question(vma, vm_flags, tva, caller);
}

/*
 * Ask every policy from the root down to @cgrp, under RCU. Descendants hold no copies of the
 * pointer: a new cgroup is bound by its ancestors from the first moment. What is asked is looked
 * at when there is a policy, so that where there is none little is done.
 */
static unsigned long mthp_ask(struct cgroup *cgrp, struct vm_area_struct *vma, vm_flags_t vm_flags,
			      MTHP_TVA tva, unsigned long caller, unsigned long orders)
{
	int level, last = min(cgrp->level, READ_ONCE(mthp_deepest)), reason = 0;
	u64 flags = vm_flags & VM_HUGEPAGE ? BPF_MTHP_ADVISED : 0;
	struct cgroup *attached;
	struct mthp_link *one;
	unsigned long answer;

	for (level = READ_ONCE(mthp_topmost); level <= last; level++) {
		attached = cgrp->ancestors[level];
		one = mthp_find(attached);
		if (!one)
			continue;
		if (!reason) {
			reason = mthp_question(vma, vm_flags, tva, caller);
			if (!reason)
				break;
		}
		answer = rcu_dereference(one->ops)->mthp_choose(cgrp, attached, reason, flags,
								orders);
		if (unlikely(answer & ~orders))
			mthp_dropped++;
		orders &= answer;
		if (!orders)
			break;
	}
	return orders;
}

/*
 * Called by ftrace on entry to the function. Nothing that is called here comes to that function
 * again, nor do interrupts.
 */
static void mthp_entered(unsigned long ip, unsigned long caller, struct ftrace_ops *ops,
			 struct ftrace_regs *fregs)
{
	struct vm_area_struct *vma = (void *)ftrace_regs_get_argument(fregs, 0);
	vm_flags_t vm_flags = ftrace_regs_get_argument(fregs, 1);
	/* Of an enum the upper half of the register is anything. */
	MTHP_TVA tva = (MTHP_TVA)ftrace_regs_get_argument(fregs, 2);
	unsigned long orders = ftrace_regs_get_argument(fregs, 3);
	struct task_struct *owner;
	struct cgroup *cgrp;
	bool listed;

	/* Nobody is asked about other memory, or about what the function refuses anyway. */
	orders &= THP_ORDERS_ALL_ANON;
	if (!orders || !vma_is_anonymous(vma) || !vma->vm_mm)
		return;

	/* Keeps the owner, its cgroup and those above it, the links, the ops and their programs. */
	rcu_read_lock();
	owner = rcu_dereference(vma->vm_mm->owner);
	/*
	 * A task that is being forked is in the root and on no list, until it is given its cgroup
	 * and then put on a list of that.
	 */
	listed = !owner || !list_empty(&owner->cg_list);
	/* List first, cgroup second. This machine does not reorder the two stores. */
	smp_rmb();
	/* As for memcg, an mm whose owner is gone belongs to the root. */
	cgrp = owner ? task_dfl_cgroup(owner) : &cgrp_dfl_root.cgrp;
	if (likely(listed || cgrp != &cgrp_dfl_root.cgrp))
		orders = mthp_ask(cgrp, vma, vm_flags, tva, caller, orders);
	else if (mthp_is_question(vma, vm_flags, tva, caller))
		orders = 0;
	rcu_read_unlock();
	arch_ftrace_regs(fregs)->regs.cx = orders;
}

/*
 * Permanent: a policy is not to be without effect because kernel.ftrace_enabled is 0. Without
 * FTRACE_OPS_FL_RECURSION, which would cost some 50 instructions: see mthp_entered().
 */
static struct ftrace_ops mthp_ftrace = {
	.func	= mthp_entered,
	.flags	= FTRACE_OPS_FL_PERMANENT,
};

static struct tracepoint *mthp_rmdir_tp __ro_after_init;

static void mthp_rmdir(void *data, struct cgroup *cgrp, const char *path);

/* Under mthp_mutex, before the first link is to be found. */
static int mthp_hook(void)
{
	int err = tracepoint_probe_register(mthp_rmdir_tp, mthp_rmdir, NULL);

	if (err) {
		pr_warn_ratelimited("cgroup_rmdir cannot be traced (%d)\n", err);
		return err == -ENOMEM ? err : -EIO;
	}
	err = register_ftrace_function(&mthp_ftrace);
	if (err) {
		tracepoint_probe_unregister(mthp_rmdir_tp, mthp_rmdir, NULL);
		pr_warn_ratelimited("%s() cannot be hooked (%d)%s\n", MTHP_FUNCTION, err,
				    err == -EBUSY ? ": is kernel.ftrace_enabled 0?" : "");
		/* Others have a meaning of their own for who attaches. */
		return err == -EBUSY || err == -ENOMEM ? err : -EIO;
	}
	__module_get(THIS_MODULE);
	mthp_hooked = true;
	return 0;
}

/*
 * Switching off patches the kernel's text and waits for all tasks. So it is left to a worker: a
 * link ends at once, and a policy that comes and goes with its container patches nothing.
 */
static void mthp_unhook(struct work_struct *work)
{
	int err;

	mutex_lock(&mthp_mutex);
	if (mthp_hooked && !mthp_nr_links) {
		err = unregister_ftrace_function(&mthp_ftrace);
		if (err) {
			/* The function still calls here: the module has to stay for ever. */
			pr_err("%s() cannot be let go (%d): the module stays\n", MTHP_FUNCTION, err);
		} else {
			tracepoint_probe_unregister(mthp_rmdir_tp, mthp_rmdir, NULL);
			mthp_hooked = false;
			module_put(THIS_MODULE);
		}
	}
	mutex_unlock(&mthp_mutex);
}

static DECLARE_DELAYED_WORK(mthp_unhook_work, mthp_unhook);

static int mthp_reg(void *kdata, struct bpf_link *link)
{
	struct bpf_mthp_ops *ops = kdata;
	struct mthp_link *one;
	struct cgroup *cgrp;
	int err;

	/* Without a link there is nothing to detach when the cgroup goes. */
	if (!link)
		return -EOPNOTSUPP;
	/* A policy next to memory control on a v1 hierarchy would see none. */
	if (mem_cgroup_disabled() || !cgroup_subsys_on_dfl(memory_cgrp_subsys))
		return -EOPNOTSUPP;

	cgrp = cgroup_get_from_id(ops->cgroup_id);
	if (IS_ERR(cgrp))
		return PTR_ERR(cgrp);
	one = kzalloc(sizeof(*one), GFP_KERNEL);
	err = -ENOMEM;
	if (!one)
		goto put;
	one->cgrp = cgrp;
	one->link = link;
	RCU_INIT_POINTER(one->ops, ops);

	mutex_lock(&mthp_mutex);
	/* The limits that bind this cgroup would be those of an ancestor. */
	err = -ENODEV;
	if (!rcu_access_pointer(cgrp->subsys[memory_cgrp_id]))
		goto unlock;
	err = -EEXIST;
	if (mthp_find(cgrp))
		goto unlock;
	if (!mthp_nr_links || cgrp->level > mthp_deepest)
		WRITE_ONCE(mthp_deepest, cgrp->level);
	if (!mthp_nr_links || cgrp->level < mthp_topmost)
		WRITE_ONCE(mthp_topmost, cgrp->level);
	err = mthp_hooked ? 0 : mthp_hook();
	if (err)
		goto unlock;

	/* Whoever removes the cgroup clears the flag first, and then looks for the link. */
	raw_spin_lock_irq(&mthp_links_lock);
	err = READ_ONCE(cgrp->self.flags) & CSS_ONLINE ? 0 : -ENOENT;
	if (!err)
		hash_add_rcu(mthp_links, &one->node, (unsigned long)cgrp);
	raw_spin_unlock_irq(&mthp_links_lock);
	if (!err)
		mthp_nr_links++;
	else if (!mthp_nr_links)
		schedule_delayed_work(&mthp_unhook_work, HZ);
unlock:
	mutex_unlock(&mthp_mutex);
	if (!err)
		return 0;
	kfree(one);
	/* What is missing, or still there, is so because the cgroup was removed. */
	if ((err == -ENODEV || err == -EEXIST) && !(READ_ONCE(cgrp->self.flags) & CSS_ONLINE))
		err = -ENOENT;
put:
	cgroup_put(cgrp);
	return err;
}

static struct mthp_link *mthp_of(struct bpf_link *link)
{
	struct mthp_link *one;
	int bucket;

	hash_for_each(mthp_links, bucket, one, node)
		if (one->link == link)
			return one;
	return NULL;
}

static void mthp_unreg(void *kdata, struct bpf_link *link)
{
	struct mthp_link *one;

	mutex_lock(&mthp_mutex);
	one = mthp_of(link);
	if (!WARN_ON_ONCE(!one)) {
		raw_spin_lock_irq(&mthp_links_lock);
		hash_del_rcu(&one->node);
		raw_spin_unlock_irq(&mthp_links_lock);
		if (!--mthp_nr_links)
			schedule_delayed_work(&mthp_unhook_work, HZ);
	}
	mutex_unlock(&mthp_mutex);
	if (one) {
		cgroup_put(one->cgrp);
		kfree_rcu(one, rcu);
	}
}

static int mthp_update(void *kdata, void *old_kdata, struct bpf_link *link)
{
	struct bpf_mthp_ops *ops = kdata;
	struct mthp_link *one;
	int err = -EINVAL;

	mutex_lock(&mthp_mutex);
	one = mthp_of(link);
	if (one && cgroup_id(one->cgrp) == ops->cgroup_id) {
		rcu_assign_pointer(one->ops, ops);
		err = 0;
	}
	mutex_unlock(&mthp_mutex);
	return err;
}

/* Takes a reference to the link of a cgroup that was removed. */
static struct bpf_link *mthp_next_orphan(void)
{
	struct bpf_link *link = NULL;
	struct mthp_link *one;
	int bucket;

	raw_spin_lock_irq(&mthp_links_lock);
	hash_for_each(mthp_links, bucket, one, node) {
		if (!one->orphaned)
			continue;
		one->orphaned = false;
		/* Where that fails the link is about to come to its ->unreg(). */
		link = bpf_link_inc_not_zero(one->link);
		if (!IS_ERR(link))
			break;
		link = NULL;
	}
	raw_spin_unlock_irq(&mthp_links_lock);
	return link;
}

static void mthp_detach_orphans(struct work_struct *work)
{
	struct bpf_link *link;

	while ((link = mthp_next_orphan())) {
		link->ops->detach(link);
		bpf_link_put(link);
	}
}

static DECLARE_WORK(mthp_orphans, mthp_detach_orphans);

/* A cgroup has been removed. Called under a spinlock and under cgroup_mutex. */
static void mthp_rmdir(void *data, struct cgroup *cgrp, const char *path)
{
	struct mthp_link *one;
	unsigned long flags;

	raw_spin_lock_irqsave(&mthp_links_lock, flags);
	hash_for_each_possible(mthp_links, one, node, (unsigned long)cgrp)
		if (one->cgrp == cgrp) {
			one->orphaned = true;
			schedule_work(&mthp_orphans);
		}
	raw_spin_unlock_irqrestore(&mthp_links_lock, flags);
}

/* May the process that fills the map write the cgroup? It shows that by its cgroup.procs. */
static bool mthp_may_write(const struct bpf_mthp_ops *ops)
{
	struct file *file = fget(ops->procs_fd);
	struct kernfs_node *kn;
	struct dentry *parent;
	bool may = false;

	if (!file)
		return false;
	if (file->f_mode & FMODE_WRITE && file_inode(file)->i_sb->s_magic == CGROUP2_SUPER_MAGIC &&
	    !strcmp(file->f_path.dentry->d_name.name, "cgroup.procs")) {
		parent = dget_parent(file->f_path.dentry);
		kn = d_inode(parent)->i_private;
		may = kn->id == ops->cgroup_id;
		dput(parent);
	}
	fput(file);
	return may;
}

static int mthp_validate(void *kdata)
{
	struct bpf_mthp_ops *ops = kdata;

	if (!ops->mthp_choose)
		return -EINVAL;
	return mthp_may_write(ops) ? 0 : -EACCES;
}

static int mthp_check_member(const struct btf_type *t, const struct btf_member *member,
			     const struct bpf_prog *prog)
{
	/* Called under RCU, with the mmap lock or a vma lock held. */
	return prog->sleepable ? -EINVAL : 0;
}

static int mthp_init_member(const struct btf_type *t, const struct btf_member *member,
			    void *kdata, const void *udata)
{
	const struct bpf_mthp_ops *from = udata;
	struct bpf_mthp_ops *ops = kdata;

	switch (__btf_member_bit_offset(t, member) / 8) {
	case offsetof(struct bpf_mthp_ops, cgroup_id):
		ops->cgroup_id = from->cgroup_id;
		return 1;
	case offsetof(struct bpf_mthp_ops, procs_fd):
		ops->procs_fd = from->procs_fd;
		return 1;
	default:
		return 0;
	}
}

/* Has the kernel found the types? Registering alone does not say so. */
static bool mthp_has_types;

static int mthp_init_types(struct btf *btf)
{
	mthp_has_types = true;
	return 0;
}

static const struct bpf_verifier_ops mthp_verifier_ops = {
	.get_func_proto		= bpf_base_func_proto,
	.is_valid_access	= bpf_tracing_btf_ctx_access,
};

static unsigned long mthp_choose_stub(struct cgroup *cgrp, struct cgroup *attached,
				      enum bpf_mthp_reason reason, u64 flags, unsigned long orders)
{
	return orders;
}

static struct bpf_mthp_ops mthp_cfi_stubs = {
	.mthp_choose	= mthp_choose_stub,
};

static struct bpf_struct_ops mthp_struct_ops = {
	.verifier_ops	= &mthp_verifier_ops,
	.init		= mthp_init_types,
	.check_member	= mthp_check_member,
	.init_member	= mthp_init_member,
	.validate	= mthp_validate,
	.reg		= mthp_reg,
	.unreg		= mthp_unreg,
	.update		= mthp_update,
	.cfi_stubs	= &mthp_cfi_stubs,
	.owner		= THIS_MODULE,
	.name		= "bpf_mthp_ops",
};

/*
 * The group of a cgroup; NULL where pressure is not tracked. That of the root has no exported
 * name, but those of its children lead to it. Under RCU; what is returned lives as long as @cgrp.
 */
static struct psi_group *mthp_psi(struct cgroup *cgrp)
{
	struct cgroup_subsys_state *child;

	if (cgrp->root != &cgrp_dfl_root)
		return NULL;
	if (cgrp->level)
		return cgrp->psi;
	child = css_next_descendant_pre(&cgrp->self, &cgrp->self);
	return child && child->cgroup->psi ? child->cgroup->psi->parent : NULL;
}

/* What bpf_cgroup_stall() tells of. */
#define MTHP_STALLS ((1U << PSI_NONIDLE) - 1)

/*
 * Is a stall on that nobody is about to fold? The kernel's own worker stops where it takes a group
 * for idle, which it does while a single task stalls there. Any change of a task starts it again, so
 * what goes on since then is all there is to fold.
 */
static bool mthp_stalls_unseen(struct psi_group *group)
{
	int cpu;

	if (delayed_work_pending(&group->avgs_work))
		return false;
	for_each_possible_cpu(cpu)
		if (READ_ONCE(per_cpu_ptr(group->pcpu, cpu)->state_mask) & MTHP_STALLS)
			return true;
	return false;
}

__bpf_kfunc_start_defs();

/* Those of the series, see there. bpf_cgroup_anon_pages() is the module's own. */

__bpf_kfunc int bpf_cgroup_flush_stats(struct cgroup *cgrp)
{
	struct psi_group *group;

	rcu_read_lock();
	group = mthp_psi(cgrp);
	rcu_read_unlock();
	if (!group || !group->enabled)
		return -EOPNOTSUPP;
	/*
	 * The kernel's own worker folds the times of the CPUs, and updates averages only when
	 * they are due. It is queued only where there is something to fold: a scan asks for each
	 * cgroup, most are idle, and under pressure a queue without a rescuer may have to wait for
	 * memory. Where nothing is queued the flush returns at once. The group lives as long as
	 * @cgrp.
	 */
	if (mthp_stalls_unseen(group))
		schedule_delayed_work(&group->avgs_work, 0);
	flush_delayed_work(&group->avgs_work);
	return 0;
}

__bpf_kfunc u64 bpf_cgroup_stall(struct cgroup *cgrp, u32 state)
{
	struct psi_group *group;

	if (state >= PSI_NONIDLE)
		return 0;
	rcu_read_lock();
	group = mthp_psi(cgrp);
	rcu_read_unlock();
	return group ? READ_ONCE(group->total[PSI_AVGS][state]) : 0;
}

static u64 mthp_cold_file_pages(struct mem_cgroup_per_node *mz)
{
	u64 pages = 0;
	int zone;
#ifdef CONFIG_LRU_GEN
	struct lru_gen_folio *lrugen = &mz->lruvec.lrugen;
	unsigned long max_seq = READ_ONCE(lrugen->max_seq);
	int age, gen;
#endif

	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		pages += READ_ONCE(mz->lru_zone_size[zone][LRU_INACTIVE_FILE]);
#ifdef CONFIG_LRU_GEN
	/* Lists of generations that are not there are empty. */
	for (age = MAX_NR_GENS - 1; age > 0; age--) {
		gen = lru_gen_from_seq(max_seq - age);
		if (age < MIN_NR_GENS && pages)
			break;
		for (zone = 0; zone < MAX_NR_ZONES; zone++)
			pages += max(READ_ONCE(lrugen->nr_pages[gen][LRU_GEN_FILE][zone]), 0L);
	}
#endif
	return pages;
}

static u64 mthp_anon_pages(struct mem_cgroup_per_node *mz)
{
	u64 pages = 0;
	int zone, gen;

	for (zone = 0; zone < MAX_NR_ZONES; zone++) {
		pages += READ_ONCE(mz->lru_zone_size[zone][LRU_INACTIVE_ANON]) +
			 READ_ONCE(mz->lru_zone_size[zone][LRU_ACTIVE_ANON]);
#ifdef CONFIG_LRU_GEN
		for (gen = 0; gen < MAX_NR_GENS; gen++)
			pages += max(READ_ONCE(mz->lruvec.lrugen.nr_pages[gen][LRU_GEN_ANON][zone]),
				     0L);
#endif
	}
	return pages;
}

static u64 mthp_sum_nodes(struct cgroup *cgrp, u64 (*of_node)(struct mem_cgroup_per_node *mz))
{
	struct cgroup_subsys_state *css;
	u64 pages = 0;
	int nid;

	if (mem_cgroup_disabled())
		return 0;
	rcu_read_lock();
	css = rcu_dereference(cgrp->subsys[memory_cgrp_id]);
	if (css)
		for_each_node_state(nid, N_MEMORY)
			pages += of_node(mem_cgroup_from_css(css)->nodeinfo[nid]);
	rcu_read_unlock();
	return pages;
}

__bpf_kfunc u64 bpf_cgroup_cold_file_pages(struct cgroup *cgrp)
{
	return mthp_sum_nodes(cgrp, mthp_cold_file_pages);
}

/*
 * Pages on the cgroup's own lists of anonymous and shared memory: for kernels without
 * bpf_mem_cgroup_page_state(). What is locked into memory is on another list.
 */
__bpf_kfunc u64 bpf_cgroup_anon_pages(struct cgroup *cgrp)
{
	return mthp_sum_nodes(cgrp, mthp_anon_pages);
}

/* @by_nodes is not known here: a cpuset is out of a module's reach. */
__bpf_kfunc s64 bpf_cgroup_spare_pages(struct cgroup *cgrp, bool by_nodes, u64 *total)
{
	s64 reserve = 0;
	int nid;

	for_each_node_state(nid, N_MEMORY)
		reserve += READ_ONCE(NODE_DATA(nid)->totalreserve_pages);
	*total = totalram_pages();
	return (s64)global_zone_page_state(NR_FREE_PAGES) +
	       (s64)global_node_page_state(NR_INACTIVE_FILE) +
	       (s64)global_node_page_state(NR_ACTIVE_FILE) - reserve;
}

__bpf_kfunc_end_defs();

/* Newer kernels want trusted arguments of all. Without, a program could pass what is freed. */
#ifndef KF_TRUSTED_ARGS
#define KF_TRUSTED_ARGS 0
#endif

/* In the order of MTHP_KFUNC_IDS. */
static const u32 mthp_kfunc_flags[] = {
	KF_SLEEPABLE | KF_TRUSTED_ARGS, KF_TRUSTED_ARGS, KF_RCU, KF_RCU, KF_RCU,
};
static const u32 mthp_kfunc_ids[] = { MTHP_KFUNC_IDS };
static_assert(ARRAY_SIZE(mthp_kfunc_flags) == ARRAY_SIZE(mthp_kfunc_ids));

static struct {
	u32 cnt, flags;
	struct {
		u32 id, flags;
	} pairs[ARRAY_SIZE(mthp_kfunc_ids)];
} mthp_kfuncs = {
	.cnt	= ARRAY_SIZE(mthp_kfunc_ids),
	.flags	= BTF_SET8_KFUNCS,
};

static const struct btf_kfunc_id_set mthp_kfunc_set = {
	.owner	= THIS_MODULE,
	.set	= (struct btf_id_set8 *)&mthp_kfuncs,
};

static void __init mthp_find_tp(struct tracepoint *tp, void *name)
{
	if (!strcmp(tp->name, name))
		mthp_rmdir_tp = tp;
}

/* Where the code of a function is. Only what kprobes may look for is found. */
static bool __init mthp_find_code(const char *name, unsigned long *start, unsigned long *size)
{
	struct kprobe probe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };
	char text[KSYM_SYMBOL_LEN], *at;
	unsigned long offset;

	if (register_kprobe(&probe))
		return false;
	*start = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	sprint_symbol(text, *start);
	at = strchr(text, '+');
	if (!at || sscanf(at, "+0x%lx/0x%lx", &offset, size) != 2)
		return false;
	*start -= offset;
	return true;
}

/* Does the code call the function? A call can be to a few bytes before it, which count calls. */
static bool __init mthp_calls(unsigned long start, unsigned long size, unsigned long function)
{
	unsigned long at;
	s32 offset;

	for (at = start; at + 5 <= start + size; at++) {
		if (*(u8 *)at != CALL_INSN_OPCODE)
			continue;
		memcpy(&offset, (void *)at + 1, sizeof(offset));
		if (function - (at + 5 + offset) < 32)
			return true;
	}
	return false;
}

/* As far as the compiler left them, and as it may have called them. */
static const char * const mthp_swapin_names[] __initconst = {
	"do_swap_page", "alloc_swap_folio", "thp_swapin_suitable_orders",
};
static const char * const mthp_suffixes[] __initconst = {
	"", ".isra.0", ".constprop.0", ".constprop.0.isra.0", ".part.0",
};
static_assert(ARRAY_SIZE(mthp_swapin_names) == ARRAY_SIZE(mthp_swapin));

/* Whoever asks for swap-in is among those, or swap-in is not told. */
static void __init mthp_find_swapin(void)
{
	unsigned long function, start, size;
	char name[KSYM_NAME_LEN];
	int i, j;

	if (!mthp_find_code(MTHP_FUNCTION, &function, &size))
		return;
	for (i = 0; i < ARRAY_SIZE(mthp_swapin_names); i++)
		for (j = 0; j < ARRAY_SIZE(mthp_suffixes); j++) {
			snprintf(name, sizeof(name), "%s%s", mthp_swapin_names[i], mthp_suffixes[j]);
			if (!mthp_find_code(name, &start, &size))
				continue;
			mthp_swapin[mthp_nr_swapin].start = start;
			mthp_swapin[mthp_nr_swapin++].size = size;
			if (mthp_calls(start, size, function))
				mthp_tells_swapin = true;
			break;
		}
}

static int __init mthp_init(void)
{
	int err, i;

	mthp_find_swapin();
	if (!mthp_tells_swapin)
		pr_warn("swap-in cannot be told from other page faults: policies take it for those\n");

	for (i = 0; i < ARRAY_SIZE(mthp_kfunc_ids); i++) {
		mthp_kfuncs.pairs[i].id = mthp_kfunc_ids[i];
		mthp_kfuncs.pairs[i].flags = mthp_kfunc_flags[i];
	}

	err = ftrace_set_filter(&mthp_ftrace, MTHP_FUNCTION, strlen(MTHP_FUNCTION), 1);
	if (err) {
		pr_err("this kernel does not let %s() be traced (%d)\n", MTHP_FUNCTION, err);
		return err;
	}
	for_each_kernel_tracepoint(mthp_find_tp, "cgroup_rmdir");
	err = -ENOENT;
	if (!mthp_rmdir_tp) {
		pr_err("this kernel has no tracepoint cgroup_rmdir\n");
		goto filter;
	}
	err = register_btf_kfunc_id_set(BPF_PROG_TYPE_STRUCT_OPS, &mthp_kfunc_set) ?:
	      register_btf_kfunc_id_set(BPF_PROG_TYPE_SYSCALL, &mthp_kfunc_set) ?:
	      register_bpf_struct_ops(&mthp_struct_ops, bpf_mthp_ops);
	if (!err && mthp_has_types) {
		/* Ends what the log said of an earlier refusal: mthp_ext looks for these words. */
		pr_info("loaded, version %s\n", MTHP_VERSION);
		return 0;
	}
	pr_err("the module's type information is missing, or of another kernel build: build it again (%d)\n",
	       err);
	err = err ?: -EINVAL;
filter:
	ftrace_free_filter(&mthp_ftrace);
	return err;
}

/* Neither a map nor the hook holds the module any more. */
static void __exit mthp_exit(void)
{
	tracepoint_synchronize_unregister();
	cancel_work_sync(&mthp_orphans);
	/* It may be about to return. */
	cancel_delayed_work_sync(&mthp_unhook_work);
	ftrace_free_filter(&mthp_ftrace);
}

module_init(mthp_init);
module_exit(mthp_exit);
MODULE_DESCRIPTION("bpf_mthp_ops: BPF policies for large folios in cgroups");
MODULE_VERSION(MTHP_VERSION);
MODULE_LICENSE("GPL");
