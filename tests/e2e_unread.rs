// SPDX-License-Identifier: GPL-2.0-only
//! Files that cannot be read, each of them, command by command: what is said, and that nothing is
//! lost by it.  docs/operations.md has the results.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Mutex;

use common::ext::{Ext, attached, command, keep_one, left_by_detach, output, run_on, status};
use common::inject::{self, Call, Case, EVENTS, Ended, SCANS, SOCKET};
use common::own::OwnFile;
use common::scrape::{missing, scrape};
use common::settings::{apply, booted, each_size, left_by_apply, left_by_undo, values};
use common::worker::Worker;
use common::{Group, world, write};
use mthp_ext::model::abi;
use nix::errno::Errno;
use rustix::fs::{XattrFlags, getxattr, setxattr};

/// Below the root there is one more, as nobody lists what has nothing below it.
const LEAF: &str = "/leaf";

/// The root of these tests, and that one.
fn groups() -> (Group, Group) {
    let group = Group::new("unread");
    let leaf = group.child_without_memory(&LEAF[1..]);
    (group, leaf)
}

/// A file that it reads, by what is expected of it; none for the loader's and those of this test.
fn source(call: &Call, own: &OwnFile) -> Option<(String, bool)> {
    let (path, read) = match (call.reads(), call.opens()) {
        (Some(path), _) => (path, true),
        (_, Some((path, false))) => (path, false),
        _ => return None,
    };
    let loader = ["/lib/", "/usr/lib/", "/etc/ld.so"];
    if loader.iter().any(|one| path.starts_with(one)) {
        return None;
    }
    let path = path.replace(own.dir(), "OWN").replace(LEAF, "");
    let of = |place: &str, name: &str| {
        Some(format!("{place}{name}")).filter(|_| path.starts_with(place))
    };
    let name = of("/sys/fs/bpf/mthp_ext/", "*")
        .or_else(|| of(EVENTS, "*"))
        .unwrap_or_else(|| each_size(&path));
    Some((name, read))
}

/// Of Rust's runtime, and of what the host allows: where that is only shown it is left out, and the
/// kernel heeds it whoever can read it.
fn is_the_same_for_all(name: &str, file: &str) -> bool {
    let sets = name == "run" || name.starts_with("settings");
    let allowed = file == "THP" || file == "THP/enabled" || file.starts_with("THP/hugepages-");
    // Of a client of its own, below.
    let client = name == "run --metrics" && file == SOCKET;
    file == "/proc/self/maps" || (!sets && allowed) || client
}

/// What becomes of commands that cannot read a file: their exit code.
const UNREAD: &[(&[&str], &str, i32)] = &[
    (RUN, "/proc/self/status", 1),
    (&["support"], "/proc/self/status", 1),
    // What other daemons and those before it have reported.
    (RUN, "/run/mthp_ext/events", 0),
    (RUN, "/run/mthp_ext/events/*", 0),
    (&["events"], "/run/mthp_ext/events", 1),
    (&["events"], "/run/mthp_ext/events/*", 1),
    // Its zone: the time is UTC's then, and says so.
    (&["events"], "/etc/localtime", 0),
    (&["events"], "/etc/timezone", 0),
    (&["events"], "/etc/config/system", 0),
    (RUN, "/sys/fs/bpf", 0),
    // Pins that are of no use stay.
    (RUN, "/sys/fs/bpf/mthp_ext", 0),
    (RUN, "/sys/fs/bpf/mthp_ext/*", 1),
    (SEES, "/sys/fs/bpf/mthp_ext", 0),
    (&["advise"], "/sys/fs/bpf/mthp_ext", 0),
    (&["detach"], "/sys/fs/bpf/mthp_ext", 1),
    (&["detach"], "/sys/fs/bpf/mthp_ext/*", 1),
    // Those that decide something say for whom by his number; overrides are assigned when he asks.
    (&["status"], "/sys/fs/cgroup", 1),
    (&["explain", "top"], "/sys/fs/cgroup", 0),
    (&["config", "detach"], "/sys/fs/cgroup", 0),
    (&["advise"], "/sys/fs/cgroup", 1),
    (&["run"], "/sys/fs/cgroup/unread", 1),
    // What is below it is found when it asks.
    (&["run --config", "config"], "/sys/fs/cgroup/unread", 0),
    // It is said what may be missing.
    (&["status", "advise"], "/sys/fs/cgroup/unread", 1),
    (&["top"], "/sys/fs/cgroup/unread", 0),
    (&["set", "unset"], "/sys/fs/cgroup/unread", 1),
    (RUN, "/sys/fs/cgroup/unread/cgroup.controllers", 1),
    (&["support"], "/sys/fs/cgroup/cgroup.controllers", 1),
    (&["run"], "/sys/fs/cgroup/unread/memory.pressure", 1),
    // None of its policies needs it.
    (
        &["run --config"],
        "/sys/fs/cgroup/unread/memory.pressure",
        0,
    ),
    (&["support"], "/sys/fs/cgroup/memory.pressure", 1),
    (SEES, "/sys/fs/cgroup/unread/memory.stat", 0),
    (RUN, "/sys/kernel/btf/vmlinux", 1),
    (SEES, "/sys/kernel/btf/vmlinux", 1),
    (&["advise", "support"], "/sys/kernel/btf/vmlinux", 1),
    (&["run"], "THP", 0),
    (&["run"], "THP/enabled", 0),
    (&["run"], "THP/hugepages-*/enabled", 0),
    (RUN, "THP/defrag", 0),
    (RUN, "THP/khugepaged/max_ptes_none", 0),
    (RUN, "THP/shrink_underused", 0),
    (&["status"], "/proc/vmstat", 0),
    (&["status"], "THP/khugepaged/full_scans", 0),
    (&["status"], "THP/khugepaged/max_ptes_none", 0),
    (&["status"], "THP/khugepaged/pages_collapsed", 0),
    (&["status"], "THP/shrink_underused", 0),
    (CONFIG, "OWN/config.toml", 2),
    (CONFIG, "OWN/config.d", 2),
    (CONFIG, "OWN/config.d/10-more.toml", 2),
    (CONFIG, "OWN/policies", 2),
    (CONFIG, "OWN/policies/own.toml", 2),
    (&["policies"], "OWN/policies", 2),
    (&["policies"], "OWN/policies/own.toml", 2),
    (&["compare"], "OWN/before.json", 2),
    (&["compare"], "OWN/after.json", 2),
    (&["top"], "/dev/tty", 0),
    (&["reload of the only one"], "/run/mthp_ext", 1),
    // It is written, and a daemon finds it by itself.
    (&["set", "unset"], "/run/mthp_ext", 0),
    (&["settings show"], "/proc/sys/vm/min_free_kbytes", 18),
    // Then it is not known what somebody has changed since; `apply` sets nothing.
    (&["settings show"], "/run/mthp_ext-settings/saved.json", 18),
    (SETS, "/proc/sys/vm/min_free_kbytes", 1),
    (SETS, "/proc/sys/kernel/random/boot_id", 1),
    (SETS, "/run/mthp_ext-settings", 4),
    (SETS, "/run/mthp_ext-settings/saved.json", 1),
    (READS, "THP", 1),
    (READS, "THP/hpage_pmd_size", 1),
    (READS, "THP/defrag", 1),
    (READS, "THP/enabled", 1),
    (READS, "THP/hugepages-*/enabled", 1),
    (READS, "THP/khugepaged/max_ptes_none", 1),
    (READS, "THP/shrink_underused", 1),
    (&["settings undo"], "THP/enabled", 1),
    (&["settings undo"], "THP/hugepages-*/enabled", 1),
    (&["settings undo"], "THP/khugepaged/max_ptes_none", 1),
    (RELOADS, SOCKET, 1),
    // As if there were no daemon, and that is said.
    (&["set", "unset"], SOCKET, 0),
    (&["run --policy"], "OWN/policies/own.toml", 2),
    (&["run --object"], "OWN/object.o", 2),
    // Cgroups that a page lacks are counted on it.
    (&["run --metrics"], "/sys/fs/cgroup/unread", 0),
    (&["run --metrics"], "/sys/fs/cgroup/unread/below", 0),
    (UNIT, "/sys/fs/bpf/mthp_ext", 0),
    // Another one of this name may be there.
    (UNIT, "/sys/fs/cgroup", 1),
    (UNIT, "/sys/fs/cgroup/unread", 1),
    (UNIT, "/sys/fs/cgroup/unread/web.service/memory.stat", 0),
    (UNIT, "/sys/kernel/btf/vmlinux", 1),
];

const RUN: &[&str] = &["run", "run --config"];
const SEES: &[&str] = &["status", "explain", "top"];
const CONFIG: &[&str] = &["run --config", "check-config", "config"];
const READS: &[&str] = &["settings show", "settings apply"];
const SETS: &[&str] = &["settings apply", "settings undo"];
const RELOADS: &[&str] = &["reload", "reload of the only one"];
const UNIT: &[&str] = &["explain UNIT"];
/// What these read as `run` does is tried with that, unless it has a row here.
const MORE: &[&str] = &["run --policy", "run --object", "run --metrics"];

/// Runs it once for each file that it reads.  The files are found by what it opens, so that one
/// it reads later is not forgotten here.
fn read_each(case: &Case<'_>, own: &OwnFile, usual: i32) -> Vec<String> {
    // How often it is opened, and how often read.
    let mut seen = BTreeMap::<String, [u32; 2]>::new();
    let ended = case.run(|call| {
        if let Some((name, read)) = source(call, own) {
            seen.entry(name).or_default()[usize::from(read)] += 1;
        }
        None
    });
    assert_eq!(ended.code, Some(usual), "{}: {ended:?}", case.name);
    assert_eq!((case.lost)(&ended), None, "{}", case.name);
    let policies = attached();
    let of_this = UNREAD
        .iter()
        .filter(|(names, ..)| names.contains(&case.name));
    let unmet = of_this.filter(|(_, file, _)| !seen.contains_key(*file));
    let mut wrong: Vec<String> = unmet
        .map(|(_, file, _)| format!("{} {file}: it is not read", case.name))
        .collect();
    // Each time, and the last time alone: somewhere in the middle of it.
    let seen = seen.into_iter().flat_map(|(file, times)| {
        let is_read = times[1] > 0;
        let times = times[usize::from(is_read)];
        let last = (times > 1).then_some(times);
        [None]
            .into_iter()
            .chain(last.map(Some))
            .map(move |only| (file.clone(), is_read, only))
    });
    for (file, is_read, only) in seen {
        if is_the_same_for_all(case.name, &file) {
            continue;
        }
        let known = |name: &str| {
            let mut rows = UNREAD.iter();
            rows.find(|(names, one, _)| *one == file && names.contains(&name))
        };
        if known(case.name).is_none() && MORE.contains(&case.name) && known("run").is_some() {
            continue;
        }
        let known = known(case.name).map(|one| one.2);
        let errno = if is_read { Errno::EIO } else { Errno::EACCES };
        let mut time = 0;
        let ended = case.run(|call| {
            let (this, read) = source(call, own)?;
            if this != file || read != is_read {
                return None;
            }
            time += 1;
            only.is_none_or(|only| time == only).then_some(errno)
        });
        // That it was whole before may be enough.
        let expected = ended.code == known || only.is_some() && ended.code == Some(usual);
        // It names each mistake in its answer.
        let said = match case.name {
            "check-config" => format!("mthp_ext: {}", ended.out),
            _ => ended.said.clone(),
        };
        let unclear = match ended.code {
            Some(code) if code == usual => !ended
                .said
                .lines()
                .all(|line| line.starts_with("mthp_ext: ")),
            // Its answer says what is missing, and what to do about it.
            _ if case.name == "support" => ended.out.is_empty(),
            _ => unclear(&said, errno),
        };
        let lost = (case.lost)(&ended);
        let now = attached();
        if !expected || unclear || lost.is_some() || now != policies {
            wrong.push(format!(
                "{} {file} ({errno}, only {only:?}): expected {known:?}, unclear {unclear}, \
                 lost {lost:?}, {policies} policies, now {now}; {:?} {:?}",
                case.name, ended.code, ended.said
            ));
        }
    }
    wrong
}

/// Has a message no cause, or nothing after it?
fn unclear(said: &str, errno: Errno) -> bool {
    let cause = std::io::Error::from(errno).to_string();
    let Some((what, remedy)) = said.split_once(&cause) else {
        return true;
    };
    !what.starts_with("mthp_ext: ") || remedy.trim().len() < 20
}

/// A configuration of its own, with a drop-in, policies beside it, and two answers of `status`.
struct Own(OwnFile);

impl Own {
    fn new() -> Self {
        let file = OwnFile::new("config.toml", "policy = 'own'\n");
        for (directory, name, text) in [
            ("config.d", "10-more.toml", "policy = 'own'\n"),
            (
                "policies",
                "own.toml",
                "about = 'x'\nrules = ['cap']\ncap = '64K'\n",
            ),
        ] {
            let directory = format!("{}/{directory}", file.dir());
            fs::create_dir(&directory).unwrap();
            fs::write(format!("{directory}/{name}"), text).unwrap();
        }
        Own(file)
    }

    fn config(&self) -> &str {
        self.0.path()
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.0.dir())
    }
}

/// All of these.
fn drill(own: &Own, usual: i32, cases: &[Case<'_>]) {
    let wrong = cases.iter().flat_map(|case| read_each(case, &own.0, usual));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn before_a_policy_is_in_force() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let root = group.path.to_str().unwrap();
    let policies = own.at("policies");
    let with = |name, args: &[&'static str]| {
        let own = ["--policy-dir", policies.as_str(), own.config()];
        let args = [args, &own[..]].concat();
        Case {
            name,
            ..Case::new(&args)
        }
    };
    let config = [
        "run",
        "--root",
        root,
        "--policy-dir",
        &policies,
        "--config",
        own.config(),
    ];
    drill(
        &own,
        0,
        &[
            Case::new(&[&["run", "--root", root], SCANS].concat()),
            Case {
                name: "run --config",
                ..Case::new(&config)
            },
            Case::new(&["support"]),
            with("check-config", &["check-config"]),
            with("config", &["config", "--show"]),
            Case::new(&["policies", "--policy-dir", &policies]),
        ],
    );
    assert_eq!(attached(), 0);
}

/// What users bring along by a path.
#[test]
#[ignore = "needs the lab's VM"]
fn a_policy_and_an_object_by_their_paths() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let (policy, object) = (own.at("policies/own.toml"), own.at("object.o"));
    fs::write(&object, abi::OBJECT).unwrap();
    let case = |name, option, file| Case {
        name,
        ..Case::new(&run_on(&group, &[option, file]))
    };
    drill(
        &own,
        0,
        &[
            case("run --policy", "--policy", policy.as_str()),
            case("run --object", "--object", object.as_str()),
        ],
    );
    assert_eq!(attached(), 0);
}

/// Where the metrics of the next tests are.
const METRICS: &str = "unix:/run/unread.sock";

/// The words of a daemon that serves them.
fn with_metrics(group: &Group) -> Vec<&str> {
    let at = ["--metrics", METRICS];
    run_on(
        group,
        &[&["--policy", "fixed", "--cap", "64K"], &at[..]].concat(),
    )
}

/// What they are now.
fn page() -> io::Result<String> {
    scrape(METRICS.trim_start_matches("unix:"))
}

/// A page is whole, or says that it is not.
#[test]
#[ignore = "needs the lab's VM"]
fn to_answer_with_its_metrics() {
    world();
    let (group, own) = (Group::new("unread"), Own::new());
    let below = group.child_without_memory("below");
    let last = below.child_without_memory("last");
    let all = [&group, &below, &last];
    let workers = Mutex::new(all.map(Worker::new));
    let client = || {
        // Cgroups that have not asked are on no page.
        for worker in &mut *workers.lock().unwrap() {
            worker.churn_start(1);
            worker.finish();
        }
        page().unwrap_or_else(|e| e.to_string())
    };
    let served = |ended: &Ended| {
        let page = ended.served.then_some(&ended.answer)?;
        missing(page, &all)
    };
    let case = Case {
        name: "run --metrics",
        client: Some(&client),
        lost: &served,
        ..Case::new(&with_metrics(&group))
    };
    drill(&own, 0, &[case]);
    assert_eq!(attached(), 0);
}

/// It gets nothing, and the next one its page.
#[test]
#[ignore = "needs the lab's VM"]
fn a_client_that_cannot_be_read_is_alone_with_it() {
    world();
    let group = Group::new("unread");
    let pages = Mutex::new(Vec::new());
    let client = || {
        let both = [0; 2].map(|_| page());
        pages.lock().unwrap().extend(both);
        String::new()
    };
    let case = Case {
        client: Some(&client),
        ..Case::new(&with_metrics(&group))
    };
    let mut read = 0;
    let ended = case.run(|call| {
        let is = call.reads()? == SOCKET;
        read += u32::from(is);
        (is && read == 1).then_some(Errno::EIO)
    });
    assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
    let pages = pages.lock().unwrap();
    let [first, second] = &pages[..] else {
        panic!("{pages:?}");
    };
    assert!(
        !first.as_ref().is_ok_and(|page| !page.is_empty()),
        "{first:?}"
    );
    assert_eq!(missing(second.as_ref().unwrap(), &[]), None);
}

#[test]
#[ignore = "needs the lab's VM"]
fn while_a_policy_is_in_force() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let path = group.path.to_str().unwrap();
    let _ext = Ext::run(
        &group,
        &[
            "--config",
            own.config(),
            "--policy-dir",
            &own.at("policies"),
        ],
    );
    let (before, after) = (own.at("before.json"), own.at("after.json"));
    for file in [&before, &after] {
        fs::write(file, status().to_string()).unwrap();
    }
    let said = || {
        let mut value = [0; 64];
        let length = getxattr(&group.path, "user.mthp_ext", &mut value[..]).unwrap_or(0);
        String::from_utf8(value[..length].to_vec()).unwrap()
    };
    let cap = || {
        setxattr(
            &group.path,
            "user.mthp_ext",
            b"cap=32K",
            XattrFlags::empty(),
        )
        .unwrap()
    };
    // What is not done leaves what was.
    let is = |done: &'static str| {
        move |ended: &Ended, now: String| {
            let wanted = if ended.code == Some(0) {
                done
            } else {
                "cap=32K"
            };
            (now != wanted).then(|| format!("it says {now:?} for itself"))
        }
    };
    let (is_set, is_unset) = (is("cap=16K"), is(""));
    drill(
        &own,
        0,
        &[
            Case::new(&["status"]),
            Case::new(&["explain", path]),
            Case {
                terminal: true,
                ..Case::new(&["top"])
            },
            Case::new(&["events"]),
            Case::new(&["compare", &before, &after]),
            Case::new(&["reload", "--root", path]),
            Case {
                name: "reload of the only one",
                ..Case::new(&["reload"])
            },
            Case {
                before: &cap,
                lost: &|ended| is_set(ended, said()),
                ..Case::new(&["set", "--cgroup", path, "cap=16K"])
            },
            Case {
                before: &cap,
                lost: &|ended| is_unset(ended, said()),
                ..Case::new(&["unset", "--cgroup", path])
            },
        ],
    );
    assert_eq!(attached(), 1);
}

/// Looked for among all cgroups.
#[test]
#[ignore = "needs the lab's VM"]
fn of_a_unit() {
    world();
    let (group, own) = (Group::new("unread"), Own::new());
    let _unit = group.child("web.service");
    let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "64K"]);
    let case = Case {
        name: "explain UNIT",
        ..Case::new(&["explain", "web"])
    };
    drill(&own, 0, &[case]);
}

#[test]
#[ignore = "needs the lab's VM"]
fn of_a_dry_run() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let _ext = Ext::run(&group, &["--dry-run", "--policy", "fixed", "--cap", "64K"]);
    drill(&own, 0, &[Case::new(&["advise"])]);
}

/// A policy that is kept is kept until `detach` has detached it.
#[test]
#[ignore = "needs the lab's VM"]
fn of_a_kept_policy() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let keep = || keep_one(&group);
    keep();
    // What is left goes with the next one.
    let detached = |_: &Ended| left_by_detach();
    let case = Case {
        before: &keep,
        lost: &detached,
        ..Case::new(&["detach"])
    };
    drill(&own, 0, &[case]);
    assert_eq!(attached(), 0);
}

/// Whatever cannot be read, `undo` puts back all that `apply` has set.
#[test]
#[ignore = "needs the lab's VM"]
fn of_the_settings() {
    let (_one, own) = (booted(), Own::new());
    let before = values();
    let undone = |_: &Ended| left_by_undo(&before);
    let applied = |ended: &Ended| left_by_apply(ended.code, &before);
    let of = |name, args: &[&'static str]| Case {
        name,
        lost: &undone,
        ..Case::new(args)
    };
    drill(&own, 18, &[of("settings show", &["settings", "show"])]);
    drill(
        &own,
        0,
        &[
            Case {
                lost: &applied,
                ..of("settings apply", &["settings", "apply"])
            },
            Case {
                before: &apply,
                ..of("settings undo", &["settings", "undo"])
            },
        ],
    );
}

/// What a cgroup says for itself is not taken for nothing where it cannot be read.
#[test]
#[ignore = "needs the lab's VM"]
fn an_override_that_cannot_be_read_is_said() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let root = group.path.to_str().unwrap();
    setxattr(
        &group.path,
        "user.mthp_ext",
        b"cap=32K",
        XattrFlags::empty(),
    )
    .unwrap();
    let policies = own.at("policies");
    let args = [
        "run",
        "--root",
        root,
        "--policy-dir",
        &policies,
        "--config",
        own.config(),
    ];
    let mut asked = 0;
    let ended = inject::run(command(&args), |call| {
        let fails = call.asks_about()? == root;
        asked += u32::from(fails);
        fails.then_some(Errno::EIO)
    });
    assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
    let text = "its user.mthp_ext cannot be read (Input/output error (os error 5))";
    assert_eq!(ended.out.matches(text).count(), 1, "{ended:?}");
    assert!(asked > 0, "nobody asks");
}

/// The daemon that cannot read a new configuration keeps the one it has.
#[test]
#[ignore = "needs the lab's VM"]
fn a_reload_that_cannot_read_changes_nothing() {
    world();
    let ((group, _leaf), own) = (groups(), Own::new());
    let policies = own.at("policies");
    let _ext = Ext::run(
        &group,
        &["--config", own.config(), "--policy-dir", &policies],
    );
    let root = group.path.to_str().unwrap();
    for (file, errno) in [
        (own.config().to_owned(), Errno::EISDIR),
        (own.at("config.d/10-more.toml"), Errno::EISDIR),
        (own.at("policies/own.toml"), Errno::EISDIR),
        (own.at("config.d"), Errno::ENOTDIR),
        (policies.clone(), Errno::ENOTDIR),
    ] {
        let aside = own.at("aside");
        fs::rename(&file, &aside).unwrap();
        match errno {
            Errno::EISDIR => fs::create_dir(&file).unwrap(),
            _ => write(&file, "a file"),
        }
        let out = output(&["reload", "--root", root]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{file}: {said}");
        assert!(
            said.contains(&file) && !unclear(&said, errno),
            "{file}: {said}"
        );
        assert_eq!(status()["policies"][0]["policy"], "own", "{file}");
        match errno {
            Errno::EISDIR => fs::remove_dir(&file).unwrap(),
            _ => fs::remove_file(&file).unwrap(),
        }
        fs::rename(&aside, &file).unwrap();
    }
    let out = output(&["reload", "--root", root]);
    assert!(out.status.success(), "{out:?}");
}
