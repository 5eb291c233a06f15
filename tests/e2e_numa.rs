// SPDX-License-Identifier: GPL-2.0-only
//! On a host of two NUMA nodes: page cache is room wherever it lies, and a cgroup bound
//! to one node has no room on the other.

mod common;

use std::time::{Duration, Instant};

use common::ext::{Ext, SELDOM, status_of};
use common::worker::{Worker, mostly_huge};
use common::{Group, MIB, Setting, Swap, disk, eventually, free_on_node, read, world};

#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_of_every_node_is_room() {
    world();
    assert_eq!(read("/sys/devices/system/node/online").trim(), "0-1");
    let _defrag = Setting::defrag_always();
    for node in ["0", "1"] {
        let group = Group::new("noded");
        group.set("memory.max", "256M");
        group.set("cpuset.mems", node);
        let _disk = disk();
        let mut worker = Worker::new(&group);
        let _ext = Ext::run(&group, &SELDOM);
        worker.read_disk(512 * MIB);
        assert!(group.files_on(node) > 200 * MIB);
        group.set("cpuset.mems", "0-1");
        worker.fill(64 * MIB);
        mostly_huge(&mut worker, 64 * MIB);
    }
}

/// Less than three quarters of the machine are in use, and more of the node.  The policy is one
/// that does not see stall.
#[test]
#[ignore = "needs the lab's VM"]
fn a_cgroup_bound_to_a_full_node_has_a_full_machine() {
    world();
    let _defrag = Setting::defrag_always();
    let (full, free) = (Group::new("full"), Group::new("free"));
    full.set("cpuset.mems", "0");
    free.set("cpuset.mems", "1");
    // It has no cpuset of its own.
    let inner = full.child("inner");
    let mut filler = Worker::new(&inner);
    filler.fill(free_on_node("0") - 96 * MIB);
    let args = ["--limit-share", "75", "--policy", "headroom"];
    let (_on_full, _on_free) = (Ext::run(&full, &args), Ext::run(&free, &args));
    let (mut bound, mut other) = (Worker::new(&inner), Worker::new(&free));
    bound.fill(16 * MIB);
    assert_eq!(bound.huge(), 0);
    let line = status_of(&inner);
    assert_eq!(line["why"], "room", "{line}");
    assert_eq!(line["level"]["limit"], "nodes", "{line}");
    drop(bound);
    other.fill(64 * MIB);
    mostly_huge(&mut other, 64 * MIB);
    drop(other);
    // The node is as full as before, and not all there is.
    full.set("cpuset.mems", "0-1");
    let mut whole = Worker::new(&inner);
    whole.fill(64 * MIB);
    mostly_huge(&mut whole, 64 * MIB);
}

/// The same machine, by a policy that sees stall and leaves nodes to it: it is not lifted there.
#[test]
#[ignore = "needs the lab's VM"]
fn on_a_full_node_it_matters_what_reclaim_takes() {
    world();
    let _swap = Swap::on();
    let (job, full) = (Group::new("job"), Group::new("full"));
    job.set("cpuset.mems", "0");
    job.set("memory.high", "40M");
    full.set("cpuset.mems", "0");
    let _ext = Ext::run(&job, &["--limit-share", "75", "--window", "3s"]);
    let is_unmissed = || {
        Worker::new(&job).fill(64 * MIB);
        status_of(&job)["unmissed"] == true
    };
    let begin = Instant::now();
    eventually("nobody misses it", is_unmissed);
    let took = begin.elapsed();
    let mut filler = Worker::new(&full);
    filler.fill(free_on_node("0") - 96 * MIB);
    eventually("the node is full", || !is_unmissed());
    let since = Instant::now();
    while since.elapsed() < 2 * took + Duration::from_secs(9) {
        assert!(!is_unmissed(), "{:?}, {took:?}", since.elapsed());
    }
    drop(filler);
    eventually("it is not any more", is_unmissed);
}
