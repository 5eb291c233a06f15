/* SPDX-License-Identifier: GPL-2.0-only */
/* The counters of a cgroup: exact, at the price of an atomic addition for each request. */
#ifndef MTHP_COUNT_BPF_H
#define MTHP_COUNT_BPF_H

#include "kernel.h"
#include "abi.h"

/* Orders with a place of their own, as a mask can have them. */
#define MTHP_PLACED	(1u << (MTHP_LEAST_ORDER + MTHP_PUD_SIZE))

#define MTHP_PLACE(n)	[1u << (MTHP_LEAST_ORDER + (n)) ... (2u << (MTHP_LEAST_ORDER + (n))) - 1] = (n)

/*
 * The place of the largest order of a mask.  To compute it would take some twenty instructions.  A
 * mask without any of these orders is that of a PUD, which the kernel asks about alone.
 */
static const __u8 mthp_places[MTHP_PLACED] = {
	[0] = MTHP_PUD_SIZE,
	MTHP_PLACE(0), MTHP_PLACE(1), MTHP_PLACE(2), MTHP_PLACE(3), MTHP_PLACE(4), MTHP_PLACE(5),
	MTHP_PLACE(6), MTHP_PLACE(7), MTHP_PLACE(8), MTHP_PLACE(9), MTHP_PLACE(10), MTHP_PLACE(11),
};

static __always_inline __u32 mthp_size(unsigned long orders)
{
	__u32 place = mthp_places[orders & (MTHP_PLACED - 1)];

	/*
	 * The verifier has to see a bound.  A comparison would make it follow two ways from here; this
	 * bound is within what is kept of a cgroup, and the table has no more than there are sizes.
	 */
	asm volatile("" : "+r"(place));
	return place & 15;
}

/* Once more.  Nobody uses the result, so it is one instruction. */
static __always_inline void mthp_add(__u64 *counter, __u64 count)
{
	__sync_fetch_and_add(counter, count);
}

#endif /* MTHP_COUNT_BPF_H */
