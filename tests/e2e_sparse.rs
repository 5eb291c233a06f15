// SPDX-License-Identifier: GPL-2.0-only
//! The rule `sparse`, end to end: who is found to be sparse, for how long, and who is not.

mod common;

use common::ext::{Ext, SELDOM};
use common::worker::Worker;
use common::{Group, MIB, world};

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
    let group = Group::new("after");
    let _ext = Ext::run(&group, &SELDOM);
    let (_sparse, resident) = sparse(&group);
    assert_eq!(resident, USED);
    // It has shown nothing yet, so it starts like those before it.
    let (_first, huge) = dense(&group);
    assert!(
        (64 * MIB - GROWTH - 4 * MIB..=62 * MIB).contains(&huge),
        "{huge}"
    );
    let (_second, huge) = dense(&group);
    assert!(huge >= 62 * MIB, "{huge}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_process_that_ends_without_having_grown_leaves_no_verdict() {
    world();
    let group = Group::new("briefly");
    let _ext = Ext::run(&group, &SELDOM);
    // As a whole it may look sparse: it has what the test had.
    for _ in 0..3 {
        let mut brief = Worker::new(&group);
        brief.fill(MIB);
    }
    let (_one, huge) = dense(&group);
    assert!(huge >= 64 * MIB - SMALL - 2 * MIB, "{huge}");
}
