/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which cgroups a scan visits, and how far it has come: lists of MTHP_LIST cgroups, MTHP_VISITS
 * of them in a call.
 * Pure; compiled into the scan program and into the host unit tests.
 */
#ifndef MTHP_WALK_H
#define MTHP_WALK_H

#include "abi.h"

/* Cgroups of a list.  A larger subtree takes several. */
#define MTHP_LIST	16384
/* Cgroups that one call visits: a call does not end early, and what it holds is not freed. */
#define MTHP_VISITS	1024
/* Cgroups that are awake at most; if more are, a scan visits all. */
#define MTHP_AWAKE	4096
/* One scan of so many visits all, whoever is awake: what nobody asked for and nobody waits for. */
#define MTHP_SELDOM	16

/* Where the list of those that woke in a turn begins. */
static __always_inline __u32 mthp_list_of(__u32 turn)
{
	return MTHP_LIST + (turn & 1) * MTHP_AWAKE;
}

/*
 * A scan begins: of all cgroups, or of the @awake that woke in @turn.  @calm: nobody has stalled
 * since the last scan.  @left: scans until the next one that leaves nothing out; begins as 0.
 */
static __always_inline void mthp_walk_begin(struct mthp_walk *walk, __u32 turn, __u32 awake,
					    int calm, __u32 *left)
{
	int all = !*left || awake >= MTHP_AWAKE;

	walk->begun = 1;
	walk->whole = all || !calm;
	walk->lightly = !all;
	*left = all ? MTHP_SELDOM - 1 : *left - 1;
	if (walk->whole)
		return;
	walk->from = mthp_list_of(turn);
	walk->listed = awake;
}

/* Is every cgroup of the list visited? */
static __always_inline int mthp_walk_is_through(const struct mthp_walk *walk)
{
	return walk->next >= walk->listed;
}

/* The next list begins behind this one. */
static __always_inline void mthp_walk_turn(struct mthp_walk *walk)
{
	walk->passed += walk->listed;
	walk->met = 0;
	walk->listed = 0;
	walk->next = 0;
}

/*
 * A cgroup is met on the way from the root.  Was it in no list before?  Counted in the walk:
 * of what is there the verifier knows no values, and so does not follow the loop through all
 * of them.
 */
static __always_inline int mthp_walk_meets_new(struct mthp_walk *walk)
{
	return walk->met++ >= walk->passed;
}

/* Does the scan take another call?  A full list may not be the last one. */
static __always_inline int mthp_walk_goes_on(const struct mthp_walk *walk)
{
	return walk->next < walk->listed || walk->listed == MTHP_LIST;
}

#endif /* MTHP_WALK_H */
