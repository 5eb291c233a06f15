// SPDX-License-Identifier: GPL-2.0-only
//! 1 GiB pages are one more size that a policy decides about, on a kernel that has both series: per
//! cgroup, by reason and by room, at page faults alone.  `make test-pud-policy` boots that kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs;
use std::ops::Sub;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use common::ext::{Ext, NO_SCAN, SELDOM, output, status_of};
use common::scrape::scrape;
use common::worker::{
    Busy, MADV_COLD, MADV_COLLAPSE, MADV_DONTNEED, MADV_HUGEPAGE, MADV_PAGEOUT, Worker,
};
use common::{
    Group, MIB, Setting, Swap, THP, count, disk, eventually, keyed, read, sizes_on, vmstat, world,
    write,
};
use libbpf_rs::MapHandle;
use mthp_ext::kernel::attached::attached;
use mthp_ext::kernel::carrier::Carrier;
use serde_json::Value;

const GIB: u64 = 1 << 30;
const KIB: u64 = GIB >> 10;
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-1048576kB/enabled";
const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";
const USUAL: &str = "32768";

/// All rules, which take it for granted that 2 MiB are taken back where all fits.
const ALL: [&str; 4] = ["--policy", "default", "--min-memory", "0"];

/// A cgroup on the node that has more ranges of 1 GiB without a page of the kernel's.  It is looked for where the
/// process runs.
fn group(name: &str) -> Group {
    let group = Group::new(name);
    group.set("cpuset.cpus", "1");
    group.set("cpuset.mems", "1");
    group
}

/// What became of the faults that could have had 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Had {
    given: u64,
    refused: u64,
    failed: u64,
    over_limit: u64,
}

impl Had {
    fn now() -> Self {
        Had {
            given: count(KIB, "anon_fault_alloc"),
            refused: count(KIB, "anon_bpf_refused"),
            failed: count(KIB, "anon_fault_fallback"),
            over_limit: count(KIB, "anon_fault_fallback_charge"),
        }
    }
}

impl Sub for Had {
    type Output = Had;

    fn sub(self, before: Had) -> Had {
        Had {
            given: self.given - before.given,
            refused: self.refused - before.refused,
            failed: self.failed - before.failed,
            over_limit: self.over_limit - before.over_limit,
        }
    }
}

const GIVEN: Had = Had {
    given: 1,
    refused: 0,
    failed: 0,
    over_limit: 0,
};
const REFUSED: Had = Had {
    given: 0,
    refused: 1,
    failed: 0,
    over_limit: 0,
};

/// All sizes as elsewhere, and 1 GiB for whoever writes.  What it was after boot is looked at first.
fn pud_world() -> Setting {
    static ONCE: Once = Once::new();
    common::only_in_the_lab();
    ONCE.call_once(|| {
        assert_eq!(
            read(ENABLED).trim(),
            "always inherit madvise [never]",
            "after boot"
        );
    });
    world();
    write(ENABLED, "always");
    Setting::defrag_always()
}

/// A write to a fresh GiB of this process: what becomes of it.
fn touch(worker: &mut Worker) -> Had {
    let before = Had::now();
    worker.map(GIB);
    worker.touch(4096);
    Had::now() - before
}

/// One that has to have it: an attempt that failed makes the next ones wait up to a minute.
fn touch_until_given(worker: &mut Worker) {
    eventually("1 GiB is had", || {
        let given = touch(worker).given == 1;
        if !given {
            std::thread::sleep(Duration::from_millis(500));
        }
        given
    });
}

/// The counts of 1 GiB in `status`; nothing where it was never asked for.
fn of_gib(line: &Value) -> Value {
    of_gib_at("fault", line)
}

fn of_gib_at(reason: &str, line: &Value) -> Value {
    let all = line["by_size"][reason].as_array().unwrap();
    let one = all.iter().find(|one| one["size"] == "1G");
    one.cloned().unwrap_or(Value::Null)
}

fn explained(group: &Group) -> String {
    let out = output(&["explain", &group.name()]);
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_policy_refuses_it_in_one_cgroup_and_gives_it_in_another() {
    let _defrag = pud_world();
    let groups = [group("refused"), group("given"), group("free")];
    let [refused, given, _] = &groups;
    let fixed = |cap| ["--policy", "fixed", "--cap", cap];
    let socket = "/run/mthp-pud";
    let metrics = format!("unix:{socket}");
    let serves = ["--metrics", &metrics];
    let _policies = [
        Ext::run(refused, &[&fixed("2M")[..], &serves].concat()),
        Ext::run(given, &fixed("1G")),
    ];
    for (group, had) in groups.iter().zip([REFUSED, GIVEN, GIVEN]) {
        let mut worker = Worker::new(group);
        assert_eq!(touch(&mut worker), had, "{}", group.name());
        // What is refused 1 GiB has 2 MiB.
        let size = if had == GIVEN { GIB } else { 2 * MIB };
        assert_eq!(worker.resident(), size, "{}", group.name());
    }
    let line = status_of(refused);
    assert_eq!(line["allowed"], "2M-max", "{line}");
    assert_eq!(line["narrowed"]["fault"]["cap"], 1, "{line}");
    let denied = serde_json::json!({"size": "1G", "requests": 1, "allowed": 0, "denied": 1});
    assert_eq!(of_gib(&line), denied, "{line}");
    let line = status_of(given);
    assert_eq!(line["allowed"], "all", "{line}");
    let allowed = serde_json::json!({"size": "1G", "requests": 1, "allowed": 1, "denied": 0});
    assert_eq!(of_gib(&line), allowed, "{line}");
    let text = explained(refused);
    let row = text.lines().find(|row| row.contains("at most"));
    assert!(row.is_some_and(|row| row.contains("at most 2M")), "{text}");
    let metrics = scrape(socket).unwrap();
    let mine = metrics.lines().filter(|line| line.contains("1G"));
    let wanted = format!(
        "mthp_ext_size_requests_total{{cgroup=\"{}\",reason=\"fault\",size=\"1G\"}} 1",
        refused.name()
    );
    assert!(
        mine.clone().any(|line| line == wanted),
        "{:?}",
        mine.collect::<Vec<_>>()
    );
}

/// Other reasons are never asked about it, and what they may have changes nothing.
#[test]
#[ignore = "needs the lab's VM"]
fn it_is_asked_about_at_page_faults_alone() {
    const USED: u64 = 8 * MIB;
    let _defrag = pud_world();
    let _swap = Swap::on();
    let group = group("reasons");
    let mut worker = Worker::new(&group);
    let later = "swapin=4K,khugepaged=4K,collapse=4K,reclaim=4K";
    let args = ["--policy", "fixed", "--bind", "collapse", "--cap"];
    let ext = Ext::run(&group, &[&args[..], &[later]].concat());
    assert_eq!(touch(&mut worker), GIVEN);
    drop(ext);
    let mut worker = Worker::new(&group);
    let bound = [
        "--policy",
        "fixed",
        "--bind",
        "collapse",
        "--cap",
        "fault=64K",
    ];
    let _ext = Ext::run(&group, &bound);
    // A read maps no such page.
    worker.map(GIB);
    let before = Had::now();
    worker.peek(2 * MIB);
    assert_eq!(Had::now(), before);
    assert_eq!(of_gib(&status_of(&group)), Value::Null, "of a read");
    assert_eq!(touch(&mut worker), REFUSED);
    // A range with a page in it is not asked about again.
    let before = Had::now();
    worker.touch(USED - 4096);
    assert_eq!(Had::now(), before);
    // All others ask, of a mapping that 1 GiB would fit.
    let asked = |reason: &str| status_of(&group)["requests"][reason].as_u64().unwrap();
    {
        let _awake = Setting::khugepaged_awake();
        eventually("khugepaged asks", || asked("khugepaged") > 0);
    }
    assert_eq!(worker.advise(MADV_PAGEOUT), 0);
    worker.read();
    assert!(asked("swapin") > 0, "{}", status_of(&group));
    // What is left of the range has no page tables, which is an error.
    worker.advise(MADV_COLLAPSE);
    assert!(asked("collapse") > 0, "{}", status_of(&group));
    let line = status_of(&group);
    for reason in ["swapin", "khugepaged", "collapse"] {
        assert_eq!(of_gib_at(reason, &line), Value::Null, "{line}");
    }
    let denied = serde_json::json!({"size": "1G", "requests": 1, "allowed": 0, "denied": 1});
    assert_eq!(of_gib(&line), denied, "{line}");
}

/// A page of 1 GiB that was used stays in one piece, and nobody is asked, whatever reclaim may keep.
#[test]
#[ignore = "needs the lab's VM"]
fn reclaim_does_not_ask_about_it() {
    let _defrag = pud_world();
    let _swap = Swap::on();
    let group = group("reclaimed");
    let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "reclaim=4K"]);
    let mut worker = Worker::new(&group);
    touch_until_given(&mut worker);
    // Younger than that, so reclaim comes to 1 GiB first; and not used, so that it finds enough then.
    let mut cold = Worker::new(&group);
    cold.fill(64 * MIB);
    assert_eq!(cold.advise(MADV_COLD), 0);
    worker.read();
    let scanned = || keyed(&group.get("memory.stat"), "pgscan");
    let (before, was) = (scanned(), split());
    group.reclaim(2 * MIB);
    let seen = scanned() - before;
    assert!(seen >= GIB / 4096, "{seen} pages were looked at");
    assert_eq!(split(), was);
    let line = status_of(&group);
    assert_eq!(line["requests"]["reclaim"], 0, "{line}");
    worker.read();
    assert_eq!(worker.resident(), GIB);
}

/// How often a mapping of 1 GiB was split, and a page.
fn split() -> [u64; 2] {
    [vmstat("thp_split_pud"), count(KIB, "split")]
}

/// After boot nobody can have it: then no room is too small for it, and no decision is another.
#[test]
#[ignore = "needs the lab's VM"]
fn it_is_no_size_while_it_is_switched_off() {
    let _defrag = pud_world();
    write(ENABLED, "never");
    let group = group("off");
    group.set("memory.max", "1G");
    let ext = Ext::run(&group, &["--min-memory", "0", "--set", "count-machine=0"]);
    let mut worker = Worker::new(&group);
    worker.fill(4 * MIB);
    let gets = || {
        let line = status_of(&group);
        (line["allowed"].clone(), line["why"].clone())
    };
    let all = (Value::from("all"), Value::from("none"));
    assert_eq!(gets(), all);
    assert!(
        !explained(&group).contains("1G back"),
        "{}",
        explained(&group)
    );
    let decisions = |lines: Vec<Value>| -> Vec<Value> {
        let of = |line: &Value| line["event"] == "decision" && line["cgroup"] == group.name();
        lines.into_iter().filter(of).collect()
    };
    let some = Duration::from_secs(3);
    assert_eq!(decisions(ext.during(some)), [] as [Value; 0]);
    // It follows the setting, as others do.
    write(ENABLED, "madvise");
    let less = (Value::from("2M-max"), Value::from("room"));
    assert_eq!(gets(), less);
    let line = ext.decision(&group, "room");
    assert_eq!(
        (&line["from"], &line["to"]),
        (&"all".into(), &"2M-max".into()),
        "{line}"
    );
    assert!(
        explained(&group).contains("too little for 1G"),
        "{}",
        explained(&group)
    );
    write(ENABLED, "inherit");
    assert_eq!(gets(), less);
    write(format!("{THP}/enabled"), "never");
    assert_eq!(gets(), all);
    assert_eq!(decisions(ext.during(some)), [] as [Value; 0]);
    write(format!("{THP}/enabled"), "always");
    write(ENABLED, "never");
}

/// Where settings do not have it looked for no policy is asked.
#[test]
#[ignore = "needs the lab's VM"]
fn settings_come_first() {
    let defrag = pud_world();
    let group = group("settings");
    let mut worker = Worker::new(&group);
    let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "2M"]);
    write(ENABLED, "never");
    let none = Had::now() - Had::now();
    assert_eq!(touch(&mut worker), none);
    write(ENABLED, "always");
    // Of memory that is not advised.
    drop(defrag);
    assert_eq!(touch(&mut worker).refused, 0);
    assert_eq!(of_gib(&status_of(&group)), Value::Null);
    worker.map(GIB);
    assert_eq!(worker.advise(MADV_HUGEPAGE), 0);
    let before = Had::now();
    worker.touch(4096);
    // A cap leaves advised memory alone.
    assert_eq!((Had::now() - before).given, 1);
    let allowed = serde_json::json!({"size": "1G", "requests": 1, "allowed": 1, "denied": 0});
    assert_eq!(of_gib(&status_of(&group)), allowed);
}

#[test]
#[ignore = "needs the lab's VM"]
fn it_fits_a_limit_only_where_the_room_rule_says_so() {
    let _defrag = pud_world();
    let group = group("limited");
    group.set("memory.max", "3G");
    let ext = Ext::run(&group, &NO_SCAN);
    let mut worker = Worker::new(&group);
    // Half of the limit may be in large folios.
    assert_eq!(touch(&mut worker), GIVEN);
    assert_eq!(touch(&mut worker), REFUSED);
    let line = status_of(&group);
    assert_eq!(
        (&line["allowed"], &line["why"]),
        (&"2M-max".into(), &"room".into()),
        "{line}"
    );
    assert_eq!(line["level"]["bytes"], 3 * GIB, "{line}");
    let text = explained(&group);
    assert!(text.contains("too little for 1G"), "{text}");
    assert!(text.contains("memory.max 3G of /limited"), "{text}");
    // 1 GiB and 2 MiB are in use: with one more that is less than half of 5 GiB.
    group.set("memory.max", "5G");
    assert_eq!(touch(&mut worker), GIVEN);
    // Room for 2 GiB beside it would do, and is not there.
    assert_eq!(touch(&mut worker), REFUSED);
    // Who asks for it gets what fits once.
    worker.map(GIB);
    assert_eq!(worker.advise(MADV_HUGEPAGE), 0);
    let before = Had::now();
    worker.touch(4096);
    assert_eq!(Had::now() - before, GIVEN);
    drop(worker);
    drop(ext);
    // Unless that is bound as well.
    group.set("memory.max", "2G");
    let _ext = Ext::run(&group, &[&NO_SCAN[..], &["--bind", "advised"]].concat());
    let mut worker = Worker::new(&group);
    worker.map(GIB);
    assert_eq!(worker.advise(MADV_HUGEPAGE), 0);
    let before = Had::now();
    worker.touch(4096);
    assert_eq!(Had::now() - before, REFUSED);
}

/// 2 MiB are given where all fits, as reclaim takes them back; it does not take back 1 GiB.
#[test]
#[ignore = "needs the lab's VM"]
fn that_all_fits_is_no_excuse() {
    let _defrag = pud_world();
    let group = group("fits");
    group.set("memory.max", "2560M");
    let ext = Ext::run(&group, &[&ALL[..], &SELDOM].concat());
    let mut worker = Worker::new(&group);
    assert_eq!(touch(&mut worker), GIVEN);
    // Beyond half of it, where as much as 2 GiB had to be left beside 2 MiB.
    let mut more = Worker::new(&group);
    more.fill(300 * MIB);
    assert_eq!(touch(&mut worker), REFUSED);
    let line = status_of(&group);
    assert_eq!(
        (&line["allowed"], &line["why"]),
        (&"2M-max".into(), &"room".into()),
        "{line}"
    );
    assert_eq!(worker.huge(), 2 * MIB, "{line}");
    drop(ext);
    // Without that excuse 2 MiB are refused there as well.
    let _ext = Ext::run(&group, &NO_SCAN);
    assert_eq!(touch(&mut worker), REFUSED);
    assert_eq!(worker.huge(), 0);
}

/// Page cache would make room for 2 MiB. For 1 GiB nothing is reclaimed, so what it takes is in use.
#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_is_no_room_for_it() {
    let _defrag = pud_world();
    let (full, other) = (group("cached"), group("other"));
    full.set("memory.max", "2G");
    // Each limit counts then, and page cache with it: 386 MiB would be left.
    let rule = ["--limit-share", "0", "--room-factor", "16"];
    let _ext = Ext::run(&full, &[&ALL[..], &SELDOM, &rule].concat());
    let mut worker = Worker::new(&full);
    worker.map(640 * MIB);
    worker.touch(640 * MIB);
    let disk = disk();
    worker.read_disk(480 * MIB);
    assert!(full.bytes("memory.current") > 1100 * MIB);
    // With the page cache gone 1 GiB would be given.
    assert_eq!(touch(&mut worker), REFUSED, "{}", status_of(&full));
    let text = explained(&full);
    assert!(
        text.contains("too little for 1G") && !text.contains("page cache"),
        "{text}"
    );
    touch_until_given(&mut Worker::new(&other));
    drop(disk);
    full.reclaim(400 * MIB);
    touch_until_given(&mut worker);
}

/// A limit above the cgroup is one as well, and what 2 MiB fit 1 GiB need not.
#[test]
#[ignore = "needs the lab's VM"]
fn a_limit_above_counts() {
    let _defrag = pud_world();
    let top = group("above");
    let inner = top.child("inner");
    let _ext = Ext::run(&top, &NO_SCAN);
    let mut worker = Worker::new(&inner);
    assert_eq!(touch(&mut worker), GIVEN);
    // Who asks what would be decided does not hear of what was there when the last request came.
    top.set("memory.high", "2560M");
    let line = status_of(&inner);
    assert_eq!(line["allowed"], "2M-max", "{line}");
    assert_eq!(touch(&mut worker), REFUSED);
    let line = status_of(&inner);
    assert_eq!(line["level"]["cgroup"], "/above", "{line}");
    assert_eq!(line["level"]["limit"], "memory.high", "{line}");
}

/// The machine is a limit, too, and the next request knows what the last one took.
#[test]
#[ignore = "needs the lab's VM"]
fn it_fits_the_machine_only_where_the_room_rule_says_so() {
    let _defrag = pud_world();
    let group = group("machine");
    let mut worker = Worker::new(&group);
    touch_until_given(&mut worker);
    drop(worker);
    let probe = Ext::run(
        &group,
        &[
            "--policy",
            "headroom",
            "--count-nodes",
            "0",
            "--limit-share",
            "0",
            "--room-factor",
            "1000000",
        ],
    );
    let line = status_of(&group);
    drop(probe);
    let level = &line["level"];
    assert_eq!(level["limit"], "machine", "{line}");
    let left = level["bytes"].as_u64().unwrap() - level["used_bytes"].as_u64().unwrap();
    // What has to be left beside the first one is there; beside a second one it is not.
    let factor = ((left - GIB - GIB / 2) / (2 * MIB)).to_string();
    let args = [
        "--policy",
        "headroom",
        "--count-nodes",
        "0",
        "--limit-share",
        "0",
    ];
    let _ext = Ext::run(&group, &[&args[..], &["--room-factor", &factor]].concat());
    let mut worker = Worker::new(&group);
    assert_eq!(touch(&mut worker), GIVEN, "{line}");
    assert_eq!(touch(&mut worker), REFUSED, "{}", status_of(&group));
    assert_eq!(worker.huge(), 2 * MIB);
    let line = status_of(&group);
    assert_eq!(
        (&line["allowed"], &line["level"]["limit"]),
        (&"2M-max".into(), &"machine".into()),
        "{line}"
    );
}

/// Without a policy one cgroup that is full keeps the others from 1 GiB.
#[test]
#[ignore = "needs the lab's VM"]
fn who_is_refused_makes_nobody_wait() {
    let _defrag = pud_world();
    let (full, other) = (group("full"), group("other"));
    full.set("memory.max", "512M");
    // What it has goes with it: the next one finds as much.
    let ready = || {
        touch_until_given(&mut Worker::new(&other));
        let mut asks = Worker::new(&other);
        asks.map(GIB);
        asks
    };
    let (mut fails, mut asks) = (Worker::new(&full), ready());
    let had = touch(&mut fails);
    let failed = Had {
        given: 0,
        refused: 0,
        failed: 1,
        over_limit: 1,
    };
    assert_eq!(had, failed);
    let before = Had::now();
    asks.touch(4096);
    assert_eq!((Had::now() - before).given, 0, "the node waits");
    drop(asks);
    let (_ext, mut asks) = (Ext::run(&full, &NO_SCAN), ready());
    assert_eq!(touch(&mut fails), REFUSED);
    let before = Had::now();
    asks.touch(4096);
    assert_eq!(Had::now() - before, GIVEN, "nobody waits");
}

/// Links come and go while two processes fault: each fault is given, refused or failed, none is
/// lost, and when the last link has gone none is refused.
#[test]
#[ignore = "needs the lab's VM"]
fn a_policy_is_detached_in_the_middle_of_faults() {
    const TIMES: u64 = 400;
    let _defrag = pud_world();
    let (group, elsewhere) = (group("comes-and-goes"), group("elsewhere"));
    // Its operations are linked to the other cgroup again and again.
    let _ext = Ext::run(&elsewhere, &["--policy", "fixed", "--cap", "2M"]);
    let carrier = Carrier::probe().unwrap();
    let policies = attached(&carrier).unwrap();
    let ops = MapHandle::from_map_id(policies[0].link.map_id).unwrap();
    let path = Path::new("/sys/fs/cgroup").join(group.name().trim_start_matches('/'));
    let directory = fs::File::open(&path).unwrap();
    let link = || {
        carrier
            .attach(ops.as_fd(), directory.as_fd(), &path)
            .unwrap()
    };
    // Without 2 MiB the faults that are refused are cheap.
    let usual = sizes_on(&[KIB]);
    let before = Had::now();
    let fault = |(worker, faults): &mut (Worker, u64)| {
        worker.map(GIB);
        worker.touch(4096);
        *faults += 1;
        assert_eq!(worker.advise(MADV_DONTNEED), 0);
    };
    let busy = [(); 2].map(|()| Busy::with((Worker::new(&group), 0), fault));
    for at in 0..TIMES {
        let was = Had::now().refused;
        let one = link();
        if at % 20 == 0 {
            eventually("a fault is refused", || Had::now().refused > was);
        }
        drop(one);
    }
    // Who was in the middle of it may be refused still.
    std::thread::sleep(Duration::from_millis(100));
    let last = Had::now();
    eventually("a fault is given", || Had::now().given > last.given + 1);
    let after = Had::now();
    let mut faults = 0;
    let workers = busy.map(|one| {
        let (worker, count) = one.stop();
        faults += count;
        worker
    });
    assert_eq!(after.refused, last.refused, "nobody refuses any more");
    let had = Had::now() - before;
    assert_eq!(had.given + had.refused + had.failed, faults, "{had:?}");
    assert!(had.given > 0 && had.refused >= TIMES / 20, "{had:?}");
    common::record(&serde_json::json!({
        "type": "detached", "times": TIMES, "faults": faults, "given": had.given,
        "refused": had.refused, "failed": had.failed,
    }));
    drop((workers, usual));
}

fn khugepaged_runs() -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let names = all.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim() == "khugepaged")
}

/// What other sizes need is not there for 1 GiB, which nothing collapses to.
#[test]
#[ignore = "needs the lab's VM"]
fn it_starts_no_khugepaged_and_reserves_nothing_when_it_is_switched_on_alone() {
    let _defrag = pud_world();
    let sizes = || {
        let all = fs::read_dir(THP)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        all.filter(|path| path.join("enabled").exists())
    };
    for size in sizes() {
        write(size.join("enabled"), "never");
    }
    write(format!("{THP}/enabled"), "never");
    eventually("khugepaged has ended", || !khugepaged_runs());
    // As an administrator has it: more than the kernel works out by itself, and less than for huge pages.
    write(MIN_FREE, USUAL);
    // The setting of all stays never: with another one khugepaged is there for files.
    for word in ["always", "madvise", "inherit"] {
        write(ENABLED, word);
        std::thread::sleep(Duration::from_secs(2));
        assert!(!khugepaged_runs(), "{word}");
        assert_eq!(read(MIN_FREE).trim(), USUAL, "{word}");
        write(ENABLED, "never");
    }
    // The same with 2 MiB does both, or this test would see nothing.
    write(format!("{THP}/hugepages-2048kB/enabled"), "always");
    eventually("khugepaged runs", khugepaged_runs);
    assert_ne!(read(MIN_FREE).trim(), USUAL);
    for size in sizes() {
        write(size.join("enabled"), "inherit");
    }
    write(format!("{THP}/enabled"), "always");
}

/// The settings that policies need are those of all other sizes.
#[test]
#[ignore = "needs the lab's VM"]
fn nobody_switches_it_on_but_the_administrator() {
    let _defrag = pud_world();
    write(ENABLED, "never");
    write(format!("{THP}/hugepages-64kB/enabled"), "never");
    let out = output(&["settings", "apply"]);
    assert!(out.status.success(), "{out:?}");
    assert!(read(format!("{THP}/hugepages-64kB/enabled")).contains("[inherit]"));
    assert!(read(ENABLED).contains("[never]"), "{out:?}");
    let shown = output(&["settings", "show"]);
    assert!(
        !String::from_utf8_lossy(&shown.stdout).contains("1048576"),
        "{shown:?}"
    );
    assert!(output(&["settings", "undo"]).status.success());
    assert_eq!(vmstat("thp_bpf_dropped"), 0);
}
