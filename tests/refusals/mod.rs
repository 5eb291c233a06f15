// SPDX-License-Identifier: GPL-2.0-only
//! Privileged calls that are refused, each of them, command by command: what comes of it.

use std::collections::BTreeSet;

use nix::errno::Errno;
use nix::libc;

use crate::common::ext::attached;
use crate::common::inject::{Call, Case, EVENTS};
use crate::common::settings::each_size;

/// A call that takes a privilege, by what is asked for; `None` for others.
fn privileged(call: &Call) -> Option<String> {
    if let Some((path, true)) = call.opens() {
        // Of any cgroup.
        let path = if path.starts_with(EVENTS) {
            EVENTS.to_owned()
        } else {
            each_size(&path)
        };
        return Some(format!("open {path}"));
    }
    if let Some(path) = call.writes().filter(|path| path.starts_with("/sys")) {
        return Some(format!("write {}", each_size(&path)));
    }
    match call.number {
        libc::SYS_bpf => Some(format!("bpf {}", call.args[0])),
        libc::SYS_prlimit64 if call.args[2] != 0 => Some("prlimit".to_owned()),
        libc::SYS_open_by_handle_at => Some("open_by_handle_at".to_owned()),
        libc::SYS_perf_event_open => Some("perf_event_open".to_owned()),
        libc::SYS_mkdir | libc::SYS_mkdirat => Some("mkdir".to_owned()),
        libc::SYS_unlink | libc::SYS_unlinkat => Some("unlink".to_owned()),
        libc::SYS_setxattr => Some("setxattr".to_owned()),
        libc::SYS_removexattr => Some("removexattr".to_owned()),
        libc::SYS_connect => Some("connect".to_owned()),
        libc::SYS_bind => Some("bind".to_owned()),
        libc::SYS_chmod | libc::SYS_fchmod | libc::SYS_fchmodat => Some("chmod".to_owned()),
        libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 => Some("rename".to_owned()),
        libc::SYS_mount | libc::SYS_setns | libc::SYS_capset => {
            Some(format!("call {}", call.number))
        }
        _ => None,
    }
}

/// What a call comes to if it is refused.
struct Refused {
    /// In these commands.
    of: &'static [&'static str],
    call: &'static str,
    /// The exit code; 0: it can do without.
    code: i32,
    /// What the message has; empty: there is none.
    says: &'static str,
}

const fn refused(
    of: &'static [&'static str],
    call: &'static str,
    code: i32,
    says: &'static str,
) -> Refused {
    Refused {
        of,
        call,
        code,
        says,
    }
}

const RUN: &[&str] = &["run", "run --config"];
const TAKES_OVER: &[&str] = &["run, which takes over"];
/// What these call as `run` does is tried with that, unless it has a row here.
const MORE: &[&str] = &[
    "run --on-exit keep",
    "run, which takes over",
    "run --metrics",
    "run --metrics of a port",
];
const KEEP: &[&str] = &["run --on-exit keep"];
const LOOKS: &[&str] = &["status", "explain", "advise"];
const TOP: &[&str] = &["top"];
const EACH_LOOK: &[&str] = &["status", "explain", "advise", "top"];
const SETS: &[&str] = &["settings apply", "settings undo"];

/// What is said of the socket of `reload`.
const UNFOUND: &str = "will not find this daemon";
/// Of a place for metrics, in the log.
pub const UNSERVED: &str = "no metrics at";
const NOT_LOADED: &str = "no privilege to load BPF programs";
const NOT_SET: &str = "Settings of transparent huge pages are root's";

const REFUSED: &[Refused] = &[
    refused(
        RUN,
        "open /run/mthp_ext/events/",
        0,
        "no events in /run/mthp_ext/events",
    ),
    refused(RUN, "mkdir", 0, UNFOUND),
    refused(RUN, "bind", 0, UNFOUND),
    refused(RUN, "chmod", 0, UNFOUND),
    // linux/bpf.h: BPF_MAP_CREATE and so on.
    refused(RUN, "bpf 0", 4, NOT_LOADED),
    refused(RUN, "bpf 2", 4, NOT_LOADED),
    refused(RUN, "bpf 5", 4, NOT_LOADED),
    // BPF_PROG_TEST_RUN: the scan; before it, what a configuration assigns.
    refused(&["run"], "bpf 10", 12, "Operation not permitted"),
    refused(
        &["run --config"],
        "bpf 10",
        1,
        "assigning a policy to a cgroup: Operation not permitted",
    ),
    refused(RUN, "bpf 15", 4, NOT_LOADED),
    // BPF_BTF_LOAD: libbpf takes it for a kernel that cannot.
    refused(RUN, "bpf 18", 13, "loading .BTF into kernel"),
    // BPF_BTF_GET_FD_BY_ID: what modules bring; without BPF_BTF_GET_NEXT_ID libbpf does not look.
    refused(RUN, "bpf 19", 13, "failed to get BTF object"),
    refused(RUN, "bpf 22", 4, NOT_LOADED),
    refused(RUN, "bpf 23", 0, ""),
    refused(RUN, "bpf 28", 4, "no privilege to attach a policy"),
    // BPF_LINK_DETACH, BPF_PROG_BIND_MAP, BPF_TOKEN_CREATE.
    refused(RUN, "bpf 34", 0, ""),
    refused(RUN, "bpf 35", 0, ""),
    refused(RUN, "bpf 36", 0, ""),
    refused(
        RUN,
        "open /sys/fs/cgroup/refused/memory.pressure",
        4,
        "no privilege to write",
    ),
    refused(
        RUN,
        "write /sys/fs/cgroup/refused/memory.pressure",
        4,
        "no privilege to write",
    ),
    // Of its own socket, at the end.
    refused(RUN, "unlink", 0, ""),
    // BPF_OBJ_PIN, BPF_OBJ_GET.
    refused(KEEP, "bpf 6", 1, "pinning the policy in"),
    refused(KEEP, "bpf 7", 1, "opening the link in"),
    refused(KEEP, "mkdir", 1, "making /sys/fs/bpf/mthp_ext/"),
    refused(KEEP, "rename", 1, "pinning the policy in"),
    // Of the former one: what is kept of each cgroup is not copied; its link is not found, not updated.
    refused(TAKES_OVER, "bpf 1", 0, ""),
    refused(TAKES_OVER, "bpf 6", 1, "pinning the policy in"),
    refused(TAKES_OVER, "bpf 7", 1, "opening the link in"),
    refused(TAKES_OVER, "bpf 15", 1, "opening the link in"),
    refused(TAKES_OVER, "bpf 29", 4, "no privilege to attach a policy"),
    // Nothing is scanned or assigned: of the programs only this is run.
    refused(TAKES_OVER, "bpf 10", 0, "mthp_name does not answer"),
    // As for `run`, and the former one stays in force.
    refused(TAKES_OVER, "bpf 5", 4, NOT_LOADED),
    // The new one is in force by then.
    refused(TAKES_OVER, "rename", 0, "is out of date: pinning"),
    refused(
        &["run --metrics", "run --metrics of a port"],
        "bind",
        0,
        UNSERVED,
    ),
    refused(&["run --metrics"], "chmod", 0, UNSERVED),
    // The page says so of the cgroups, too.
    refused(&["run --metrics"], "bpf 10", 0, "mthp_name does not answer"),
    refused(&["run --metrics"], "mkdir", 0, UNSERVED),
    refused(EACH_LOOK, "open_by_handle_at", 0, ""),
    refused(LOOKS, "bpf 1", 1, "Operation not permitted"),
    refused(LOOKS, "bpf 10", 1, "Operation not permitted"),
    refused(
        LOOKS,
        "bpf 11",
        1,
        "the list of BPF programs ended too early",
    ),
    refused(LOOKS, "bpf 13", 1, "Operation not permitted"),
    refused(LOOKS, "bpf 14", 1, "Operation not permitted"),
    refused(EACH_LOOK, "bpf 15", 4, "no privilege to list BPF links"),
    refused(EACH_LOOK, "bpf 30", 4, "no privilege to list BPF links"),
    refused(EACH_LOOK, "bpf 31", 4, "no privilege to list BPF links"),
    // What cannot be known is at most that.
    refused(TOP, "bpf 1", 0, "<=all"),
    refused(TOP, "bpf 10", 0, "<=all"),
    refused(TOP, "bpf 11", 0, "<=all"),
    refused(TOP, "bpf 13", 0, "<=all"),
    refused(TOP, "bpf 14", 0, "<=all"),
    refused(&["detach"], "open_by_handle_at", 0, ""),
    refused(&["detach"], "bpf 7", 1, "Operation not permitted"),
    refused(&["detach"], "bpf 15", 1, "Operation not permitted"),
    // The link ends with its pin as well.
    refused(&["detach"], "bpf 34", 0, ""),
    refused(&["detach"], "unlink", 1, "Operation not permitted"),
    refused(SETS, "mkdir", 4, NOT_SET),
    refused(
        &["settings apply"],
        "open /run/mthp_ext-settings/new",
        4,
        NOT_SET,
    ),
    refused(&["settings apply"], "rename", 4, NOT_SET),
    refused(
        &["settings undo"],
        "open /proc/sys/vm/min_free_kbytes",
        4,
        NOT_SET,
    ),
    refused(
        &["settings undo"],
        "unlink",
        1,
        "removing /run/mthp_ext-settings/saved.json",
    ),
    refused(SETS, "open THP/enabled", 4, NOT_SET),
    refused(SETS, "write THP/enabled", 4, NOT_SET),
    refused(SETS, "open THP/hugepages-*/enabled", 4, NOT_SET),
    refused(SETS, "write THP/hugepages-*/enabled", 4, NOT_SET),
    refused(SETS, "open THP/khugepaged/max_ptes_none", 4, NOT_SET),
    refused(SETS, "write THP/khugepaged/max_ptes_none", 4, NOT_SET),
    refused(&["set", "unset"], "connect", 0, ""),
    refused(&["set"], "setxattr", 4, "Operation not permitted"),
    refused(&["unset"], "removexattr", 4, "Operation not permitted"),
    refused(
        &["reload"],
        "connect",
        4,
        "no privilege to ask a daemon of root",
    ),
];

/// Refuses each privileged call of a command, one after the other.  Returns what went wrong.
fn refuse_each(case: &Case<'_>) -> Vec<String> {
    let name = case.name;
    let mut seen = BTreeSet::new();
    let ended = case.run(|call| {
        seen.extend(privileged(call));
        None
    });
    let serves = name.starts_with("run") || case.terminal;
    assert_eq!((ended.code, ended.served), (Some(0), serves), "{ended:?}");
    assert!(!seen.is_empty(), "{name} makes no privileged call");
    assert_eq!((case.lost)(&ended), None, "{name}");
    let policies = attached();
    let of_this = |one: &&Refused| one.of.contains(&name);
    let unmet = REFUSED.iter().filter(of_this).map(|one| one.call);
    let unmet = unmet.filter(|call| !seen.contains(*call));
    let mut wrong: Vec<String> = unmet
        .map(|call| format!("{name}: {call}: it is not called"))
        .collect();
    let known = |of: &str, key: &str| {
        REFUSED
            .iter()
            .find(|one| one.call == key && one.of.contains(&of))
    };
    for key in &seen {
        let expected = known(name, key);
        if expected.is_none() && MORE.contains(&name) && known("run", key).is_some() {
            continue;
        }
        let ended =
            case.run(|call| (privileged(call).as_ref() == Some(key)).then_some(Errno::EPERM));
        let lost = (case.lost)(&ended);
        let now = attached();
        let Some(expected) = expected else {
            wrong.push(format!(
                "{name}: {key}: nobody has said what is expected of {ended:?}"
            ));
            continue;
        };
        let said = [ended.said.as_str(), &ended.out].concat();
        let silent = !expected.says.is_empty() || ended.said.is_empty();
        let served = ended.served == (serves && expected.code == 0);
        let well = said.contains(expected.says) && silent && served && now == policies;
        if ended.code != Some(expected.code) || !well || lost.is_some() {
            wrong.push(format!(
                "{name}: {key}: {now} policies, {lost:?}, {ended:?}"
            ));
        }
    }
    wrong
}

/// All of these.
pub fn refuse(cases: &[Case<'_>]) {
    let wrong: Vec<String> = cases.iter().flat_map(refuse_each).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
