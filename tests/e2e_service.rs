// SPDX-License-Identifier: GPL-2.0-only
//! As a service: what the service manager hears, and with which privileges it starts.  The
//! manager here is a socket of the test's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};

use common::ext::{attached, command, status};
use common::worker::Worker;
use common::{Group, MIB, PATIENCE, eventually, world};

const UNIT: &str = include_str!("../packaging/systemd/mthp_ext.service");

/// The period of the watchdog.
const WATCHDOG: Duration = Duration::from_secs(2);

/// The service manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        Manager { socket, directory }
    }

    /// The environment that it gives a service.
    fn starts(&self, command: &mut Command) {
        command
            .env("NOTIFY_SOCKET", self.directory.path().join("notify"))
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    }

    /// The next message, if one comes in time.
    fn next(&self, timeout: Duration) -> Option<String> {
        let mut buffer = [0; 4096];
        self.socket.set_read_timeout(Some(timeout)).unwrap();
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }

    /// What comes within a time.
    fn during(&self, time: Duration) -> Vec<String> {
        let end = Instant::now() + time;
        let mut messages = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return messages;
            }
            messages.extend(self.next(left));
        }
    }

    /// Until it is silent for longer than the watchdog waits.
    fn falls_silent(&self) {
        eventually("no sign of life", || self.next(WATCHDOG).is_none());
    }
}

/// The program under a manager.  Dropped: killed.
struct Service(Child);

impl Service {
    fn start(manager: &Manager, group: &Group, out: Stdio) -> Self {
        let path = group.path.to_str().unwrap();
        let args = ["run", "--root", path, "--policy", "headroom"];
        let mut command = command(&[&args[..], &["--limit-share", "0"]].concat());
        manager.starts(&mut command);
        Service(command.stdout(out).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ALIVE: &str = "WATCHDOG=1\n";

#[test]
#[ignore = "needs the lab's VM"]
fn ready_is_when_the_policy_is_in_force_and_stopping_before_it_is_not() {
    world();
    let group = Group::new("ready");
    let manager = Manager::new();
    let mut service = Service::start(&manager, &group, Stdio::null());
    let ready = manager.next(PATIENCE).unwrap();
    let link = status()["policies"][0]["link_id"].as_u64().unwrap();
    let expected = format!("READY=1\nSTATUS=policy headroom attached to /ready (link {link})\n");
    assert_eq!(ready, expected);
    service.signal(Signal::SIGTERM);
    let last = manager.during(WATCHDOG * 2);
    let other: Vec<&String> = last.iter().filter(|one| *one != ALIVE).collect();
    assert_eq!(other, ["STOPPING=1\nSTATUS=detaching\n"]);
    assert_eq!(service.0.wait().unwrap().code(), Some(0));
    assert_eq!(attached(), 0);
}

/// Without a reader of the socket there is none to be ready for.
#[test]
#[ignore = "needs the lab's VM"]
fn a_manager_that_is_not_there_ends_it() {
    world();
    let group = Group::new("alone");
    let path = group.path.to_str().unwrap();
    let mut run = command(&["run", "--root", path, "--policy", "headroom"]);
    let out = run.env("NOTIFY_SOCKET", "/none").output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("$NOTIFY_SOCKET"), "{said}");
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn signs_of_life_come_twice_a_period_and_none_of_a_stopped_process() {
    world();
    let group = Group::new("alive");
    let manager = Manager::new();
    let service = Service::start(&manager, &group, Stdio::null());
    assert!(manager.next(PATIENCE).unwrap().starts_with("READY=1\n"));
    let signs = manager.during(WATCHDOG * 4);
    assert!(signs.iter().all(|sign| sign == ALIVE), "{signs:?}");
    assert!((6..=9).contains(&signs.len()), "{signs:?}");
    service.signal(Signal::SIGSTOP);
    manager.falls_silent();
    assert_eq!(attached(), 1, "stopped, and still in force");
    service.signal(Signal::SIGCONT);
    assert_eq!(manager.next(PATIENCE).as_deref(), Some(ALIVE));
}

/// It is the loop that lives, not a thread beside it.
#[test]
#[ignore = "needs the lab's VM"]
fn a_loop_that_hangs_gives_no_sign_of_life() {
    world();
    let group = Group::new("hung");
    let manager = Manager::new();
    let (out, theirs) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut out = File::from(out);
    let place = format!("/proc/self/fd/{}", theirs.as_raw_fd());
    let _service = Service::start(&manager, &group, theirs.try_clone().unwrap().into());
    assert!(manager.next(PATIENCE).unwrap().starts_with("READY=1\n"));
    // Fills the pipe by another opening of it: theirs goes on waiting where it is full.
    let mut options = OpenOptions::new();
    let filler = options.write(true).custom_flags(libc::O_NONBLOCK);
    let mut filler = filler.open(place).unwrap();
    while filler.write(b"x").is_ok() {}
    drop((filler, theirs));
    // Its next decision has no place to go.
    group.set("memory.max", "16M");
    Worker::new(&group).fill(12 * MIB);
    manager.falls_silent();
    // Somebody reads.
    let mut some = [0; 1 << 16];
    assert!(out.read(&mut some).unwrap() > 0);
    assert_eq!(manager.next(PATIENCE).as_deref(), Some(ALIVE));
}

/// Numbers of linux/capability.h.
fn number(capability: &str) -> libc::c_ulong {
    match capability {
        "CAP_SYS_RESOURCE" => 24,
        "CAP_PERFMON" => 38,
        "CAP_BPF" => 39,
        other => panic!("a capability that is new here: {other}"),
    }
}

/// Leaves a command that root starts only these.
fn only(command: &mut Command, capabilities: &[&str]) {
    let keep: Vec<libc::c_ulong> = capabilities.iter().map(|name| number(name)).collect();
    let drop = move || {
        // Up to the last that the kernel knows.
        for capability in (0..64).filter(|one| !keep.contains(one)) {
            // SAFETY: takes numbers; changes this process, which is about to become another.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
                break;
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec, system calls alone.
    unsafe { command.pre_exec(drop) };
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_units_capabilities_are_enough_and_none_too_many() {
    world();
    let line = |line: &'static str| line.strip_prefix("CapabilityBoundingSet=");
    let unit: Vec<&str> = UNIT.lines().find_map(line).unwrap().split(' ').collect();
    let group = Group::new("bounded");
    let path = group.path.to_str().unwrap();
    let manager = Manager::new();
    let mut enough = command(&["run", "--root", path]);
    manager.starts(&mut enough);
    only(&mut enough, &unit);
    let service = Service(enough.stdout(Stdio::null()).spawn().unwrap());
    assert!(manager.next(PATIENCE).unwrap().starts_with("READY=1\n"));
    drop(service);
    for missing in &unit {
        let rest: Vec<&str> = unit.iter().copied().filter(|one| one != missing).collect();
        let mut less = command(&["run", "--root", path]);
        only(&mut less, &rest);
        let out = less.output().unwrap();
        assert_eq!(out.status.code(), Some(4), "without {missing}: {out:?}");
    }
}
