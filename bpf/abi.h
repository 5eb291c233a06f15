/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF programs and mthp_ext agree on: the tunables, the record of a decision, the
 * events.  Plain C with fixed-width types and no implicit padding.  mthp_ext has these types
 * from the object's BTF (libbpf-cargo writes them down when it is built): there is no other
 * copy.
 */
#ifndef MTHP_ABI_H
#define MTHP_ABI_H

#include "hook.h"

/*
 * Changes with any change of layout or meaning: `mthp_ext status` may find what another
 * version loaded, and refuses what it cannot read.
 */
enum mthp_abi {
	MTHP_ABI = 0x6d740017,	/* "mt", 23 */
};

/* Every order but 0: order 0 is always allowed and never in a mask. */
#define MTHP_ALL_ORDERS	(~1ULL)

/* There is no limit on the path that matters, and enough on the machine. */
#define MTHP_NO_LIMIT	(~0ULL)

/* A cap that caps nothing. */
#define MTHP_NO_CAP	63u

/*
 * So many of the largest folios must fit beside all that there is where nothing is to be taken
 * back later.  What is left is for page tables, stacks and page cache, which ask nobody.
 */
#define MTHP_RESERVE	4u

/*
 * One more than the last reason known here.  Arrays by reason are indexed by the kernel's
 * numbers; their place 0, which is no reason, stays empty.
 */
#define MTHP_NR_REASONS	(BPF_MTHP_RECLAIM + 1)

/*
 * Sizes that are counted one by one: orders from 2, the least of anonymous memory, to 13, that of
 * a PMD of 64 KiB pages; and that of a PUD, 1 GiB of 4 KiB pages, whatever its order.
 */
#define MTHP_LEAST_ORDER	2
#define MTHP_PUD_SIZE		12
#define MTHP_NR_SIZES		13

/* A later kernel may have more of them. */
#define MTHP_KNOWN(reason)	((reason) != 0 && (reason) < MTHP_NR_REASONS)

/* An array's initialiser: the same for each of them. */
#define MTHP_EACH_REASON(value)						\
	[BPF_MTHP_FAULT] = (value), [BPF_MTHP_SWAPIN] = (value),	\
	[BPF_MTHP_KHUGEPAGED] = (value), [BPF_MTHP_COLLAPSE] = (value),	\
	[BPF_MTHP_RECLAIM] = (value)

/* The rules, in the order in which they are asked. */
enum mthp_rule {
	MTHP_NONE,		/* nothing narrows */
	MTHP_PRESSURE,
	MTHP_SMALL,
	MTHP_SPARSE,
	MTHP_ROOM,
	MTHP_CAP,
	MTHP_NR_RULES,
};

#define MTHP_RULE(name)	(1u << MTHP_##name)

/* What the rules bind besides page faults, swap-in and reclaim. */
enum mthp_bind {
	MTHP_BIND_ADVISED = 1,		/* all rules: MADV_HUGEPAGE memory */
	MTHP_BIND_COLLAPSE = 2,		/* all rules: forced collapse */
};

/* What of it is the user's own, and not built in. */
enum mthp_own {
	MTHP_OWN_NOTHING = 0,
	MTHP_OWN_FILE = 1,		/* the policy's file */
	MTHP_OWN_OBJECT = 2,		/* the BPF object */
	MTHP_OWN_XATTR = 4,		/* the cgroup says it itself: user.mthp_ext */
};

/* Set by mthp_ext before load and constant from then on: what holds for every profile. */
struct mthp_load {
	enum mthp_abi abi;
	__u32 rules;		/* MTHP_RULE() bits that are on in any profile, or may come to be */
	enum mthp_bind bind;	/* the same of what rules bind */
	/* Facts about the machine. */
	__u32 page_shift;	/* of the base page: 12, 14 or 16 */
	__u32 largest_pages;	/* of the largest folio but a PUD's; its order, too: bit n of a mask */
	__u32 pud_pages;	/* the same of a PUD; 0: the kernel maps no anonymous memory by PUDs */
	__u32 takes_back;	/* 1: the kernel asks at reclaim, so what was given can be taken back */
	__u32 dry_run;		/* 1: nothing is narrowed; what would be is counted */
	__u32 announces;	/* 1: cgroups are announced: there are profiles for some of them */
};

/* Policies that one attachment serves at a time.  A power of two: a profile's id has its slot. */
#define MTHP_PROFILES	64

/*
 * A profile: the values of one policy.  src/model/options.rs has the table.  Programs read its
 * values when a request comes, so it may be exchanged while they run.
 */
struct mthp_tunables {
	__u32 id;		/* slot, and above it the generation; 0: there is none in this slot */
	__u8 policy[40];	/* its name, for people; ends with 0 */
	__u32 rules;		/* MTHP_RULE() bits that are on */
	/* Where it is from, for people. */
	enum mthp_own own;
	/* As in struct mthp_load, for those who have no programs: people, and the host's tests. */
	__u32 page_shift;
	__u32 largest_pages;
	__u32 takes_back;
	/* Options. */
	enum mthp_bind bind;
	__u32 bind_khugepaged;	/* 1: small and sparse hold for khugepaged too */
	__u32 count_nodes;	/* 1: of the machine, only the nodes of the cgroup's cpuset */
	__u32 limit_share;	/* large folios may fill this many 1024ths of a limit that is too small */
	__u32 cap[MTHP_NR_REASONS];	/* largest order ever allowed for each reason */
	__u64 threshold_ns;	/* stall within one window that is high pressure */
	__u64 window_ns;
	__u64 min_memory;	/* anon+shmem bytes below which a cgroup is small */
	__u64 sparse_bytes;	/* waste that large folios may mean to a process; 0: the rule is off */
	__u64 room_factor;	/* K: a folio may take 1/K of the room; >= 1 */
	/* Options for measuring alone. */
	__u32 sample_mask;	/* requests between two that sample; 2^n - 1 */
	__u32 count_machine;	/* 1: the machine is the root's limit */
	__u32 spare_cache;	/* 1: page cache that reclaim would drop first is room */
	__u32 some_stall;	/* 1: stall of some tasks counts, and not only that of all */
	__u32 last_id;		/* user space's, of a slot without an id: the one that it had last */
	__u32 pud_pages;	/* as page_shift */
};

/* What was decided for one reason, and by what. */
struct mthp_decision {
	__u64 orders;		/* allowed */
	enum mthp_rule rule;	/* the one that leaves no more than these */
	__u32 room_factor;	/* K: a folio had to fit K times into the room; 0: nobody looked at it */
};

/* What showed that a process is sparse, in pages.  Of CPUs that sample at once they may be mixed. */
struct mthp_gaps {
	__u64 of;	/* what it grew by, or what it would have without gaps; 0: nobody was sparse */
	__u64 filled;	/* of that */
	__u64 grew;	/* 1: the former */
};

/* A cgroup's decisions, and the facts that they rest on: as reported, and as explained. */
struct mthp_record {
	struct mthp_decision decided[MTHP_NR_REASONS];
	__u64 stall_ns;		/* stall of the last judgement ... */
	__u64 elapsed_ns;	/* ... and the time it was gathered in; 0: taken over from above */
	__u64 memory_bytes;	/* anon+shmem */
	__u64 cache_bytes;	/* page cache that counts as room */
	struct mthp_gaps gaps;	/* of the process by which it was sparse last */
	/* The level that leaves the least, if it narrows or not. */
	__u64 room_bytes;	/* what it leaves; MTHP_NO_LIMIT */
	__u64 limit_bytes;	/* its limit ... */
	__u64 used_bytes;	/* ... what of that is in use ... */
	__u64 swapped_bytes;	/* ... and what its cgroup has in swap beside it */
	__u64 level_id;		/* id of its cgroup; 0: the machine */
	__u32 level_high;	/* 1: the limit is memory.high, not memory.max */
	__u32 level_nodes;	/* 1: of the machine, only the nodes that the cgroup is bound to */
	__u32 profile;		/* id of the profile that decided */
	__u32 memory_known;
	__u32 pressure;		/* the verdict */
	__u32 seen;		/* 1: it has been judged by its own stall */
	__u32 unmissed;		/* 1: what reclaim takes below its limits is not missed, and the machine has room */
	__u32 pad;
};

/*
 * One changed decision, sent through the ring buffer.  What is as short as an id is the id of a
 * cgroup that was met for the first time.
 */
struct mthp_event {
	__u64 t_ns;		/* CLOCK_MONOTONIC */
	__u64 cgroup_id;
	__u64 suppressed;	/* changes not reported since the last event of this cgroup */
	__u64 from[MTHP_NR_REASONS];
	struct mthp_record now;
};

/* Context of mthp_explain: which cgroup, and what there is to say about it. */
struct mthp_explained {
	struct mthp_record now;	/* first: a function takes no pointer into a context, but one to its start */
	__u64 cgroup_id;
	__u32 found;		/* 0: there is no such cgroup */
	__u32 kept;		/* 0: nothing is kept of it: it is judged like a new one */
	__u32 pud_on;		/* as in struct mthp_walk: else nothing is said about a PUD */
	__u32 pad;
	__u64 allowed[MTHP_NR_REASONS][MTHP_NR_SIZES];	/* as struct mthp_cgroup has them */
	__u64 denied[MTHP_NR_REASONS][MTHP_NR_SIZES];
	__u64 narrowed[MTHP_NR_REASONS][MTHP_NR_RULES];
	__u64 spared_pages[MTHP_NR_REASONS];
	/* CLOCK_MONOTONIC: when the programs found what is decided now; 0: they have not yet. */
	__u64 since_ns[MTHP_NR_REASONS];
};

/*
 * Context of mthp_scan: how far it has come.  All but root_id and what is user space's begin as 0;
 * the rest is the scan's own, from one call to the next.
 */
struct mthp_walk {
	__u64 root_id;		/* of the cgroup whose subtree is scanned */
	__u64 passed;		/* cgroups of the lists before this one */
	__u64 met;		/* cgroups met so far while a list is made */
	__u32 listed;		/* cgroups of this list ... */
	__u32 next;		/* ... and the one that is next */
	__u32 from;		/* where the list begins */
	__u32 begun;		/* 1: it is known which cgroups are visited */
	__u32 whole;		/* 1: all; 0: those that were awake */
	__u32 lightly;		/* 1: of those that were not only the stall is looked at */
	__u32 swap_dear;	/* user space's: 1: the machine's swap space is short, or on a device that waits */
	__u32 pud_on;		/* user space's: 1: the setting of 1 GiB is not never */
};

/* Context of mthp_assign: which cgroup has which profile from now on. */
struct mthp_assignment {
	__u64 cgroup_id;
	__u32 profile;		/* its id; 0: that of its parent */
	__u32 done;		/* 0: there is no such cgroup, or no memory to keep it in */
};

/* Longest name of a cgroup, with the 0 at its end: NAME_MAX of linux/limits.h and one. */
#define MTHP_NAME	256

/* Context of mthp_name: one cgroup of a path. */
struct mthp_named {
	__u8 name[MTHP_NAME];	/* first, as above; the root has none */
	__u64 cgroup_id;
	__u64 above_id;		/* 0: it is the root */
	__u32 found;		/* 0: there is no such cgroup */
	__u32 pad;
};

/* Pressure verdict of one cgroup and what it rests on. */
struct mthp_stall {
	__u64 anchor_ns;	/* when the running window began */
	__u64 anchor_stall_ns;	/* total stall at that time */
	__u64 stall_ns;		/* stall of the last judgement ... */
	__u64 elapsed_ns;	/* ... and the time it was gathered in */
	__u32 high;		/* the verdict */
	__u32 seen;		/* 0: no anchor yet */
};

/* What reclaim swapped out of a cgroup and those below it, and if that was missed. */
struct mthp_taken {
	__u64 anchor_ns;	/* when the running window began; 0: none has */
	__u64 went;		/* pages that had been swapped out by then ... */
	__u64 came;		/* ... and those that had come back, page cache included */
	__u64 others;		/* ... and those of who else is below the limit that is looked at; MTHP_UNREAD */
	__u32 level;		/* of the cgroup that has this limit; 0: there was no sample yet */
	__u32 reached;		/* the highest that was reached since then: level, or one below; MTHP_NONE_REACHED */
	__u32 unmissed;		/* windows in a row in which much went, and next to nothing came back */
	__u32 pad;
};

/* Value of the cgroup storage map, which nobody but the programs reads. */
struct mthp_cgroup {
	struct mthp_stall stall;
	struct mthp_taken taken;
	__u64 scanned_ns;	/* last scan, CLOCK_MONOTONIC; 0: none yet */
	__u64 memory_bytes;	/* anon+shmem when last sampled: by a scan, or from a process */
	__u64 usage_pages;	/* charged pages at that time */
	__u64 now_bytes;	/* anon+shmem at most, as of the last sample: with what was charged since */
	__u64 machine_bytes;	/* room of the machine when last sampled; MTHP_NO_LIMIT */
	__u64 pud_machine_bytes;	/* the same for a PUD, see mthp_ahead() */
	__u64 cache_bytes;	/* of that usage: page cache that would make room */
	__u64 dropped_bytes;	/* room if all such page cache were dropped; MTHP_NO_LIMIT */
	__s64 cache_beyond;	/* bytes of such page cache beyond what its own lists show */
	struct mthp_gaps gaps;	/* of the process that made it sparse last */
	__u32 memory_known;	/* 0: no memory controller here: no opinion on size */
	__u32 populated;	/* 1: a process lived in this very cgroup at the last scan */
	__u32 sparse;		/* for how many more samples a process here is sparse */
	__u32 unlimited;	/* 1: no limit was on the path when last sampled */
	__u32 profile;		/* id; one that is not in its slot any more: look for it above */
	__u32 assigned;		/* id of the profile that it was assigned; 0, or one that is gone: none */
	__u32 announced;	/* 1: user space knows of it */
	__u32 woken;		/* the turn in whose list it is: that of the next scan, or it is at rest */
	/* 1: what reclaim takes of it was not missed, and the machine had room: as of a scan, until a sample ends it. */
	__u32 lifted;
	__u32 pad;
	/* The decision last reported, and the limit on how often that is. */
	__u64 reported[MTHP_NR_REASONS];
	__u64 changed_ns[MTHP_NR_REASONS];	/* when it last became another; 0: it never did */
	__u64 met_ns;		/* when the cgroup was first met */
	__u64 reported_ns;
	__u64 suppressed;	/* calls whose change the limit kept from being reported */
	/* Requests until the next one that samples, by reason; 0: the next one does. */
	__u16 due[8];
	/*
	 * Exact: CPUs add to them atomically, in one instruction.  By the largest size that was
	 * offered: requests that could have it, and those that could not.
	 */
	__u64 allowed[MTHP_NR_REASONS][MTHP_NR_SIZES];
	__u64 denied[MTHP_NR_REASONS][MTHP_NR_SIZES];
	/* By the rule that took a size away. */
	__u64 narrowed[MTHP_NR_REASONS][MTHP_NR_RULES];
	/*
	 * Of a dry run: by how many pages the largest folios offered exceed those allowed.  Without
	 * PUDs, as it is found out only after the request if there is one to be had.
	 */
	__u64 spared_pages[MTHP_NR_REASONS];
};

#endif /* MTHP_ABI_H */
