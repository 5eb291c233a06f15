// SPDX-License-Identifier: GPL-2.0-only
//! Failure drill: what an operator meets on a bad day.  docs/operations.md has the results.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;
mod refusals;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::ext::{Ext, attached, command, keep_one, left_by_detach, run_on, status};
use common::inject::{self, Call, Case, Ended, SCANS};
use common::own::OwnFile;
use common::scrape::{missing, scrape};
use common::settings::{apply, booted, left_by_apply, left_by_undo, values};
use common::worker::{Worker, bound};
use common::{Group, MIB, eventually, world};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use refusals::{UNSERVED, refuse};
use serde_json::Value;

#[test]
#[ignore = "needs the lab's VM"]
fn a_privileged_call_that_is_refused_is_said() {
    world();
    let group = Group::new("refused");
    let own = OwnFile::new(
        "config.toml",
        "policy = 'default'\n[[override]]\ncgroups = 'refused'\npolicy = 'off'\n",
    );
    // A socket that could not be removed is another call for the next one.
    let swept = || drop(fs::remove_dir_all("/run/mthp_ext"));
    let run = |name, more: &[&'static str]| Case {
        name,
        before: &swept,
        ..Case::new(&run_on(&group, more))
    };
    let configured = Case {
        name: "run --config",
        before: &swept,
        ..Case::new(&run_on(&group, &["--config", own.path()]))
    };
    let over = |_: &Ended| {
        let left = (attached() != 1 || !bound(&group)).then(|| "the old one has gone".to_owned());
        left.or_else(left_by_detach)
    };
    let before = || {
        swept();
        keep_one(&group);
    };
    // A policy that is kept is one more, and `detach` takes it with what it has left.
    let kept = |ended: &Ended| {
        let wanted = usize::from(ended.code == Some(0));
        let now = attached();
        let left = (now != wanted).then(|| format!("{now} are kept"));
        left.or_else(left_by_detach)
    };
    let worker = Mutex::new(Worker::new(&group));
    let client = || {
        let mut worker = worker.lock().unwrap();
        worker.churn_start(1);
        worker.finish();
        scrape("/run/mthp_ext/drill.sock").unwrap_or_default()
    };
    let unserved = |ended: &Ended| {
        let serves = ended.served && !ended.out.contains(UNSERVED);
        serves.then(|| missing(&ended.answer, &[&group])).flatten()
    };
    refuse(&[
        run("run", SCANS),
        configured,
        Case {
            lost: &kept,
            ..run(
                "run --on-exit keep",
                &[SCANS, &["--on-exit", "keep"]].concat(),
            )
        },
        Case {
            before: &before,
            lost: &over,
            ..run(
                "run, which takes over",
                &["--policy", "fixed", "--cap", "64K", "--on-exit", "keep"],
            )
        },
        Case {
            client: Some(&client),
            lost: &unserved,
            ..run(
                "run --metrics",
                &[
                    "--policy",
                    "fixed",
                    "--cap",
                    "64K",
                    "--metrics",
                    "unix:/run/mthp_ext/drill.sock",
                ],
            )
        },
        run(
            "run --metrics of a port",
            &["--policy", "reactive", "--metrics", "127.0.0.1:9464"],
        ),
    ]);
    assert_eq!(attached(), 0);
}

/// As under lockdown, which lets no program read names.
#[test]
#[ignore = "needs the lab's VM"]
fn without_the_program_that_names_cgroups_all_are_looked_at() {
    const PROG_LOAD: u64 = 5;
    world();
    let group = Group::new("unnamed");
    let run = run_on(&group, &["--policy", "headroom"]);
    let loads = |call: &Call| {
        call.number == libc::SYS_bpf && call.args[0] == PROG_LOAD && call.names("mthp_name")
    };
    for takes_over in [false, true] {
        if takes_over {
            keep_one(&group);
        }
        let mut met = 0;
        let ended = inject::run(command(&run), |call| {
            met += u32::from(loads(call));
            loads(call).then_some(Errno::EINVAL)
        });
        assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
        assert!(met > 0, "nobody loads it");
        let said = "mthp_name does not load (Invalid argument";
        assert!(ended.said.contains(said), "{ended:?}");
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn of_commands_that_look_or_change_as_well() {
    world();
    let group = Group::new("refused");
    let root = group.path.to_str().unwrap();
    let keep = || keep_one(&group);
    // It says so, or has detached it.
    let detached = |ended: &Ended| {
        let said = ended.code == Some(0) && attached() > 0;
        let said = said.then(|| "it is still attached".to_owned());
        said.or_else(left_by_detach)
    };
    refuse(&[Case {
        before: &keep,
        lost: &detached,
        ..Case::new(&["detach"])
    }]);
    let mut dry = Ext::run(&group, &["--dry-run", "--policy", "fixed", "--cap", "64K"]);
    refuse(&[Case::new(&["advise"])]);
    dry.signal(Signal::SIGTERM);
    dry.wait();
    let own = OwnFile::new("config.toml", "policy = 'default'\n");
    let _ext = Ext::run(&group, &["--config", own.path()]);
    refuse(&[
        Case::new(&["status"]),
        Case::new(&["explain", root]),
        Case {
            terminal: true,
            ..Case::new(&["top"])
        },
        Case::new(&["set", "--cgroup", root, "cap=16K"]),
        Case::new(&["unset", "--cgroup", root]),
        Case::new(&["reload", "--root", root]),
    ]);
    assert_eq!(attached(), 1);
}

/// Whatever is refused, `undo` puts back all that `apply` has set.
#[test]
#[ignore = "needs the lab's VM"]
fn of_the_settings_as_well() {
    let _one = booted();
    let before = values();
    let undone = |_: &Ended| left_by_undo(&before);
    let applied = |ended: &Ended| left_by_apply(ended.code, &before);
    refuse(&[
        Case {
            name: "settings apply",
            lost: &applied,
            ..Case::new(&["settings", "apply"])
        },
        Case {
            name: "settings undo",
            before: &apply,
            lost: &undone,
            ..Case::new(&["settings", "undo"])
        },
    ]);
}

/// One cgroup after the other may have no huge pages, from its first request on.
const CAP: [&str; 4] = ["--policy", "fixed", "--cap", "64K"];

/// Requests in each, as many as it takes until its facts are looked at again.
fn ask(groups: &[&Group]) {
    // What a worker maps stays until its end.
    for some in groups.chunks(100) {
        let mut worker = Worker::new(some[0]);
        for group in some {
            worker.join(group);
            worker.fill(MIB + MIB / 16);
        }
    }
}

/// Cgroups that lines are about.
fn named(lines: &[Value]) -> BTreeSet<String> {
    let names = lines.iter().filter_map(|line| line["cgroup"].as_str());
    names.map(str::to_owned).collect()
}

/// More decisions than there is room for: those that are left out are said later.
#[test]
#[ignore = "needs the lab's VM"]
fn decisions_that_do_not_fit_are_said_later() {
    const MANY: usize = 1000;
    world();
    let group = Group::new("overrun");
    let all: Vec<Group> = (0..MANY)
        .map(|i| group.child_without_memory(&format!("g{i}")))
        .collect();
    let ext = Ext::run(&group, &CAP);
    ext.signal(Signal::SIGSTOP);
    ask(&all.iter().collect::<Vec<_>>());
    assert_eq!(attached(), 1, "stopped, and still in force");
    let mut worker = Worker::new(&all[0]);
    worker.fill(4 * MIB);
    assert_eq!(worker.huge(), 0, "stopped, and still in force");
    ext.signal(Signal::SIGCONT);
    let mut said = BTreeSet::new();
    eventually("the first of them", || {
        said.extend(named(&ext.during(Duration::from_millis(500))));
        !said.is_empty()
    });
    let rest: Vec<&Group> = all
        .iter()
        .filter(|one| !said.contains(&one.name()))
        .collect();
    assert!(!rest.is_empty(), "all of them fit: this is no overrun");
    // More than fits at once, perhaps.
    let mut left_out = 0;
    eventually("each of them", || {
        let rest: Vec<&Group> = all
            .iter()
            .filter(|one| !said.contains(&one.name()))
            .collect();
        ask(&rest);
        let lines = ext.during(Duration::from_millis(500));
        left_out += lines
            .iter()
            .filter_map(|line| line["suppressed"].as_u64())
            .sum::<u64>();
        said.extend(named(&lines));
        said.len() == MANY
    });
    assert!(
        left_out >= rest.len() as u64,
        "{left_out} of {}",
        rest.len()
    );
}

/// A scan every tenth of a second, and where they are counted.
const OFTEN: [&str; 6] = [
    "--window",
    "100ms",
    "--threshold",
    "10ms",
    "--metrics",
    "unix:/run/drill.sock",
];

/// The page of the metrics.
fn metrics() -> String {
    scrape("/run/drill.sock").unwrap()
}

fn scans() -> u64 {
    let page = metrics();
    let line = |line: &str| line.strip_prefix("mthp_ext_scans_total ")?.parse().ok();
    page.lines().find_map(line).unwrap()
}

/// 600 windows, of a tenth of a second each: what was missed is not made up for.
#[test]
#[ignore = "needs the lab's VM"]
fn after_a_stop_of_a_minute_it_goes_on_at_its_pace() {
    world();
    fs::create_dir_all("/run").unwrap();
    let group = Group::new("stopped");
    let mut ext = Ext::run(&group, &OFTEN);
    let kib = ext.proc_status("RssAnon");
    eventually("scans", || scans() > 3);
    let before = scans();
    ext.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(60));
    assert_eq!(attached(), 1, "stopped, and still in force");
    ext.signal(Signal::SIGCONT);
    let begun = Instant::now();
    eventually("it scans again", || scans() >= before + 5);
    let (more, windows) = (scans() - before, begun.elapsed().as_millis() as u64 / 100);
    assert!(more <= windows + 10, "{more} scans in {windows} windows");
    assert!(ext.proc_status("RssAnon") <= kib + 512);
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
}

/// The clock of the wall, put back in the end to where it would be.
struct Wall {
    before: Duration,
    begun: Instant,
}

impl Wall {
    fn set(time: Duration) {
        clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from(time)).unwrap();
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        Wall::set(self.before + self.begun.elapsed());
    }
}

/// Ten years ahead and twenty back: everything goes by the time since boot.
#[test]
#[ignore = "needs the lab's VM"]
fn a_clock_that_jumps_changes_nothing() {
    const YEAR: Duration = Duration::from_secs(365 * 86400);
    world();
    fs::create_dir_all("/run").unwrap();
    let group = Group::new("jumped");
    let mut ext = Ext::run(&group, &OFTEN);
    let wall = Wall {
        before: clock_gettime(ClockId::CLOCK_REALTIME).unwrap().into(),
        begun: Instant::now(),
    };
    // The guest's may be at the epoch's beginning.
    let far = wall.before + 30 * YEAR;
    for time in [far, far + 10 * YEAR, far - 20 * YEAR] {
        let (before, begun) = (scans(), Instant::now());
        Wall::set(time);
        eventually("ten scans", || scans() >= before + 10);
        let (more, windows) = (scans() - before, begun.elapsed().as_millis() as u64 / 100);
        assert!(more <= windows + 10, "{more} scans in {windows} windows");
        let answer = status();
        assert_eq!(answer["policies"].as_array().unwrap().len(), 1, "{answer}");
    }
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    // What is reported from then on has the new time of day, and its place.
    let out = command(&["events", "--json"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "detached", "{last}");
    let at = Duration::from_millis(last["unix_ms"].as_u64().unwrap());
    assert!((far - 20 * YEAR..far).contains(&at), "{last}");
    drop(wall);
}

/// A file system of a few pages.  Dropped: unmounted.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("busybox");
        let mount = mount.args(["mount", "-t", "tmpfs", "-o", "size=8k", "small"]);
        assert!(mount.arg(dir.path()).status().unwrap().success());
        Small(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("busybox")
            .arg("umount")
            .arg(self.0.path())
            .status();
    }
}

/// Its log goes to a disk that becomes full, and answers to one that is.
#[test]
#[ignore = "needs the lab's VM"]
fn a_full_disk_ends_it_and_is_said() {
    world();
    let disk = Small::new();
    let log = disk.0.path().join("log");
    let group = Group::new("full");
    let all: Vec<Group> = (0..50)
        .map(|i| group.child_without_memory(&format!("g{i}")))
        .collect();
    let path = group.path.to_str().unwrap();
    let mut run = command(&[&["run", "--json", "--root", path], &CAP[..]].concat());
    run.stdout(File::create(&log).unwrap());
    let child = run.stderr(Stdio::piped()).spawn().unwrap();
    eventually("it is attached", || attached() == 1);
    ask(&all.iter().collect::<Vec<_>>());
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(14), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(attached(), 0);
    // What there was room for is whole.
    let text = fs::read_to_string(&log).unwrap();
    let (whole, _) = text.rsplit_once('\n').unwrap();
    let lines = whole.lines().map(serde_json::from_str::<Value>);
    assert!(lines.map(Result::unwrap).count() > 2, "{text}");
    for answer in [
        &["status"][..],
        &["status", "--json"],
        &["support"],
        &["policies"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let out = command(answer).stdout(full).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(14), "{answer:?}: {said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
}

/// Where nothing is mounted, as on a host with cgroup v1 alone.
#[test]
#[ignore = "needs the lab's VM"]
fn without_cgroup_v2_every_command_says_so() {
    world();
    for args in [&["run"][..], &["support"], &["explain", "/"]] {
        let mut command = command(args);
        let hide = || {
            let place = c"/sys/fs/cgroup".as_ptr();
            let none = std::ptr::null();
            // SAFETY: a mount namespace of its own, in which all is private, has one more mount.
            let done = unsafe {
                libc::unshare(libc::CLONE_NEWNS)
                    | libc::mount(
                        none,
                        c"/".as_ptr(),
                        none,
                        libc::MS_REC | libc::MS_PRIVATE,
                        none.cast(),
                    )
                    | libc::mount(none, place, c"tmpfs".as_ptr(), 0, none.cast())
            };
            Errno::result(done).map(drop).map_err(Into::into)
        };
        // SAFETY: between fork and exec, system calls alone.
        let out = unsafe { command.pre_exec(hide) }.output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(10), "{args:?}: {said}");
    }
    assert_eq!(attached(), 0);
}

/// Control characters would change the terminal, or make two lines of one.
fn harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(bad), "{what}: {text:?}");
}

/// The kernel refuses line feeds in the name of a cgroup, and nothing else.
#[test]
#[ignore = "needs the lab's VM"]
fn a_hostile_name_is_harmless_in_every_output() {
    world();
    fs::create_dir_all("/run").unwrap();
    let (outer, home) = (Group::new("hostile"), Group::new("home"));
    outer.set("cgroup.subtree_control", "+memory");
    let name = OsStr::from_bytes(b"a\x1b[2J\r\"\\\xff\xe2\x80\xae{}\t'");
    let root = outer.path.join(name);
    fs::create_dir(&root).unwrap();
    let leaf = root.join(name);
    fs::create_dir(&leaf).unwrap();
    let file = OwnFile::new(
        "config.toml",
        "policy = 'small-cap'\n[policies.small-cap]\nrules = ['cap']\ncap = '64K'\n\
         [[override]]\ncgroups = 'hostile/**'\npolicy = 'off'\n",
    );
    for args in [
        &CAP[..],
        &["--config", file.path()],
        &["--json", "--policy", "fixed", "--cap", "64K"],
        &["--dry-run", "--policy", "fixed", "--cap", "64K"],
    ] {
        let mut run = command(&["run", "--metrics", "unix:/run/drill.sock", "--root"]);
        let run = run.arg(&root).args(args);
        let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        eventually("it is attached", || attached() == 1);
        let mut worker = Worker::new(&home);
        fs::write(leaf.join("cgroup.procs"), worker.pid().to_string()).unwrap();
        worker.fill(2 * MIB);
        eventually("the metrics have it", || metrics().contains("x1b[2J"));
        let page = metrics();
        let (_, page) = page.split_once("\r\n\r\n").unwrap();
        harmless("metrics", page.as_bytes());
        for answer in [
            &["status"][..],
            &["status", "--json"],
            &["status", "--tree"],
            &["advise"],
            &["advise", "--json"],
            &["events"],
            &["events", "--json"],
            &["config", "--show", file.path()],
        ] {
            let out = command(answer).output().unwrap();
            harmless(&format!("{answer:?}"), &[out.stdout, out.stderr].concat());
        }
        for (words, of) in [
            (&["explain"][..], &leaf),
            (&["explain", "--json"], &leaf),
            (&["set", "cap=32K", "--cgroup"], &leaf),
            (&["set", "no-such=1", "--cgroup"], &leaf),
            (&["unset", "--json", "--cgroup"], &leaf),
            (&["reload", "--root"], &root),
            (&["reload", "--root"], &leaf),
            (&["detach", "--root"], &root),
        ] {
            let out = command(words).arg(of).output().unwrap();
            harmless(&format!("{words:?}"), &[out.stdout, out.stderr].concat());
            // With what it says for itself by now.
            let out = command(&["config", "--show", file.path()]).output();
            harmless("config --show", &out.unwrap().stdout);
        }
        let looked = common::own::OwnFile::new("looked.json", status().to_string());
        let out = command(&["compare", looked.path(), looked.path()]).output();
        harmless("compare", &out.unwrap().stdout);
        // A second one is refused, and names it.
        let mut second = command(&["run", "--root"]);
        let out = second.arg(&root).args(CAP).output().unwrap();
        harmless("the second", &out.stderr);
        drop(worker);
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        if args == CAP {
            // The cgroup goes, and the message says which.
            eventually("the leaf is empty", || fs::remove_dir(&leaf).is_ok());
            fs::remove_dir(&root).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(9));
            fs::create_dir(&root).unwrap();
            fs::create_dir(&leaf).unwrap();
        } else {
            nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
        }
        let out = child.wait_with_output().unwrap();
        let text = [out.stdout, out.stderr].concat();
        harmless(&format!("run {args:?}"), &text);
        assert!(
            String::from_utf8_lossy(&text).contains("\\x1b[2J"),
            "{args:?}"
        );
    }
    fs::remove_dir(&leaf).unwrap();
    fs::remove_dir(&root).unwrap();
}
