// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is decided for cases that tests/change.rs makes up: reads them from the file that its
 * argument names, and prints a record for each, as `mthp_ext explain` would have it, with what
 * user space works out by itself.
 */
#include <stdio.h>

#include "decide.h"
#include "stall.h"

/* The types of the kernel that it names are those of hook.h. */
#define MTHP_KERNEL_H
/* What is constant in a load changes from case to case. */
#define const
#include "heartbeat.bpf.h"
#undef const

struct what_if {
	struct mthp_tunables t;
	__u64 flags, memory_bytes, memory_known, populated, sparse, pressure, lifted;
	/* The one level, in pages. */
	__u64 machine, limit, used, swapped, cache;
	/* The verdict, and the stall of the window to come. */
	__u64 seen, stall_ns;
	/* The scans. */
	__u64 now_ns, scanned_ns, oldest_ns;
};

struct answer {
	struct mthp_record now;
	__u64 falls;	/* the verdict, after that window */
	__u64 fits_is_given, stale;
};

static __u64 room_of(const struct what_if *c, int pud)
{
	const struct mthp_tunables *t = &c->t;
	struct mthp_machine machine = { c->limit, (__s64)(c->limit - c->used) };
	__s64 none = mthp_level_key(mthp_unlimited(t), 0);
	__u64 swapped = t->takes_back ? c->swapped : 0;
	__s64 unused = mthp_unused(c->cache << t->page_shift, pud, t) >> t->page_shift;

	if (c->machine)
		return mthp_machine_room(&machine, pud, t);
	return mthp_key_bytes(mthp_nearer(none, 1, c->limit, c->used - unused,
					  swapped + mthp_no_excuse(pud, t), t->limit_share, t), t);
}

static __u64 is_stale(const struct what_if *c)
{
	clock_ns = c->now_ns;
	mthp_scanned = c->scanned_ns;
	mthp_stale_after = c->oldest_ns;
	return mthp_is_stale();
}

static __u64 falls(const struct what_if *c)
{
	struct mthp_stall s = { .high = 1, .seen = 1 };

	mthp_stall_step(&s, c->t.window_ns, c->stall_ns, 0, &c->t);
	return !s.high;
}

/* As mthp_report() and mthp_describe_pud() do it. */
static void join_pud(struct mthp_record *r, struct mthp_facts *f, const struct what_if *c)
{
	struct mthp_decision *fault = &r->decided[BPF_MTHP_FAULT], pud;
	int by_room = 0;

	f->reason = BPF_MTHP_FAULT;
	f->lifted = 0;
	f->room_bytes = room_of(c, 1);
	pud = mthp_decide(f, &c->t, mthp_room_is_known, 0);
	mthp_join_pud(fault, &pud, &c->t);
	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
		by_room += r->decided[reason].rule == MTHP_ROOM;
	if (fault->rule == MTHP_ROOM && fault->orders & c->t.largest_pages && by_room == 1)
		r->cache_bytes = 0;
}

int main(int argc, char **argv)
{
	FILE *cases = argc == 2 ? fopen(argv[1], "rb") : NULL;
	struct what_if c;

	if (!cases)
		return 2;
	while (fread(&c, sizeof(c), 1, cases) == 1) {
		struct mthp_facts f = {
			.flags = c.flags, .memory_bytes = c.memory_bytes, .memory_known = c.memory_known,
			.populated = c.populated, .sparse = c.sparse, .pressure = c.pressure,
			.lifted = c.lifted, .room_bytes = room_of(&c, 0),
		}, pud = f;
		struct answer a = { .now = {
			.memory_bytes = c.memory_bytes, .memory_known = c.memory_known,
			.cache_bytes = c.cache << c.t.page_shift, .room_bytes = f.room_bytes,
			.limit_bytes = c.limit << c.t.page_shift, .used_bytes = c.used << c.t.page_shift,
			.swapped_bytes = c.swapped << c.t.page_shift, .level_id = !c.machine,
			.pressure = c.pressure, .seen = c.seen,
		}, .falls = falls(&c), .stale = is_stale(&c) };

		a.fits_is_given = !mthp_never_fits(c.t.limit_share, &c.t);
		for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
			f.reason = reason;
			a.now.decided[reason] = mthp_decide(&f, &c.t, mthp_room_is_known, 0);
		}
		if (c.t.pud_pages)
			join_pud(&a.now, &pud, &c);
		fwrite(&a, sizeof(a), 1, stdout);
	}
	return 0;
}
