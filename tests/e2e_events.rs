// SPDX-License-Identifier: GPL-2.0-only
//! `events`: what the daemon prints, whoever reads it, and whatever becomes of daemon and disk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::ext::{Ext, K64, command, fails, output};
use common::own::OwnFile;
use common::worker::Worker;
use common::{Group, MIB, eventually, world};
use nix::sys::signal::Signal;
use serde_json::Value;

const DIRECTORY: &str = "/run/mthp_ext/events";

/// As the daemon shows it; a cgroup's name cannot have a line feed.
const HOSTILE: &str = "/told/x\\x1b[2Jy";

/// What `events` prints.
fn events(args: &[&str]) -> String {
    let out = output(&[&["events"], args].concat());
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn records() -> Vec<Value> {
    let text = events(&["--json"]);
    text.lines()
        .map(|line| common::schema::answer("events", line.as_bytes()))
        .collect()
}

/// One that follows.  Dropped: killed.
struct Follower(Child);

impl Follower {
    fn new() -> Self {
        let mut follow = command(&["events", "--follow", "--json"]);
        let piped = follow.stdout(Stdio::piped()).stderr(Stdio::piped());
        Follower(piped.spawn().unwrap())
    }

    /// Its lines, until one is an event of this kind.
    fn until(&mut self, event: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        for line in BufReader::new(self.0.stdout.as_mut().unwrap()).lines() {
            let value = common::schema::answer("events", line.unwrap().as_bytes());
            let is = value["event"] == event;
            seen.push(value);
            if is {
                return seen;
            }
        }
        panic!("no {event}: {seen:?}");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn events_are_the_lines_of_run() {
    world();
    let _ = fs::remove_dir_all(DIRECTORY);
    for args in [&["events"][..], &["events", "--follow"]] {
        let (code, message) = fails(args);
        assert_eq!(code, 15, "{message}");
        assert!(message.contains("no daemon has run"), "{message}");
    }
    let root = Group::new("told");
    root.set("memory.max", "64M");
    let hostile = root.child("x\u{1b}[2Jy");
    let mut ext = Ext::run(&root, &K64);
    let mut followers = [Follower::new(), Follower::new()];
    // One that stands still has no say.
    let still = Follower::new();
    let stopped = nix::unistd::Pid::from_raw(still.0.id() as i32);
    nix::sys::signal::kill(stopped, Signal::SIGSTOP).unwrap();
    let mut worker = Worker::new(&hostile);
    worker.fill(48 * MIB);
    let printed = ext.expect("a decision", |line| line["why"] == "room");
    assert_eq!(printed["cgroup"], HOSTILE);
    let recorded = records();
    let same = |record: &&Value| {
        let fields = printed.as_object().unwrap();
        fields.iter().all(|(key, value)| record[key] == *value)
    };
    let record = recorded.iter().find(same).expect("the same decision");
    assert_eq!(
        (&record["version"], &record["root"]),
        (&1.into(), &"/told".into())
    );
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(worker);
    assert!(!events(&["--since", "100ms"]).contains("attached to"));
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    for follower in &mut followers {
        let seen = follower.until("detached");
        assert_eq!(seen[0]["event"], "attached");
        let numbers: Vec<u64> = seen
            .iter()
            .map(|one| one["number"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, (1..=seen.len() as u64).collect::<Vec<_>>());
    }
    // What it said outlives it; more will not come.
    let text = events(&[]);
    assert_eq!(text.lines().count(), records().len(), "{text}");
    let words = format!(" {}\n", record["text"].as_str().unwrap());
    assert!(
        text.contains(&words) && words.contains(&format!("{HOSTILE}: ")),
        "{text}"
    );
    assert!(text.contains("attached to /told"), "{text}");
    let zone = ("TZ", "EAST-5");
    let seconds = record["unix_ms"].as_u64().unwrap() / 1000;
    let mut date = Command::new("date");
    let date = date
        .env(zone.0, zone.1)
        .args(["-d", &format!("@{seconds}"), "+%F %T"]);
    let date = String::from_utf8(date.output().unwrap().stdout).unwrap();
    let there = command(&["events"]).env(zone.0, zone.1).output().unwrap();
    let there = String::from_utf8(there.stdout).unwrap();
    let ms = record["unix_ms"].as_u64().unwrap() % 1000;
    let told = format!("{}.{ms:03}+05:00{}", date.trim(), words.trim_end());
    assert!(
        date.len() == 20 && there.lines().any(|line| line == told),
        "{date}{there}"
    );
    assert_eq!(events(&["--since", "60m"]), text);
    assert!(events(&[]).contains("detached from /told (SIGTERM)"));
    let (code, message) = fails(&["events", "--follow"]);
    assert_eq!(code, 15, "{message}");
    assert!(message.contains("no daemon runs"), "{message}");
    // Whoever follows sees the next daemon.
    let mut next = Ext::run(&root, &K64);
    followers[0].until("attached");
    next.signal(Signal::SIGKILL);
    assert_eq!(next.wait(), None);
    assert_eq!(fails(&["events", "--follow"]).0, 15);
    let reader = command(&["events"]).uid(65534).gid(65534).output().unwrap();
    assert_eq!(reader.status.code(), Some(4), "{reader:?}");
}

/// The daemon goes on, and the newest lines are there once there is room.
#[test]
#[ignore = "needs the lab's VM"]
fn a_full_disk_stops_nothing() {
    world();
    fs::create_dir_all(DIRECTORY).unwrap();
    let mount = |args: &[&str]| {
        assert!(
            Command::new(args[0])
                .args(&args[1..])
                .status()
                .unwrap()
                .success()
        )
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=16k", "none", DIRECTORY]);
    let root = Group::new("full");
    let file = OwnFile::new("config.toml", "policy = 'database'\n");
    let mut ext = Ext::run(&root, &["--config", file.path()]);
    let reload = |times: usize| {
        for _ in 0..times {
            ext.expect("configured", |line| line["event"] == "configured");
            ext.signal(Signal::SIGHUP);
        }
    };
    let mut follower = Follower::new();
    reload(200);
    eventually("the newest is there", || {
        let numbers: Vec<u64> = records()
            .iter()
            .map(|one| one["number"].as_u64().unwrap())
            .collect();
        assert!(
            numbers.windows(2).all(|two| two[0] + 1 == two[1]),
            "{numbers:?}"
        );
        numbers.last() >= Some(&201)
    });
    // Another fills it, and more than once.
    let filler = Path::new(DIRECTORY).join("filler");
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    reload(100);
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    reload(100);
    fs::remove_file(&filler).unwrap();
    reload(3);
    eventually("the newest is there again", || {
        let last = records()
            .last()
            .map_or(0, |one| one["number"].as_u64().unwrap());
        last >= 404
    });
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    follower.until("detached");
    drop(follower);
    mount(&["umount", DIRECTORY]);
}
