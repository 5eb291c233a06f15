// SPDX-License-Identifier: GPL-2.0-only
//! Pressure: seen in time, for the right cgroup, for the right reasons.

mod common;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use common::ext::{Ext, status, status_of};
use common::worker::{MADV_COLLAPSE, MADV_PAGEOUT, Worker};
use common::{Group, MIB, Setting, Swap, count_all, eventually, record, world, write};

/// Without the rules that would answer for pressure.
const PRESSURE_ONLY: [&str; 4] = ["--policy", "reactive", "--min-memory", "0"];

/// A verdict that outlasts a test: the least of stall, in the longest window.
const STICKY: [&str; 4] = ["--threshold", "1us", "--window", "10s"];

fn args<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

/// Brings a cgroup into full stall: its worker must exceed memory.high, with
/// no swap to go to, and is made to sleep by the kernel.
fn stall(group: &Group) -> Worker {
    let mut worker = Worker::new(group);
    worker.fill(8 * MIB);
    group.set("memory.high", "4M");
    worker.map(64 * MIB);
    worker.touch_start(64 * MIB);
    worker
}

/// Ends it.
fn relieve(group: &Group, mut worker: Worker) -> Worker {
    group.set("memory.high", "max");
    worker.finish();
    worker
}

#[test]
#[ignore = "needs the lab's VM"]
fn pressure_narrows_faults_and_spares_others() {
    world();
    let (group, other) = (Group::new("stalled"), Group::new("beside"));
    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &STICKY]));
    let worker = stall(&group);
    let line = ext.decision(&group, "pressure");
    assert_eq!((&line["from"], &line["to"]), (&"all".into(), &"4K".into()));
    assert_eq!(line["orders"]["fault"], 0);
    assert_eq!(line["orders"]["swapin"], 0);
    assert_eq!(line["orders"]["khugepaged"], 0);
    assert_ne!(line["orders"]["collapse"], 0);
    let mut worker = relieve(&group, worker);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0);
    let mut beside = Worker::new(&other);
    beside.fill(8 * MIB);
    assert_eq!(beside.huge(), 8 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn pressure_leaves_forced_collapse_free_but_not_khugepaged() {
    world();
    let group = Group::new("stalled");
    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &STICKY]));
    let worker = stall(&group);
    ext.decision(&group, "pressure");
    let mut worker = relieve(&group, worker);
    worker.fill(8 * MIB);
    {
        let _awake = Setting::khugepaged_awake();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(worker.huge(), 0, "khugepaged is bound");
    }
    assert_eq!(
        status_of(&group)["why"],
        "pressure",
        "the verdict still stands"
    );
    assert_eq!(worker.advise(MADV_COLLAPSE), 0);
    assert_eq!(worker.huge(), 8 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn pressure_stops_large_swap_ins() {
    world();
    let _swap = Swap::on();
    let group = Group::new("swaps");
    let mut worker = Worker::new(&group);
    worker.fill(8 * MIB);
    let before = count_all("swpin");
    assert_eq!(worker.advise(MADV_PAGEOUT), 0);
    worker.read();
    assert!(
        count_all("swpin") > before,
        "without pressure swap-in is large"
    );

    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &STICKY]));
    // With swap, touching far more than memory.high allows stalls as well.
    let mut other = Worker::new(&group);
    group.set("memory.high", "6M");
    other.map(64 * MIB);
    other.touch_start(64 * MIB);
    ext.decision(&group, "pressure");
    let _other = relieve(&group, other);
    let before = count_all("swpin");
    assert_eq!(worker.advise(MADV_PAGEOUT), 0);
    worker.read();
    assert_eq!(count_all("swpin"), before, "under pressure it is not");
    assert_eq!(
        status_of(&group)["why"],
        "pressure",
        "the verdict still stands"
    );
}

/// A window of ten seconds: a verdict that waits for the next scan comes late.
#[test]
#[ignore = "needs the lab's VM"]
fn a_psi_event_is_answered_at_once() {
    world();
    let (mut waits, mut stalls) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let group = Group::new("leaf");
        let before = group.full_stall_us();
        let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &["--window", "10s"]]));
        let worker = stall(&group);
        eventually("100 ms of stall", || {
            group.full_stall_us() - before >= 100_000
        });
        let start = Instant::now();
        let line = ext.decision(&group, "pressure");
        waits.push(start.elapsed().as_millis() as u64);
        stalls.push(line["stall_ms"].as_u64().unwrap());
        drop(relieve(&group, worker));
    }
    record(&serde_json::json!({
        "name": "psi_reaction", "window_ms": 10_000, "waits_ms": waits, "stall_ms": stalls,
    }));
    assert!(
        waits.iter().all(|&ms| ms < 4000),
        "{waits:?} ms, with a window of 10000"
    );
}

/// The root's own `full` hardly moves while one leaf of it stands still.
#[test]
#[ignore = "needs the lab's VM"]
fn one_stalled_leaf_of_many_is_found() {
    world();
    let group = Group::new("many");
    let leaves: Vec<Group> = (0..50).map(|i| group.child(&format!("leaf{i}"))).collect();
    // A busy one beside it, so that the root is never fully stalled.
    let mut busy = Worker::new(&leaves[0]);
    busy.map(256 * MIB);
    busy.touch_start(256 * MIB);
    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &["--window", "10s"]]));
    let worker = stall(&leaves[30]);
    ext.decision(&leaves[30], "pressure");
    let lines = ext.during(Duration::from_millis(500));
    assert!(
        lines.iter().all(|l| l["cgroup"] == leaves[30].name()),
        "the others are not touched: {lines:#?}"
    );
    drop(relieve(&leaves[30], worker));
}

#[test]
#[ignore = "needs the lab's VM"]
fn old_stall_is_no_pressure() {
    world();
    let group = Group::new("history");
    let worker = stall(&group);
    eventually("half a second of stall", || group.full_stall_us() > 500_000);
    let mut worker = relieve(&group, worker);
    // Whatever was still being counted is over.
    std::thread::sleep(Duration::from_secs(1));
    let ext = Ext::run(&group, &PRESSURE_ONLY);
    let lines = ext.happens(Duration::from_millis(2500));
    assert!(lines.is_empty(), "{lines:#?}");
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 8 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_calm_window_brings_everything_back() {
    world();
    let group = Group::new("recovers");
    let ext = Ext::run(&group, &PRESSURE_ONLY);
    let worker = stall(&group);
    ext.decision(&group, "pressure");
    let mut worker = relieve(&group, worker);
    let line = ext.decision(&group, "none");
    assert_eq!(line["to"], "all");
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 8 * MIB);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_new_cgroup_takes_its_parents_verdict() {
    world();
    let group = Group::new("parent");
    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &STICKY]));
    let worker = stall(&group);
    ext.decision(&group, "pressure");
    let worker = relieve(&group, worker);
    // The controller can be handed down only by a cgroup without processes.
    drop(worker);
    // A scan would give it a stall of its own, 0 of 0 seconds.
    ext.signal(Signal::SIGSTOP);
    let child = group.child("child");
    let line = status_of(&child);
    ext.signal(Signal::SIGCONT);
    assert_eq!(line["pressure"], true, "nothing is kept of it yet: {line}");
    assert_eq!(line["why"], "pressure", "{line}");
    let from_above = "pressure: taken over from the cgroup above";
    assert_eq!(line["reasons"], serde_json::json!([from_above]), "{line}");
    assert_eq!(line["requests"]["fault"], 0, "{line}");
    let stall = line["stall_ms"].as_u64();
    assert!(
        matches!(stall, None | Some(0)),
        "it has none of its own: {line}"
    );
    let mut young = Worker::new(&child);
    young.fill(8 * MIB);
    assert_eq!(young.huge(), 0, "from the first fault on, without a scan");
    assert_eq!(
        status_of(&group)["pressure"],
        true,
        "the verdict still stands"
    );
}

/// Pressure of one cgroup can be switched off; then what is above is all that is known.
#[test]
#[ignore = "needs the lab's VM"]
fn a_cgroup_without_pressure_takes_its_parents_verdict() {
    world();
    let group = Group::new("parent");
    let (stalled, blind, calm) = (
        group.child("stalled"),
        group.child("blind"),
        group.child("calm"),
    );
    blind.set("cgroup.pressure", "0");
    let _ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &STICKY]));
    let worker = stall(&stalled);
    eventually("the parent's verdict is high", || {
        status_of(&group)["pressure"] == true
    });
    eventually("and that of the blind one", || {
        status_of(&blind)["pressure"] == true
    });
    assert_eq!(status_of(&calm)["pressure"], false, "it has its own");
    assert!(status_of(&calm)["stall_ms"].is_u64());
    assert!(
        status_of(&blind)["stall_ms"].is_null(),
        "none that is known"
    );
    drop(relieve(&stalled, worker));
}

/// More than one call of the scan visits (`MTHP_VISITS`).
#[test]
#[ignore = "needs the lab's VM"]
fn each_of_many_cgroups_is_scanned() {
    const MANY: usize = 1100;
    world();
    let group = Group::new("calls");
    let _leaves: Vec<Group> = (0..MANY)
        .map(|i| group.child_without_memory(&format!("leaf{i}")))
        .collect();
    let _ext = Ext::run(&group, &PRESSURE_ONLY);
    eventually("a scan of all", || {
        let status = status();
        let lines = status["cgroups"].as_array().unwrap();
        let scanned = lines.iter().filter(|line| {
            let name = line["cgroup"].as_str().unwrap();
            name.starts_with("/calls/leaf") && line["stall_ms"].is_u64()
        });
        scanned.count() == MANY
    });
}

/// What a scan leaves out, the first request afterwards looks at.
#[test]
#[ignore = "needs the lab's VM"]
fn a_limit_above_a_cgroup_at_rest_holds_for_its_next_request() {
    world();
    let group = Group::new("rests");
    let leaf = group.child("leaf");
    let room = ["--window", "100ms", "--min-memory", "0"];
    let machine = ["--limit-share", "0", "--set", "count-machine=0"];
    let _ext = Ext::run(&group, &args(&[&room, &machine]));
    let mut worker = Worker::new(&leaf);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 8 * MIB);
    std::thread::sleep(Duration::from_millis(500));
    group.set("memory.high", "64M");
    worker.fill(2 * MIB);
    assert_eq!(worker.huge(), 0, "its first request is the only one");
}

/// A process takes its memory along, and no scan sees it.
#[test]
#[ignore = "needs the lab's VM"]
fn the_next_process_of_a_cgroup_at_rest_is_small() {
    world();
    let group = Group::new("restarts");
    let small = ["--window", "100ms", "--min-memory", "32M"];
    let machine = ["--limit-share", "0", "--set", "count-machine=0"];
    let _ext = Ext::run(&group, &args(&[&small, &machine]));
    let mut first = Worker::new(&group);
    first.fill(64 * MIB);
    eventually("it is large", || {
        first.fill(2 * MIB);
        first.huge() == 2 * MIB
    });
    std::thread::sleep(Duration::from_millis(500));
    drop(first);
    let mut second = Worker::new(&group);
    second.fill(4 * MIB);
    assert_eq!(second.huge(), 0);
}

/// Stall after a rest is that of the last windows, however long the rest was.
#[test]
#[ignore = "needs the lab's VM"]
fn a_rest_does_not_thin_out_the_stall_after_it() {
    world();
    let group = Group::new("rested");
    let leaf = group.child("leaf");
    let ext = Ext::run(&group, &PRESSURE_ONLY);
    let before = leaf.full_stall_us();
    std::thread::sleep(Duration::from_secs(6));
    // What it sees first is more than enough.
    ext.signal(Signal::SIGSTOP);
    let worker = stall(&leaf);
    eventually("a second of stall", || {
        leaf.full_stall_us() - before >= 1_000_000
    });
    ext.signal(Signal::SIGCONT);
    let line = ext.decision(&leaf, "pressure");
    let (stall, elapsed) = (&line["stall_ms"], &line["elapsed_ms"]);
    assert!(stall.as_u64() >= Some(900), "{line}");
    assert!(elapsed.as_u64() < Some(5500), "{line}");
    drop(relieve(&leaf, worker));
}

#[test]
#[ignore = "needs the lab's VM"]
fn some_stall_counts_if_asked() {
    world();
    let group = Group::new("some");
    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &["--set", "some-stall=1"]]));
    let worker = stall(&group);
    ext.decision(&group, "pressure");
    drop(relieve(&group, worker));
}

/// Status and file are read one after the other, while nothing stalls.  All of it is on
/// one processor: of two the kernel takes the mean by how busy they were, and the file's
/// is over other spans of time than a flush's.
#[test]
#[ignore = "needs the lab's VM"]
fn stall_is_counted_in_the_files_units() {
    world();
    write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
    let group = Group::new("units");
    group.set("cpuset.cpus", "0");
    let ext = Ext::run(&group, &args(&[&PRESSURE_ONLY, &["--window", "10s"]]));
    let before = group.full_stall_us();
    let worker = stall(&group);
    let line = ext.decision(&group, "pressure");
    drop(relieve(&group, worker));
    let reported = line["stall_ms"].as_u64().unwrap();
    assert!(reported >= 100, "{reported} ms are over the threshold");
    // The file is brought up to date every two seconds only.
    std::thread::sleep(Duration::from_millis(2500));
    let by_file = (group.full_stall_us() - before) / 1000;
    assert!(
        reported * 95 / 100 <= by_file,
        "{reported} ms reported, {by_file} ms by the file"
    );
}

#[test]
#[ignore = "needs the lab's VM"]
fn short_lived_cgroups_are_no_trouble() {
    world();
    let group = Group::new("churn");
    let mut ext = Ext::run(&group, &["--window", "100ms"]);
    for i in 0..200 {
        let child = group.child(&format!("c{i}"));
        let mut worker = Worker::new(&child);
        worker.fill(4 * MIB);
        drop(worker);
        child.remove();
    }
    ext.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
}
