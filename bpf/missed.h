/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From samples of what reclaim swapped out of a cgroup, and of what came back, to "is it missed?".
 * Pure; compiled into the scan program and into the host unit tests.
 */
#ifndef MTHP_MISSED_H
#define MTHP_MISSED_H

#include "decide.h"

/* So many windows in a row must show it: in one, what went may just not have been asked for yet. */
#define MTHP_UNMISSED_WINDOWS	2u

/* Of so many pages that go one comes back, and they are missed.  Of a working set that moves it is half. */
#define MTHP_MISSED_SHARE	16u

/* Of a number of pages that is much, this part is missed if it comes back in a window: 2 MiB of 8 ... */
#define MTHP_MISSED_PART	4u

/* ... and of others, who have no part in what goes, this one: half a MiB. */
#define MTHP_MISSED_OTHERS	16u

/*
 * A window that began so long ago says nothing about now: nobody looked, as the
 * cgroup slept.
 */
#define MTHP_MISSED_AGE	4u

static __always_inline int mthp_is_old(__u64 elapsed, const struct mthp_tunables *t)
{
	return elapsed / MTHP_MISSED_AGE >= t->window_ns;
}

/* What a scan reads of a cgroup, and of the one whose limit is reached. */
struct mthp_taken_now {
	__u64 now;
	__u64 went;	/* pages swapped out in all ... */
	__u64 came;	/* ... and those that came back, page cache that was wanted again included */
	__u64 above;	/* id of the cgroup whose limit it is: its own, or one above */
	__u64 above_came;	/* the same of that one as a whole, read at the same time */
};

/* Pages swapped out in a window that are much: as many of the largest folios as the reserve has. */
static __always_inline __u64 mthp_much(const struct mthp_tunables *t)
{
	return MTHP_RESERVE * mthp_common(t)->largest_pages;
}

/*
 * Is it missed, of which @in pages came back, and @others of what is not in this cgroup?  As a number:
 * a process that waits for each of its pages brings back no more than the device reads, while another
 * one writes as fast as it likes.  Of others less counts, as they have no part in what goes.
 */
static __always_inline int mthp_missed(__u64 in, __u64 others, const struct mthp_tunables *t)
{
	return in >= mthp_much(t) / MTHP_MISSED_PART || others >= mthp_much(t) / MTHP_MISSED_OTHERS;
}

/*
 * Take one sample.  The first one sets the anchor, as does one that comes too late, or is about another
 * limit.  Whatever is missed ends it at once; that nothing is takes whole windows.
 */
static __always_inline void mthp_taken_step(struct mthp_taken *s, const struct mthp_taken_now *n,
					    const struct mthp_tunables *t)
{
	__u64 elapsed = n->now - s->anchor_ns, out = n->went - s->went, in = n->came - s->came;
	__u64 all = n->above_came - s->above_came, others = all > in ? all - in : 0;
	int anew = !s->anchor_ns || n->above != s->above || n->now < s->anchor_ns ||
		   n->went < s->went || n->came < s->came || n->above_came < s->above_came ||
		   mthp_is_old(elapsed, t);
	int missed = mthp_missed(in, others, t);

	if (anew || missed)
		s->unmissed = 0;
	if (!anew && elapsed < t->window_ns)
		return;
	if (!anew && !missed) {
		if (out < mthp_much(t) || in >= out / MTHP_MISSED_SHARE)
			s->unmissed = 0;
		else if (s->unmissed < MTHP_UNMISSED_WINDOWS)
			s->unmissed++;
	}
	s->anchor_ns = n->now;
	s->went = n->went;
	s->came = n->came;
	s->above = n->above;
	s->above_came = n->above_came;
}

#endif /* MTHP_MISSED_H */
