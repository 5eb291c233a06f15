// SPDX-License-Identifier: GPL-2.0-only
//! As a service: what the service manager hears, and with which privileges it starts.  The
//! manager here is a socket of the test's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use common::caps;
use common::ext::{attached, command, link_id, run_on};
use common::inject;
use common::scrape::ask;
use common::worker::{Worker, bound};
use common::{Group, HARMLESS, HOSTILE, MIB, PATIENCE, eventually, world};

const METRICS: &str = "unix:/run/mthp_ext_test/service.sock";

/// The first line of what a probe gets, and all of it.
fn probe() -> (String, String) {
    let path = METRICS.strip_prefix("unix:").unwrap();
    let text = ask(UnixStream::connect(path).unwrap()).unwrap();
    (text.lines().next().unwrap().to_owned(), text)
}

/// The period of the watchdog.
const WATCHDOG: Duration = Duration::from_secs(2);

/// The name of the link there.
const LINK: &str = "mthp_ext-link";

/// Which link or map a descriptor is of.
fn object(descriptor: &OwnedFd) -> String {
    let info = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let info = std::fs::read_to_string(info).unwrap();
    let id = |line: &&str| line.starts_with("link_id:") || line.starts_with("map_id:");
    info.lines().find(id).expect("an id").to_owned()
}

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
        Some(self.next_with(timeout)?.0)
    }

    /// The same, with the descriptor that came with it.
    fn next_with(&self, timeout: Duration) -> Option<(String, Option<OwnedFd>)> {
        let mut buffer = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        self.socket.set_read_timeout(Some(timeout)).unwrap();
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = recvmsg(&self.socket, &mut parts, &mut control, flags)
            .ok()?
            .bytes;
        let descriptor = control.drain().find_map(|one| match one {
            RecvAncillaryMessage::ScmRights(mut all) => all.next(),
            _ => None,
        });
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        Some((text, descriptor))
    }

    /// What it holds when the service is ready, and that message.  `held`: until now, as systemd
    /// does: the same again is dropped, and what comes under the same name is kept beside it.
    fn holds(&self, mut held: Vec<(String, OwnedFd)>) -> (Vec<(String, OwnedFd)>, String) {
        let links = |held: &[(String, OwnedFd)]| held.iter().filter(|one| one.0 == LINK).count();
        let held_link = links(&held);
        loop {
            assert!(held.len() <= 2, "systemd keeps no more: {held:?}");
            assert!(links(&held) >= held_link, "a kill now would end the policy");
            let (text, descriptor) = self.next_with(PATIENCE).expect("it gets ready");
            let name = |line: &str| line.strip_prefix("FDNAME=").map(str::to_owned);
            match text.lines().find_map(name) {
                Some(name) if text.starts_with("FDSTORE=1\n") => {
                    let new = descriptor.expect("a descriptor");
                    if !held.iter().any(|(_, old)| object(old) == object(&new)) {
                        held.push((name, new));
                    }
                }
                Some(name) if text.starts_with("FDSTOREREMOVE=1\n") => {
                    held.retain(|(one, _)| *one != name);
                }
                _ if text.starts_with("READY=1\n") => return (held, text),
                _ => {}
            }
        }
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
        std::fs::create_dir_all("/run").unwrap();
        let args = ["--policy", "headroom", "--limit-share", "0"];
        let args = [&args[..], &["--metrics", METRICS]].concat();
        let mut command = command(&run_on(group, &args));
        manager.starts(&mut command);
        Service(command.stdout(out).spawn().unwrap())
    }

    /// With descriptors that the manager has held, as systemd hands them over; `None`: it says that
    /// there is one, and there is none.
    fn goes_on(manager: &Manager, args: &[&str], held: Option<&[(String, OwnedFd)]>) -> Self {
        let mut sh = Command::new("/bin/sh");
        let script = "LISTEN_PID=$$; export LISTEN_PID; exec \"$@\"";
        sh.args(["-c", script, "sh"])
            .arg(std::env::var_os("MTHP_EXT_BIN").unwrap())
            .args(args);
        manager.starts(&mut sh);
        let names: Vec<&str> = held
            .iter()
            .flat_map(|held| held.iter())
            .map(|one| one.0.as_str())
            .collect();
        sh.env("FDSTORE", "4");
        if held.is_none_or(|held| !held.is_empty()) {
            sh.env("LISTEN_FDS", held.map_or(1, <[_]>::len).to_string())
                .env("LISTEN_FDNAMES", names.join(":"));
        }
        // Out of the way of the numbers that they get.
        let all = held.iter().flat_map(|held| held.iter());
        let high: Vec<OwnedFd> = all
            .map(|(_, one)| rustix::io::fcntl_dupfd_cloexec(one, 100).unwrap())
            .collect();
        let numbers: Vec<i32> = high.iter().map(AsRawFd::as_raw_fd).collect();
        let place = move || {
            for (at, from) in (3..).zip(&numbers) {
                // SAFETY: both are numbers; nobody in this process knows the new one.
                if unsafe { libc::dup2(*from, at) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec, system calls alone.
        unsafe { sh.pre_exec(place) };
        Service(
            sh.stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// What it has printed and said when it has ended, and its exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        let (mut out, mut said) = (String::new(), String::new());
        let code = self.0.wait().unwrap().code();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (out, said, code)
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
    let link = link_id();
    let expected = format!("READY=1\nSTATUS=policy headroom attached to /ready (link {link})\n");
    assert_eq!(ready, expected);
    service.signal(Signal::SIGTERM);
    let last = manager.during(WATCHDOG * 2);
    let other: Vec<&String> = last.iter().filter(|one| *one != ALIVE).collect();
    assert_eq!(other, ["STOPPING=1\nSTATUS=detaching\n"]);
    assert_eq!(service.0.wait().unwrap().code(), Some(0));
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_hostile_name_is_harmless_to_a_manager() {
    world();
    let group = Group::new(HOSTILE);
    let manager = Manager::new();
    let _service = Service::start(&manager, &group, Stdio::null());
    let ready = manager.next(PATIENCE).unwrap();
    let link = link_id();
    let expected =
        format!("READY=1\nSTATUS=policy headroom attached to /{HARMLESS} (link {link})\n");
    assert_eq!(ready, expected);
}

/// Without a reader of the socket there is none to be ready for.
#[test]
#[ignore = "needs the lab's VM"]
fn a_manager_that_is_not_there_ends_it() {
    world();
    let group = Group::new("alone");
    let mut run = command(&run_on(&group, &["--policy", "headroom"]));
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
    // It has waited for longer than that, and hangs for all that no longer.
    assert!(probe().0.contains(" 200 "));
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
    // Nor is the page served, by a thread that lives.
    eventually("it hangs for too long", || probe().0.contains(" 503 "));
    assert!(probe().1.contains("the loop of the daemon has hung"));
    // Somebody reads.
    let mut some = [0; 1 << 16];
    assert!(out.read(&mut some).unwrap() > 0);
    assert_eq!(manager.next(PATIENCE).as_deref(), Some(ALIVE));
    eventually("it is served again", || probe().0.contains(" 200 "));
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_units_capabilities_are_enough_and_none_too_many() {
    world();
    let unit = caps::of_the_unit();
    let group = Group::new("bounded");
    let manager = Manager::new();
    let mut enough = command(&run_on(&group, &[]));
    manager.starts(&mut enough);
    caps::only(&mut enough, &unit);
    let service = Service(enough.stdout(Stdio::null()).spawn().unwrap());
    assert!(manager.next(PATIENCE).unwrap().starts_with("READY=1\n"));
    drop(service);
    // Nor does libbpf read what modules bring, of which stock kernels have hundreds.
    let mut traced = command(&run_on(&group, &[]));
    caps::only(&mut traced, &unit);
    let mut asked = BTreeSet::new();
    let ended = inject::run(traced, |call| {
        asked.extend((call.number == libc::SYS_bpf).then_some(call.args[0]));
        None
    });
    assert!(ended.served, "{ended:?}");
    assert!(asked.contains(&u64::from(libbpf_sys::BPF_PROG_LOAD)));
    assert!(!asked.contains(&u64::from(libbpf_sys::BPF_BTF_GET_FD_BY_ID)));
    for missing in &unit {
        let rest: Vec<&str> = unit.iter().copied().filter(|one| one != missing).collect();
        let mut less = command(&run_on(&group, &[]));
        caps::only(&mut less, &rest);
        let out = less.output().unwrap();
        assert_eq!(out.status.code(), Some(4), "without {missing}: {out:?}");
    }
}

/// Small pages only, over a restart.
fn handed_over(group: &Group) -> Vec<&str> {
    let args = ["--policy", "headroom", "--cap", "4K"];
    run_on(group, &[&args[..], &["--on-exit", "hand-over"]].concat())
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_the_manager_holds_goes_on_and_ends_with_it() {
    world();
    let group = Group::new("handed");
    let args = handed_over(&group);
    let manager = Manager::new();
    let service = Service::goes_on(&manager, &args, Some(&[]));
    let (mut held, _) = manager.holds(Vec::new());
    let link = link_id();
    let names: Vec<&str> = held.iter().map(|one| one.0.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[0], LINK);
    service.signal(Signal::SIGKILL);
    assert_eq!(service.end().2, None);
    assert!(bound(&group));
    let service = Service::goes_on(&manager, &args, Some(&held));
    let map = object(&held[1].1);
    (held, _) = manager.holds(held);
    assert_eq!((link_id(), held.len()), (link, 2));
    assert_ne!(object(&held[1].1), map, "its own");
    assert!(bound(&group));
    service.signal(Signal::SIGTERM);
    let (out, said, code) = service.end();
    assert_eq!((code, said.as_str()), (Some(0), ""), "{out}");
    let handed = "of /handed is with the service manager (SIGTERM): a restart goes on with it, a stop ends it";
    assert!(out.contains(handed), "{out}");
    let last = manager.during(Duration::from_millis(200));
    let stays = "STOPPING=1\nSTATUS=ending; a restart goes on with the policy, a stop ends it\n";
    assert!(last.iter().any(|one| one == stays), "{last:?}");
    assert!(bound(&group));
    drop(held);
    assert_eq!(attached(), 0);
}

/// An older systemd does not say whether it holds anything; from 254 on it does.
#[test]
#[ignore = "needs the lab's VM"]
fn a_manager_that_holds_nothing_is_no_surprise() {
    world();
    let group = Group::new("unheld");
    let manager = Manager::new();
    let mut run = command(&handed_over(&group));
    manager.starts(&mut run);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let service = Service(child.unwrap());
    let (held, ready) = manager.holds(Vec::new());
    assert_eq!(held.len(), 0);
    assert!(ready.contains("it ends with the daemon"), "{ready}");
    assert!(bound(&group));
    service.signal(Signal::SIGTERM);
    let (out, said, code) = service.end();
    assert_eq!((code, said.as_str()), (Some(0), ""), "{out}");
    let warnings = out.matches("FileDescriptorStoreMax=2").count();
    assert_eq!(warnings, 1, "once, with the remedy: {out}");
    assert!(out.contains("detached from /unheld (SIGTERM)"), "{out}");
    assert_eq!(attached(), 0);
}

/// Whatever it has opened itself by then is not taken for what was handed over.
#[test]
#[ignore = "needs the lab's VM"]
fn descriptors_that_are_not_there_are_nobody_elses() {
    world();
    let group = Group::new("mistaken");
    let manager = Manager::new();
    let service = Service::goes_on(&manager, &handed_over(&group), None);
    let (out, said, code) = service.end();
    assert_eq!((code, out.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("$LISTEN_FDS"), "{said}");
    assert!(said.contains("Bad file descriptor"), "{said}");
    assert_eq!(attached(), 0);
}
