// SPDX-License-Identifier: GPL-2.0-only
//! However mthp_ext ends, nothing is left attached; and while it runs, what
//! `status` says is what the kernel does.

mod common;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use common::caps;
use common::ext::{
    self, Ext, attached, command, fails, output, run_on, status, status_of, support,
};
use common::inject;
use common::own::OwnFile;
use common::worker::Worker;
use common::{Group, MIB, Setting, THP, read, world, write};
use mthp_ext::model::given::Values;
use mthp_ext::model::options::{OPTIONS, Opt};
use mthp_ext::model::orders::Sizes;
use mthp_ext::model::policy::Policy;
use mthp_ext::model::resolve;
use mthp_ext::model::value::Value;

/// Those of the guest.
const X86: Sizes = Sizes {
    orders: 0x3fc,
    off: 0,
    page_shift: 12,
};

/// Base pages only.
const CLOSED: [&str; 4] = ["--policy", "headroom", "--cap", "4K"];

fn bound(group: &Group) -> bool {
    let mut worker = Worker::new(group);
    worker.fill(4 * MIB);
    match worker.huge() {
        0 => true,
        huge if huge == 4 * MIB => false,
        other => panic!("{other} bytes are huge, neither none nor all"),
    }
}

/// With the module they are not enough without the drop-in that comes with it.
#[test]
#[ignore = "needs the lab's VM"]
fn the_capabilities_of_the_service_are_those_that_its_carrier_takes() {
    world();
    let group = Group::new("served");
    let run = |set: &[&str]| {
        let mut run = command(&run_on(&group, &CLOSED));
        caps::only(&mut run, set);
        inject::run(run, |_| None)
    };
    let mut set = caps::of_the_unit();
    if Path::new("/sys/module/mthp_hook").exists() {
        let ended = run(&set);
        assert_eq!((ended.code, ended.served), (Some(4), false), "{ended:?}");
        assert!(ended.said.contains("takes CAP_SYS_ADMIN"), "{ended:?}");
        set.extend(caps::of_the_drop_in());
    }
    let ended = run(&set);
    assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_signal_detaches_and_ends_well() {
    world();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let group = Group::new("signalled");
        let mut ext = Ext::run(&group, &CLOSED);
        assert!(bound(&group));
        ext.signal(signal);
        assert_eq!(ext.wait(), Some(0), "{signal}");
        let last = ext.expect("detached", |l| l["event"] == "detached");
        assert_eq!(last["why"], "signal");
        assert_eq!(last["signal"], signal.as_str());
        assert_eq!(last["root"], group.name());
        assert_eq!(last["thp"], "always");
        assert_eq!(attached(), 0);
        assert!(!bound(&group));
    }
}

/// One fact, and one place: `run` says what `support` says, where it matters to the policy.
#[test]
#[ignore = "needs the lab's VM"]
fn what_the_carrier_lacks_is_said_at_the_start() {
    world();
    let support = support();
    let group = Group::new("carried");
    let ext = Ext::run(&group, &["--policy", "headroom"]);
    let lines = ext.during(Duration::from_secs(2));
    let partial: Vec<_> = lines.iter().filter(|l| l["event"] == "partial").collect();
    if support["carrier"] == "kernel" {
        assert!(partial.is_empty(), "{partial:?}");
        return;
    }
    assert_eq!(partial.len(), 1, "{lines:?}");
    assert_eq!(partial[0]["carrier"], support["carrier"]);
    let missed = partial[0]["missed"].as_array().unwrap();
    let mut of = Vec::new();
    for one in missed {
        let said = serde_json::json!({"of": one["of"], "what": one["what"], "how": one["how"]});
        let differences = support["differences"].as_array().unwrap();
        assert!(differences.contains(&said), "{said}: {support}");
        of.push(&one["of"]);
    }
    assert_eq!(of, ["reclaim", "count-nodes"]);
}

/// With a configuration other policies may come into force, which miss something else.
#[test]
#[ignore = "needs the lab's VM"]
fn what_the_carrier_lacks_is_said_again_after_a_reload() {
    world();
    let support = support();
    let group = Group::new("carried-on");
    let file = OwnFile::new("config.toml", "policy = 'headroom'\n");
    let ext = Ext::run(&group, &["--config", file.path()]);
    let missed = || {
        let lines = ext.during(Duration::from_secs(2)).into_iter();
        let partial = lines.filter(|line| line["event"] == "partial");
        let number = partial.map(|line| line["missed"].as_array().unwrap().len());
        number.collect::<Vec<usize>>()
    };
    let by_kernel = support["carrier"] == "kernel";
    let said = |number: Option<usize>, after: &str| {
        let number: Vec<usize> = number.filter(|_| !by_kernel).into_iter().collect();
        assert_eq!(missed(), number, "{after}");
    };
    said(Some(2), "the start");
    for (policy, number) in [("off", Some(0)), ("headroom", Some(2)), ("headroom", None)] {
        file.write(format!("policy = '{policy}'\n"));
        ext.signal(Signal::SIGHUP);
        said(number, policy);
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn kill_nine_leaves_nothing_attached() {
    world();
    let group = Group::new("killed");
    let mut ext = Ext::run(&group, &CLOSED);
    assert!(bound(&group));
    ext.signal(Signal::SIGKILL);
    assert_eq!(ext.wait(), None);
    assert_eq!(attached(), 0);
    assert!(!bound(&group));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_second_instance_is_refused_and_the_first_stays() {
    world();
    let group = Group::new("twice");
    let _first = Ext::run(&group, &CLOSED);
    let (code, message) = fails(&run_on(&group, &[]));
    assert_eq!(code, 8, "{message}");
    assert!(
        message.contains("attached") && message.contains("status"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(attached(), 1);
    assert!(bound(&group));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_second_instance_may_run_once_the_first_is_gone() {
    world();
    let group = Group::new("again");
    for _ in 0..5 {
        let mut ext = Ext::run(&group, &["--policy", "default"]);
        ext.signal(Signal::SIGTERM);
        assert_eq!(ext.wait(), Some(0));
    }
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn instances_above_and_below_compose() {
    world();
    let group = Group::new("outer");
    let inner = group.child("inner");
    let _open = Ext::run(&group, &["--policy", "headroom", "--cap", "64K"]);
    let mut closed = Ext::run(&inner, &["--policy", "headroom", "--cap", "256K"]);
    assert_eq!(status()["policies"].as_array().unwrap().len(), 2);
    let line = status_of(&inner);
    assert_eq!(line["allowed"], "64K-max", "the outer policy binds: {line}");
    closed.signal(Signal::SIGTERM);
    assert_eq!(closed.wait(), Some(0));
    assert!(bound(&inner), "still, when the inner one is gone");
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_removal_of_the_root_ends_it() {
    world();
    // Several times: the pressure file goes a moment before the link does, and
    // either may be the first that is seen.
    for policy in ["default", "headroom"].repeat(8) {
        let group = Group::new("doomed");
        let mut ext = Ext::run(&group, &["--policy", policy]);
        group.remove();
        assert_eq!(ext.wait(), Some(9), "{policy}");
        let last = ext.expect("detached", |l| l["event"] == "detached");
        assert_eq!(last["why"], "root-removed");
        assert!(ext.errors().contains("was removed"));
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn pressure_switched_off_ends_it() {
    world();
    let group = Group::new("numb");
    let mut ext = Ext::run(&group, &[]);
    group.set("cgroup.pressure", "0");
    assert_eq!(ext.wait(), Some(6));
    let last = ext.expect("detached", |l| l["event"] == "detached");
    assert_eq!(last["why"], "psi-off", "{last}");
    assert_eq!(attached(), 0);
}

/// A configuration may come to need PSI, so that the daemon looks at it from the start.
#[test]
#[ignore = "needs the lab's VM"]
fn pressure_that_no_policy_needs_may_be_switched_off() {
    const SMALL: &str = "policy = 'small'\n[policies.small]\nrules = ['cap']\ncap = '64K'\n";
    world();
    let group = Group::new("numb");
    let path = group.path.to_str().unwrap_or_default();
    let file = OwnFile::new("config.toml", SMALL);
    let mut ext = Ext::run(&group, &["--config", file.path(), "--on-exit", "keep"]);
    // Somebody had one that needs it.
    let said = output(&["set", "--cgroup", path, "policy=default"]);
    assert!(said.status.success(), "{said:?}");
    assert!(output(&["unset", "--cgroup", path]).status.success());
    group.set("cgroup.pressure", "0");
    let said = ext.expect("that it is off", |line| line["event"] == "setting");
    assert_eq!(said["file"], format!("{path}/cgroup.pressure"), "{said}");
    let (code, said) = fails(&["set", "--cgroup", path, "policy=default"]);
    assert!(code == 2 && said.contains("need PSI"), "{code} {said}");
    assert!(output(&["unset", "--cgroup", path]).status.success());
    // It is seen to live, or a policy that is kept would pass everything after 16 windows.
    std::thread::sleep(Duration::from_secs(20));
    let mut worker = Worker::new(&group);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0, "64K at most");
    drop(worker);
    for (text, in_force, part) in [
        (
            "policy = 'default'\n",
            false,
            "need PSI, which was switched off since the start",
        ),
        ("policy = 'off'\n", true, "in force"),
    ] {
        file.write(text);
        ext.signal(Signal::SIGHUP);
        let said = ext.expect("an answer", |line| line["event"] == "configured");
        assert_eq!(said["in_force"], in_force, "{said}");
        assert!(said.to_string().contains(part), "{said}");
    }
    // It still sees who removes its cgroup.
    group.remove();
    assert_eq!(ext.wait(), Some(9));
    assert_eq!(attached(), 0);
}

/// One of a cgroup below needs it, and is named.
#[test]
#[ignore = "needs the lab's VM"]
fn who_needs_the_pressure_that_is_switched_off_is_named() {
    world();
    let group = Group::new("numb");
    let text = "policy = 'headroom'\n[[override]]\ncgroups = 'numb/x'\npolicy = 'default'\n";
    let file = OwnFile::new("config.toml", text);
    let mut ext = Ext::run(&group, &["--config", file.path()]);
    group.set("cgroup.pressure", "0");
    assert_eq!(ext.wait(), Some(6));
    let last = ext.expect("detached", |l| l["event"] == "detached");
    assert_eq!(last["why"], "psi-off", "{last}");
    assert!(
        ext.errors().contains("policy `default`"),
        "{}",
        ext.errors()
    );
    assert_eq!(attached(), 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn it_idles_without_using_the_processor() {
    world();
    let group = Group::new("idle");
    let ext = Ext::run(&group, &[]);
    std::thread::sleep(Duration::from_secs(2));
    let before = ext.proc_status("voluntary_ctxt_switches");
    std::thread::sleep(Duration::from_secs(5));
    // It scans once a second.  A scan may sleep for a lock, but nothing else
    // wakes it; processor time would be that of a busy host.
    let woken = ext.proc_status("voluntary_ctxt_switches") - before;
    assert!((1..=25).contains(&woken), "{woken} times in 5 s");
}

/// The kernel's symbols and types, which loading needs, would be tens of MiB.  What a large folio
/// adds to what it uses is not its own doing.
#[test]
#[ignore = "needs the lab's VM"]
fn it_keeps_little_memory() {
    world();
    let _never = Setting::thp_never();
    let group = Group::new("little");
    let ext = Ext::run(&group, &[]);
    std::thread::sleep(Duration::from_secs(2));
    let (own, all) = (ext.proc_status("RssAnon"), ext.proc_status("VmRSS"));
    assert!(own <= 2048, "{own} of {all} KiB are its own");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_closed_output_ends_it() {
    world();
    let group = Group::new("deaf");
    let args = ["--json", "--policy", "headroom", "--limit-share", "0"];
    let mut child = command(&run_on(&group, &args))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("attached"), "{line}");
    drop(out);
    // Nobody can read the next decision.
    group.set("memory.max", "16M");
    let mut worker = Worker::new(&group);
    // Past what large folios may fill of it.
    worker.fill(12 * MIB);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < common::PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(14));
    assert_eq!(attached(), 0);
}

/// Another value of an option than its default, and how it is written.
fn another(option: &Opt) -> Option<(&'static str, Value)> {
    let texts = [
        "50ms",
        "2s",
        "64K",
        "25",
        "512",
        "1",
        "0",
        "advised,collapse",
    ];
    let other = |text| {
        let value = option.parse(text).ok()?;
        (option.text(value) != option.default).then_some((text, value))
    };
    texts.into_iter().find_map(other)
}

/// None at its default: what does not come through shows.
#[test]
#[ignore = "needs the lab's VM"]
fn status_shows_the_value_of_every_option() {
    world();
    let policy = Policy::built_in("default").unwrap().unwrap();
    let mut left: Vec<&Opt> = OPTIONS.iter().collect();
    while !left.is_empty() {
        let (mut values, mut args) = (Values::default(), Vec::new());
        let before = left.len();
        left.retain(|option| {
            let (text, value) = another(option).unwrap();
            let mut more = values.clone();
            more.add(option, value);
            // Some do not go together: they are for the next time.
            if resolve::tunables(&policy, &more, &X86).is_err() {
                return true;
            }
            values = more;
            match option.measuring {
                true => args.extend(["--set".to_owned(), format!("{}={text}", option.name)]),
                false => args.extend([format!("--{}", option.name), text.to_owned()]),
            }
            false
        });
        assert!(left.len() < before, "{} alone is refused", left[0].name);
        let tunables = resolve::tunables(&policy, &values, &X86).unwrap();
        let expected: serde_json::Map<_, _> = OPTIONS.iter().map(|o| o.json(&tunables)).collect();
        let group = Group::new("settings");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let _ext = Ext::run(&group, &args);
        assert_eq!(
            status()["policies"][0]["settings"],
            serde_json::Value::from(expected)
        );
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn status_shows_policy_and_decisions() {
    world();
    let group = Group::new("shown");
    group.set("memory.max", "512M");
    let args = "--room-factor 512 --limit-share 0 --set count-machine=0";
    let args: Vec<&str> = args.split_whitespace().collect();
    let _ext = Ext::run(&group, &args);
    let mut worker = Worker::new(&group);
    // More than is small.
    worker.fill(16 * MIB);
    let status = status();
    let policy = &status["policies"][0];
    assert_eq!(policy["policy"], "default");
    assert_eq!(policy["root"], group.name());
    assert_eq!(policy["readable"], true);
    assert_eq!(
        (&policy["own_file"], &policy["own_object"]),
        (&false.into(), &false.into())
    );
    let line = status_of(&group);
    assert_eq!(line["why"], "room", "{line}");
    assert!(line["requests"]["fault"].as_u64().unwrap() > 0, "{line}");
    assert!(
        line["narrowed"]["fault"]["room"].as_u64().unwrap() > 0,
        "{line}"
    );
    assert!(line["room_bytes"].as_u64().unwrap() <= 512 * MIB, "{line}");
    let level = &line["level"];
    assert_eq!(
        (&level["cgroup"], &level["limit"]),
        (&group.name().into(), &"memory.max".into())
    );
    assert_eq!(level["bytes"], 512 * MIB, "{line}");
    assert!(level["used_bytes"].as_u64().unwrap() >= 16 * MIB, "{line}");
}

/// Detaches a link by its id, as `bpftool link detach id N` does.
fn detach(id: u32) {
    // SAFETY: takes a number, returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
    assert!(fd >= 0, "link {id}: {fd}");
    // SAFETY: just made by the kernel, owned by nobody else.
    let link = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) }, 0);
}

/// The cgroup is there, and no policy guards it any more: that is no removal.
#[test]
#[ignore = "needs the lab's VM"]
fn a_link_that_somebody_detaches_is_no_removal() {
    world();
    for policy in ["default", "headroom"] {
        let group = Group::new("detached");
        let mut ext = Ext::run(&group, &["--policy", policy]);
        let id = status()["policies"][0]["link_id"].as_u64().unwrap();
        detach(u32::try_from(id).unwrap());
        assert_eq!(ext.wait(), Some(21), "{policy}");
        let last = ext.expect("detached", |l| l["event"] == "detached");
        assert_eq!(last["why"], "link-detached", "{last}");
        let said = ext.errors();
        assert!(said.contains("Somebody detached its link"), "{said}");
        assert!(said.contains(group.path.to_str().unwrap()), "{said}");
        assert_eq!(attached(), 0);
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn status_without_a_policy_says_so() {
    world();
    let out = ext::output(&["status"]);
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    let applies = "no policy is attached; transparent_hugepage/enabled applies: always\n";
    assert_eq!(text, applies);
}

#[test]
#[ignore = "needs the lab's VM"]
fn status_as_text_has_one_line_per_cgroup() {
    world();
    let group = Group::new("text");
    let child = group.child("child");
    let _ext = Ext::run(&group, &["--cap", "64K"]);
    let text = String::from_utf8(ext::output(&["status"]).stdout).unwrap();
    let policy = format!("policy default attached to {} (cgroup ", group.name());
    assert!(text.starts_with(&policy), "{text}");
    assert!(text.contains("\n  cap:       at most 64K\n"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("CGROUP")), "{text}");
    for member in [&group, &child] {
        let line = text
            .lines()
            .find(|l| l.split_whitespace().next() == Some(&member.name()));
        assert!(
            line.is_some_and(|l| { l.contains(" 64K-max ") && l.ends_with(" cap: at most 64K") }),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_text_log_says_what_and_why_from_attach_to_detach() {
    world();
    let group = Group::new("log");
    group.set("memory.max", "64M");
    // Without the rules that would answer before the limit does.
    let args = ["--min-memory", "0", "--limit-share", "0"];
    let mut child = command(&run_on(&group, &args))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(
        line.contains("policy default attached to /log (cgroup "),
        "{line}"
    );
    let mut worker = Worker::new(&group);
    worker.fill(48 * MIB);
    line.clear();
    out.read_line(&mut line).unwrap();
    // The module lacks something of it.
    if line.contains("] not all of the policy is in force") {
        line.clear();
        out.read_line(&mut line).unwrap();
    }
    assert!(
        line.contains("/log: all -> ")
            && line.contains("(room: ")
            && line.contains(" left below memory.max 64M of /log ("),
        "{line}"
    );
    drop(worker);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let last = out.lines().map(Result::unwrap).last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(
        last.ends_with(
            "] policy default detached from /log (SIGINT); \
             transparent_hugepage/enabled applies again: always"
        ),
        "{last}"
    );
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_setting_that_is_changed_by_hand_is_said_and_binds() {
    world();
    let group = Group::new("administrator");
    // With scans, and without anything that wakes it.
    for policy in ["default", "headroom"] {
        changed_by_hand(&group, &Ext::run(&group, &["--policy", policy]));
    }
}

fn changed_by_hand(group: &Group, ext: &Ext) {
    let never = Setting::thp_never();
    let said = ext.expect("the setting", |line| line["event"] == "setting");
    assert_eq!(said["file"], "transparent_hugepage/enabled", "{said}");
    assert_eq!(
        (&said["from"], &said["to"]),
        (&"always".into(), &"never".into())
    );
    assert_eq!(said["off"], true, "{said}");
    let mut worker = Worker::new(group);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0, "the host's setting binds");
    drop(never);
    let said = ext.expect("the setting", |line| line["event"] == "setting");
    assert_eq!(
        (&said["to"], &said["off"]),
        (&"always".into(), &false.into())
    );
    // Of one size as well, and each other that a policy needs.
    for (name, to) in [
        ("hugepages-64kB/enabled", "never"),
        ("defrag", "defer"),
        ("shrink_underused", "0"),
        ("khugepaged/max_ptes_none", "17"),
    ] {
        let file = format!("{THP}/{name}");
        let text = read(&file);
        let was = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
        assert_ne!(was, to);
        for to in [to, was] {
            write(&file, to);
            let said = ext.expect("the setting", |line| line["event"] == "setting");
            assert_eq!(said["file"], format!("transparent_hugepage/{name}"));
            assert_eq!(said["to"], to);
        }
    }
    // Once for each change.
    let more = ext.during(Duration::from_secs(3));
    assert!(
        !more.iter().any(|line| line["event"] == "setting"),
        "{more:?}"
    );
}
