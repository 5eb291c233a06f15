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

/* Without pressure of its own a cgroup follows the one above; with it, it begins anew. */
static void a_blind_cgroup_takes_the_verdict_from_above(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 };

	mthp_stall_step(&s, SEC, 0, 0, &t);
	mthp_stall_step(&s, 2 * SEC, SEC, 0, &t);
	CHECK(s.high, "a second of stall");
	mthp_stall_blind(&s, 0);
	CHECK(!s.high && !s.stall_ns && !s.elapsed_ns, "calm above");
	mthp_stall_blind(&s, 1);
	CHECK(s.high, "high above");
	mthp_stall_step(&s, 10 * SEC, 5 * SEC, 0, &t);
	CHECK(!s.high, "what nobody sampled is history");
	mthp_stall_step(&s, 11 * SEC, 6 * SEC, 0, &t);
	CHECK(s.high, "what was sampled is not");
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

/* A cgroup whose stall is given window by window, in percent of the window. */
struct course {
	struct mthp_tunables t;
	struct mthp_stall s;
	__u64 now, total;
	unsigned int rises, falls;
};

static void begin(struct course *c)
{
	*c = (struct course){ .t = defaults(), .now = SEC };
	mthp_stall_step(&c->s, c->now, 0, 0, &c->t);
}

static void windows(struct course *c, unsigned int count, unsigned int percent)
{
	for (; count; count--) {
		__u32 before = c->s.high;

		c->now += c->t.window_ns;
		c->total += c->t.window_ns * percent / 100;
		mthp_stall_step(&c->s, c->now, c->total, 0, &c->t);
		c->rises += !before && c->s.high;
		c->falls += before && !c->s.high;
	}
}

static void a_single_burst_is_left_after_one_window(void)
{
	for (unsigned int length = 1; length < 100; length++) {
		struct course c;

		begin(&c);
		windows(&c, length, 50);
		CHECK(c.s.high, "%u windows of stall", length);
		windows(&c, 1, 0);
		CHECK(!c.s.high, "one calm window after %u of stall", length);
	}
}

/* Whatever comes, and whenever it is looked at: it falls at the end of a window only. */
static void no_course_ends_it_within_a_window(void)
{
	unsigned int falls = 0;

	for (int run = 0; run < 300; run++) {
		struct course c;

		begin(&c);
		while (c.now < 2000 * SEC) {
			__u64 anchor = c.s.anchor_ns;
			__u32 before = c.s.high;

			c.now += 1 + random_u64() % (SEC / 4);
			c.total += random_u64() % 2 * random_u64() % (100 * MS);
			mthp_stall_step(&c.s, c.now, c.total, 0, &c.t);
			if (!before || c.s.high)
				continue;
			falls++;
			CHECK(c.s.anchor_ns != anchor, "it fell %llu ns after the window began", c.now - anchor);
		}
	}
	CHECK(falls > 10000, "%u falls", falls);
}

/* What is said of a verdict is the judgement that it is from. */
static void a_verdict_keeps_the_stall_that_it_is_from(void)
{
	struct course c;

	begin(&c);
	windows(&c, 1, 50);
	mthp_stall_step(&c.s, c.now + 100 * MS, c.total, 0, &c.t);
	CHECK(c.s.high && c.s.stall_ns == 500 * MS && c.s.elapsed_ns == SEC, "%llu", c.s.stall_ns);
	mthp_stall_step(&c.s, c.now + 200 * MS, c.total + 150 * MS, 0, &c.t);
	CHECK(c.s.high && c.s.stall_ns == 150 * MS && c.s.elapsed_ns == 200 * MS, "%llu", c.s.stall_ns);
	mthp_stall_step(&c.s, c.now + SEC, c.total + 99 * MS, 0, &c.t);
	CHECK(!c.s.high && c.s.stall_ns == 99 * MS, "%llu", c.s.stall_ns);
}

/* A scan that comes late has the average of all of that time. */
static void a_late_scan_judges_the_average(void)
{
	for (unsigned int percent = 0; percent < 100; percent++) {
		struct course c;

		begin(&c);
		windows(&c, 1, 50);
		mthp_stall_step(&c.s, c.now + 5 * SEC, c.total + percent * 10 * MS, 0, &c.t);
		CHECK((int)c.s.high == (percent >= 50), "a window of %u %% in five", percent);
	}
}

static void each_window_that_is_not_high_ends_it(void)
{
	struct course c;

	begin(&c);
	for (unsigned int turn = 1; turn <= 100; turn++) {
		windows(&c, 1, 10);
		windows(&c, 1, 9);
		CHECK(c.rises == turn && c.falls == turn, "turn %u: %u, %u", turn, c.rises, c.falls);
	}
}

/* After a rest that nobody sampled, a window of stall is a window of stall, not of the rest. */
static void a_rest_is_as_if_it_had_been_sampled(void)
{
	for (int run = 0; run < 10000; run++) {
		struct course c, r;
		__u64 rest, early;

		begin(&c);
		windows(&c, 1 + random_u64() % 3, random_u64() % 100);
		while (!mthp_stall_is_over(&c.s))
			windows(&c, 1, 0);
		r = c;
		rest = random_u64() % 300;
		windows(&c, rest, 0);
		/* The next sample comes some time within a window after the rest was seen to last. */
		early = random_u64() % r.t.window_ns;
		mthp_stall_rest(&r.s, c.now + early, &r.t);
		r.now = r.s.anchor_ns;
		CHECK(r.now == (rest ? c.now + early : c.now), "stall is measured from there on");
		windows(&c, 1, 10);
		windows(&r, 1, 10);
		CHECK(c.s.high && r.s.high, "a window of stall after %llu", rest);
	}
}

/* What has stalled since its anchor, or is high, has to be sampled. */
static void stall_is_no_rest(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_stall s = { 0 }, was;

	mthp_stall_step(&s, SEC, 0, 0, &t);
	mthp_stall_step(&s, SEC + 500 * MS, 50 * MS, 0, &t);
	CHECK(!mthp_stall_is_over(&s) && !s.high, "half of the threshold");
	was = s;
	mthp_stall_rest(&s, 9 * SEC, &t);
	CHECK(!memcmp(&s, &was, sizeof(s)), "some stall");
	mthp_stall_step(&s, 2 * SEC, 500 * MS, 0, &t);
	was = s;
	mthp_stall_rest(&s, 9 * SEC, &t);
	CHECK(s.high && !memcmp(&s, &was, sizeof(s)), "high");
	mthp_stall_blind(&s, 0);
	was = s;
	mthp_stall_rest(&s, 9 * SEC, &t);
	CHECK(!memcmp(&s, &was, sizeof(s)), "not seen");
}

static const struct test tests[] = {
	TEST(products_compare_like_128_bits),
	TEST(first_sample_only_sets_the_anchor),
	TEST(first_sample_takes_over_the_parents_verdict),
	TEST(a_blind_cgroup_takes_the_verdict_from_above),
	TEST(threshold_is_reached_exactly),
	TEST(verdict_does_not_depend_on_the_scan_rhythm),
	TEST(an_early_scan_is_not_normalised_upwards),
	TEST(verdict_only_rises_within_a_window),
	TEST(the_anchor_moves_once_per_window),
	TEST(a_total_that_begins_anew_is_no_pressure),
	TEST(extreme_samples_do_not_overflow),
	TEST(a_single_burst_is_left_after_one_window),
	TEST(no_course_ends_it_within_a_window),
	TEST(a_verdict_keeps_the_stall_that_it_is_from),
	TEST(a_late_scan_judges_the_average),
	TEST(each_window_that_is_not_high_ends_it),
	TEST(a_rest_is_as_if_it_had_been_sampled),
	TEST(stall_is_no_rest),
};

RUN_TESTS(tests)
