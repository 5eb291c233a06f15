// SPDX-License-Identifier: GPL-2.0-only
//! What reclaim takes and nobody misses is given in large folios, whatever stalls or has no room.

mod common;

use std::time::{Duration, Instant};

use common::ext::{Ext, status_of};
use common::worker::{Busy, MADV_PAGEOUT, Worker};
use common::{Group, MIB, Setting, SlowSwap, Swap, eventually, free_on_node, keyed, vmstat, world};

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
        forgets_and_reads();
    }
}

/// The last one by its name: from then on the kernel reads swap by pages until it is booted again.
#[test]
#[ignore = "needs the lab's VM"]
fn zswap_is_swap_too() {
    world();
    let _swap = Swap::on();
    let _zswap = Setting::zswap();
    let before = vmstat("pswpout");
    forgets_and_reads();
    assert_eq!(vmstat("pswpout"), before, "it had room for all");
}

fn forgets_and_reads() {
    let group = Group::new("forgets");
    group.set("memory.high", "32M");
    let ext = Ext::run(&group, &WINDOW);
    let mut worker = Worker::new(&group);
    worker.fill(48 * MIB);
    let first = worker.huge();
    assert!(first <= 16 * MIB, "{first} bytes at the limit");
    assert!(becomes_unmissed(&group));
    let huge: u64 = (0..3).map(|_| writes_and_forgets(&group)).sum();
    assert!(huge >= 48 * MIB, "{huge} bytes are huge");
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
        assert!(huge < 32 * MIB, "{huge} bytes are huge");
    });
    let after = swapped(&group);
    assert!(
        after.1 > before.1 + 2048,
        "some came back: {before:?}, {after:?}"
    );
    drop(busy.stop());
}

/// Pages that went to swap, and that came back; or to zswap, which has room for all.
fn swapped(group: &Group) -> (u64, u64) {
    let stat = group.get("memory.stat");
    let sum = |keys: [&str; 2]| keys.map(|key| keyed(&stat, key)).iter().sum();
    (sum(["pswpout", "zswpout"]), sum(["pswpin", "zswpin"]))
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

/// Others would pay, and the next scan may be far away: of a cgroup in which nobody is it asks nothing.
#[test]
#[ignore = "needs the lab's VM"]
fn a_machine_that_fills_ends_it_at_once() {
    world();
    let _swap = Swap::on();
    let (group, others) = (Group::new("forgets"), Group::new("others"));
    group.set("memory.high", "40M");
    let _ext = Ext::run(&group, &WINDOW);
    assert!(becomes_unmissed(&group));
    // More than is small, and less than the limit is too small for.
    let huge = || {
        let mut worker = Worker::new(&group);
        worker.fill(28 * MIB);
        worker.huge()
    };
    assert!(huge() > 0, "before");
    let mut filler = Worker::new(&others);
    filler.fill(free_on_node("0") - 192 * MIB);
    assert!(!unmissed(&group), "nobody has asked since");
    assert_eq!(huge(), 0);
}

/// Somebody takes, and not for its limit: those who pay are not below it.
#[test]
#[ignore = "needs the lab's VM"]
fn what_goes_below_a_limit_that_is_not_reached_is_missed() {
    world();
    let _swap = Swap::on();
    let group = Group::new("bounded");
    group.set("memory.high", "40M");
    let _ext = Ext::run(&group, &WINDOW);
    assert!(becomes_unmissed(&group));
    group.set("memory.high", "512M");
    let round = || {
        let mut worker = Worker::new(&group);
        worker.fill(64 * MIB);
        assert_eq!(worker.advise(MADV_PAGEOUT), 0);
    };
    eventually("it ends", || {
        round();
        !unmissed(&group)
    });
    stays_missed(&group, round);
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

/// Who else reads from a device that waits would wait longer, and nobody is asked.
#[test]
#[ignore = "needs the lab's VM"]
fn what_goes_to_a_device_that_waits_is_missed() {
    world();
    let _swap = Swap::on();
    let group = Group::new("bounded");
    group.set("memory.high", "40M");
    let _ext = Ext::run(&group, &WINDOW);
    assert!(becomes_unmissed(&group));
    let slow = SlowSwap::on();
    eventually("it ends", || {
        writes_and_forgets(&group);
        !unmissed(&group)
    });
    stays_missed(&group, || {
        writes_and_forgets(&group);
    });
    drop(slow);
    assert!(becomes_unmissed(&group), "zram is there alone");
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
