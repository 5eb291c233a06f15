// SPDX-License-Identifier: GPL-2.0-only
//! How near a limit is decides what the kernel really allocates, and page cache below it is room.

mod common;

use std::fs::File;

use common::ext::{Ext, K64, NO_SCAN, SELDOM, status_of, support};
use common::own::{OwnFile, object_without};
use common::worker::{MADV_PAGEOUT, Worker, mostly_huge};
use common::{
    Group, MIB, Setting, Swap, count, disk, eventually, evict_old_generations, keyed, world,
};

/// Does the kernel ask at reclaim?  Without that, as with the module, what was given stays, and large folios have
/// their share at most.
fn takes_back() -> bool {
    let support = support();
    let serde_json::Value::Array(lacks) = &support["differences"] else {
        panic!("{support}");
    };
    !lacks.iter().any(|lack| lack["of"] == "reclaim")
}

#[test]
#[ignore = "needs the lab's VM"]
fn headroom_under_a_limit_goes_down_order_by_order() {
    world();
    let group = Group::new("limited");
    group.set("memory.max", "256M");
    let _ext = Ext::run(&group, &K64);
    let sizes = [2048, 1024, 512, 256, 128, 64];
    let before = sizes.map(|kib| count(kib, "anon_fault_alloc"));
    let mut worker = Worker::new(&group);
    worker.fill(250 * MIB);
    let got = sizes.map(|kib| count(kib, "anon_fault_alloc"));
    // 2 MiB folios end where 64 of them no longer fit: at 128 MiB of 256.
    let huge = worker.huge();
    assert!((100 * MIB..=130 * MIB).contains(&huge), "{huge}");
    for (i, kib) in sizes.iter().enumerate() {
        assert!(
            got[i] > before[i],
            "no folio of {kib} KiB: {before:?} -> {got:?}"
        );
    }
    let line = status_of(&group);
    assert_eq!(line["why"], "room", "{line}");
}

/// What does not fit beside what is in swap would have to be taken back: there the share counts. So it does for a
/// policy that does not see which folios would stay empty, as without swap nobody takes them back.
#[test]
#[ignore = "needs the lab's VM"]
fn large_folios_may_fill_all_that_fits_or_their_share_of_a_limit() {
    world();
    let _swap = Swap::on();
    let default: &[&str] = &["--policy", "default", "--min-memory", "0"];
    let blind: &[&str] = &["--policy", "headroom", "--count-nodes", "0"];
    let all_that_fits = match takes_back() {
        true => 116 * MIB..=120 * MIB,
        false => 56 * MIB..=64 * MIB,
    };
    for (policy, share, swapped, expected) in [
        (default, "50", 0, all_that_fits),
        (default, "50", 120 * MIB, 40 * MIB..=64 * MIB),
        (default, "25", 120 * MIB, 16 * MIB..=32 * MIB),
        (blind, "50", 0, 40 * MIB..=64 * MIB),
    ] {
        let group = Group::new("share");
        group.set("memory.max", "128M");
        let mut swaps = Worker::new(&group);
        if swapped > 0 {
            swaps.fill(swapped);
            assert_eq!(swaps.advise(MADV_PAGEOUT), 0);
            assert!(group.bytes("memory.swap.current") >= swapped / 10 * 9);
        }
        let args = ["--set", "count-machine=0", "--limit-share", share];
        let _ext = Ext::run(&group, &[policy, &args].concat());
        let mut worker = Worker::new(&group);
        worker.fill(120 * MIB);
        let huge = worker.huge();
        assert!(
            expected.contains(&huge),
            "{policy:?}, {share} %, {swapped}: {huge}"
        );
    }
}

/// A cgroup that may have 256 MiB.
fn limited(name: &str) -> Group {
    let group = Group::new(name);
    group.set("memory.max", "256M");
    group
}

/// Fills the limit of `group` with page cache, which stays while `disk()` is held; `reader` is in it or below.
fn read_files(group: &Group, reader: &mut Worker) {
    reader.read_disk(512 * MIB);
    assert!(group.bytes("memory.current") > 240 * MIB);
}

/// A cgroup whose limit files have filled, what keeps them in memory, and a process there.
fn full_of_files() -> (Group, File, Worker) {
    let group = limited("reader");
    let disk = disk();
    let mut worker = Worker::new(&group);
    read_files(&group, &mut worker);
    (group, disk, worker)
}

/// What docs/upstream/findings.md says of the kernel alone.
#[test]
#[ignore = "needs the lab's VM"]
fn the_kernel_drops_page_cache_for_huge_faults_only_where_defrag_says_so() {
    world();
    for defrag in [false, true] {
        let (_group, _disk, mut worker) = full_of_files();
        let _defrag = defrag.then(Setting::defrag_always);
        let failed = count(2048, "anon_fault_fallback_charge");
        worker.fill(200 * MIB);
        let failed = count(2048, "anon_fault_fallback_charge") - failed;
        assert_eq!(worker.huge(), if defrag { 200 * MIB } else { 0 });
        assert_eq!(failed, if defrag { 0 } else { 100 });
    }
}

/// Reclaim would drop it first: a limit that files have filled leaves room all the same.
/// Faults get it only where they may reclaim for a huge page, which `defrag` decides.
#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_that_was_read_once_is_room() {
    world();
    let _defrag = Setting::defrag_always();
    // With it all fits below the limit, but for what came while the cgroup was small.
    // Its share is half of the limit, which is seen after sixteen requests or at a scan.
    let found = match takes_back() {
        true => 160 * MIB..=200 * MIB,
        false => 112 * MIB..=(128 + 16 * 2) * MIB,
    };
    let none = 0..=0;
    for (multi_gen, args, expected) in [
        (false, &[][..], &found),
        (true, &[], &found),
        (false, &["--set", "spare-cache=0"], &none),
    ] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let (group, _disk, mut worker) = full_of_files();
        let ext = Ext::run(&group, &[args, &["--window", "100ms"]].concat());
        ext.decision(&group, "small");
        let cache = status_of(&group)["cache_bytes"].as_u64().unwrap();
        assert_eq!(cache > 128 * MIB, args.is_empty(), "{cache}");
        worker.fill(200 * MIB);
        let huge = worker.huge();
        assert!(expected.contains(&huge), "{args:?}: {huge}");
        let events = group.get("memory.events.local");
        assert_eq!(keyed(&events, "oom_kill"), 0);
    }
}

/// What is charged does not grow with the program, as page cache makes room for it.
#[test]
#[ignore = "needs the lab's VM"]
fn a_program_that_starts_among_page_cache_is_small_for_no_longer() {
    world();
    let _defrag = Setting::defrag_always();
    let (group, _disk, mut worker) = full_of_files();
    // No scan comes to help within this test, and what reclaim of page cache stalls is no pressure.
    let ext = Ext::run(&group, &["--window", "10s", "--threshold", "10s"]);
    ext.decision(&group, "small");
    worker.fill(64 * MIB);
    mostly_huge(&mut worker, 64 * MIB);
}

/// A service reads its files and then fills its heap, all between two scans.
#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_that_no_scan_has_seen_is_room() {
    world();
    let _defrag = Setting::defrag_always();
    for (args, multi_gen) in [(&SELDOM[..], false), (&NO_SCAN, false), (&SELDOM, true)] {
        let _lru = multi_gen.then(Setting::multi_gen);
        let group = limited("starting");
        let _disk = disk();
        let mut worker = Worker::new(&group);
        let _ext = Ext::run(&group, args);
        read_files(&group, &mut worker);
        worker.fill(64 * MIB);
        mostly_huge(&mut worker, 64 * MIB);
    }
}

/// Without the kfuncs of what memory is left, limits count, and page cache as of the last scan.
#[test]
#[ignore = "needs the lab's VM"]
fn a_carrier_that_does_not_tell_what_is_left_has_limits_and_scans() {
    world();
    let _defrag = Setting::defrag_always();
    let kfuncs = ["bpf_cgroup_spare_pages", "bpf_cgroup_cold_file_pages"];
    let object = OwnFile::new("fewer.bpf.o", object_without(&kfuncs));
    let fewer = ["--object", object.path()];
    // The machine: no folio would fit as often as that.
    let strict = [
        "--policy",
        "headroom",
        "--limit-share",
        "0",
        "--room-factor",
        "1048576",
    ];
    for (ours, level) in [(&[][..], "machine"), (&fewer, "")] {
        let group = Group::new("anywhere");
        let _ext = Ext::run(&group, &[ours, &strict].concat());
        let mut worker = Worker::new(&group);
        worker.fill(32 * MIB);
        let line = status_of(&group);
        assert_eq!(
            line["level"]["limit"].as_str().unwrap_or_default(),
            level,
            "{line}"
        );
        assert_eq!(worker.huge(), if level.is_empty() { 32 * MIB } else { 0 });
    }
    // Page cache: what no scan has found counts as used.  To stall is no pressure within a whole window.
    let scans = ["--window", "1s", "--threshold", "1s"];
    for (args, found) in [(&NO_SCAN[..], false), (&scans, true)] {
        let group = limited("scanned");
        let _disk = disk();
        let mut worker = Worker::new(&group);
        let _ext = Ext::run(&group, &[&fewer[..], args].concat());
        read_files(&group, &mut worker);
        if found {
            eventually("a scan has found it", || {
                status_of(&group)["cache_bytes"].as_u64().unwrap() > 128 * MIB
            });
        }
        worker.fill(64 * MIB);
        let huge = worker.huge();
        assert_eq!(huge >= 48 * MIB, found, "{huge}");
        assert!(found || huge == 0, "{huge}");
    }
}

/// Where there are no more than two generations, the kernel calls both of them active.
#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_in_one_of_two_generations_is_room() {
    world();
    let _defrag = Setting::defrag_always();
    let _lru = Setting::multi_gen();
    let (group, _disk, mut worker) = full_of_files();
    evict_old_generations(&group);
    // Less than the limit: reclaim would begin a third one.
    worker.read_disk(220 * MIB);
    let stat = group.get("memory.stat");
    let (active, inactive) = (keyed(&stat, "active_file"), keyed(&stat, "inactive_file"));
    assert!(
        active > 200 * MIB && inactive < 16 * MIB,
        "{active}, {inactive}"
    );
    let _ext = Ext::run(&group, &SELDOM);
    worker.fill(64 * MIB);
    mostly_huge(&mut worker, 64 * MIB);
}

/// The limit may be that of a pod, and the page cache another container's.
#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_of_a_sibling_is_room_below_a_common_limit() {
    world();
    let _defrag = Setting::defrag_always();
    let _disk = disk();
    let pod = limited("pod");
    let (reader, server) = (pod.child("reader"), pod.child("server"));
    read_files(&pod, &mut Worker::new(&reader));
    let mut worker = Worker::new(&server);
    let ext = Ext::run(&pod, &["--window", "100ms"]);
    worker.fill(MIB);
    ext.decision(&server, "small");
    worker.fill(64 * MIB);
    mostly_huge(&mut worker, 64 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn memory_high_limits_headroom_as_well() {
    world();
    let group = Group::new("high");
    group.set("memory.high", "64M");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&group);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0, "2 MiB * 64 is more than 64 MiB");
}

/// That there was no limit above is believed for sixteen requests, and no longer.
#[test]
#[ignore = "needs the lab's VM"]
fn a_limit_that_comes_above_is_seen_soon() {
    world();
    let group = Group::new("newly");
    let leaf = group.child("leaf");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&leaf);
    worker.fill(32 * MIB);
    mostly_huge(&mut worker, 32 * MIB);
    // A folio of 2 MiB would need 128 MiB of headroom.
    group.set("memory.max", "120M");
    worker.fill(80 * MIB);
    let huge = worker.huge();
    assert!(huge <= 16 * 2 * MIB, "{huge} bytes are huge");
}

#[test]
#[ignore = "needs the lab's VM"]
fn an_ancestors_limit_binds_the_leaf() {
    world();
    let group = Group::new("above");
    group.set("memory.max", "64M");
    let between = group.child("between");
    between.set("memory.max", "128M");
    let leaf = between.child("leaf");
    leaf.set("memory.high", "256M");
    let ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&leaf);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0);
    let line = ext.decision(&leaf, "room");
    assert!(line["room_bytes"].as_u64().unwrap() <= 64 * MIB, "{line}");
    let level = |line: &serde_json::Value| {
        let level = &line["level"];
        (level["cgroup"].clone(), level["limit"].clone())
    };
    assert_eq!(level(&line), (group.name().into(), "memory.max".into()));
    // Another level leaves the least.
    leaf.set("memory.high", "32M");
    let line = status_of(&leaf);
    assert_eq!(level(&line), (leaf.name().into(), "memory.high".into()));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_leaf_without_memory_controller_is_bound_by_who_pays() {
    world();
    let group = Group::new("payer");
    group.set("memory.max", "64M");
    let child = group.child_without_memory("uncharged");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&child);
    worker.fill(16 * MIB);
    assert_eq!(worker.huge(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn headroom_needs_no_daemon_in_the_loop() {
    world();
    let group = Group::new("alone");
    let ext = Ext::run(&group, &K64);
    ext.signal(nix::sys::signal::Signal::SIGSTOP);
    let mut worker = Worker::new(&group);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 8 * MIB);
    group.set("memory.max", "64M");
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0, "the limit counts from the next fault on");
    ext.signal(nix::sys::signal::Signal::SIGCONT);
}
