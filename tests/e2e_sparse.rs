// SPDX-License-Identifier: GPL-2.0-only
//! The rule `sparse`, end to end: who is found to be sparse, for how long, and who is not.

mod common;

use common::ext::{Ext, SELDOM, status_of};
use common::worker::Worker;
use common::{Group, MIB, count, sizes_on, world};

const MEMORY: u64 = 256 * MIB;
/// A page of sixteen.
const STRIDE: u64 = 64 << 10;
const USED: u64 = MEMORY / STRIDE * 4096;
/// Until its cgroup has 8 MiB, no program gets a large folio.
const SMALL: u64 = 8 * MIB;
/// Eight tables.
const GROWTH: u64 = 16 * MIB;

/// A process that uses a page of sixteen has, of the region, ...
fn sparse(group: &Group) -> (Worker, u64) {
    let mut worker = Worker::new(group);
    worker.map(MEMORY);
    assert!(worker.touch_sparsely(STRIDE));
    let resident = worker.resident();
    (worker, resident)
}

/// The same of one that fills 64 MiB, in 2 MiB folios.
fn dense(group: &Group) -> (Worker, u64) {
    let mut worker = Worker::new(group);
    worker.fill(64 * MIB);
    let huge = worker.huge();
    (worker, huge)
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_sparse_process_and_those_that_come_after_it_get_base_pages() {
    world();
    let group = Group::new("sparse");
    let _ext = Ext::run(&group, &SELDOM);
    let all: Vec<_> = (0..3).map(|_| sparse(&group)).collect();
    for (number, (_, resident)) in all.iter().enumerate() {
        assert_eq!(*resident, USED, "number {number}");
    }
    // By what the region has, as of one of its samples.
    let status = status_of(&group);
    let reason = status["reasons"][0].as_str().unwrap_or_default();
    let shown =
        reason.starts_with("sparse: a process filled ") && reason.contains("that it grew by");
    assert!(shown, "{status}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_process_that_fills_what_it_spans_gets_large_folios() {
    world();
    let group = Group::new("dense");
    let _ext = Ext::run(&group, &SELDOM);
    let (_one, huge) = dense(&group);
    assert!(huge >= 64 * MIB - SMALL - 2 * MIB, "{huge}");
    // What it has from before the region is its growth at no time.
    let (_two, huge) = dense(&group);
    assert!(huge >= 62 * MIB, "{huge}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn one_that_fills_its_growth_ends_what_others_have_shown() {
    world();
    // What others have shown is for 64 MiB: base pages ask once for each 64 KiB.
    let _sizes = sizes_on(&[64, 2048]);
    let group = Group::new("after");
    let _ext = Ext::run(&group, &SELDOM);
    let (_sparse, resident) = sparse(&group);
    assert_eq!(resident, USED);
    // It has shown nothing yet, so it starts like those before it.  As a whole it may be half full before
    // it has grown by eight tables.
    let (_first, huge) = dense(&group);
    let expected = 64 * MIB - GROWTH - 4 * MIB..=60 * MIB;
    assert!(expected.contains(&huge), "{huge}");
    let (_second, huge) = dense(&group);
    assert!(huge >= 62 * MIB, "{huge}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_region_that_is_filled_in_no_order_gets_large_folios() {
    world();
    let _sizes = sizes_on(&[64, 2048]);
    let group = Group::new("random");
    let _ext = Ext::run(&group, &SELDOM);
    let mut worker = Worker::new(&group);
    worker.map(64 * MIB);
    // All its tables are there, and nothing in them: so far that is sparse.
    assert!(worker.touch_sparsely(2 * MIB));
    let before = count(64, "anon_fault_alloc");
    worker.touch(64 * MIB);
    let large = (count(64, "anon_fault_alloc") - before) * (64 << 10);
    // A quarter has to be there first, of those that came since it was met.
    assert!(
        (44 * MIB..=52 * MIB).contains(&large),
        "{} KiB in folios of 64 KiB",
        large >> 10
    );
}

/// What a program has shown ends with it, also where its process goes on.
#[test]
#[ignore = "needs the lab's VM"]
fn a_program_that_is_executed_is_met_anew() {
    world();
    let _sizes = sizes_on(&[64, 2048]);
    let group = Group::new("executes");
    let _ext = Ext::run(&group, &SELDOM);
    // One that stays, or the cgroup would be small after the other one's end.
    let (_stays, _) = sparse(&group);
    let (worker, resident) = sparse(&group);
    assert_eq!(resident, USED);
    let before = count(2048, "anon_fault_alloc");
    worker.execute(64 * MIB);
    let huge = (count(2048, "anon_fault_alloc") - before) * 2 * MIB;
    // As a new process that comes after a sparse one, and a folio less, as its buffer is not aligned.
    let expected = 64 * MIB - GROWTH - 6 * MIB..=60 * MIB;
    assert!(expected.contains(&huge), "{huge}");
}

/// Threads are one process, whichever of them comes to a page.
#[test]
#[ignore = "needs the lab's VM"]
fn threads_are_judged_as_one_process() {
    world();
    let group = Group::new("threads");
    let _ext = Ext::run(&group, &SELDOM);
    let mut worker = Worker::new(&group);
    worker.map(MEMORY);
    worker.touch_by_threads(STRIDE);
    assert_eq!(worker.resident(), USED);
    drop(worker);
    // Those of a process that starts in a cgroup of its own, and fills what it has.
    let group = Group::new("filled");
    let _ext = Ext::run(&group, &SELDOM);
    let mut worker = Worker::new(&group);
    worker.map(64 * MIB);
    worker.touch_by_threads(4096);
    let huge = worker.huge();
    assert!(huge >= 64 * MIB - SMALL - 8 * MIB, "{huge}");
}
