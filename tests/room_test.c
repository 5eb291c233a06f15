// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the part of bpf/decide.h that turns room below a limit, or of the host,
 * into orders.  tests/decide.rs runs each by its name.
 */
#include "facts.h"

/* Room below a limit, as the walk finds it. */
static __s64 level_room(__u64 limit, __u64 used, __u64 swapped, const struct mthp_tunables *t)
{
	return mthp_level_room(limit, used, swapped + mthp_never_fits(t->limit_share, t), t->limit_share, t);
}

/* Half of a limit of 100 MiB, 25600 pages, may be in large folios, where they stay. */
static void a_limit_is_none_while_large_folios_have_not_had_their_share(void)
{
	struct mthp_tunables t = defaults();
	__s64 unlimited = mthp_unlimited(&t);

	t.takes_back = 0;
	CHECK(level_room(25600, 0, 0, &t) == unlimited, "nothing is used");
	CHECK(level_room(25600, 12800 - 512, 0, &t) == unlimited, "one more fits");
	CHECK(level_room(25600, 12800 - 511, 0, &t) == 12800 + 511, "just not");
	CHECK(level_room(25600, 25600, 0, &t) == 0, "at the limit");
	CHECK(level_room(25600, 25601, 0, &t) == -1, "over it");
	CHECK(level_room(512, 0, 0, &t) == 512, "a limit without room for one");
	CHECK(level_room(1792, 384, 0, &t) == unlimited, "half of 7 MiB");
	CHECK(level_room(1792, 385, 0, &t) == 1407, "and no more");
	t.limit_share = 0;
	CHECK(level_room(25600, 0, 0, &t) == 25600, "no share");
}

/* All of it, where they can be taken back, as long as nothing has to go for them. */
static void a_limit_is_none_while_all_fits(void)
{
	struct mthp_tunables t = defaults();
	__s64 unlimited = mthp_unlimited(&t);

	CHECK(t.takes_back == 1, "as this kernel does");
	CHECK(level_room(25600, 25600 - 2048, 0, &t) == unlimited, "the reserve fits");
	CHECK(level_room(25600, 25600 - 2047, 0, &t) == 2047, "just not");
	CHECK(level_room(25600, 20000, 3552, &t) == unlimited, "beside what is in swap");
	CHECK(level_room(25600, 20000, 3553, &t) == 5600, "just not");
	CHECK(level_room(25600, 12000, 25600, &t) == unlimited, "the share is theirs anyhow");
	CHECK(level_room(25600, 20000, MTHP_NOT_COUNTED, &t) == 5600, "swap is not known");
	t.rules &= ~MTHP_RULE(SPARSE);
	CHECK(level_room(25600, 20000, 0, &t) == 5600, "nobody sees what would be empty");
	CHECK(level_room(25600, 12000, 0, &t) == unlimited, "the share is theirs anyhow");
	t.rules |= MTHP_RULE(SPARSE);
	t.sparse_bytes = 0;
	CHECK(level_room(25600, 20000, 0, &t) == 5600, "the rule is off");
	t = defaults();
	t.limit_share = 0;
	CHECK(level_room(25600, 0, 0, &t) == 25600, "each limit matters");
}

/*
 * Page cache is taken off what is used, and may be more than that if it was counted earlier: more is left
 * than the limit then.  By more than a large folio, and it is none, as one more would fit a share of 0.
 */
static void less_than_nothing_may_be_used(void)
{
	struct mthp_tunables t = defaults();

	CHECK(level_room(25600, -1ULL, 0, &t) == (__s64)mthp_unlimited(&t), "all fits");
	t.limit_share = 0;
	CHECK(level_room(25600, -1ULL, 0, &t) == 25601, "the limit, and what is too much");
	for (int i = 0; i < 200000; i++) {
		__u64 limit = nasty_u64() % mthp_unlimited(&t);
		__u64 used = nasty_u64() % mthp_unlimited(&t);
		__u64 cache = used + nasty_u64() % mthp_unlimited(&t) / 4;
		__s64 room = level_room(limit, used - cache, 0, &t);
		__s64 want = limit + (cache - used);

		if (cache - used >= t.largest_pages)
			want |= mthp_unlimited(&t);
		CHECK(room == want, "%llu of %llu, cache %llu: %lld", used, limit, cache, room);
		CHECK(mthp_key_room(mthp_level_key(room, 1)) == room, "a key holds %lld", room);
	}
}

/* Limits and usages as large as there are, and any share. */
static void room_is_as_defined(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_tunables t = nasty_tunables();
		__u64 limit = nasty_u64() % mthp_unlimited(&t);
		__u64 used = nasty_u64() % mthp_unlimited(&t);
		__u64 swapped = i & 1 ? nasty_u64() % mthp_unlimited(&t) : 0;
		int within = used + t.largest_pages <= (limit * t.limit_share) >> 10;
		int seen = t.rules & MTHP_RULE(SPARSE) && t.sparse_bytes;
		int excuse = t.takes_back && t.limit_share && seen;
		int fits = excuse && used + swapped + MTHP_RESERVE * t.largest_pages <= limit;
		__s64 want = within || fits ? (__s64)mthp_unlimited(&t) : (__s64)(limit - used);

		CHECK(level_room(limit, used, swapped, &t) == want, "%llu and %llu of %llu", used, swapped, limit);
	}
}

/* The rule in 128 bits, order by order. */
static void room_agrees_with_its_definition(void)
{
	struct mthp_tunables t = defaults();

	for (int i = 0; i < 200000; i++) {
		struct mthp_facts f = calm(BPF_MTHP_FAULT + random_u64() % 3);
		__u64 got;

		f.room_bytes = nasty_u64();
		t.room_factor = 1 + (nasty_u64() & 0xfffff);
		t.page_shift = page_shifts[i % 3];
		got = decide(&f, &t);
		for (int order = 1; order < 40; order++) {
			unsigned __int128 need = (unsigned __int128)1 << (order + t.page_shift);
			int fits = f.room_bytes == MTHP_NO_LIMIT ||
				   need * t.room_factor <= f.room_bytes;

			/* What does not exist goes with the largest that does. */
			if (order > 9)
				fits = !!(got & (1ULL << 9));

			CHECK(!!(got & (1ULL << order)) == fits,
			      "order %d K %llu room %llu shift %u", order,
			      t.room_factor, f.room_bytes, t.page_shift);
		}
	}
}

static void room_is_graded_order_by_order(void)
{
	struct mthp_tunables t = defaults();

	for (unsigned int s = 0; s < 3; s++) {
		__u32 shift = page_shifts[s];

		t.page_shift = shift;
		t.largest_pages = 1 << 14;
		for (int order = 1; order <= 13; order++) {
			struct mthp_facts f = calm(BPF_MTHP_FAULT);
			__u64 need = (1ULL << (order + shift)) * t.room_factor;
			__u64 up_to = (2ULL << order) - 2;

			f.room_bytes = need;
			CHECK(decide(&f, &t) == up_to, "order %d at shift %u", order, shift);
			f.room_bytes = need - 1;
			CHECK(decide(&f, &t) == (up_to & ~(1ULL << order)),
			      "order %d just misses at shift %u", order, shift);
		}
	}
}

static void room_for_the_largest_is_room_for_all(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.room_bytes = 2048 * MIB;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "2 MiB fit");
	f.room_bytes--;
	CHECK(decide(&f, &t) == 0x1fe, "just not");
}

/* Of the machine as of a limit: the same K, and for what is in use another. */
static void the_machine_is_a_level_like_any_other(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		const __u64 factor = reason == BPF_MTHP_RECLAIM ? MTHP_KEEP_FACTOR : t.room_factor;

		if (reason == BPF_MTHP_COLLAPSE)
			continue;
		for (int order = 1; order < 9; order++) {
			struct mthp_facts f = calm(reason);
			__u64 up_to = (2ULL << order) - 2;
			struct mthp_decision d;

			f.room_bytes = (4096ULL << order) * factor;
			d = decided(&f, &t);
			CHECK(d.orders == up_to, "order %d", order);
			CHECK(d.rule == MTHP_ROOM, "%u", d.rule);
			CHECK(d.room_factor == factor, "K %u is what was applied", d.room_factor);
			f.room_bytes--;
			CHECK(decide(&f, &t) == (up_to & ~(1ULL << order)), "%d just misses", order);
			t.rules &= ~MTHP_RULE(ROOM);
			CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "off");
			t.rules = ALL_RULES;
		}
	}
}

/* Rooms as they are, over their limits, too, and levels: the least binds, and of equal ones the nearer. */
static void the_level_that_leaves_the_least_binds(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_tunables t = nasty_tunables();
		__s64 unlimited = mthp_unlimited(&t);
		__s64 a = nasty_u64() % unlimited - nasty_u64() % unlimited;
		__s64 b = i % 3 ? (__s64)(nasty_u64() % unlimited - nasty_u64() % unlimited) : a;
		__u32 up = random_u64() % 1023, down = up + 1;
		__s64 least = mthp_level_key(a, up), other = mthp_level_key(b, down);

		CHECK(mthp_key_room(least) == a && mthp_key_level(least) == up, "%lld at %u", a, up);
		least = least < other ? least : other;
		CHECK(mthp_key_room(least) == (a < b ? a : b), "%lld, %lld", a, b);
		CHECK(mthp_key_level(least) == (b <= a ? down : up), "%lld, %lld", a, b);
		CHECK(mthp_key_bytes(mthp_level_key(unlimited, 0), &t) == MTHP_NO_LIMIT, "none");
		CHECK(mthp_level_key(unlimited, 0) - mthp_level_key(-unlimited, 1023) > 0, "no overflow");
	}
}

/* Up a path of limits, as the walk does: the least that a limit leaves, and where; none, if none counts. */
static void the_walk_ends_with_the_nearest_limit(void)
{
	for (int i = 0; i < 200000; i++) {
		struct mthp_tunables t = nasty_tunables();
		__s64 unlimited = mthp_unlimited(&t), want = unlimited, room;
		__s64 least = mthp_level_key(unlimited, 0);
		__u32 level, at = 0;

		for (level = 1 + random_u64() % 16; level; level--) {
			/* Near each other, so that each of them is the least now and then. */
			__u64 limit = 1 + random_u64() % 100000, used = random_u64() % 100000;
			__u64 swapped = random_u64() % 1000 + mthp_never_fits(t.limit_share, &t);

			least = mthp_nearer(least, level, limit, used, swapped, t.limit_share, &t);
			room = mthp_level_room(limit, used, swapped, t.limit_share, &t);
			if (room < want) {
				want = room;
				at = level;
			}
		}
		CHECK(mthp_key_room(least) == want, "%lld, not %lld", mthp_key_room(least), want);
		CHECK(!at || mthp_key_level(least) == at, "%u, not %u", mthp_key_level(least), at);
		CHECK(mthp_key_bytes(least, &t) == (want == unlimited ? MTHP_NO_LIMIT :
						   want > 0 ? (__u64)want << mthp_common(&t)->page_shift :
						   0), "%lld", want);
	}
}

/* What is in use is split where memory is short, not where no more would be given. */
static void what_is_there_needs_less_room(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_RECLAIM);

	f.room_bytes = 32 * MIB;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "2 MiB stay");
	f.room_bytes--;
	CHECK(decide(&f, &t) == 0x1fe, "just not");
	f.reason = BPF_MTHP_FAULT;
	CHECK(decide(&f, &t) == 0x6, "of new ones 16 KiB");
	f.reason = BPF_MTHP_RECLAIM;
	t.room_factor = 1;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "a smaller K holds");
}

static void more_room_never_allows_less(void)
{
	for (int i = 0; i < 500000; i++) {
		struct mthp_facts low = nasty_facts(), high;
		struct mthp_tunables t = nasty_tunables();
		__u64 more = nasty_u64();

		high = low;
		high.room_bytes = low.room_bytes > more ? low.room_bytes : more;
		CHECK(!(decide(&low, &t) & ~decide(&high, &t)),
		      "%llu -> %llu", low.room_bytes, high.room_bytes);
	}
}

static void no_room_leaves_base_pages(void)
{
	struct mthp_tunables t = defaults();

	for (__u32 reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		struct mthp_facts f = calm(reason);

		if (reason == BPF_MTHP_COLLAPSE)
			continue;
		f.room_bytes = 0;
		CHECK(decide(&f, &t) == 0, "reason %u", reason);
	}
}

static void no_limit_means_no_opinion(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	t.room_factor = ~0ULL;
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS, "even with the largest K");
}

/* A K of 0 never gets past the command line; dividing by it must not either. */
static void a_factor_of_zero_does_not_divide(void)
{
	CHECK(mthp_fitting_pages(4096, 0) == 4096, "taken as 1");
}

/* What the lists of the cgroup itself do not show: of its subtree, and what must be written. */
static void page_cache_of_a_subtree_is_counted_once(void)
{
	CHECK(mthp_cache_beyond(300, 0, 100) == 200, "those below");
	CHECK(mthp_cache_beyond(300, 50, 100) == 150, "less what must be written");
	CHECK(mthp_cache_beyond(100, 30, 100) == -30, "of its own, too");
	CHECK(mthp_cache_beyond(0, 0, 100) == 0, "what no statistic shows yet");
	CHECK(mthp_cache_beyond(0, 30, 100) == -30, "and must be written");
	CHECK(mthp_cache_beyond(20, 500, 10) == -10, "all must be");
	CHECK(mthp_cache_beyond(300, 50, 0) == 250, "lists that nobody shows");
	CHECK(mthp_cache_now(100, -30) == 70, "as of now");
	CHECK(mthp_cache_now(20, -30) == 0, "it has gone since");
	CHECK(mthp_cache_now(0, 250) == 250, "as of the last scan");
}

/* At the scan itself: the larger of both sums, less what must be written. */
static void page_cache_at_a_scan_is_what_could_go(void)
{
	for (int i = 0; i < 200000; i++) {
		__u64 inactive = nasty_u64() >> 8, busy = nasty_u64() >> 8, own = nasty_u64() >> 8;
		__u64 cold = inactive > own ? inactive : own;
		__u64 want = cold > busy ? cold - busy : 0;
		__u64 got = mthp_cache_now(own, mthp_cache_beyond(inactive, busy, own));

		CHECK(got == want, "%llu, not %llu", got, want);
	}
}

/* One limit, in pages: the facts as the walk has them, @pud: for a PUD. */
static struct mthp_facts below_with(__u64 limit, __u64 used, __u64 cache, __u64 swapped, int pud,
				    const struct mthp_tunables *t)
{
	__s64 none = mthp_level_key(mthp_unlimited(t), 0);
	__s64 unused = mthp_unused(cache << t->page_shift, pud, t) >> t->page_shift;
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	f.room_bytes = mthp_key_bytes(mthp_nearer(none, 1, limit, used - unused, swapped + mthp_no_excuse(pud, t),
						  t->limit_share, t), t);
	return f;
}

static struct mthp_facts below(__u64 limit, __u64 used, __u64 swapped, int pud, const struct mthp_tunables *t)
{
	return below_with(limit, used, 0, swapped, pud, t);
}

#define GIB	(1024 * MIB)
#define PMD	(1ULL << 9)
#define PUD	(1ULL << 18)

static int gives_pud(__u64 limit, __u64 used, __u64 flags, const struct mthp_tunables *t)
{
	struct mthp_facts f = below(limit >> 12, used >> 12, 0, 1, t);

	f.flags = flags;
	return !!(decide(&f, t) & PUD);
}

/* What is reported: of a fault, and of one that asks for a PUD. */
static struct mthp_decision joined(const struct mthp_facts *f, const struct mthp_facts *pud,
				   const struct mthp_tunables *t)
{
	struct mthp_decision d = decided(f, t), of_pud = decided(pud, t);

	mthp_join_pud(&d, &of_pud, t);
	return d;
}

static void a_pud_has_to_fit_at_the_very_page(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f, pud;
	struct mthp_decision d;

	t.pud_pages = PUD_PAGES;
	/* Half of the limit may be in large folios. */
	CHECK(gives_pud(5 * GIB, GIB + GIB / 2, 0, &t), "with it half of the limit is used");
	CHECK(!gives_pud(5 * GIB, 2 * GIB + 2 * MIB + 4096, 0, &t), "a page more, and K is asked");
	/* Of what is left for the last 2 MiB they may be a 1024th. */
	CHECK(gives_pud(5 * GIB, 2 * GIB + 2 * MIB, 0, &t), "2 GiB for the last 2 MiB");
	CHECK(gives_pud(2 * GIB, 0, 0, &t), "half of it");
	CHECK(!gives_pud(2 * GIB, 4096, 0, &t), "a page more");
	CHECK(!gives_pud(GIB, 0, 0, &t), "all of it");
	/* That all there is fits would do for 2 MiB, which reclaim takes back. */
	f = below(GIB >> 12, (GIB - 8 * MIB) >> 12, 0, 0, &t);
	pud = below(GIB >> 12, (GIB - 8 * MIB) >> 12, 0, 1, &t);
	d = joined(&f, &pud, &t);
	CHECK(d.orders == (MTHP_ALL_ORDERS & (PUD - 1)) && d.rule == MTHP_ROOM, "2 MiB");
	/* Page cache that reclaim would drop is room for 2 MiB, and none where nothing is reclaimed. */
	f = below_with(3 * GIB >> 12, 5 * GIB >> 13, 5 * GIB >> 13, 0, 0, &t);
	pud = below_with(3 * GIB >> 12, 5 * GIB >> 13, 5 * GIB >> 13, 0, 1, &t);
	CHECK(decide(&f, &t) == MTHP_ALL_ORDERS && !(decide(&pud, &t) & PUD), "page cache");
	/* Who asks for it gets what fits once, beside the reserve. */
	CHECK(gives_pud(5 * GIB, 4 * GIB - 8 * MIB, BPF_MTHP_ADVISED, &t), "fits once");
	CHECK(!gives_pud(5 * GIB, 4 * GIB - 8 * MIB + 4096, BPF_MTHP_ADVISED, &t), "just not");
	CHECK(!gives_pud(GIB, 0, BPF_MTHP_ADVISED, &t), "its tables do not");
	t.bind |= MTHP_BIND_ADVISED;
	CHECK(!gives_pud(5 * GIB, 4 * GIB - 8 * MIB, BPF_MTHP_ADVISED, &t), "bound on request");
	t.limit_share = 0;
	CHECK(!gives_pud(5 * GIB, 2 * GIB + 2 * MIB + 4096, 0, &t), "without a share");
	CHECK(gives_pud(5 * GIB, 2 * GIB + 2 * MIB, 0, &t), "without a share");
}

/* As if the pages but the last 2 MiB were used: so never where those 2 MiB would be refused. */
static void a_pud_is_given_where_its_last_folio_would_be(void)
{
	int given = 0, refused = 0;

	for (int i = 0; i < 300000; i++) {
		struct mthp_tunables t = nasty_tunables();
		__u64 limit = random_u64() % (64 * GIB >> 12), used = random_u64() % (limit + 1000);
		__u64 swapped = random_u64() % 100000;
		struct mthp_facts f, pud, last;
		__u64 got;

		t.page_shift = 12;
		t.pud_pages = PUD_PAGES;
		t.rules = MTHP_RULE(ROOM) | MTHP_RULE(SPARSE);
		t.room_factor = 1 + random_u64() % 2048;
		f = below(limit, used, swapped, 0, &t);
		f.flags = random_u64() % 2;
		pud = below(limit, used, swapped, 1, &t);
		pud.flags = f.flags;
		got = joined(&f, &pud, &t).orders;
		/* A request for one is answered without the rest. */
		CHECK(!!(got & PUD) == !!(decide(&pud, &t) & PUD), "%llu of %llu", used, limit);
		/* No excuse by what is taken back. */
		t.takes_back = 0;
		last = below(limit, used + mthp_ahead(1, &t), swapped, 0, &t);
		last.flags = f.flags;
		CHECK(!!(got & PUD) == !!(decide(&last, &t) & PMD), "%llu of %llu", used, limit);
		CHECK(!(got & PUD) || got & PMD, "%llx", got);
		given += !!(got & PUD);
		refused += !(got & PUD) && got & PMD;
	}
	CHECK(given > 10000 && refused > 10000, "%d, %d", given, refused);
}

/* The machine is a limit without page cache, and what the last 2 MiB find is asked there, too. */
static void a_pud_has_to_fit_the_machine(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_machine machine = { 5 * GIB >> 12, 3 * GIB >> 12 };
	struct mthp_facts f = calm(BPF_MTHP_FAULT);

	t.pud_pages = PUD_PAGES;
	f.room_bytes = mthp_machine_room(&machine, 1, &t);
	CHECK(decide(&f, &t) & PUD, "2 GiB for the last 2 MiB");
	machine.spare -= 3 * MIB >> 12;
	f.room_bytes = mthp_machine_room(&machine, 1, &t);
	CHECK(!(decide(&f, &t) & PUD), "less than that");
	f.room_bytes = mthp_machine_room(&machine, 0, &t);
	CHECK(decide(&f, &t) & PMD, "2 MiB");
	machine.total = 0;
	CHECK(mthp_machine_room(&machine, 1, &t) == MTHP_NO_LIMIT, "not known");
}

/* A fault keeps all other orders, and is narrowed by the rule that a PUD is. */
static void what_is_said_of_a_pud_is_said_of_no_other_order(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_facts f = calm(BPF_MTHP_FAULT), pud = f;
	struct mthp_decision d;

	t.pud_pages = PUD_PAGES;
	d = joined(&f, &pud, &t);
	CHECK(d.orders == MTHP_ALL_ORDERS && d.rule == MTHP_NONE, "all");
	pud.room_bytes = 0;
	d = joined(&f, &pud, &t);
	CHECK(d.orders == (MTHP_ALL_ORDERS & (PUD - 1)) && d.rule == MTHP_ROOM, "%u", d.rule);
	/* What nobody misses: of less than a PUD both rules are lifted. */
	f.lifted = 1;
	f.room_bytes = 0;
	f.pressure = pud.pressure = 1;
	d = joined(&f, &pud, &t);
	CHECK(d.orders == (MTHP_ALL_ORDERS & (PUD - 1)) && d.rule == MTHP_PRESSURE, "%u", d.rule);
	f.lifted = 0;
	d = joined(&f, &pud, &t);
	CHECK(!d.orders && d.rule == MTHP_PRESSURE, "%u", d.rule);
}

static const struct test tests[] = {
	TEST(a_limit_is_none_while_large_folios_have_not_had_their_share),
	TEST(a_limit_is_none_while_all_fits),
	TEST(less_than_nothing_may_be_used),
	TEST(room_is_as_defined),
	TEST(room_agrees_with_its_definition),
	TEST(room_is_graded_order_by_order),
	TEST(room_for_the_largest_is_room_for_all),
	TEST(the_machine_is_a_level_like_any_other),
	TEST(the_level_that_leaves_the_least_binds),
	TEST(the_walk_ends_with_the_nearest_limit),
	TEST(more_room_never_allows_less),
	TEST(what_is_there_needs_less_room),
	TEST(no_room_leaves_base_pages),
	TEST(no_limit_means_no_opinion),
	TEST(a_factor_of_zero_does_not_divide),
	TEST(page_cache_of_a_subtree_is_counted_once),
	TEST(page_cache_at_a_scan_is_what_could_go),
	TEST(a_pud_has_to_fit_at_the_very_page),
	TEST(a_pud_is_given_where_its_last_folio_would_be),
	TEST(a_pud_has_to_fit_the_machine),
	TEST(what_is_said_of_a_pud_is_said_of_no_other_order),
};

RUN_TESTS(tests)
