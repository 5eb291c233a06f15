// SPDX-License-Identifier: GPL-2.0-only
//! What was given before a limit came is taken back: reclaim asks, and what has no room is split.

mod common;

use common::ext::{Ext, status_of};
use common::worker::{MADV_HUGEPAGE, Worker, mostly_huge};
use common::{Group, MIB, Setting, Swap, keyed, vmstat, world};

/// One page in four.
const QUARTER: u64 = 4 * 4096;

/// Rounds in which the pages in use can be told from the others.
const ROUNDS: usize = 20;

fn splits(group: &Group) -> u64 {
    keyed(&group.get("memory.stat"), "thp_bpf_split")
}

fn asked(group: &Group) -> u64 {
    status_of(group)["requests"]["reclaim"]
        .as_u64()
        .unwrap_or(0)
}

/// A process that filled its memory when there was no limit.
fn filled(group: &Group, advice: Option<u64>) -> Worker {
    let mut worker = Worker::new(group);
    worker.map(96 * MIB);
    if let Some(advice) = advice {
        assert_eq!(worker.advise(advice), 0);
    }
    worker.touch(96 * MIB);
    mostly_huge(&mut worker, 96 * MIB);
    worker
}

/// Uses a quarter of the pages, which fit, again and again.  Did a round come to need no swap?
fn comes_to_rest(worker: &mut Worker) -> bool {
    (0..ROUNDS).any(|_| {
        let before = vmstat("pswpin");
        assert!(worker.touch_sparsely(QUARTER), "it was killed");
        vmstat("pswpin") == before
    })
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_hot_quarter_fits_into_a_limit_that_came_late() {
    world();
    let _swap = Swap::on();
    for multi_gen in [false, true] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let group = Group::new("late");
        let ext = Ext::run(&group, &[]);
        let mut worker = filled(&group, None);
        assert_eq!(splits(&group), 0, "there was room");
        group.set("memory.high", "48M");
        assert!(comes_to_rest(&mut worker), "MGLRU: {multi_gen}");
        assert!(splits(&group) > 0);
        let line = ext.expect("a decision that splits 2 MiB", |line| {
            // Some room comes and goes, for less than 2 MiB.
            line["orders"]["reclaim"].as_u64().unwrap_or(!0) & (1 << 9) == 0
        });
        assert_eq!(line["cgroup"], group.name(), "{line}");
        assert!(asked(&group) > 0);
        let narrowed = &status_of(&group)["narrowed"]["reclaim"];
        assert!(narrowed.is_object(), "{narrowed}");
        worker.read();
    }
}

/// What `always` does alone.
#[test]
#[ignore = "needs the lab's VM"]
fn without_a_rule_it_does_not() {
    world();
    let _swap = Swap::on();
    for multi_gen in [false, true] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let group = Group::new("late");
        let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "1T"]);
        let mut worker = filled(&group, None);
        group.set("memory.high", "48M");
        assert!(!comes_to_rest(&mut worker), "MGLRU: {multi_gen}");
        assert_eq!(splits(&group), 0);
    }
}

/// Takes memory from a cgroup that uses it, which asks.
fn pressed(group: &Group, worker: &mut Worker) {
    for _ in 0..8 {
        group.reclaim(8 * MIB);
        assert!(worker.touch_sparsely(QUARTER));
    }
    assert!(asked(group) > 0, "nobody asked");
}

/// Where there is room, or no limit at all, nothing is split, whoever asks for memory back.
#[test]
#[ignore = "needs the lab's VM"]
fn what_has_room_stays_in_one_piece() {
    world();
    let _swap = Swap::on();
    for (limit, multi_gen) in [("max", false), ("160M", false), ("160M", true)] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let group = Group::new("roomy");
        // What taking memory stalls is no pressure.
        let _ext = Ext::run(&group, &["--window", "10s", "--threshold", "10s"]);
        let mut worker = filled(&group, None);
        // No more of 2 MiB would be given.
        group.set("memory.high", limit);
        pressed(&group, &mut worker);
        assert_eq!(splits(&group), 0, "{limit}, MGLRU: {multi_gen}");
    }
}

/// Who asks for huge pages keeps what the cgroup can hold, and no more.
#[test]
#[ignore = "needs the lab's VM"]
fn advised_memory_is_split_where_it_cannot_be_held() {
    world();
    let _swap = Swap::on();
    for multi_gen in [false, true] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let group = Group::new("advised");
        let _ext = Ext::run(&group, &["--window", "10s", "--threshold", "10s"]);
        let mut worker = filled(&group, Some(MADV_HUGEPAGE));
        // Others would have to leave 32 MiB.
        group.set("memory.high", "112M");
        pressed(&group, &mut worker);
        assert_eq!(splits(&group), 0, "it fits");
        group.set("memory.high", "48M");
        assert!(comes_to_rest(&mut worker));
        assert!(splits(&group) > 0);
    }
}

/// A cap of the administrator counts for memory that was there before it.
#[test]
#[ignore = "needs the lab's VM"]
fn a_cap_takes_back_what_came_before_it() {
    world();
    let _swap = Swap::on();
    let group = Group::new("capped");
    let mut worker = filled(&group, None);
    let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "reclaim=64K"]);
    pressed(&group, &mut worker);
    assert!(splits(&group) > 0);
}
