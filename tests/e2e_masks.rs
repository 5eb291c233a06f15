// SPDX-License-Identifier: GPL-2.0-only
//! The decisions change what the kernel really allocates.

mod common;

use std::time::Duration;

use nix::errno::Errno;

use common::ext::{Ext, status, status_of};
use common::worker::{MADV_COLLAPSE, MADV_HUGEPAGE, MADV_PAGEOUT, Worker, mostly_huge};
use common::{
    Group, MIB, Setting, Swap, count, count_all, eventually, keyed, max_ptes_none, world,
};

/// A process of a cgroup that has been found to be small: what comes now is base pages.
fn small(group: &Group, more: &[&str]) -> (Ext, Worker) {
    let mut worker = Worker::new(group);
    worker.fill(MIB);
    let ext = Ext::run(group, &[&["--policy", "reactive"], more].concat());
    let line = ext.decision(group, "small");
    let bound = match more.iter().any(|word| word.contains("collapse")) {
        true => ",collapse:4K",
        false => "",
    };
    assert_eq!(line["to"], format!("4K-on-fault{bound}"), "{line}");
    (ext, worker)
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_a_policy_all_is_as_the_system_says() {
    world();
    let group = Group::new("plain");
    let mut worker = Worker::new(&group);
    worker.fill(32 * MIB);
    mostly_huge(&mut worker, 32 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_calm_large_cgroup_gets_huge_pages_from_every_policy() {
    world();
    for args in [
        &["--policy", "reactive"][..],
        &["--policy", "headroom"],
        &["--policy", "default"],
        &["--policy", "fixed", "--cap", "2M"],
    ] {
        let group = Group::new("calm");
        let _ext = Ext::run(&group, args);
        let mut worker = Worker::new(&group);
        // A scan in between may take it for small until it has 16 MiB.
        worker.fill(96 * MIB);
        mostly_huge(&mut worker, 96 * MIB);
        assert_eq!(status_of(&group)["allowed"], "all", "{args:?}");
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_small_cgroup_faults_base_pages() {
    world();
    let group = Group::new("small");
    let (_ext, mut worker) = small(&group, &[]);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0);
}

/// On two processors: one of them makes the cgroup's state, and the other finds it made.
#[test]
#[ignore = "needs the lab's VM"]
fn a_new_cgroup_is_small_for_two_first_faults_at_once() {
    world();
    let group = Group::new("twice");
    let _ext = Ext::run(&group, &["--window", "10s"]);
    let mut huge = 0;
    for i in 0..100 {
        let child = group.child(&format!("c{i}"));
        let mut both = [Worker::new(&child), Worker::new(&child)];
        for worker in &mut both {
            worker.map(2 * MIB);
        }
        for worker in &mut both {
            worker.touch_start(4096);
        }
        for worker in &mut both {
            worker.finish();
            huge += worker.huge();
        }
        drop(both);
        child.remove();
    }
    assert_eq!(huge, 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_small_cgroup_may_collapse_by_force() {
    world();
    let group = Group::new("small");
    let (_ext, mut worker) = small(&group, &[]);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0);
    assert_eq!(worker.advise(MADV_COLLAPSE), 0);
    assert_eq!(worker.huge(), 8 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_small_cgroup_is_collapsed_by_khugepaged() {
    world();
    let group = Group::new("small");
    let (_ext, mut worker) = small(&group, &[]);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0);
    let _awake = Setting::khugepaged_awake();
    eventually("khugepaged collapses it", || worker.huge() == 8 * MIB);
}

/// By default one page is enough for khugepaged, and a small cgroup would grow by megabytes.  The
/// rule does not ask what that setting is: also full ranges stay small.
#[test]
#[ignore = "needs the lab's VM"]
fn khugepaged_is_bound_in_small_cgroups_unless_it_is_freed() {
    world();
    for (none, bind, huge) in [
        (511, &[][..], 0),
        (0, &[], 0),
        (511, &["--bind", "advised,collapse"], 0),
        (511, &["--bind-khugepaged", "0"], 4 * MIB),
    ] {
        max_ptes_none(none);
        let group = Group::new("small");
        let _ext = Ext::run(&group, bind);
        let mut worker = Worker::new(&group);
        worker.fill(4 * MIB);
        let _awake = Setting::khugepaged_awake();
        if huge == 0 {
            std::thread::sleep(Duration::from_secs(2));
        }
        eventually(&format!("{huge} huge with {none}, {bind:?}"), || {
            worker.huge() == huge
        });
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn growing_out_of_small_takes_effect_at_once() {
    world();
    let group = Group::new("grows");
    // No scan comes to help within this test.
    let (_ext, mut worker) = small(&group, &["--window", "10s"]);
    worker.fill(64 * MIB);
    let huge = worker.huge();
    assert!(
        huge >= 40 * MIB,
        "{huge}: the first 16 MiB are small, the rest is not"
    );
    assert!(huge <= 52 * MIB, "{huge}: the first 16 MiB are small");
}

#[test]
#[ignore = "needs the lab's VM"]
fn an_empty_cgroup_has_no_verdict_that_stays() {
    world();
    let group = Group::new("empty");
    let ext = Ext::run(&group, &["--policy", "reactive", "--window", "100ms"]);
    // Several scans see it empty, and none what comes after.
    assert!(ext.happens(Duration::from_millis(500)).is_empty());
    assert_eq!(status_of(&group)["allowed"], "all");
    ext.signal(nix::sys::signal::Signal::SIGSTOP);
    let mut worker = Worker::new(&group);
    worker.fill(2 * MIB);
    assert_eq!(worker.huge(), 0, "a new process is small");
    worker.fill(64 * MIB);
    let huge = worker.huge();
    assert!(huge >= 40 * MIB, "{huge}: and stays so for 16 MiB only");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_new_cgroup_is_small_from_its_first_fault() {
    world();
    for policy in ["reactive", "default"] {
        let group = Group::new("above");
        let ext = Ext::run(&group, &["--policy", policy]);
        ext.signal(nix::sys::signal::Signal::SIGSTOP);
        let young = group.child("young");
        let mut worker = Worker::new(&young);
        worker.fill(4 * MIB);
        assert_eq!(worker.huge(), 0, "{policy}: no scan has met it");
        ext.signal(nix::sys::signal::Signal::SIGCONT);
    }
}

/// A page in 50 KiB, as `stress --vm-stride 51200` does: 41 of 512 pages.
#[test]
#[ignore = "needs the lab's VM"]
fn a_sparse_process_faults_base_pages_and_is_not_collapsed() {
    world();
    let group = Group::new("sparse");
    let _ext = Ext::run(&group, &[]);
    let mut worker = Worker::new(&group);
    worker.map(512 * MIB);
    assert!(worker.touch_sparsely(51_200));
    // 512 MiB / 50 KiB are 40 MiB: well over what is small.
    assert_eq!(worker.huge(), 0);
    let line = status_of(&group);
    assert_eq!(line["why"], "sparse", "{line}");
    {
        let _awake = Setting::khugepaged_awake();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(worker.huge(), 0, "khugepaged is bound");
    }
    assert_eq!(worker.advise(MADV_COLLAPSE), 0, "what asks for it gets it");
    assert_eq!(worker.huge(), 512 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_sparse_rule_can_be_turned_off() {
    world();
    let group = Group::new("sparse");
    let _ext = Ext::run(&group, &["--sparse-waste", "0"]);
    let mut worker = Worker::new(&group);
    worker.map(512 * MIB);
    assert!(worker.touch_sparsely(51_200));
    let huge = worker.huge();
    assert!(huge >= 256 * MIB, "{huge}: all but what was small at first");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_cgroup_without_memory_controller_is_not_small() {
    world();
    let group = Group::new("top");
    let child = group.child_without_memory("uncharged");
    let ext = Ext::run(&group, &["--policy", "reactive", "--window", "100ms"]);
    let mut worker = Worker::new(&child);
    worker.fill(MIB);
    assert!(ext.happens(Duration::from_millis(500)).is_empty());
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 8 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_fixed_maximum_order_caps() {
    world();
    let group = Group::new("capped");
    let _ext = Ext::run(
        &group,
        &["--policy", "reactive", "--min-memory", "0", "--cap", "64K"],
    );
    let mut worker = Worker::new(&group);
    let before = count(64, "anon_fault_alloc");
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0);
    assert!(
        count(64, "anon_fault_alloc") - before >= 240,
        "16 MiB are 256 folios of 64K"
    );
    assert_eq!(keyed(&group.get("memory.stat"), "thp_fault_alloc"), 0);
}

/// No PSI, no scan, no limit: what is asked for is what each reason gets.
#[test]
#[ignore = "needs the lab's VM"]
fn a_fixed_policy_caps_each_reason() {
    world();
    let _swap = Swap::on();
    let group = Group::new("fixed");
    let caps = "fault=64K,swapin=4K,khugepaged=2M,collapse=32K";
    let args = ["--policy", "fixed", "--bind", "collapse", "--cap", caps];
    let ext = Ext::run(&group, &args);
    let mut worker = Worker::new(&group);
    let before = count(64, "anon_fault_alloc");
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0);
    assert!(count(64, "anon_fault_alloc") - before >= 240);
    assert_eq!(worker.advise(MADV_COLLAPSE), Errno::EINVAL as u64);
    let line = ext.decision(&group, "cap");
    let to = "fault:64K-max,swapin:4K,khugepaged:all,collapse:32K-max";
    assert_eq!(line["to"], to, "{line}");
    let before = count_all("swpin");
    assert_eq!(worker.advise(MADV_PAGEOUT), 0);
    worker.read();
    assert_eq!(count_all("swpin"), before, "page by page");
    let _awake = Setting::khugepaged_awake();
    eventually("khugepaged may", || worker.huge() == 16 * MIB);
    let settings = &status()["policies"][0]["settings"];
    assert_eq!(settings["cap_bytes"]["swapin"], 4096, "{settings}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_cap_keeps_pmd_folios_for_who_asks() {
    world();
    let group = Group::new("host");
    let _ext = Ext::run(&group, &["--cap", "1M", "--min-memory", "0"]);
    let (mut guest, mut other) = (Worker::new(&group), Worker::new(&group));
    guest.map(32 * MIB);
    assert_eq!(guest.advise(MADV_HUGEPAGE), 0);
    guest.touch(32 * MIB);
    mostly_huge(&mut guest, 32 * MIB);
    let before = count(1024, "anon_fault_alloc");
    other.fill(32 * MIB);
    assert_eq!(other.huge(), 0);
    assert!(count(1024, "anon_fault_alloc") - before >= 24, "but 1 MiB");
}

#[test]
#[ignore = "needs the lab's VM"]
fn descendants_are_bound_also_those_made_later() {
    world();
    let group = Group::new("family");
    let old = group.child("old");
    let _ext = Ext::run(&group, &["--policy", "reactive", "--cap", "4K"]);
    let later = group.child("later");
    let deep = later.child("deep").child("deeper").child("deepest");
    for member in [&old, &deep] {
        let mut worker = Worker::new(member);
        worker.fill(16 * MIB);
        assert_eq!(worker.huge(), 0, "{}", member.name());
    }
    let outside = Group::new("outside");
    let mut worker = Worker::new(&outside);
    worker.fill(16 * MIB);
    mostly_huge(&mut worker, 16 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_moved_process_follows_its_new_cgroup() {
    world();
    let (bound, free) = (Group::new("bound"), Group::new("free"));
    let _ext = Ext::run(&bound, &["--policy", "reactive", "--cap", "4K"]);
    let mut worker = Worker::new(&free);
    worker.fill(4 * MIB);
    assert_eq!(worker.huge(), 4 * MIB);
    worker.join(&bound);
    worker.fill(4 * MIB);
    assert_eq!(worker.huge(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_cap_leaves_advised_memory_alone_unless_asked_otherwise() {
    world();
    for (args, huge) in [
        (&["--cap", "4K"][..], 8 * MIB),
        (&["--cap", "4K", "--bind", "advised"][..], 0),
    ] {
        let group = Group::new("advised");
        let _ext = Ext::run(&group, args);
        let mut worker = Worker::new(&group);
        worker.map(8 * MIB);
        assert_eq!(worker.advise(MADV_HUGEPAGE), 0);
        worker.touch(8 * MIB);
        assert_eq!(worker.huge(), huge, "{args:?}");
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn forced_collapse_is_left_alone_unless_asked_otherwise() {
    world();
    for (more, errno, huge) in [
        (&[][..], 0, 8 * MIB),
        (&["--bind", "collapse"][..], Errno::EINVAL as u64, 0),
    ] {
        let group = Group::new("forced");
        let (_ext, mut worker) = small(&group, more);
        worker.fill(8 * MIB);
        assert_eq!(worker.huge(), 0);
        assert_eq!(worker.advise(MADV_COLLAPSE), errno, "{more:?}");
        assert_eq!(worker.huge(), huge, "{more:?}");
        let line = status_of(&group);
        assert_eq!(line["narrowed"]["collapse"].is_null(), errno == 0, "{line}");
    }
}
