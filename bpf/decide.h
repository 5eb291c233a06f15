/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The decision: facts and tunables in, allowed orders out.  Pure, so that the
 * BPF programs, `mthp_ext status` and the host unit tests run the same lines.
 */
#ifndef MTHP_DECIDE_H
#define MTHP_DECIDE_H

#include "abi.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#endif

#ifndef unlikely
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* What is known when memory is asked for. */
struct mthp_facts {
	__u64 orders;		/* the offer; only these can be allowed */
	__u64 flags;		/* enum bpf_mthp_flags */
	__u64 memory_bytes;	/* anon+shmem of the cgroup, if memory_known */
	__u64 headroom_bytes;	/* until the nearest limit; MTHP_NO_LIMIT */
	__u64 host_bytes;	/* what the host could give out; MTHP_NO_LIMIT */
	__u32 reason;		/* enum bpf_mthp_reason */
	__u32 pressure;		/* verdict of mthp_stall_step() */
	__u32 memory_known;
	__u32 populated;	/* 0: memory_bytes says nothing about the next process */
	__u32 sparse;		/* what mthp_wasteful() said last */
	__u32 pad;
};

/*
 * Do the rules bind this request at all?  Forced collapse is the program's own
 * explicit wish, unless the admin said otherwise.  A reason this version does not
 * know must pass unchanged.
 */
static __always_inline int mthp_governed(__u32 reason, const struct mthp_tunables *t)
{
	return MTHP_KNOWN(reason) && (reason != BPF_MTHP_COLLAPSE || t->narrow_collapse);
}

/*
 * Does a program that knows what it wants ask, with MADV_HUGEPAGE?  It gets what the
 * cgroup can hold, whatever that wastes, unless the admin said otherwise.  What the
 * cgroup cannot hold is of no use to it, either.
 */
static __always_inline int mthp_wanted(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	return (f->flags & BPF_MTHP_ADVISED) && !t->narrow_advised;
}

/* All bits up to the highest one set in @x. */
static __always_inline __u64 mthp_fill_down(__u64 x)
{
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	x |= x >> 32;
	return x;
}

/* What the kernel stores for "max": PAGE_COUNTER_MAX. */
static __always_inline __u64 mthp_unlimited(const struct mthp_tunables *t)
{
	return 0x7fffffffffffffffULL >> t->page_shift;
}

/*
 * Room below one limit, in pages; negative over it.  While another large folio would
 * fit into the @share, in 1024ths, of the limit that is theirs, the limit is as good
 * as none.  Limits are below 2^52 pages: the product has room.
 *
 * Without a branch: from one the verifier would learn a range for each side, take
 * them for different states, and follow every combination through the loop over
 * the ancestors.
 */
static __always_inline __s64 mthp_level_room(__u64 limit, __u64 used, __u32 share,
					     const struct mthp_tunables *t)
{
	__s64 over = used + t->largest_pages - (limit * share >> 10);
	__s64 within = (over - 1) >> 63;

#ifdef __bpf__
	asm volatile("" : "+r"(within));
#endif
	return (__s64)(limit - used) | (within & (__s64)mthp_unlimited(t));
}

/*
 * Orders whose folio fits @factor times into @headroom bytes.  Dividing rather
 * than multiplying cannot overflow, and order n fits k pages iff bit n is not
 * above k's highest bit: no loop over orders, no PMD order in the code.
 */
static __always_inline __u64 mthp_headroom_orders(__u64 headroom, __u64 factor,
						  __u32 page_shift)
{
	__u64 pages;

	if (headroom == MTHP_NO_LIMIT)
		return ~0ULL;
	pages = (headroom >> page_shift) / (factor ? factor : 1);
	return mthp_fill_down(pages);
}

/*
 * Under pressure every large folio is one that gets swapped whole: either none is
 * left (mthp_pressed), or small ones (mthp_eased).
 */
static __always_inline int mthp_pressed(const struct mthp_facts *f,
					const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(PRESSURE)) && !t->pressure_order && f->pressure;
}

static __always_inline int mthp_eased(const struct mthp_facts *f,
				      const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(PRESSURE)) && t->pressure_order && f->pressure;
}

/* Bits of the orders up to @order, which is below 63. */
static __always_inline __u64 mthp_up_to(__u32 order)
{
	return (2ULL << order) - 1;
}

/*
 * The reasons whose new folio may be mostly empty.  Swapping in brings back what was
 * in use.  khugepaged depends on its setting: by default it takes a region with one
 * page in it as enough.  Forced collapse always does.
 */
static __always_inline int mthp_may_fill_with_zeroes(__u32 reason, const struct mthp_tunables *t)
{
	return reason == BPF_MTHP_FAULT || reason == BPF_MTHP_COLLAPSE ||
	       (reason == BPF_MTHP_KHUGEPAGED && t->bind_khugepaged);
}

/*
 * A small cgroup wastes most of a large folio at first touch.  An empty cgroup is
 * not small: nobody is there to judge.
 */
static __always_inline int mthp_small(const struct mthp_facts *f,
				      const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(SMALL)) && mthp_may_fill_with_zeroes(f->reason, t) &&
	       f->memory_bytes < t->min_memory && f->memory_known && f->populated &&
	       !mthp_wanted(f, t);
}

/*
 * Would large folios waste too much of a process' memory?  @spanned pages are what
 * it would have if all of its page tables were full, @present what it has.  A share of
 * that may be missing, and so may a fixed amount, as each program has a few regions
 * that it hardly touches.  Below 2^52 pages the products have room.
 */
static __always_inline int mthp_wasteful(__u64 spanned, __u64 present,
					 const struct mthp_tunables *t)
{
	if (spanned <= present)
		return 0;
	return present << 10 < spanned * t->sparse_share &&
	       spanned - present >= t->sparse_bytes >> t->page_shift;
}

/* A process that touches a page here and a page there: so would be each large folio. */
static __always_inline int mthp_sparse(const struct mthp_facts *f,
				       const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(SPARSE)) && t->sparse_bytes && f->sparse &&
	       mthp_may_fill_with_zeroes(f->reason, t) && !mthp_wanted(f, t);
}

/* Governed, so the reason is a known one; the verifier shall see it, too. */
static __always_inline __u32 mthp_max_order(const struct mthp_facts *f,
					    const struct mthp_tunables *t)
{
	return t->max_order[f->reason % MTHP_NR_REASONS];
}

/*
 * K at reclaim: 2 MiB in use stay while 32 MiB are left.  Reclaim at a limit leaves a
 * few batches of pages, far less; on a host that has page cache to drop there is more.
 */
#define MTHP_KEEP_FACTOR	16u

/*
 * How often a folio has to fit into what is left.  What is wanted, once.  One that is
 * in use takes no more room by staying: it is split where memory is short, and not
 * already where no more of its size would be given.
 */
static __always_inline __u64 mthp_factor(const struct mthp_facts *f, const struct mthp_tunables *t,
					 __u64 usual)
{
	if (mthp_wanted(f, t))
		return 1;
	return f->reason == BPF_MTHP_RECLAIM && usual > MTHP_KEEP_FACTOR ? MTHP_KEEP_FACTOR : usual;
}

/* Orders that fit into what is left until a limit, or of the host. */
static __always_inline __u64 mthp_room_orders(__u64 room, __u64 factor,
					      const struct mthp_tunables *t)
{
	__u64 fits = mthp_headroom_orders(room, factor, t->page_shift);

	/* Room for the largest that exists is room for all: those above are words. */
	return fits | -(fits & t->largest_pages);
}

/*
 * The orders that the other rules leave of facts->orders, for a request that the
 * rules bind.  @why gets a bit for each rule that took something.
 */
static __always_inline __u64 mthp_fitting(const struct mthp_facts *f,
					  const struct mthp_tunables *t, __u32 *why)
{
	__u64 allowed = f->orders, fits;
	__u32 on = t->rules;

	if (mthp_eased(f, t)) {
		fits = mthp_up_to(t->pressure_order);
		if (f->orders & ~fits)
			*why |= MTHP_RULE(PRESSURE);
		allowed &= fits;
	}
	if (on & MTHP_RULE(HEADROOM)) {
		fits = mthp_room_orders(f->headroom_bytes, mthp_factor(f, t, t->headroom_factor), t);
		if (f->orders & ~fits)
			*why |= MTHP_RULE(HEADROOM);
		allowed &= fits;
	}
	if ((on & MTHP_RULE(HOST)) && unlikely(f->host_bytes != MTHP_NO_LIMIT)) {
		fits = mthp_room_orders(f->host_bytes, mthp_factor(f, t, t->host_factor), t);
		if (f->orders & ~fits)
			*why |= MTHP_RULE(HOST);
		allowed &= fits;
	}
	if ((on & MTHP_RULE(MAX_ORDER)) && mthp_max_order(f, t) < MTHP_NO_MAX_ORDER && !mthp_wanted(f, t)) {
		fits = mthp_up_to(mthp_max_order(f, t));
		if (f->orders & ~fits)
			*why |= MTHP_RULE(MAX_ORDER);
		allowed &= fits;
	}
	return allowed;
}

/*
 * Returns the allowed orders, always a subset of facts->orders.  @rules gets a
 * bit for each rule that alone would have taken something from the offer.
 */
static __always_inline __u64 mthp_decide(const struct mthp_facts *f,
					 const struct mthp_tunables *t, __u32 *rules)
{
	__u64 fitting;

	*rules = 0;
	if (!mthp_governed(f->reason, t) || !f->orders)
		return f->orders;
	if (mthp_pressed(f, t))
		*rules |= MTHP_RULE(PRESSURE);
	if (mthp_small(f, t))
		*rules |= MTHP_RULE(SMALL);
	if (mthp_sparse(f, t))
		*rules |= MTHP_RULE(SPARSE);
	fitting = *rules ? 0 : f->orders;
	return fitting & mthp_fitting(f, t, rules);
}

#endif /* MTHP_DECIDE_H */
