// SPDX-License-Identifier: GPL-2.0-only
//! What was given before a limit came is taken back: reclaim asks, and what has no room is split.

mod common;

use std::time::{Duration, Instant};

use common::ext::{Ext, status_of};
use common::worker::{Busy, MADV_HUGEPAGE, MADV_PAGEOUT, Worker, mostly_huge};
use common::{Group, MIB, Setting, Swap, eventually, keyed, vmstat, world};

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

/// Windows in which a busy machine swaps as much as it takes.
const WINDOW: [&str; 2] = ["--window", "3s"];
const SCANNED: Duration = Duration::from_secs(3);

/// Writes what it never reads again, by processes that end: much goes to swap, and nothing comes back.
fn writes_and_forgets(group: &Group) -> u64 {
    let mut worker = Worker::new(group);
    worker.fill(64 * MIB);
    worker.huge()
}

fn unmissed(group: &Group) -> bool {
    status_of(group)["unmissed"] == true
}

/// A job at its limit that stalls while its memory goes, and that has no use for what went.
#[test]
#[ignore = "needs the lab's VM"]
fn what_nobody_misses_is_given_large() {
    world();
    let _swap = Swap::on();
    for multi_gen in [false, true] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let group = Group::new("forgets");
        group.set("memory.high", "32M");
        let ext = Ext::run(&group, &WINDOW);
        let mut worker = Worker::new(&group);
        worker.fill(48 * MIB);
        let first = worker.huge();
        assert!(first <= 16 * MIB, "{first} bytes at the limit");
        assert!(becomes_unmissed(&group), "MGLRU: {multi_gen}");
        let huge: u64 = (0..3).map(|_| writes_and_forgets(&group)).sum();
        assert!(
            huge >= 48 * MIB,
            "{huge} bytes are huge, MGLRU: {multi_gen}"
        );
        ext.expect("a decision because of it", |line| line["unmissed"] == true);
        // Now it has a use for it, and at no time while it does is it so.
        let busy = Busy::with(worker, |worker| worker.read());
        eventually("what is read again is missed", || {
            writes_and_forgets(&group);
            !unmissed(&group)
        });
        let before = swapped(&group);
        stays_missed(&group, || {
            let huge = writes_and_forgets(&group);
            assert!(huge < 32 * MIB, "{huge} bytes are huge, MGLRU: {multi_gen}");
        });
        let after = swapped(&group);
        assert!(
            after.1 > before.1 + 2048,
            "some came back: {before:?}, {after:?}"
        );
        drop(busy.stop());
    }
}

/// Pages that went to swap, and that came back.
fn swapped(group: &Group) -> (u64, u64) {
    let stat = group.get("memory.stat");
    (keyed(&stat, "pswpout"), keyed(&stat, "pswpin"))
}

/// Until it is so: two windows, or as long as a busy machine may take.
fn becomes_unmissed(group: &Group) -> bool {
    let begin = Instant::now();
    loop {
        writes_and_forgets(group);
        if unmissed(group) {
            return true;
        }
        if begin.elapsed() > 30 * SCANNED {
            return false;
        }
    }
}

/// In as many windows as it takes to become so, and one more, much goes and it does not.
fn stays_missed(group: &Group, mut round: impl FnMut()) {
    let (mut before, mut windows, mut since) = (swapped(group).0, 0, Instant::now());
    let begin = since;
    while begin.elapsed() < 30 * SCANNED {
        round();
        assert!(!unmissed(group), "after {windows} windows");
        // The scan's windows are not these.
        if since.elapsed() >= SCANNED {
            let now = swapped(group).0;
            windows += u32::from(now >= before + 2048);
            (before, since) = (now, Instant::now());
        }
        if windows == 4 {
            return;
        }
    }
    panic!("much went in {windows} windows only");
}

/// What goes below one limit is its neighbour's, who wants it back: above one of its own, and above the
/// cgroup that the policy is attached to.
#[test]
#[ignore = "needs the lab's VM"]
fn what_a_neighbour_misses_is_missed() {
    world();
    let _swap = Swap::on();
    let group = Group::new("shares");
    let (pod, reader) = (group.child("pod"), group.child("reader"));
    let writer = pod.child("writer");
    group.set("memory.high", "40M");
    writer.set("memory.high", "32M");
    let _ext = Ext::run(&pod, &WINDOW);
    assert!(becomes_unmissed(&writer), "nobody else is there");
    let mut worker = Worker::new(&reader);
    // Less, and reclaim would leave all of it, and take the writer's alone.
    worker.fill(56 * MIB);
    let busy = Busy::with(worker, |worker| worker.read());
    eventually("the neighbour misses it", || {
        writes_and_forgets(&writer);
        !unmissed(&writer)
    });
    let before = swapped(&reader);
    stays_missed(&writer, || {
        writes_and_forgets(&writer);
    });
    let after = swapped(&reader);
    assert!(
        after.1 > before.1 + 2048,
        "the neighbour's came back: {before:?}, {after:?}"
    );
    drop(busy.stop());
    assert!(becomes_unmissed(&writer), "it has ended");
}

/// Swap space that ends is missed by those who have none; a small limit would be emptied for one folio.
#[test]
#[ignore = "needs the lab's VM"]
fn what_ends_is_not_for_the_taking() {
    world();
    let _swap = Swap::on();
    for (file, value) in [
        ("memory.swap.max", "88M"),
        ("memory.high", "12M"),
        ("memory.max", "12M"),
    ] {
        let group = Group::new("bounded");
        group.set("memory.high", "40M");
        let _ext = Ext::run(&group, &WINDOW);
        assert!(becomes_unmissed(&group), "{file}");
        let mut worker = Worker::new(&group);
        // With the next one, more than three quarters of that swap space.
        worker.fill(64 * MIB);
        group.set(file, value);
        eventually("it ends", || {
            writes_less(&group);
            !unmissed(&group)
        });
        stays_missed(&group, || writes_less(&group));
    }
}

/// The same of the machine's.
#[test]
#[ignore = "needs the lab's VM"]
fn the_end_of_the_machines_swap_space_is_not_for_the_taking() {
    world();
    let _swap = Swap::on();
    let (group, others) = (Group::new("bounded"), Group::new("others"));
    group.set("memory.high", "40M");
    let _ext = Ext::run(&group, &WINDOW);
    assert!(becomes_unmissed(&group));
    // Of 512 MiB.
    let _full: Vec<Worker> = (0..3)
        .map(|_| {
            let mut worker = Worker::new(&others);
            worker.fill(132 * MIB);
            assert_eq!(worker.advise(MADV_PAGEOUT), 0);
            worker
        })
        .collect();
    assert!(others.bytes("memory.swap.current") > 385 * MIB);
    eventually("it ends", || {
        writes_less(&group);
        !unmissed(&group)
    });
    stays_missed(&group, || writes_less(&group));
}

/// Less, of which it has to swap more than is much.
fn writes_less(group: &Group) {
    Worker::new(group).fill(52 * MIB);
}
