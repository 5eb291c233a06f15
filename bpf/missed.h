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

/* Of so many pages that go one comes back, and they are missed.  From 32 MiB on the number below is less. */
#define MTHP_MISSED_SHARE	16u

/* Of a number of pages that is much, this part is missed if it comes back in a second: 2 MiB of 8 ... */
#define MTHP_MISSED_PART	4u

/* ... and of others, who have no part in what goes, this one: half a MiB. */
#define MTHP_MISSED_OTHERS	16u

/* A window, where that is shorter, has a part of these. */
#define MTHP_MISSED_NS	1000000000ULL

/*
 * A sample that comes by this part of a window too soon ends it: the timer does not wait, so half of
 * them come sooner after a late one.  Under stall there are ten in a window.
 */
#define MTHP_MISSED_SOON	16u

/*
 * A window that began so long ago says nothing about now: nobody looked, as the
 * cgroup slept.
 */
#define MTHP_MISSED_AGE	4u

/* Signed: another CPU may have begun a window since the clock was read. */
static __always_inline int mthp_is_old(__s64 elapsed, const struct mthp_tunables *t)
{
	return elapsed > 0 && (__u64)elapsed / MTHP_MISSED_AGE >= t->window_ns;
}

/* No limit is reached: a level beyond all. */
#define MTHP_NONE_REACHED	(~0u)

/* What others got back at a level that is new: the next sample is the first to read it. */
#define MTHP_UNREAD	(~0ULL)

/* What a scan reads of a cgroup, and of the one that has the limit it looks at. */
struct mthp_taken_now {
	__u64 now;
	__u64 went;	/* pages swapped out in all ... */
	__u64 came;	/* ... and those that came back, page cache that was wanted again included */
	__u64 others;	/* the same of who else is below that limit */
	__u32 level;	/* mthp_looks_at() */
	__u32 reached;	/* the highest level whose limit is reached; MTHP_NONE_REACHED */
};

/*
 * Of which level the limit is looked at where that of @reached is: the higher one for as long as it is
 * reached now and then.  Of a job whose memory comes and goes, the limit that is reached does, too.
 * MTHP_NONE_REACHED: none is, or was.
 */
static __always_inline __u32 mthp_looks_at(const struct mthp_taken *s, __u32 reached)
{
	return s->level && s->level < reached ? s->level : reached;
}

/* Pages swapped out in a window that are much: as many of the largest folios as the reserve has. */
static __always_inline __u64 mthp_much(const struct mthp_tunables *t)
{
	return MTHP_RESERVE * mthp_common(t)->largest_pages;
}

/*
 * Must what goes below @limit pages be taken for missed?  A limit of a few of the largest folios is
 * emptied for one, and swap space that ends, @swapped of @swap_max pages, is missed by those who have none.
 */
static __always_inline int mthp_scarce(__s64 limit, __u64 swapped, __u64 swap_max, const struct mthp_tunables *t)
{
	return (swap_max < mthp_unlimited(t) && swapped > swap_max - swap_max / 4) ||
	       limit < 2 * (__s64)mthp_much(t);
}

/* What comes back in a window is missed from this @part of much on. */
static __always_inline __u64 mthp_heard(__u32 part, const struct mthp_tunables *t)
{
	return mthp_much(t) / part * mthp_min(t->window_ns, MTHP_MISSED_NS) / MTHP_MISSED_NS;
}

/*
 * Is it missed, of which @in pages came back, and @others of what is not in this cgroup?  As a number:
 * a process that waits for each of its pages brings back no more than the device reads, while another
 * one writes as fast as it likes.  Of others less counts, as they have no part in what goes.
 */
static __always_inline int mthp_missed(__u64 in, __u64 others, const struct mthp_tunables *t)
{
	return in >= mthp_heard(MTHP_MISSED_PART, t) || others >= mthp_heard(MTHP_MISSED_OTHERS, t);
}

/*
 * Take one sample.  The first one sets the anchor, as does one that comes too late, or is about a higher
 * limit: who else is below that one was not looked at.  A lower one has fewer below it, so what was seen
 * holds.  Whatever is missed ends it at once; that nothing is takes whole windows, in each of which a
 * limit was reached: else it is not those below it who pay.
 */
static __always_inline void mthp_taken_step(struct mthp_taken *s, const struct mthp_taken_now *n,
					    const struct mthp_tunables *t)
{
	__u64 elapsed = n->now - s->anchor_ns, out = n->went - s->went, in = n->came - s->came, others;
	__u32 reached = mthp_min(s->reached, n->reached);
	int unread = s->others == MTHP_UNREAD, missed;
	int anew = !s->anchor_ns || n->level < s->level || n->now < s->anchor_ns || n->went < s->went ||
		   n->came < s->came || mthp_is_old(elapsed, t);

	if (unread)
		s->others = n->others;
	/* What is read one after the other may go back a little. */
	others = n->others > s->others ? n->others - s->others : 0;
	missed = mthp_missed(in, others, t);
	if (anew || missed)
		s->unmissed = 0;
	if (!anew && elapsed < t->window_ns - t->window_ns / MTHP_MISSED_SOON) {
		s->reached = reached;
		return;
	}
	if (!anew && !missed) {
		if (out < mthp_much(t) || in >= out / MTHP_MISSED_SHARE || reached == MTHP_NONE_REACHED)
			s->unmissed = 0;
		/* Of others nothing is known yet if this is the first that reads it. */
		else if (s->unmissed < MTHP_UNMISSED_WINDOWS && !unread)
			s->unmissed++;
	}
	s->anchor_ns = n->now;
	s->went = n->went;
	s->came = n->came;
	s->others = n->others;
	s->level = n->level;
	/* The limit looked at was not reached in this window: from now on the highest of those that were. */
	if (!anew && reached > n->level && reached != MTHP_NONE_REACHED) {
		s->level = reached;
		s->others = MTHP_UNREAD;
	}
	s->reached = n->reached;
}

#endif /* MTHP_MISSED_H */
