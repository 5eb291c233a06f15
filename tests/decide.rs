// SPDX-License-Identifier: GPL-2.0-only
//! Runs the C unit tests of the decision, of the room it rests on, of the pressure verdict, of
//! what is missed, and of the parts of a scan, each as a test of its own.  Undefined behaviour,
//! overflow in shifts above all, is a failure.

#![allow(clippy::expect_used, reason = "a failed step fails the test")]

mod host;

use host::Program;

/// Runs one test of a program.
fn check(program: &Program, test: &str) {
    let out = program.run(&[test]);
    assert!(
        out.status.success(),
        "{test}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

macro_rules! tests {
    ($module:ident, $program:literal, $($name:ident),* $(,)?) => {
        mod $module {
            static PROGRAM: super::Program = super::Program::new($program);

            $(
                #[test]
                fn $name() {
                    super::check(&PROGRAM, stringify!($name));
                }
            )*

            #[test]
            fn no_test_is_left_out() {
                let listed = String::from_utf8(PROGRAM.run(&[]).stdout).expect("names");
                let listed: Vec<&str> = listed.lines().collect();
                assert_eq!(listed, [$(stringify!($name)),*]);
            }
        }
    };
}

tests! {
    decide, "decide_test",
    the_decision_has_orders_that_there_are,
    a_rule_is_named_iff_it_narrows,
    the_rule_named_leaves_what_is_allowed,
    room_is_read_only_where_it_can_change_anything,
    unknown_reason_passes_unchanged,
    forced_collapse_is_free,
    forced_collapse_is_bound_on_request,
    advised_memory_that_fits_is_left_alone,
    advised_memory_has_to_fit_once,
    advice_never_takes_away,
    advised_memory_is_bound_on_request,
    calm_and_large_gets_everything,
    pressure_means_base_pages_for_all_but_collapse,
    what_is_not_missed_may_be_large,
    what_is_wanted_is_not_lifted,
    a_machine_without_room_lifts_nothing,
    to_be_lifted_never_takes_away,
    small_means_base_pages_where_zeroes_may_fill_up,
    growth_since_the_scan_counts_as_memory,
    small_ends_at_the_very_byte,
    an_empty_cgroup_is_not_small,
    unknown_memory_is_not_small,
    sparse_means_base_pages_where_zeroes_may_fill_up,
    wasteful_is_more_than_half_and_more_than_the_allowance,
    a_fuller_process_is_never_more_wasteful,
    a_process_is_judged_by_what_it_grows_by,
    a_region_that_is_filled_is_not_sparse_for_long,
    what_a_process_gave_back_says_nothing,
    tables_that_go_say_nothing_any_more,
    a_process_that_is_full_is_not_sparse,
    what_is_swapped_keeps_its_place,
    what_is_not_of_the_heap_is_no_growth_and_neither_is_its_end,
    who_has_shown_nothing_does_not_end_what_others_have_shown,
    gaps_are_of_the_process_that_shows_them,
    what_could_not_be_written_is_not_of_the_heap,
    fuller_growth_is_never_sparser,
    a_cap_caps_every_order,
    a_cap_is_each_reasons_own,
    a_rule_that_is_off_narrows_nothing,
    rules_compose_by_and,
    each_size_is_counted_in_its_place,
}

tests! {
    room, "room_test",
    a_limit_is_none_while_large_folios_have_not_had_their_share,
    a_limit_is_none_while_all_fits,
    less_than_nothing_may_be_used,
    room_is_as_defined,
    room_agrees_with_its_definition,
    room_is_graded_order_by_order,
    room_for_the_largest_is_room_for_all,
    the_machine_is_a_level_like_any_other,
    the_level_that_leaves_the_least_binds,
    the_walk_ends_with_the_nearest_limit,
    more_room_never_allows_less,
    what_is_there_needs_less_room,
    no_room_leaves_base_pages,
    no_limit_means_no_opinion,
    a_factor_of_zero_does_not_divide,
    page_cache_of_a_subtree_is_counted_once,
    page_cache_at_a_scan_is_what_could_go,
    a_pud_has_to_fit_at_the_very_page,
    a_pud_is_given_where_its_last_folio_would_be,
    a_pud_has_to_fit_the_machine,
    what_is_said_of_a_pud_is_said_of_no_other_order,
}

tests! {
    stall, "stall_test",
    products_compare_like_128_bits,
    first_sample_only_sets_the_anchor,
    first_sample_takes_over_the_parents_verdict,
    a_blind_cgroup_takes_the_verdict_from_above,
    threshold_is_reached_exactly,
    verdict_does_not_depend_on_the_scan_rhythm,
    an_early_scan_is_not_normalised_upwards,
    verdict_only_rises_within_a_window,
    the_anchor_moves_once_per_window,
    a_total_that_begins_anew_is_no_pressure,
    extreme_samples_do_not_overflow,
    a_single_burst_is_left_after_one_window,
    no_course_ends_it_within_a_window,
    a_verdict_keeps_the_stall_that_it_is_from,
    a_late_scan_judges_the_average,
    each_window_that_is_not_high_ends_it,
    a_rest_is_as_if_it_had_been_sampled,
    stall_is_no_rest,
}

tests! {
    missed, "missed_test",
    what_went_before_is_history,
    two_windows_in_a_row_show_it,
    little_shows_nothing,
    a_part_that_comes_back_ends_it,
    a_number_that_comes_back_ends_it,
    what_others_get_back_ends_it,
    a_part_of_a_second_has_a_part_of_these,
    of_its_own_limit_there_are_no_others,
    that_nothing_is_missed_takes_whole_windows,
    a_timer_that_does_not_wait_ends_a_window,
    what_is_scarce_is_missed,
    what_is_missed_ends_it_within_one,
    a_late_sample_begins_anew,
    a_higher_limit_begins_anew,
    limits_that_take_turns_are_one,
    a_limit_that_is_reached_within_a_window_only_is_looked_at,
    a_lower_limit_is_enough_after_a_window,
    of_lower_limits_the_highest_is_looked_at,
    a_new_level_is_read_before_a_window_counts,
    a_late_sample_keeps_the_level,
    without_a_limit_that_is_reached_nothing_counts,
    totals_of_others_may_go_back_a_little,
    totals_that_go_back_begin_anew,
    much_is_by_the_largest_folio,
    no_course_is_shorter_than_two_windows,
    every_course_is_as_one_who_knows_all_levels_says,
}

tests! {
    walk, "walk_test",
    one_call_is_enough_for_few,
    a_list_takes_several_calls,
    a_large_tree_takes_several_lists,
    a_calm_scan_visits_those_awake,
    stall_or_a_crowd_brings_the_others,
}
