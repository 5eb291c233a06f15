/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The decision: facts and tunables in, a record out.  Pure: mthp_decide() at the end is what
 * a page fault, the report of a change, `mthp_ext status` and the host's unit tests all run.
 */
#ifndef MTHP_DECIDE_H
#define MTHP_DECIDE_H

#include "abi.h"

#ifdef __bpf__
#include "tunables.bpf.h"
/* What every profile has in common: constants, which the verifier folds. */
#define mthp_common(t)	mthp_load()
#else
#define mthp_common(t)	(t)
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#endif

#ifndef unlikely
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/*
 * What is known when memory is asked for.  A PUD is asked for alone, and decided about from facts
 * of its own, see mthp_ahead().
 */
struct mthp_facts {
	__u64 flags;		/* enum bpf_mthp_flags */
	__u64 memory_bytes;	/* anon+shmem of the cgroup, if memory_known */
	__u64 room_bytes;	/* what the level that leaves the least does leave; MTHP_NO_LIMIT */
	__u32 level;		/* that level: depth of the cgroup, 0: the machine */
	__u32 reason;		/* enum bpf_mthp_reason */
	__u32 pressure;		/* verdict of mthp_stall_step() */
	__u32 memory_known;
	__u32 populated;	/* 0: memory_bytes says nothing about the next process */
	__u32 sparse;		/* what mthp_sparse_after() said last */
	__u32 lifted;		/* 1: what mthp_lifts() said last */
};

/*
 * Has the profile one of @rules?  A rule that none has is not in the program.  In a condition
 * what is seldom so comes first, as a flag of the state: then most requests ask for no rule.
 */
static __always_inline int mthp_has(const struct mthp_tunables *t, __u32 rules)
{
	return (t->rules & mthp_common(t)->rules & rules) != 0;
}

/* The same of what the rules bind besides. */
static __always_inline int mthp_binds(const struct mthp_tunables *t, __u32 what)
{
	return (t->bind & mthp_common(t)->bind & what) != 0;
}

/*
 * Do the rules bind this request at all?  Forced collapse is the program's own
 * explicit wish, unless the admin said otherwise.  A reason this version does not
 * know must pass unchanged.
 */
static __always_inline int mthp_governed(__u32 reason, const struct mthp_tunables *t)
{
	return MTHP_KNOWN(reason) && (reason != BPF_MTHP_COLLAPSE || mthp_binds(t, MTHP_BIND_COLLAPSE));
}

/*
 * Does a program that knows what it wants ask, with MADV_HUGEPAGE?  It gets what the
 * cgroup can hold, whatever that wastes, unless the admin said otherwise.  What the
 * cgroup cannot hold is of no use to it, either.
 */
static __always_inline int mthp_wanted(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	return (f->flags & BPF_MTHP_ADVISED) && !mthp_binds(t, MTHP_BIND_ADVISED);
}

/*
 * How large is it?  What was charged since the last sample may be anon or shmem: count it
 * as such, or a program that starts and fills its heap would stay small for up to a
 * window.  What is not charged any more is not its memory, either.
 */
static __always_inline __u64 mthp_memory_now(const struct mthp_cgroup *state, __u64 usage,
					     const struct mthp_tunables *t)
{
	__u64 was = state->usage_pages, bytes = usage << mthp_common(t)->page_shift;

	if (usage < was)
		return state->memory_bytes < bytes ? state->memory_bytes : bytes;
	return state->memory_bytes + ((usage - was) << mthp_common(t)->page_shift);
}

/*
 * Bytes of page cache that reclaim would drop first in a cgroup and below it, and need not
 * write, beyond its @own: requests read those anew, and take this from the last scan.
 * @inactive and @busy are from statistics, which do not show the older of two generations;
 * @own does.  Negative where part of @own must be written.
 */
static __always_inline __s64 mthp_cache_beyond(__u64 inactive, __u64 busy, __u64 own)
{
	__u64 cold = inactive > own ? inactive : own;

	return (__s64)(cold > busy ? cold - busy : 0) - (__s64)own;
}

/* All of it, with what is its @own by now. */
static __always_inline __u64 mthp_cache_now(__u64 own, __s64 beyond)
{
	__s64 cache = (__s64)own + beyond;

	return cache > 0 ? cache : 0;
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

/* Pages of the largest folio of @orders, in which bit n is a folio of 2^n pages; 1 if there is none. */
static __always_inline __u64 mthp_largest(__u64 orders)
{
	__u64 down = mthp_fill_down(orders | 1);

	return down - (down >> 1);
}

/*
 * Minimum without a branch, for values far from the ends of 64 bits.  From a
 * branch the verifier would learn a range for each side, take them for different
 * states, and follow every combination of them through the loop over the ancestors.
 */
static __always_inline __s64 mthp_min(__s64 a, __s64 b)
{
	__s64 less = a - b, negative = less >> 63;

#ifdef __bpf__
	asm volatile("" : "+r"(negative));	/* or clang sees a minimum and branches */
#endif
	return b + (less & negative);
}

/* What the kernel stores for "max": PAGE_COUNTER_MAX. */
static __always_inline __u64 mthp_unlimited(const struct mthp_tunables *t)
{
	return 0x7fffffffffffffffULL >> mthp_common(t)->page_shift;
}

/* Pages in swap where they are not counted: more than fits, and few enough to be added to. */
#define MTHP_NOT_COUNTED	(1ULL << 56)

/*
 * Added to what is in swap, so that it never fits where fitting is no excuse: a kernel that
 * does not ask at reclaim leaves what was given, and without a share each limit counts.
 * Nor does it ask where there is no swap, so empty parts of folios must be seen before: a
 * policy without the rule that sees them gets a sparse program killed that share 50 spares.
 */
static __always_inline __u64 mthp_never_fits(__u32 share, const struct mthp_tunables *t)
{
	int seen = mthp_has(t, MTHP_RULE(SPARSE)) && t->sparse_bytes;

	return mthp_common(t)->takes_back && share && seen ? 0 : MTHP_NOT_COUNTED;
}

/*
 * Room below one limit, in pages; negative over it.  A limit is as good as none while the
 * reserve would fit beside all that there is, what is @swapped included: then nothing has to
 * go for it.  Should there be more one day, reclaim asks, and takes it back.
 * Where not all fits, large folios have @share of the limit, in 1024ths.  Limits are below
 * 2^52 pages: the product has room.
 *
 * Without a branch: from one the verifier would learn a range for each side, take
 * them for different states, and follow every combination through the loop over
 * the ancestors.
 */
static __always_inline __s64 mthp_level_room(__u64 limit, __u64 used, __u64 swapped, __u32 share,
					     const struct mthp_tunables *t)
{
	__s64 over = used + mthp_common(t)->largest_pages - (limit * share >> 10);
	__s64 beyond = used + swapped + MTHP_RESERVE * mthp_common(t)->largest_pages - limit;
	__s64 within = ((over - 1) | (beyond - 1)) >> 63;

#ifdef __bpf__
	asm volatile("" : "+r"(within));
#endif
	return (__s64)(limit - used) | (within & (__s64)mthp_unlimited(t));
}

/*
 * Pages that are taken as used ahead.  A PUD is many folios of the largest size at once, and is given
 * where the last of them would be: so all the others count.
 */
static __always_inline __u64 mthp_ahead(int pud, const struct mthp_tunables *t)
{
	return pud ? mthp_common(t)->pud_pages - mthp_common(t)->largest_pages : 0;
}

/*
 * Bytes below a limit that count as not used: page cache, less what is used ahead.  The charge of a
 * PUD fails where it does not fit, as nothing is reclaimed for it: no page cache makes room.
 */
static __always_inline __s64 mthp_unused(__u64 cache_bytes, int pud, const struct mthp_tunables *t)
{
	return pud ? -(__s64)(mthp_ahead(pud, t) << mthp_common(t)->page_shift) : (__s64)cache_bytes;
}

/*
 * As mthp_never_fits().  That all fits now is no excuse for a PUD: reclaim does not ask about one, so
 * what was given stays while it is used.
 */
static __always_inline __u64 mthp_no_excuse(int pud, const struct mthp_tunables *t)
{
	return pud ? MTHP_NOT_COUNTED : mthp_never_fits(t->limit_share, t);
}

/*
 * Room at a level of the tree, as one number: the least of several is the level that binds,
 * and of equal ones the nearer.  Rooms are within 2^51 pages, over the limit, too, so that the
 * difference of two keys has room.  Below 1024 levels a record would name another cgroup; its
 * decision would still be the right one.
 */
#define MTHP_LEVEL_BITS	10
#define MTHP_LEVEL_MASK	((1U << MTHP_LEVEL_BITS) - 1)

static __always_inline __s64 mthp_level_key(__s64 room, __u32 level)
{
	return room * (1 << MTHP_LEVEL_BITS) + (MTHP_LEVEL_MASK - (level & MTHP_LEVEL_MASK));
}

static __always_inline __s64 mthp_key_room(__s64 key)
{
	return key >> MTHP_LEVEL_BITS;
}

static __always_inline __u32 mthp_key_level(__s64 key)
{
	return MTHP_LEVEL_MASK - (key & MTHP_LEVEL_MASK);
}

/* One level more on the way to the root: the least of @least and of what its limit leaves. */
static __always_inline __s64 mthp_nearer(__s64 least, __u32 level, __u64 limit, __u64 used, __u64 swapped,
					 __u32 share, const struct mthp_tunables *t)
{
	return mthp_min(least, mthp_level_key(mthp_level_room(limit, used, swapped, share, t), level));
}

/* Bytes of a key's room; MTHP_NO_LIMIT where no level binds. */
static __always_inline __u64 mthp_key_bytes(__s64 key, const struct mthp_tunables *t)
{
	__s64 room = mthp_key_room(key);

	if (room >= (__s64)mthp_unlimited(t))
		return MTHP_NO_LIMIT;
	return room > 0 ? (__u64)room << mthp_common(t)->page_shift : 0;
}

/* What the machine has, in pages. */
struct mthp_machine {
	__u64 total;	/* 0: not known, or not looked at */
	__s64 spare;
};

/* Bytes until it is full; MTHP_NO_LIMIT while large folios may have their share. */
static __always_inline __u64 mthp_machine_room(const struct mthp_machine *machine, int pud,
					       const struct mthp_tunables *t)
{
	__u64 total = machine->total, used = total - machine->spare + mthp_ahead(pud, t);
	__s64 room;

	if (!total)
		return MTHP_NO_LIMIT;
	room = mthp_level_room(total, used, MTHP_NOT_COUNTED, t->limit_share, t);
	return mthp_key_bytes(mthp_level_key(room, 0), t);
}

/*
 * The largest folio that fits @factor times into @room, both in pages.  Dividing rather than
 * multiplying cannot overflow, and order n fits k pages iff bit n is not above k's highest
 * bit: no loop over orders, no PMD order in the code.
 */
static __always_inline __u64 mthp_fitting_pages(__u64 room, __u64 factor)
{
	return room / (factor ? factor : 1);
}

/*
 * Reclaim takes much below its limits, and nobody wants it back: a job that writes what it hardly
 * reads again, or a limit that follows what is used.  Then neither stall nor a limit that is reached
 * says that a large folio costs more than as many small ones.  Not where the machine, which has
 * @machine_bytes left, is short: there others would pay.  @unmissed: as of the last scan.
 */
static __always_inline __u32 mthp_lifts(__u32 unmissed, __u64 machine_bytes, const struct mthp_tunables *t)
{
	__u64 room = machine_bytes >> mthp_common(t)->page_shift;

	return unmissed && mthp_fitting_pages(room, t->room_factor) >= mthp_common(t)->largest_pages;
}

/*
 * Are pressure and room lifted of this request by that, if it is not wanted?  Of a fault alone, and not
 * for a PUD, whose facts have it as 0: reclaim takes too little for one.  What comes back from swap does
 * so by pages, as somebody misses it; and of a folio that reclaim finds in use the other parts are split
 * off.  Of what is wanted nobody sees if it is filled, see mthp_sparse().  1 or 0.
 */
static __always_inline __u64 mthp_lifted(const struct mthp_facts *f)
{
	return f->reason == BPF_MTHP_FAULT ? f->lifted : 0;
}

/* Under pressure every large folio is one that gets swapped whole. */
static __always_inline int mthp_pressed(const struct mthp_facts *f,
					const struct mthp_tunables *t)
{
	__u64 lifted;

	if (!f->pressure || !mthp_has(t, MTHP_RULE(PRESSURE)))
		return 0;
	lifted = mthp_lifted(f) & ~(__u64)mthp_wanted(f, t);
#ifdef __bpf__
	asm volatile("" : "+r"(lifted));	/* one branch, and not one for each of its parts */
#endif
	return !lifted;
}

/* Bits of the orders up to @order, which is below 63. */
static __always_inline __u64 mthp_up_to(__u32 order)
{
	return (2ULL << order) - 1;
}

/*
 * The reasons whose new folio may be mostly empty.  Swapping in brings back what was
 * in use.  khugepaged takes a region with one page in it as enough, unless its
 * max_ptes_none is set lower.  Forced collapse always does.
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
	return f->memory_bytes < t->min_memory && f->memory_known && f->populated &&
	       mthp_has(t, MTHP_RULE(SMALL)) && mthp_may_fill_with_zeroes(f->reason, t) &&
	       !mthp_wanted(f, t);
}

/*
 * Would large folios waste too much of a process' memory?  @spanned pages are what
 * it would have if all of its page tables were full, @present what it has.  Half of
 * that may be missing, and so may a fixed amount, as each program has a few regions
 * that it hardly touches.  Below 2^52 pages the product has room.
 */
static __always_inline int mthp_wasteful(__u64 spanned, __u64 present,
					 const struct mthp_tunables *t)
{
	if (spanned <= present)
		return 0;
	return present * 2 < spanned &&
	       spanned - present >= t->sparse_bytes >> mthp_common(t)->page_shift;
}

/* A process, in pages. */
struct mthp_process {
	__u32 pid;		/* of all its threads ... */
	__u64 mm;		/* ... and of its memory, which is another after exec(); 0: it has none */
	__u64 places;		/* in its page tables */
	__u64 private;		/* what it could write without sharing it */
	__u64 mapped;		/* of files and shared memory */
	__u64 threads;		/* beside the first: a number */
	__u64 present;		/* anonymous, in memory ... */
	__u64 swapped;		/* ... and in swap: those keep their place */
};

/* How a process grew since it was found to fill what it grew by, or was met; in pages. */
struct mthp_growth {
	__u64 mm;
	__u64 places;		/* when it was sampled last */
	__u64 others;		/* ... of which not of the heap: the most since tables went */
	__u64 more;		/* by how many places the heap grew ... */
	__u64 present;		/* ... and the fewest pages since that began */
	__u32 sparse;		/* 1: of what it grew by little is filled */
	__u32 known;		/* 0: it has not grown enough to show anything */
};

/*
 * Places of a table.  A process is judged by what it grows by, and each time by eight tables: as
 * many folios of the size that a table is for.
 */
static __always_inline __u64 mthp_table(const struct mthp_tunables *t)
{
	return (1ULL << mthp_common(t)->page_shift) / sizeof(__u64);
}

#define MTHP_GROWTH_TABLES	8

/*
 * Sparse: less than one of so many places is filled.  Tables come ahead of what fills them, and all
 * of them early where a region is filled in no order: a Redis that fills all had filled 60 % of eight.
 */
#define MTHP_GROWTH_FILLED	4

/*
 * For how many samples one is taken to be sparse that has shown nothing yet, as others of its cgroup
 * were.  With folios from 64 KiB on, eight tables of base pages are a quarter of that.
 */
#define MTHP_SPARSE_HOLD	64u

/*
 * Places that are not of the heap: those of a file's page, @each, and a table for each thread, whose
 * stack fills little of it.  Too many make a process look denser than it is, which leaves it as it
 * would be without this rule.
 */
static __always_inline __u64 mthp_others(const struct mthp_process *p, __u64 each, const struct mthp_tunables *t)
{
	return p->mapped * each + p->threads * mthp_table(t);
}

/* What it spans as a whole, less @others: what it could write bounds the heap. */
static __always_inline __u64 mthp_spanned(const struct mthp_process *p, __u64 others)
{
	return mthp_min(p->places > others ? p->places - others : 0, p->private);
}

/* A process that was not seen before. */
static __always_inline void mthp_meet(struct mthp_growth *g, const struct mthp_process *p,
				      const struct mthp_tunables *t)
{
	g->mm = p->mm;
	g->places = p->places;
	g->others = mthp_others(p, mthp_table(t), t);
	g->more = 0;
	g->present = p->present + p->swapped;
	g->sparse = 0;
	g->known = 0;
}

/*
 * By how many places the heap grew since the last sample.  A page of a file may have a table of its
 * own, which stays when files are reclaimed and threads end.  Tables that go are of the heap only
 * where more go than others may have had.
 */
static __always_inline void mthp_grow_places(struct mthp_growth *g, const struct mthp_process *p,
					     const struct mthp_tunables *t)
{
	__u64 others = mthp_others(p, mthp_table(t), t), more, less;

	if (p->places >= g->places) {
		more = p->places - g->places;
		if (others > g->others) {
			more -= mthp_min(more, others - g->others);
			g->others = others;
		}
		g->more += more;
	} else {
		less = g->places - p->places;
		less -= mthp_min(less, g->others - mthp_min(others, g->others));
		g->more -= mthp_min(g->more, less);
		g->others = others;
	}
	g->places = p->places;
}

/*
 * A process that was seen before: how full is what it grew by?  That is asked until it is full enough;
 * from then on what comes next counts.  A process that gives pages back is measured from what is left,
 * as their places may be filled again.  What it lacks of its growth it has to lack of what it could
 * write, too, or nothing is known: nobody counts tables of hugetlbfs and of devices.  One that is half
 * full as a whole is taken to be dense.
 */
static __always_inline void mthp_grow(struct mthp_growth *g, const struct mthp_process *p,
				      const struct mthp_tunables *t)
{
	__u64 enough = mthp_table(t) * MTHP_GROWTH_TABLES, present = p->present + p->swapped;
	__u64 spanned = mthp_spanned(p, mthp_others(p, 1, t)), private = mthp_spanned(p, 0);
	__u64 lacking = private > present ? private - present : 0;
	int full = spanned >= enough && present * 2 >= spanned, filled;

	mthp_grow_places(g, p, t);
	if (present < g->present) {
		g->present = present;
		if (!g->sparse)
			g->more = 0;
	}
	filled = g->more >= enough && (present - g->present) * MTHP_GROWTH_FILLED >= g->more;
	/* What showed it may have gone, or something else has come. */
	if (g->sparse || g->more >= enough)
		g->known = 0;
	g->sparse = g->more >= enough && !full && !filled &&
		    lacking * MTHP_GROWTH_FILLED >= g->more * (MTHP_GROWTH_FILLED - 1);
	if (g->sparse || filled || full)
		g->known = 1;
	if (filled || full)
		g->more = 0;
	if (!g->more)
		g->present = present;
}

/* Places of pages of files, if it has mostly those; of its libraries the allowance takes care. */
static __always_inline __u64 mthp_files(const struct mthp_process *p)
{
	return p->mapped * 2 > p->places ? p->mapped : 0;
}

/*
 * For how many more samples its cgroup is sparse, @before as of the last one.  A process that has
 * shown nothing does not end what the growth of another has shown; it wears off.
 */
static __always_inline __u32 mthp_sparse_after(__u32 before, const struct mthp_growth *g,
					       const struct mthp_process *p, const struct mthp_tunables *t)
{
	__u64 spanned = mthp_spanned(p, mthp_files(p));
	__u32 wasteful = mthp_wasteful(spanned, p->present + p->swapped, t);
	__u32 left = before ? before - 1 : 0;

	if (g->known)
		return g->sparse ? MTHP_SPARSE_HOLD : wasteful;
	return left ? left : wasteful;
}

/*
 * The gaps that make it so, @before and @now as of mthp_sparse_after().  A process that has shown
 * nothing has none where those of another still count.
 */
static __always_inline void mthp_show_gaps(struct mthp_gaps *gaps, __u32 before, __u32 now,
					   const struct mthp_growth *g, const struct mthp_process *p)
{
	__u64 present = p->present + p->swapped;

	if (!now || (!g->known && before > 1))
		return;
	gaps->grew = g->known && g->sparse;
	gaps->of = gaps->grew ? g->more : mthp_spanned(p, mthp_files(p));
	gaps->filled = gaps->grew ? present - g->present : present;
}

/* A process that touches a page here and a page there: so would be each large folio. */
static __always_inline int mthp_sparse(const struct mthp_facts *f,
				       const struct mthp_tunables *t)
{
	return f->sparse && mthp_has(t, MTHP_RULE(SPARSE)) && t->sparse_bytes &&
	       mthp_may_fill_with_zeroes(f->reason, t) && !mthp_wanted(f, t);
}

/* Governed, so the reason is a known one: clang knows that, and the verifier has to see it. */
static __always_inline __u32 mthp_cap(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	__u32 reason = f->reason;

#ifdef __bpf__
	if (!__builtin_constant_p(reason))
		asm volatile("" : "+r"(reason));
#endif
	return reason < MTHP_NR_REASONS ? t->cap[reason] : MTHP_NO_CAP;
}

/*
 * K at reclaim: 2 MiB in use stay while 32 MiB are left.  Reclaim at a limit leaves a
 * few batches of pages, far less; on a host that has page cache to drop there is more.
 */
#define MTHP_KEEP_FACTOR	16u

/*
 * How often a folio has to fit into what is left.  One that is in use takes no more room by
 * staying: it is split where memory is short, and not already where no more of its size would
 * be given.
 */
static __always_inline __u64 mthp_factor(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	__u64 usual = t->room_factor;

	return f->reason == BPF_MTHP_RECLAIM && usual > MTHP_KEEP_FACTOR ? MTHP_KEEP_FACTOR : usual;
}

/*
 * Orders that fit into what is left.  What is wanted has to fit once, beside the reserve: an
 * allocator that advises a region for each thread would fill a small container with what
 * nobody touched.  What is there already leaves it alone by staying.  Without a branch, for
 * the reason of mthp_min().
 */
static __always_inline __u64 mthp_room_orders(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	__s64 room = f->room_bytes >> mthp_common(t)->page_shift;
	__s64 pages = mthp_fitting_pages(room, mthp_factor(f, t)), reserve;
	__u64 fits, lifted = mthp_lifted(f);

	if (mthp_wanted(f, t)) {
		reserve = MTHP_RESERVE * mthp_common(t)->largest_pages * (f->reason != BPF_MTHP_RECLAIM);
		pages = -mthp_min(-pages, reserve - room);
		lifted = 0;
	}
	fits = mthp_fill_down(pages);
	/* Room for the largest that exists is room for all: those above are words. */
	return fits | -(fits & mthp_common(t)->largest_pages) | -lifted;
}

/* The rule that leaves no order at all, if one does. */
static __always_inline enum mthp_rule mthp_refusal(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	if (mthp_pressed(f, t))
		return MTHP_PRESSURE;
	if (mthp_small(f, t))
		return MTHP_SMALL;
	if (mthp_sparse(f, t))
		return MTHP_SPARSE;
	return MTHP_NONE;
}

/* A rule leaves @left: it is the one that binds if that is less than what was left before. */
static __always_inline void mthp_leave(struct mthp_decision *d, __u64 left, enum mthp_rule rule)
{
	if (d->orders & ~left)
		d->rule = rule;
	d->orders &= left;
}

/*
 * What is decided about a PUD, from its facts, joins @d, which is what is decided for a fault that asks
 * for less: those without room for one keep all other orders.
 */
static __always_inline void mthp_join_pud(struct mthp_decision *d, const struct mthp_decision *pud,
					  const struct mthp_tunables *t)
{
	mthp_leave(d, pud->orders | (mthp_common(t)->pud_pages - 1), pud->rule);
}

/* Brings room_bytes and level of the facts up to date; @of: whose. */
typedef void (*mthp_read_room)(struct mthp_facts *f, const void *of);

/* For facts that have them already. */
static __always_inline void mthp_room_is_known(struct mthp_facts *f, const void *of)
{
	(void)f;
	(void)of;
}

/*
 * The decision about every order there is: it changes when the facts do, and not with the
 * size of each mapping.  An offer's answer is what it has of these orders.
 *
 * Room is the fact that costs the most to know.  @room reads it where it can change
 * anything: the cgroups that a rule refuses every order ask the most often.
 */
static __always_inline struct mthp_decision mthp_decide(struct mthp_facts *f, const struct mthp_tunables *t,
							mthp_read_room room, const void *of)
{
	struct mthp_decision d = { .orders = MTHP_ALL_ORDERS, .rule = MTHP_NONE };
	__u32 cap;

	if (!mthp_governed(f->reason, t))
		return d;
	d.rule = mthp_refusal(f, t);
	if (d.rule != MTHP_NONE) {
		d.orders = 0;
		return d;
	}
	if (mthp_has(t, MTHP_RULE(ROOM))) {
		room(f, of);
		if (f->room_bytes != MTHP_NO_LIMIT)
			mthp_leave(&d, mthp_room_orders(f, t), MTHP_ROOM);
		d.room_factor = mthp_factor(f, t);
	}
	cap = mthp_cap(f, t);
	if (cap < MTHP_NO_CAP && mthp_has(t, MTHP_RULE(CAP)) && !mthp_wanted(f, t))
		mthp_leave(&d, mthp_up_to(cap), MTHP_CAP);
	return d;
}

#endif /* MTHP_DECIDE_H */
