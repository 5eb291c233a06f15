// SPDX-License-Identifier: GPL-2.0-only
//! 4 KiB at fault, huge pages later: a policy and khugepaged, end to end, and
//! what khugepaged does with cgroups that a policy closes to it.

mod common;

use common::ext::{Ext, status_of};
use common::trace::{Trace, finish_scan, pages_to_scan, settle};
use common::worker::Worker;
use common::{Group, MIB, count, max_ptes_none, record, world};

const MEMORY: u64 = 8 * MIB;
const STRIDE: u64 = 50 << 10;
/// Folios that processes besides may come to have meanwhile.
const FEW: u64 = 16;

/// No cgroup ever has as much, so each is small: faults get base pages, and
/// khugepaged is free.
const LATER: [&str; 4] = ["--policy", "reactive", "--min-memory", "1024G"];

/// Attaches, and waits until the group is known to be small: with a process
/// that stays it is from then on.
fn attached(group: &Group, args: &[&str]) -> (Ext, Worker) {
    let keeper = Worker::new(group);
    let ext = Ext::run(group, args);
    ext.decision(group, "small");
    (ext, keeper)
}

/// Two scans: one in which it may be new, and a whole one.
fn scan() {
    pages_to_scan(1 << 20);
    finish_scan();
    finish_scan();
}

/// Folios of more than 64 KiB.
fn above_64k() -> u64 {
    (5..=9).map(|order| count(4 << order, "nr_anon")).sum()
}

/// A worker with memory used to the full, and one with a page in 50 KiB.
fn dense_and_sparse(group: &Group) -> (Worker, Worker) {
    let (mut dense, mut sparse) = (Worker::new(group), Worker::new(group));
    dense.fill(MEMORY);
    sparse.map(MEMORY);
    assert!(sparse.touch_sparsely(STRIDE));
    // At the start each has what it uses.
    assert_eq!((dense.huge(), sparse.huge()), (0, 0));
    assert_eq!(dense.resident(), MEMORY);
    assert_eq!(sparse.resident(), MEMORY.div_ceil(STRIDE) * 4096);
    (dense, sparse)
}

#[test]
#[ignore = "needs the lab's VM"]
fn small_at_fault_and_huge_later() {
    world();
    settle();
    let group = Group::new("later");
    let _attached = attached(&group, &LATER);
    for none in [0, 511] {
        max_ptes_none(none);
        let (mut dense, mut sparse) = dense_and_sparse(&group);
        let start = dense.resident() + sparse.resident();
        scan();
        let (huge, end) = (sparse.huge(), dense.resident() + sparse.resident());
        record(&serde_json::json!({
            "name": "collapse_later", "max_ptes_none": none, "resident_at_start": start,
            "resident_later": end, "huge_dense": dense.huge(), "huge_sparse": huge,
        }));
        assert_eq!(dense.huge(), MEMORY, "max_ptes_none = {none}");
        let line = status_of(&group);
        assert_eq!(line["anon_thp_bytes"], MEMORY + huge, "{line}");
        assert_eq!(line["thp_faults"], 0, "{line}");
        // The second round adds to what the first one counted.
        let collapses = if none == 0 { MEMORY } else { 3 * MEMORY } / (2 * MIB);
        assert_eq!(line["thp_collapses"], collapses, "{line}");
        // Holes are filled where the administrator allows it, and only there.
        assert_eq!(huge, if none == 0 { 0 } else { MEMORY });
        assert_eq!(end == start, none == 0);
        assert!(dense.is_intact(4096) && sparse.is_intact(STRIDE));
    }
}

/// With a mask of at most 64 KiB, however often it is scanned.
#[test]
#[ignore = "needs the lab's VM"]
fn nothing_creeps_past_the_mask() {
    world();
    settle();
    let group = Group::new("capped");
    let _attached = attached(&group, &[&LATER[..], &["--cap", "64K"]].concat());
    for none in [0, 511] {
        max_ptes_none(none);
        let (large, small) = (above_64k(), count(64, "nr_anon"));
        let (mut dense, mut sparse) = dense_and_sparse(&group);
        let start = sparse.resident();
        scan();
        let after_one = sparse.resident();
        scan();
        assert_eq!(after_one, sparse.resident(), "max_ptes_none = {none}");
        let folios = count(64, "nr_anon") - small;
        record(&serde_json::json!({
            "name": "collapse_capped", "max_ptes_none": none, "sparse_at_start": start,
            "sparse_later": sparse.resident(), "folios_64k": folios,
        }));
        assert_eq!((dense.huge(), sparse.huge()), (0, 0));
        // All of the one that is used to the full; all of the other if holes may be filled. The test's own
        // memory and the daemon's, which nothing narrows, move a few: as they grow, or are collapsed to larger ones.
        let wanted = if none == 0 { MEMORY } else { 2 * MEMORY } / (64 << 10);
        assert!((wanted - FEW..wanted + FEW).contains(&folios), "{folios}");
        assert!(above_64k() < large + FEW, "max_ptes_none = {none}");
        assert!(dense.is_intact(4096) && sparse.is_intact(STRIDE));
    }
}

/// It asks once for each mapping and reads no page.
#[test]
#[ignore = "needs the lab's VM"]
fn a_closed_cgroup_costs_khugepaged_next_to_nothing() {
    const CLOSED: u64 = 64 * MIB;
    world();
    settle();
    max_ptes_none(511);
    let group = Group::new("closed");
    let ext = Ext::run(&group, &["--cap", "4K"]);
    let mut worker = Worker::new(&group);
    worker.fill(CLOSED);
    scan();
    let trace = Trace::start();
    finish_scan();
    let closed = trace.scans();
    // No other process in the guest has as many pages to scan.
    let most = closed.iter().map(|scan| scan.progress).max().unwrap();
    assert!(most < CLOSED / 4096 / 16, "{closed:#?}");
    drop(trace);
    drop(ext);
    assert_eq!(worker.huge(), 0);
    let trace = Trace::start();
    finish_scan();
    let open = trace.scans();
    let all = open.iter().map(|scan| scan.progress).max().unwrap();
    record(&serde_json::json!({
        "name": "khugepaged_closed", "bytes": CLOSED, "progress_closed_at_most": most, "progress_open": all,
    }));
    assert!(all >= CLOSED / 4096, "{open:#?}");
    assert_eq!(worker.huge(), CLOSED);
}
