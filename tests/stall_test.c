// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of the pressure verdict: bpf/stall.h, the code the kernel runs,
 * compiled for the host.  tests/decide.rs runs each by its name.
 */
#include "unit.h"
#include "stall.h"

static void products_compare_like_128_bits(void)
{
	for (int i = 0; i < 1000000; i++) {
		__u64 a = nasty_u64(), b = nasty_u64(), c = nasty_u64(), d = nasty_u64();
		int expected = (unsigned __int128)a * b >= (unsigned __int128)c * d;

		CHECK(mthp_product_ge(a, b, c, d) == expected,
		      "%llu*%llu %llu*%llu", a, b, c, d);
	}
}

/* B6: the total at first sight is history, not pressure. */
static void first_sample_only_sets_the_anchor(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };

	mthp_stall_step(&s, 5 * SEC, 3600 * SEC, 0, &t);
	CHECK(!s.high, "an hour of old stall");
	mthp_stall_step(&s, 6 * SEC, 3600 * SEC, 0, &t);
	CHECK(!s.high, "and none since");
}

static void first_sample_takes_over_the_parents_verdict(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };

	mthp_stall_step(&s, SEC, 0, 1, &t);
	CHECK(s.high, "inherited");
	mthp_stall_step(&s, SEC + 500 * MS, 0, 0, &t);
	CHECK(s.high, "kept within the window");
	mthp_stall_step(&s, 2 * SEC, 0, 0, &t);
	CHECK(!s.high, "judged for itself after it");
}

static void threshold_is_reached_exactly(void)
{
	struct mthp_tunables t = defaults();

	for (int less = 0; less < 2; less++) {
		struct mthp_stall s = { 0 };

		mthp_stall_step(&s, SEC, SEC, 0, &t);
		mthp_stall_step(&s, 2 * SEC, SEC + 100 * MS - less, 0, &t);
		CHECK(s.high == !less, "%d ns less than the threshold", less);
	}
}

/* W13: one stall rate, any rhythm of scans, one verdict. */
static void verdict_does_not_depend_on_the_scan_rhythm(void)
{
	struct mthp_tunables t = defaults();

	for (int percent = 1; percent < 30; percent++) {
		struct mthp_stall s = { 0 };
		__u64 now = SEC, start = now;
		/* well above or below: rounding of the rate is not the subject */
		int expected = percent > 10;

		if (percent == 10)
			continue;
		mthp_stall_step(&s, now, 0, 0, &t);
		for (int i = 0; i < 2000; i++) {
			now += 1 + random_u64() % (3 * SEC);
			mthp_stall_step(&s, now, (now - start) * percent / 100, 0, &t);
			if (now - start > 4 * SEC)
				CHECK((int)s.high == expected, "%d %% at scan %d", percent, i);
		}
	}
}

/* A scan that an event brings early must not blow a short stall up. */
static void an_early_scan_is_not_normalised_upwards(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };

	mthp_stall_step(&s, SEC, 0, 0, &t);
	mthp_stall_step(&s, SEC + 50 * MS, 50 * MS, 0, &t);
	CHECK(!s.high, "50 ms of stall in 50 ms is not yet 100 ms in 1 s");
	mthp_stall_step(&s, SEC + 100 * MS, 100 * MS, 0, &t);
	CHECK(s.high, "100 ms is, at once");
}

static void verdict_only_rises_within_a_window(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };

	mthp_stall_step(&s, SEC, 0, 0, &t);
	mthp_stall_step(&s, 2 * SEC, 500 * MS, 0, &t);
	CHECK(s.high, "high");
	for (__u64 now = 2 * SEC; now < 3 * SEC; now += 10 * MS) {
		mthp_stall_step(&s, now, 500 * MS, 0, &t);
		CHECK(s.high, "calm, but the window is not over at %llu", now);
	}
	mthp_stall_step(&s, 3 * SEC, 500 * MS, 0, &t);
	CHECK(!s.high, "a calm window is over");
}

/* Scans far more often than the window must not move the anchor along. */
static void the_anchor_moves_once_per_window(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };
	__u64 moved = 0, anchor = 0;

	for (__u64 now = SEC; now <= 11 * SEC; now += MS) {
		mthp_stall_step(&s, now, 0, 0, &t);
		moved += s.anchor_ns != anchor;
		anchor = s.anchor_ns;
	}
	CHECK(moved == 11, "moved %llu times", moved);
}

static void a_total_that_begins_anew_is_no_pressure(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };

	mthp_stall_step(&s, SEC, 100 * SEC, 0, &t);
	mthp_stall_step(&s, 2 * SEC, 0, 0, &t);
	CHECK(!s.high, "PSI switched off and on");
	mthp_stall_step(&s, 3 * SEC, 200 * MS, 0, &t);
	CHECK(s.high, "and judged from there");
}

static void extreme_samples_do_not_overflow(void)
{
	struct mthp_tunables t = defaults();

	for (int i = 0; i < 1000000; i++) {
		struct mthp_stall s = { .seen = 1, .anchor_ns = nasty_u64(),
					.anchor_stall_ns = nasty_u64() };
		__u64 now = nasty_u64(), total = nasty_u64(), elapsed;
		__u64 from = s.anchor_ns, stall_from = s.anchor_stall_ns;
		unsigned __int128 least;

		t.window_ns = 1 + nasty_u64() % (10 * SEC);
		t.threshold_ns = 1 + nasty_u64() % t.window_ns;
		mthp_stall_step(&s, now, total, 0, &t);
		if (now < from || total < stall_from) {
			CHECK(!s.high, "backwards");
			continue;
		}
		elapsed = now - from > t.window_ns ? now - from : t.window_ns;
		least = (unsigned __int128)t.threshold_ns * elapsed;
		CHECK((int)s.high == ((unsigned __int128)(total - stall_from) * t.window_ns >= least),
		      "stall %llu in %llu", total - stall_from, elapsed);
	}
}

static const struct test tests[] = {
	TEST(products_compare_like_128_bits),
	TEST(first_sample_only_sets_the_anchor),
	TEST(first_sample_takes_over_the_parents_verdict),
	TEST(threshold_is_reached_exactly),
	TEST(verdict_does_not_depend_on_the_scan_rhythm),
	TEST(an_early_scan_is_not_normalised_upwards),
	TEST(verdict_only_rises_within_a_window),
	TEST(the_anchor_moves_once_per_window),
	TEST(a_total_that_begins_anew_is_no_pressure),
	TEST(extreme_samples_do_not_overflow),
};

int main(int argc, char **argv)
{
	return run_tests(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
