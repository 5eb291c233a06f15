/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From samples of a cgroup's total stall time to "high pressure: yes or no".
 * Pure; compiled into the scan program and into the host unit tests.
 */
#ifndef MTHP_STALL_H
#define MTHP_STALL_H

#include "decide.h"

/* a * b >= c * d in 128 bits: nanoseconds times nanoseconds overflow 64. */
static __always_inline int mthp_product_ge(__u64 a, __u64 b, __u64 c, __u64 d)
{
	__u64 a0 = (__u32)a, a1 = a >> 32, b0 = (__u32)b, b1 = b >> 32;
	__u64 c0 = (__u32)c, c1 = c >> 32, d0 = (__u32)d, d1 = d >> 32;
	__u64 mid, lo_ab, hi_ab, lo_cd, hi_cd;

	mid = a1 * b0 + ((a0 * b0) >> 32);
	hi_ab = a1 * b1 + (mid >> 32);
	mid = (__u32)mid + a0 * b1;
	hi_ab += mid >> 32;
	lo_ab = a * b;

	mid = c1 * d0 + ((c0 * d0) >> 32);
	hi_cd = c1 * d1 + (mid >> 32);
	mid = (__u32)mid + c0 * d1;
	hi_cd += mid >> 32;
	lo_cd = c * d;

	return hi_ab > hi_cd || (hi_ab == hi_cd && lo_ab >= lo_cd);
}

/*
 * Take one sample: at @now the cgroup has been stalled for @total ns in all.
 *
 * High means threshold per window, normalised by the time that really passed,
 * which is taken as one window at least: a scan that a PSI event brings early
 * must not blow a short stall up.  Within a window the verdict can therefore
 * only rise; it falls when the window is over and had less, on the average of all of
 * it if nobody looked in time.
 *
 * The first sample has no past to compare with (the total may be weeks old):
 * it sets the anchor and takes over @inherited, the verdict of the parent.
 */
static __always_inline void mthp_stall_step(struct mthp_stall *s, __u64 now,
					    __u64 total, __u32 inherited,
					    const struct mthp_tunables *t)
{
	__u64 window = t->window_ns, elapsed, stall;
	int high;

	if (!s->seen) {
		s->seen = 1;
		s->high = inherited;
		s->anchor_ns = now;
		s->anchor_stall_ns = total;
		return;
	}
	/* Totals never go back; should one, or the clock, it begins anew. */
	if (now < s->anchor_ns || total < s->anchor_stall_ns) {
		s->anchor_ns = now;
		s->anchor_stall_ns = total;
		return;
	}

	elapsed = now - s->anchor_ns;
	stall = total - s->anchor_stall_ns;
	high = mthp_product_ge(stall, window, t->threshold_ns,
			       elapsed > window ? elapsed : window);
	/* Until its window is over a verdict goes by the judgement that made it rise. */
	if (s->high && !high && elapsed < window)
		return;
	s->high = high;
	s->stall_ns = stall;
	s->elapsed_ns = elapsed;
	if (elapsed < window)
		return;
	s->anchor_ns = now;
	s->anchor_stall_ns = total;
}

/*
 * Nobody took samples of a cgroup that was calm, and it is known that it did not stall before
 * @until: stall is measured from there on, and not over all of that time.  A rest that is
 * shorter than a window is a part of it.
 */
static __always_inline void mthp_stall_rest(struct mthp_stall *s, __u64 until,
					    const struct mthp_tunables *t)
{
	if (!s->seen || s->high || s->stall_ns || until < s->anchor_ns)
		return;
	if (until - s->anchor_ns >= t->window_ns)
		s->anchor_ns = until;
}

/* Will the next window show nothing, unless it stalls? */
static __always_inline int mthp_stall_is_over(const struct mthp_stall *s)
{
	return !s->high && !s->stall_ns;
}

/*
 * There is no sample, as pressure of this cgroup is not tracked.  It goes by @inherited, as
 * a new one does, and the first sample after this sets a new anchor.
 */
static __always_inline void mthp_stall_blind(struct mthp_stall *s, __u32 inherited)
{
	s->seen = 0;
	s->high = inherited;
	s->stall_ns = 0;
	s->elapsed_ns = 0;
}

#endif /* MTHP_STALL_H */
