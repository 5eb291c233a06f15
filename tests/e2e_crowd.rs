// SPDX-License-Identifier: GPL-2.0-only
//! Many of everything: cgroups, cgroups that come and go, overrides.  The guest's time is counted
//! in instructions, so that what is measured does not depend on the host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::caps;
use common::ext::{attached, command, fails, output, run_on, status_of};
use common::own::OwnFile;
use common::scrape::scrape;
use common::worker::Worker;
use common::{Group, MIB, PATIENCE, eventually, read, record, world};
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use rustix::fs::{XattrFlags, setxattr};

/// The program with the unit's capabilities under a service manager, which hears when all is in
/// force.  Dropped: killed.
struct Daemon {
    child: Child,
    /// From the start until the policy was in force, and the first scan through.
    ready: Duration,
    log: tempfile::NamedTempFile,
}

impl Daemon {
    fn start(root: &Group, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = directory.path().join("notify");
        let manager = UnixDatagram::bind(&address).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut run = command(&run_on(root, args));
        run.env("NOTIFY_SOCKET", &address);
        caps::only(&mut run, &caps::of_the_unit());
        let begun = Instant::now();
        let out = Stdio::from(log.reopen().unwrap());
        let child = run.stdout(out).spawn().unwrap();
        let mut daemon = Daemon {
            child,
            ready: Duration::ZERO,
            log,
        };
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).expect("it becomes ready");
        daemon.ready = begun.elapsed();
        assert!(bytes[..length].starts_with(b"READY=1\n"));
        daemon
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Processor time so far.
    fn processor(&self) -> Duration {
        clock_gettime(clock_getcpuclockid(self.pid()).unwrap())
            .unwrap()
            .into()
    }

    /// The part of a processor that it takes while `what` goes on.
    fn share(&self, what: impl FnOnce()) -> f64 {
        let (begun, before) = (Instant::now(), self.processor());
        what();
        (self.processor() - before).as_secs_f64() / begun.elapsed().as_secs_f64()
    }

    /// KiB of memory of its own.
    fn memory_kib(&self) -> u64 {
        let status = read(format!("/proc/{}/status", self.pid()));
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    fn log(&self) -> String {
        read(self.log.path())
    }

    /// Ends it as a service manager does.
    fn end(mut self) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(attached(), 0);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// So many a second, of the guest's.
fn paced(each: Duration, times: u32, mut what: impl FnMut(u32)) -> f64 {
    let begun = Instant::now();
    for i in 0..times {
        what(i);
        std::thread::sleep((each * (i + 1)).saturating_sub(begun.elapsed()));
    }
    f64::from(times) / begun.elapsed().as_secs_f64()
}

/// Cgroups that are made, used for a moment, and removed, below the same one.
struct Jobs<'a> {
    root: &'a Group,
    home: std::path::PathBuf,
    worker: Worker,
    pid: String,
}

impl<'a> Jobs<'a> {
    fn new(root: &'a Group, home: &Group) -> Self {
        let worker = Worker::new(home);
        Jobs {
            root,
            home: home.path.join("cgroup.procs"),
            pid: worker.pid().to_string(),
            worker,
        }
    }

    fn run(&mut self, i: u32) {
        let job = self.root.path.join(format!("j{i}"));
        fs::create_dir(&job).unwrap();
        fs::write(job.join("cgroup.procs"), &self.pid).unwrap();
        self.worker.fill(MIB / 16);
        fs::write(&self.home, &self.pid).unwrap();
        fs::remove_dir(&job).unwrap();
    }
}

/// As the package has it: a configuration without overrides.
#[test]
#[ignore = "needs the lab's VM"]
fn ten_thousand_cgroups_of_which_200_are_busy() {
    const ALL: usize = 10_000;
    const BUSY: usize = 200;
    world();
    let root = Group::new("crowd");
    let first = root.child("g0");
    let all: Vec<_> = (1..ALL).map(|i| root.path.join(format!("g{i}"))).collect();
    for path in &all {
        fs::create_dir(path).unwrap();
    }
    let file = OwnFile::new("config.toml", "");
    let socket = "/run/crowd.sock";
    let metrics = format!("unix:{socket}");
    let daemon = Daemon::start(&root, &["--config", file.path(), "--metrics", &metrics]);
    let ready_ms = daemon.ready.as_millis();
    let loaded = daemon.processor();
    // Its first ticks.
    std::thread::sleep(Duration::from_secs(2));
    // By somebody who tells nobody: found in the round that looks at all, once in 60 windows.
    setxattr(&all[7], "user.mthp_ext", b"cap=32K", XattrFlags::empty()).unwrap();
    let idle = daemon.share(|| std::thread::sleep(Duration::from_secs(65)));
    assert!(daemon.log().contains("cap=32K"), "{}", daemon.log());
    let mut worker = Worker::new(&first);
    let pid = worker.pid().to_string();
    let busy = daemon.share(|| {
        let round = Duration::from_secs(1) / BUSY as u32;
        paced(round, 4 * BUSY as u32, |i| {
            let group = &all[i as usize % BUSY * (ALL / BUSY)];
            fs::write(group.join("cgroup.procs"), &pid).unwrap();
            worker.fill(MIB / 4);
        });
    });
    let mut jobs = Jobs::new(&root, &first);
    let mut rate = 0.0;
    let new = daemon.share(|| {
        rate = paced(Duration::from_millis(10), 300, |i| jobs.run(i));
    });
    let kib = daemon.memory_kib();
    // A page names those that have asked, and each is asked for.
    let before = daemon.processor();
    let page = scrape(socket).unwrap();
    let scraped = daemon.processor() - before;
    let (lines, page_kib) = (page.lines().count(), daemon.memory_kib());
    record(&serde_json::json!({
        "name": "crowd", "cgroups": ALL, "busy": BUSY, "ready_ms": ready_ms as u64,
        "processor_ms_until_ready": loaded.as_millis() as u64,
        "idle_share": idle, "busy_share": busy, "new_a_second": rate, "new_share": new, "own_kib": kib,
        "scrape_ms": scraped.as_millis() as u64, "scrape_lines": lines, "own_kib_after": page_kib,
    }));
    println!(
        "ready {ready_ms} ms, processor {loaded:?}, idle {idle}, busy {busy}, {rate} new ones a second {new}, \
         {kib} KiB, a page {scraped:?} for {lines} lines, {page_kib} KiB"
    );
    // Measured: 1 s; 0.5 % over a minute in which all are looked at once, else 0.003 %; 0.5 %: a
    // scan of all takes 1.5 % of its second, and one may fall into the four.  100 new ones a
    // second: 1 %.  Of the 3.3 MiB 1.4 are there from the start: a look at all makes a second list.
    assert!(ready_ms < 2000, "{ready_ms} ms until it is ready");
    assert!(idle < 0.01, "{idle} of a processor while nothing happens");
    assert!(busy < 0.01, "{busy} of a processor");
    assert!(rate > 90.0, "{rate} a second are too few to judge by");
    assert!(
        new < 0.02,
        "{new} of a processor for {rate} new ones a second"
    );
    assert!(kib < 4096, "{kib} KiB are its own");
    // 260 ms and 5.4 MiB.
    assert!(scraped.as_millis() < 400, "{scraped:?} for a page");
    assert!(page_kib < 8192, "{page_kib} KiB after it");
    drop((worker, jobs));
    daemon.end();
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_thousand_cgroups_a_second_come_and_go() {
    world();
    let root = Group::new("churn");
    let stays = root.child("stays");
    let file = OwnFile::new(
        "config.toml",
        "[[override]]\ncgroups = 'churn/j*'\npolicy = 'fixed'\ncap = '4K'\n",
    );
    for args in [&[][..], &["--config", file.path()]] {
        let daemon = Daemon::start(&root, args);
        let overrides = daemon.log().contains(" 1 overrides");
        assert_eq!(overrides, !args.is_empty(), "{}", daemon.log());
        let mut jobs = Jobs::new(&root, &stays);
        for i in 0..100 {
            jobs.run(i);
        }
        let before = daemon.memory_kib();
        let mut rate = 0.0;
        let share = daemon.share(|| {
            rate = paced(Duration::from_millis(1), 3000, |i| jobs.run(i));
        });
        let more = daemon.memory_kib().saturating_sub(before);
        let lines = daemon.log().lines().count();
        record(&serde_json::json!({
            "name": "churn", "overrides": overrides, "a_second": rate, "share": share,
            "more_kib": more, "lines": lines,
        }));
        drop(jobs);
        println!("{args:?} {rate} a second, share {share}, {more} KiB more, {lines} lines");
        // Measured: 9 % without the override and 12 % with it, for as many lines, and up to 130 KiB.
        assert!(rate > 900.0, "{rate} a second are too few to judge by");
        let most = if overrides { 0.2 } else { 0.15 };
        assert!(share < most, "{share} of a processor");
        assert!(more < 1024, "{more} KiB for cgroups that have gone");
        assert!(lines > 3100, "{lines} lines for 3100 cgroups");
        daemon.end();
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn ten_thousand_overrides() {
    const MANY: usize = 10_000;
    world();
    let root = Group::new("over");
    let mut text = "[policies.tiny]\nrules = ['cap']\ncap = '4K'\n".to_owned();
    for i in 0..MANY {
        write!(
            text,
            "[[override]]\ncgroups = 'over/s{i}-*'\npolicy = 'tiny'\n"
        )
        .unwrap();
    }
    let file = OwnFile::new("config.toml", &text);
    let begun = Instant::now();
    let out = output(&["check-config", file.path()]);
    let check = begun.elapsed();
    assert!(out.status.success(), "{out:?}");
    let daemon = Daemon::start(&root, &["--config", file.path()]);
    assert!(daemon.log().contains("10000 overrides"), "{}", daemon.log());
    let last = root.child(&format!("s{}-x", MANY - 1));
    let jobs: Vec<Group> = (0..100).map(|i| root.child(&format!("s{i}-x"))).collect();
    let mut worker = Worker::new(&last);
    let before = daemon.processor();
    for job in jobs.iter().chain([&last]) {
        worker.join(job);
        worker.fill(MIB / 4);
    }
    eventually("it has its override", || {
        status_of(&last)["profiles"] == serde_json::json!(["tiny"])
    });
    let met = daemon.processor() - before;
    let (ready, kib) = (daemon.ready, daemon.memory_kib());
    record(&serde_json::json!({
        "name": "overrides", "overrides": MANY, "check_ms": check.as_millis() as u64,
        "ready_ms": ready.as_millis() as u64, "own_kib": kib,
        "met": jobs.len() + 1, "met_ms": met.as_millis() as u64,
    }));
    println!("check {check:?}, ready {ready:?}, {met:?} for 101 cgroups, {kib} KiB");
    // Measured: 0.9 s, 1.3 s, 57 ms and 39 MiB.
    assert!(check < Duration::from_secs(3), "{check:?} to check");
    assert!(
        ready < Duration::from_secs(5),
        "{ready:?} until it is ready"
    );
    assert!(met < Duration::from_millis(200), "{met:?} for 101 cgroups");
    assert!(kib < 64 << 10, "{kib} KiB are its own");
    drop(worker);
    daemon.end();
}

/// Overrides may be many, policies not: the root's and 63 have their places, and who comes last has
/// the next best match.
#[test]
#[ignore = "needs the lab's VM"]
fn more_policies_than_there_are_places_are_left_out() {
    world();
    let mut text = "[[override]]\ncgroups = 'many/*'\npolicy = 'p1'\n".to_owned();
    for i in 1..=70 {
        write!(
            text,
            "[policies.p{i}]\nrules = ['room']\nroom-factor = {i}\n\
             [[override]]\ncgroups = 'many/p{i}'\npolicy = 'p{i}'\n"
        )
        .unwrap();
    }
    let file = OwnFile::new("config.toml", &text);
    let first = format!("{}:385: there is no place", file.path());
    let (code, message) = fails(&["run", "--check", "--config", file.path()]);
    assert!(code == 2 && message.contains(&first), "{code}: {message}");
    let out = output(&["check-config", file.path()]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("(64 at a time").count(), 7, "{said}");
    assert!(said.starts_with(&first), "{said}");

    let root = Group::new("many");
    let (fits, last) = (root.child("p63"), root.child("p64"));
    let daemon = Daemon::start(&root, &["--config", file.path()]);
    let is_said = |text: &str| {
        let parts = ["64 overrides", "left out: ", &first, "and 6 more"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    is_said(&daemon.log());
    for (group, policy) in [(&fits, "p63"), (&last, "p1")] {
        let mut worker = Worker::new(group);
        worker.fill(MIB / 4);
        let profiles = serde_json::json!([policy]);
        assert_eq!(status_of(group)["profiles"], profiles);
    }
    // Those in force have their places already.
    let out = output(&["reload", "--root", &root.name()]);
    assert!(out.status.success(), "{out:?}");
    is_said(&String::from_utf8(out.stdout).unwrap());
    daemon.end();
}
