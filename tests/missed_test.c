// SPDX-License-Identifier: GPL-2.0-only
/*
 * Unit tests of what says if reclaim's victims are missed: bpf/missed.h, the code the kernel runs,
 * compiled for the host.  tests/decide.rs runs each by its name.
 */
#include "unit.h"
#include "missed.h"

/* Pages of 8 MiB, four of the largest folios. */
#define MUCH 2048

/* The least that ends a window of a second. */
#define SOON (SEC - SEC / 16)

/* Levels. */
#define OWN 7
#define BETWEEN 5
#define ABOVE 3

/* What a scan reads next, @sec after the one before: so much went, came back, and came back to others. */
static struct mthp_taken_now after(const struct mthp_taken *s, __u64 ns, __u64 out, __u64 in, __u64 others)
{
	return (struct mthp_taken_now){
		.now = s->anchor_ns + ns, .went = s->went + out, .came = s->came + in,
		.others = s->others + others, .level = s->level, .reached = s->level,
	};
}

/* A cgroup with history, below a limit of one above, that has its anchor. */
static struct mthp_taken begun(const struct mthp_tunables *t)
{
	const struct mthp_taken_now took = { SEC, 1000000, 500000, 400000, ABOVE, ABOVE };
	struct mthp_taken s = { 0 };

	mthp_taken_step(&s, &took, t);
	return s;
}

/* One more window of a second. */
static void window(struct mthp_taken *s, __u64 out, __u64 in, __u64 others, const struct mthp_tunables *t)
{
	const struct mthp_taken_now took = after(s, SEC, out, in, others);

	mthp_taken_step(s, &took, t);
}

static void what_went_before_is_history(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	CHECK(!s.unmissed, "a million pages in the past");
	CHECK(s.anchor_ns == SEC && s.went == 1000000 && s.came == 500000, "the anchor");
	CHECK(s.level == ABOVE && s.others == 400000, "that of the limit");
}

static void two_windows_in_a_row_show_it(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, MUCH, 0, 0, &t);
	CHECK(s.unmissed == 1, "one is not enough");
	window(&s, MUCH, 0, 0, &t);
	CHECK(s.unmissed == MTHP_UNMISSED_WINDOWS, "two are");
	for (int i = 0; i < 1000; i++)
		window(&s, MUCH, 0, 0, &t);
	CHECK(s.unmissed == MTHP_UNMISSED_WINDOWS, "it does not count on");
}

static void little_shows_nothing(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, MUCH, 0, 0, &t);
	window(&s, MUCH - 1, 0, 0, &t);
	CHECK(!s.unmissed, "less than four of the largest folios");
}

/* One of sixteen. */
static void a_part_that_comes_back_ends_it(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, MUCH, MUCH / 16 - 1, 0, &t);
	CHECK(s.unmissed == 1, "just not");
	window(&s, MUCH, MUCH / 16, 0, &t);
	CHECK(!s.unmissed, "missed");
	window(&s, MUCH, 0, 0, &t);
	CHECK(s.unmissed == 1, "counted anew");
}

/* 512 pages: who waits for each of its pages gets no more, however much another one writes. */
static void a_number_that_comes_back_ends_it(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, 100 * MUCH, MUCH / 4 - 1, 0, &t);
	CHECK(s.unmissed == 1, "just not");
	window(&s, 100 * MUCH, MUCH / 4, 0, &t);
	CHECK(!s.unmissed, "2 MiB");
}

/* 128 pages: they have no part in what goes. */
static void what_others_get_back_ends_it(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, 100 * MUCH, MUCH / 4 - 1, MUCH / 16 - 1, &t);
	CHECK(s.unmissed == 1, "just not");
	window(&s, 100 * MUCH, 0, MUCH / 16, &t);
	CHECK(!s.unmissed, "half a MiB");
}

/* Whoever waits for each of its pages gets as many in a second, however many windows that is. */
static void a_part_of_a_second_has_a_part_of_these(void)
{
	static const struct {
		__u64 window;
		__u64 in, others;
	} cases[] = {
		{ SEC / 10, 51, 12 }, { SEC / 4, 128, 32 }, { SEC, 512, 128 }, { 10 * SEC, 512, 128 },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (__u32 less = 0; less < 2; less++) {
			struct mthp_tunables t = defaults();
			struct mthp_taken s, other;
			struct mthp_taken_now took;

			t.window_ns = cases[i].window;
			s = other = begun(&t);
			took = after(&s, t.window_ns, 100 * MUCH, cases[i].in - less, 0);
			mthp_taken_step(&s, &took, &t);
			CHECK(s.unmissed == less, "%u, %u", i, s.unmissed);
			took = after(&other, t.window_ns, 100 * MUCH, 0, cases[i].others - less);
			mthp_taken_step(&other, &took, &t);
			CHECK(other.unmissed == less, "others: %u, %u", i, other.unmissed);
		}
}

/* Its limit is its own: nobody else is below it. */
static void of_its_own_limit_there_are_no_others(void)
{
	struct mthp_taken_now took = { SEC, 0, 0, 0, OWN, OWN };
	struct mthp_tunables t = defaults();
	struct mthp_taken s = { 0 };

	for (int i = 0; i < 3; i++) {
		mthp_taken_step(&s, &took, &t);
		took.now += SEC;
		took.went += 100 * MUCH;
		took.came += MUCH / 4 - 1;
	}
	CHECK(s.unmissed == 2, "%u", s.unmissed);
}

static void that_nothing_is_missed_takes_whole_windows(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t), was = s;

	for (__u64 ns = 0; ns < SEC; ns += SEC / 10) {
		const struct mthp_taken_now took = after(&s, ns, 50 * MUCH, 0, 0);

		mthp_taken_step(&s, &took, &t);
		CHECK(!memcmp(&s, &was, sizeof(s)), "%llu ns", ns);
	}
	window(&s, 50 * MUCH, 0, 0, &t);
	CHECK(s.unmissed == 1, "its end");
}

/* The sample after a late one is early: it ends a window all the same. */
static void a_timer_that_does_not_wait_ends_a_window(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);
	struct mthp_taken_now took = after(&s, SOON - 1, MUCH, 0, 0);

	mthp_taken_step(&s, &took, &t);
	CHECK(!s.unmissed, "too early");
	took.now++;
	mthp_taken_step(&s, &took, &t);
	CHECK(s.unmissed == 1, "early");
}

/* A limit of 16 MiB, and swap space of which three quarters are full. */
static void what_is_scarce_is_missed(void)
{
	struct mthp_tunables t = defaults();
	const __s64 none = 1LL << 51, small = 2 * MUCH;

	CHECK(!mthp_scarce(none, 0, none, &t), "no limit");
	CHECK(!mthp_scarce(small, 0, none, &t) && mthp_scarce(small - 1, 0, none, &t), "a small limit");
	CHECK(!mthp_scarce(none, 750, 1000, &t) && mthp_scarce(none, 751, 1000, &t), "swap space");
	CHECK(!mthp_scarce(none, 1000, none, &t), "swap space without a limit");
	CHECK(!mthp_scarce(none, 0, 0, &t), "no swap space at all: nothing goes there");
}

static void what_is_missed_ends_it_within_one(void)
{
	struct mthp_tunables t = defaults();

	for (int others = 0; others < 2; others++) {
		struct mthp_taken s = begun(&t);
		struct mthp_taken_now took;

		window(&s, MUCH, 0, 0, &t);
		window(&s, MUCH, 0, 0, &t);
		took = after(&s, SEC / 10, 0, others ? 0 : MUCH / 4, others ? MUCH / 16 : 0);
		mthp_taken_step(&s, &took, &t);
		CHECK(!s.unmissed, "at once");
		took = after(&s, SEC, 50 * MUCH, others ? 0 : MUCH / 4, others ? MUCH / 16 : 0);
		mthp_taken_step(&s, &took, &t);
		CHECK(!s.unmissed, "this window does not count");
		window(&s, MUCH, 0, 0, &t);
		CHECK(s.unmissed == 1, "the next one does");
	}
}

/* A cgroup that slept: what went may have gone at any time. */
static void a_late_sample_begins_anew(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);
	struct mthp_taken_now took;

	window(&s, MUCH, 0, 0, &t);
	window(&s, MUCH, 0, 0, &t);
	took = after(&s, 4 * SEC - 1, MUCH, 0, 0);
	mthp_taken_step(&s, &took, &t);
	CHECK(s.unmissed == 2, "in time");
	took = after(&s, 4 * SEC, MUCH, 0, 0);
	mthp_taken_step(&s, &took, &t);
	CHECK(!s.unmissed && s.anchor_ns == took.now, "too late");
	/* As requests ask, while another CPU begins a window. */
	CHECK(mthp_is_old(4 * SEC, &t) && !mthp_is_old(4 * SEC - 1, &t), "at the very nanosecond");
	CHECK(!mthp_is_old(0, &t) && !mthp_is_old(-1, &t), "it begins after the clock was read");
}

/* One more sample, @part of a window after the anchor, with the limit of @reached reached. */
static void reaches(struct mthp_taken *s, __u32 reached, __u64 ns, __u64 others, const struct mthp_tunables *t)
{
	struct mthp_taken_now took = after(s, ns, MUCH, 0, others);

	took.reached = reached;
	took.level = mthp_looks_at(s, reached);
	mthp_taken_step(s, &took, t);
}

/* Who else is below a higher limit was not looked at. */
static void a_higher_limit_begins_anew(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, MUCH, 0, 0, &t);
	window(&s, MUCH, 0, 0, &t);
	reaches(&s, ABOVE - 1, SEC / 10, 0, &t);
	CHECK(!s.unmissed && s.level == ABOVE - 1, "%u, level %u", s.unmissed, s.level);
}

/* A job whose memory comes and goes: the limit above is reached at times, and looked at all the time. */
static void limits_that_take_turns_are_one(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	for (int i = 0; i < 10; i++) {
		reaches(&s, OWN, SEC / 4, 0, &t);
		reaches(&s, ABOVE, SEC / 2, 0, &t);
		reaches(&s, i % 2 ? OWN : ABOVE, SEC, 0, &t);
		CHECK(s.level == ABOVE && s.unmissed == (i ? 2 : 1), "%d: %u, level %u", i, s.unmissed, s.level);
	}
	reaches(&s, OWN, SEC / 4, MUCH / 16, &t);
	CHECK(!s.unmissed, "others below the one above miss it");
}

/* Whatever is reached when windows begin and end. */
static void a_limit_that_is_reached_within_a_window_only_is_looked_at(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	for (int i = 0; i < 10; i++) {
		/* The anchor is the first sample that reached the one above. */
		reaches(&s, i ? ABOVE : OWN, SEC / 4, 0, &t);
		reaches(&s, OWN, SEC / 2, 0, &t);
		reaches(&s, OWN, SEC, 0, &t);
		CHECK(s.level == ABOVE && s.unmissed == (i ? 2 : 1), "%d: %u, level %u", i, s.unmissed, s.level);
	}
	/* At its end alone: the one before ended without. */
	reaches(&s, OWN, SEC / 2, 0, &t);
	reaches(&s, ABOVE, SEC, 0, &t);
	CHECK(s.level == ABOVE && s.unmissed == 2, "%u, level %u", s.unmissed, s.level);
	CHECK(s.others != MTHP_UNREAD, "it was looked at");
}

/* After a window without the limit above, nobody below it is asked any more; what was seen holds. */
static void a_lower_limit_is_enough_after_a_window(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, MUCH, 0, 0, &t);
	window(&s, MUCH, 0, 0, &t);
	/* The sample that ended the last window still reached it. */
	reaches(&s, OWN, SEC / 2, 0, &t);
	reaches(&s, OWN, SEC, 0, &t);
	CHECK(s.unmissed == 2 && s.level == ABOVE, "%u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC / 2, 0, &t);
	CHECK(s.level == ABOVE, "half a window");
	reaches(&s, OWN, SEC, 0, &t);
	CHECK(s.unmissed == 2 && s.level == OWN && s.others == MTHP_UNREAD, "%u, level %u", s.unmissed, s.level);
	/* The totals of another level: whatever they are, they are where counting begins. */
	reaches(&s, OWN, SEC / 10, 100 * MUCH, &t);
	CHECK(s.unmissed == 2 && s.level == OWN, "%u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC / 5, MUCH / 16, &t);
	CHECK(!s.unmissed, "others below this one miss it");
}

/* Not that of the sample that happens to come first. */
static void of_lower_limits_the_highest_is_looked_at(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	reaches(&s, OWN, SEC, 0, &t);
	reaches(&s, OWN, SEC / 4, 0, &t);
	reaches(&s, BETWEEN, SEC / 2, 0, &t);
	reaches(&s, OWN, SEC, 0, &t);
	CHECK(s.unmissed == 2 && s.level == BETWEEN, "%u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC / 4, 0, &t);
	reaches(&s, BETWEEN, SEC / 2, 0, &t);
	CHECK(s.unmissed == 2 && s.level == BETWEEN, "%u, level %u", s.unmissed, s.level);
}

/* Calm, a scan is a window: the first that reads of others at a level says nothing about them. */
static void a_new_level_is_read_before_a_window_counts(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	reaches(&s, OWN, SEC, MUCH / 16, &t);
	CHECK(!s.unmissed && s.level == ABOVE, "%u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC, MUCH / 16, &t);
	CHECK(!s.unmissed && s.level == OWN && s.others == MTHP_UNREAD, "%u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC, 100 * MUCH, &t);
	CHECK(!s.unmissed && s.level == OWN, "%u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC, 0, &t);
	CHECK(s.unmissed == 1, "%u", s.unmissed);
	reaches(&s, OWN, SEC, MUCH / 16, &t);
	CHECK(!s.unmissed, "others miss it");
}

/* It says nothing about a window, so nothing about which limits were reached in one. */
static void a_late_sample_keeps_the_level(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	reaches(&s, OWN, SEC, 0, &t);
	reaches(&s, OWN, 4 * SEC, 0, &t);
	CHECK(!s.unmissed && s.level == ABOVE, "%u, level %u", s.unmissed, s.level);
}

/* The machine takes, or somebody who asks for it: those below a limit do not pay alone. */
static void without_a_limit_that_is_reached_nothing_counts(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t), none = { 0 };

	CHECK(mthp_looks_at(&none, MTHP_NONE_REACHED) == MTHP_NONE_REACHED, "there is no level");
	window(&s, MUCH, 0, 0, &t);
	window(&s, MUCH, 0, 0, &t);
	/* Now and then is enough: its memory comes and goes. */
	reaches(&s, MTHP_NONE_REACHED, SEC / 4, 0, &t);
	reaches(&s, MTHP_NONE_REACHED, SEC, 0, &t);
	CHECK(s.unmissed == 2 && s.level == ABOVE, "when it began: %u, level %u", s.unmissed, s.level);
	reaches(&s, ABOVE, SEC / 4, 0, &t);
	reaches(&s, MTHP_NONE_REACHED, SEC, 0, &t);
	CHECK(s.unmissed == 2 && s.level == ABOVE, "within: %u, level %u", s.unmissed, s.level);
	reaches(&s, MTHP_NONE_REACHED, SEC / 4, 0, &t);
	CHECK(s.unmissed == 2 && s.level == ABOVE, "so far: %u, level %u", s.unmissed, s.level);
	reaches(&s, MTHP_NONE_REACHED, SEC, 0, &t);
	CHECK(!s.unmissed && s.level == ABOVE, "a window without: %u, level %u", s.unmissed, s.level);
	reaches(&s, MTHP_NONE_REACHED, SEC, 0, &t);
	CHECK(!s.unmissed && s.level == ABOVE, "another one: %u, level %u", s.unmissed, s.level);
	reaches(&s, OWN, SEC, 0, &t);
	CHECK(s.unmissed == 1 && s.level == OWN, "a lower one: %u, level %u", s.unmissed, s.level);
}

/* They are read one after the other. */
static void totals_of_others_may_go_back_a_little(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	window(&s, MUCH, 0, 0, &t);
	window(&s, MUCH, 0, -3, &t);
	CHECK(s.unmissed == 2, "%u", s.unmissed);
}

static void totals_that_go_back_begin_anew(void)
{
	struct mthp_tunables t = defaults();

	for (int which = 0; which < 3; which++) {
		struct mthp_taken s = begun(&t);
		struct mthp_taken_now took;

		window(&s, MUCH, 0, 0, &t);
		window(&s, MUCH, 0, 0, &t);
		took = after(&s, which == 0 ? -1 : (__s64)SEC, which == 1 ? -1 : MUCH, which == 2 ? -1 : 0, 0);
		mthp_taken_step(&s, &took, &t);
		CHECK(!s.unmissed, "%d", which);
	}
}

/* With folios of 512 MiB, as with base pages of 64 KiB, no window has as much. */
static void much_is_by_the_largest_folio(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);

	t.largest_pages = 8192;
	window(&s, 4 * 8192 - 1, 0, 0, &t);
	CHECK(!s.unmissed, "less than four");
	window(&s, 4 * 8192, 0, 0, &t);
	CHECK(s.unmissed == 1, "four");
}

/* Whatever is read, and when: from the end of what shows otherwise it takes two whole windows. */
static void no_course_is_shorter_than_two_windows(void)
{
	struct mthp_tunables t = defaults();
	struct mthp_taken s = begun(&t);
	struct mthp_taken_now took = after(&s, 0, 0, 0, 0);
	__u64 since = 0, reached = 0;

	for (int i = 0; i < 1000000; i++) {
		__u64 in = random_u64() % 8 ? 0 : random_u64() % 512, others = random_u64() % 8 ? 0 : random_u64() % 256;
		__u64 anchor = s.anchor_ns;
		__u32 was = s.unmissed;

		took.now += random_u64() % (random_u64() % 16 ? SEC : 5 * SEC);
		took.went += random_u64() % (4 * MUCH);
		took.came += in;
		took.others += others;
		mthp_taken_step(&s, &took, &t);
		if (s.unmissed < was || (!s.unmissed && s.anchor_ns != anchor))
			since = took.now;
		CHECK(s.unmissed <= was + 1, "%u after %u", s.unmissed, was);
		CHECK(s.unmissed < 2 || took.now - since >= 2 * SOON, "%llu ns", took.now - since);
		CHECK(s.unmissed < 2 || (in < MUCH / 4 && others < MUCH / 16), "%llu, %llu", in, others);
		reached += s.unmissed == 2;
	}
	CHECK(reached > 1000, "%llu", reached);
}

/* What is really so when a scan comes, of each level: more than it reads. */
struct truth {
	__u64 now, went, came;
	__u64 others[OWN + 1];
	__u32 reached;
};

/* One who keeps all of it, from the sample that began the window on. */
struct reference {
	struct truth seen[64];
	int n;
	int asked;	/* the first of these that read what others got back at the level */
	__u32 level;
	__u32 unmissed;
};

static void begins(struct reference *r, const struct truth *at, __u32 level, int asked)
{
	r->seen[0] = *at;
	r->n = 1;
	r->level = level;
	r->asked = asked;
}

static void reference_step(struct reference *r, const struct truth *at)
{
	const struct truth *first = &r->seen[0], *heard;
	__u32 highest = MTHP_NONE_REACHED;
	__u64 out, in, others;
	int missed;

	if (!r->n || at->reached < r->level || at->now - first->now >= 4 * SEC) {
		r->unmissed = 0;
		begins(r, at, r->n && r->level < at->reached ? r->level : at->reached, 0);
		return;
	}
	r->seen[r->n++] = *at;
	heard = &r->seen[r->asked];
	out = at->went - first->went;
	in = at->came - first->came;
	others = at->others[r->level] - heard->others[r->level];
	missed = in >= MUCH / 4 || others >= MUCH / 16;
	if (missed)
		r->unmissed = 0;
	if (at->now - first->now < SOON)
		return;
	for (int i = 0; i < r->n; i++)
		highest = r->seen[i].reached < highest ? r->seen[i].reached : highest;
	if (highest == MTHP_NONE_REACHED || out < MUCH || in >= out / 16)
		r->unmissed = 0;
	else if (!missed && heard != &r->seen[r->n - 1] && r->unmissed < 2)
		r->unmissed++;
	if (highest != MTHP_NONE_REACHED && highest > r->level)
		begins(r, at, highest, 1);
	else
		begins(r, at, r->level, 0);
}

static void every_course_is_as_one_who_knows_all_levels_says(void)
{
	static const __u32 levels[] = { ABOVE, BETWEEN, OWN, MTHP_NONE_REACHED };
	struct mthp_tunables t = defaults();
	__u64 reached = 0, lower = 0;

	for (int course = 0; course < 20000; course++) {
		/* The highest that may be reached, and how often it is what is. */
		unsigned int top = random_u64() % 3, often = 1 + random_u64() % 8;
		struct truth at = { .now = SEC, .reached = levels[top] };
		struct reference r = { .n = 0 };
		struct mthp_taken s = { 0 };

		for (int i = 0; i < 60; i++) {
			struct mthp_taken_now took;
			__u32 level = s.level;

			at.now += random_u64() % (random_u64() % 40 ? SEC : 5 * SEC);
			at.went += random_u64() % (4 * MUCH);
			at.came += random_u64() % 16 ? 0 : random_u64() % 512;
			/* Who is below a limit is below those above it. */
			for (unsigned int of = 0; of < 3; of++)
				if (!(random_u64() % 8)) {
					__u64 more = random_u64() % 160;

					for (unsigned int up = 0; up <= of; up++)
						at.others[levels[up]] += more;
				}
			at.reached = levels[random_u64() % often ? top + random_u64() % (4 - top) : top];
			if (!i)
				at.reached = levels[top];
			took = (struct mthp_taken_now){
				.now = at.now, .went = at.went, .came = at.came, .reached = at.reached,
				.level = mthp_looks_at(&s, at.reached),
			};
			took.others = at.others[took.level];
			mthp_taken_step(&s, &took, &t);
			reference_step(&r, &at);
			CHECK(s.level == r.level && s.unmissed == r.unmissed, "%d, %d: level %u and %u, %u and %u",
			      course, i, s.level, r.level, s.unmissed, r.unmissed);
			reached += s.unmissed == 2;
			lower += s.level > level;
		}
	}
	CHECK(reached > 10000 && lower > 10000, "%llu, %llu", reached, lower);
}

static const struct test tests[] = {
	TEST(what_went_before_is_history),
	TEST(two_windows_in_a_row_show_it),
	TEST(little_shows_nothing),
	TEST(a_part_that_comes_back_ends_it),
	TEST(a_number_that_comes_back_ends_it),
	TEST(what_others_get_back_ends_it),
	TEST(a_part_of_a_second_has_a_part_of_these),
	TEST(of_its_own_limit_there_are_no_others),
	TEST(that_nothing_is_missed_takes_whole_windows),
	TEST(a_timer_that_does_not_wait_ends_a_window),
	TEST(what_is_scarce_is_missed),
	TEST(what_is_missed_ends_it_within_one),
	TEST(a_late_sample_begins_anew),
	TEST(a_higher_limit_begins_anew),
	TEST(limits_that_take_turns_are_one),
	TEST(a_limit_that_is_reached_within_a_window_only_is_looked_at),
	TEST(a_lower_limit_is_enough_after_a_window),
	TEST(of_lower_limits_the_highest_is_looked_at),
	TEST(a_new_level_is_read_before_a_window_counts),
	TEST(a_late_sample_keeps_the_level),
	TEST(without_a_limit_that_is_reached_nothing_counts),
	TEST(totals_of_others_may_go_back_a_little),
	TEST(totals_that_go_back_begin_anew),
	TEST(much_is_by_the_largest_folio),
	TEST(no_course_is_shorter_than_two_windows),
	TEST(every_course_is_as_one_who_knows_all_levels_says),
};

RUN_TESTS(tests)
