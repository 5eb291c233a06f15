// SPDX-License-Identifier: GPL-2.0-only
//! Lines of the log, as text and as JSON.

use super::*;
use crate::kernel::carrier::By;
use crate::kernel::lacks;
use crate::model::abi::{Decision as Decided, Record, RuleNumber};
use crate::model::ending::OnExit;
use crate::model::given::Values;
use crate::model::options::Opt;
use crate::model::orders::X86;
use crate::model::policy::Policy;
use crate::model::reason::Reason;
use crate::model::resolve;

fn built_in() -> Source {
    Source {
        policy: Some("default".to_owned()),
        ..Source::default()
    }
}

fn event() -> Event {
    let mut now = Record {
        stall_ns: 230_000_000,
        elapsed_ns: 1_000_000_000,
        memory_bytes: 96 << 20,
        memory_known: 1,
        room_bytes: 1 << 20,
        ..Record::default()
    };
    for reason in Reason::ALL {
        let (orders, rule) = match reason {
            Reason::Collapse => (!0, RuleNumber::MTHP_NONE),
            _ => (0, RuleNumber::MTHP_PRESSURE),
        };
        now.decided[reason as usize] = Decided {
            orders,
            rule,
            room_factor: 0,
        };
    }
    Event {
        t_ns: 12_345_678_901,
        cgroup_id: 5,
        suppressed: 3,
        from: ByReason::each(!1).0,
        now,
    }
}

/// Nothing narrows.
fn free() -> Event {
    let mut event = event();
    event.now.decided = [Decided {
        orders: !1,
        ..Decided::default()
    }; 6];
    event.now.room_bytes = NO_LIMIT;
    event.now.memory_known = 0;
    event
}

fn decision(event: &Event, cgroup: &str) -> Line {
    let level = Level {
        cgroup: Some("/redis".to_owned()),
        limit: "memory.max",
        bytes: 64 << 20,
        used_bytes: 63 << 20,
        swapped_bytes: 0,
    };
    let level = (event.now.room_bytes != NO_LIMIT).then_some(level);
    let tunables = resolve::defaults(&X86).unwrap();
    Line::decision(event, cgroup.to_owned(), level, &tunables, &X86)
}

fn detached(why: End, signal: Option<&'static str>, thp: Option<&str>) -> Line {
    Line::Detached {
        t_ms: 1,
        what: built_in(),
        root: "/redis".to_owned(),
        why,
        signal,
        thp: thp.map(str::to_owned),
    }
}

fn kept(handed: bool) -> Line {
    Line::Kept {
        t_ms: 1,
        what: built_in(),
        root: "/redis".to_owned(),
        signal: "SIGTERM",
        handed,
    }
}

fn printed(line: &Line, json: bool) -> String {
    let mut out = Vec::new();
    Log::new(&mut out, json).print(line).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_decision_says_what_and_why() {
    let line = decision(&event(), "/redis");
    assert_eq!(
        printed(&line, false),
        "[   12.345] /redis: all -> 4K (pressure: 230ms of full stall in 1s \
         (threshold 100ms in 1s))\n"
    );
}

#[test]
fn a_decision_as_json() {
    let line = decision(&event(), "/redis");
    let value: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
    assert_eq!(value["event"], "decision");
    assert_eq!(value["t_ms"], 12_345);
    assert_eq!(value["cgroup"], "/redis");
    assert_eq!(
        (&value["from"], &value["to"]),
        (&"all".into(), &"4K".into())
    );
    assert_eq!(value["why"], "pressure");
    assert_eq!(value["rules"], serde_json::json!(["pressure"]));
    assert_eq!(value["orders"]["fault"], 0);
    assert_eq!(value["orders"]["collapse"], 0x3fc);
    assert_eq!(value["memory_bytes"], 96 << 20);
    assert_eq!(value["suppressed"], 3);
    let level = serde_json::json!({
        "cgroup": "/redis", "limit": "memory.max", "bytes": 64 << 20, "used_bytes": 63 << 20,
        "swapped_bytes": 0,
    });
    assert_eq!(
        (&value["level"], &value["room_bytes"]),
        (&level, &(1 << 20).into())
    );
}

#[test]
fn every_key_is_on_the_page() {
    for line in [
        decision(&event(), "/redis"),
        attached(),
        detached(End::Signal, Some("SIGINT"), None),
        kept(true),
        Line::Configured {
            t_ms: 1,
            in_force: true,
            text: "configuration /e in force".to_owned(),
        },
        Line::Override {
            t_ms: 1,
            cgroup: "/redis".to_owned(),
            in_force: false,
            text: "left out".to_owned(),
        },
        Line::Unserved {
            t_ms: 1,
            address: "127.0.0.1:1".to_owned(),
            text: "no metrics".to_owned(),
        },
        partial("headroom"),
    ] {
        let value = serde_json::to_value(&line).unwrap();
        assert_eq!(crate::output::print::undocumented(&value), [""; 0]);
    }
}

/// One vocabulary: `events` has what `run` prints, in JSON and in words.
#[test]
fn a_record_is_the_line_and_more() {
    let hostile = String::from_utf8_lossy(crate::model::shown::tests::HOSTILE).into_owned();
    for line in [
        decision(&event(), "/redis"),
        decision(&event(), &hostile),
        attached(),
    ] {
        let text = record(&line, "/r", 7);
        assert_eq!(text.matches('\n').count(), 1);
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(crate::output::print::undocumented(&value), [""; 0]);
        assert_eq!(
            (&value["version"], &value["number"]),
            (&VERSION.into(), &7.into())
        );
        let words = stamped(
            value["t_ms"].as_u64().unwrap(),
            value["text"].as_str().unwrap(),
        );
        assert_eq!(format!("{words}\n"), printed(&line, false));
        let fields = value.as_object_mut().unwrap();
        let mut alone: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
        for key in ["version", "number", "unix_ms", "root", "text"] {
            assert!(fields.remove(key).is_some(), "{key}");
            alone.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(value, alone);
    }
}

#[test]
fn what_is_unknown_is_null() {
    let line = decision(&free(), "/");
    let value: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
    assert_eq!(value["room_bytes"], serde_json::Value::Null);
    assert_eq!(value["memory_bytes"], serde_json::Value::Null);
    assert_eq!(value["why"], "none");
    assert_eq!(value["level"], serde_json::Value::Null);
    assert!(printed(&line, false).ends_with("/: all -> all (no rule narrows)\n"));
}

fn attached() -> Line {
    Line::Attached {
        t_ms: 1,
        what: built_in(),
        root: "/redis".to_owned(),
        cgroup_id: 5,
        link_id: 3,
        load_ms: 200,
        ending: Ending::chosen(None, None),
        thp: Some("always".to_owned()),
        setting: "transparent_hugepage/enabled is always".to_owned(),
    }
}

#[test]
fn the_first_and_the_last_line_name_the_setting() {
    assert_eq!(
        printed(&attached(), false),
        "[    0.001] policy default attached to /redis (cgroup 5, link 3); \
         transparent_hugepage/enabled is always\n"
    );
    let mut kept = attached();
    if let Line::Attached { ending, .. } = &mut kept {
        *ending = Ending::chosen(Some(OnExit::Keep), None);
    }
    let text = printed(&kept, false);
    assert!(
        text.ends_with(" always; on-exit is keep (--on-exit)\n"),
        "{text}"
    );
    let json = printed(&kept, true);
    assert!(
        json.contains(r#""on_exit":"keep","on_exit_from":"--on-exit""#),
        "{json}"
    );
    assert_eq!(
        printed(
            &detached(End::Signal, Some("SIGINT"), Some("always")),
            false
        ),
        "[    0.001] policy default detached from /redis (SIGINT); \
         transparent_hugepage/enabled applies again: always\n"
    );
    for (why, name, words) in [
        (End::RootRemoved, "root-removed", "the cgroup was removed"),
        (
            End::LinkDetached,
            "link-detached",
            "somebody detached its link",
        ),
        (End::PsiOff, "psi-off", "PSI was switched off"),
        (End::Error, "error", "error"),
    ] {
        let line = detached(why, None, None);
        let text = printed(&line, false);
        assert!(
            text.ends_with(&format!("from /redis ({words})\n")),
            "{text}"
        );
        let json = printed(&line, true);
        assert!(json.contains(&format!("\"why\":\"{name}\"")), "{json}");
    }
}

/// With the module.
fn partial(policy: &str) -> Line {
    let policy = Policy::built_in(policy).unwrap().unwrap();
    let mut values = Values::default();
    let cap = Opt::named("cap").unwrap();
    values.add(cap, cap.parse("fault=64K").unwrap());
    let t = resolve::tunables(&policy, &values, &X86).unwrap();
    Line::Partial {
        t_ms: 1,
        carrier: "module mthp_hook 0.1".to_owned(),
        missed: lacks::missed(By::Module, &lacks::of_the_module(), &[&t]),
    }
}

/// Each rule that is not whole is named, with what it misses.
#[test]
fn what_is_not_in_force_is_said_in_a_line() {
    let line = partial("headroom");
    let text = printed(&line, false);
    let (_, words) = text.split_once("] ").unwrap();
    assert_eq!(
        words,
        "not all of the policy is in force on this carrier (module mthp_hook 0.1): reclaim \
         (room): not asked about: what was given stays, so rules give up earlier; \
         count-nodes (room): counts the whole machine: the cpuset is out of reach\n"
    );
    let json: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
    assert_eq!(json["event"], "partial");
    assert_eq!(json["missed"][1]["of"], "count-nodes");
    assert_eq!(json["missed"][1]["rules"], serde_json::json!(["room"]));
    // Another policy may miss nothing any more.
    let text = printed(&partial("fixed"), false);
    let words = "] all of the policy is in force on this carrier (module mthp_hook 0.1)\n";
    assert!(text.ends_with(words), "{text}");
}

/// A stop ends what the service manager has: nothing promises that it stays.
#[test]
fn what_is_kept_says_what_ends_it() {
    for (handed, words) in [
        (
            true,
            "policy default of /redis is with the service manager (SIGTERM): a restart goes on \
             with it, a stop ends it",
        ),
        (
            false,
            "policy default stays attached to /redis (SIGTERM); mthp_ext detach ends it",
        ),
    ] {
        let line = kept(handed);
        assert_eq!(printed(&line, false), format!("[    0.001] {words}\n"));
        let json: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
        assert_eq!(json["handed"], handed, "{json}");
    }
}

/// Two of the same name are told apart, and an object is not called by a policy it ignores.
#[test]
fn what_is_attached_names_its_files() {
    let source = |policy: Option<&str>, file: Option<&str>, object: Option<&str>| Source {
        policy: policy.map(str::to_owned),
        file: file.map(PathBuf::from),
        object: object.map(PathBuf::from),
        dry_run: false,
    };
    for (source, text) in [
        (source(Some("web"), None, None), "policy web"),
        (
            source(Some("web"), Some("/e/web.toml"), None),
            "policy web (/e/web.toml)",
        ),
        (
            source(Some("web"), None, Some("/o")),
            "policy web by object /o",
        ),
        (source(None, None, Some("/o")), "object /o"),
        (
            Source {
                dry_run: true,
                ..source(Some("web"), None, None)
            },
            "policy web (dry run)",
        ),
    ] {
        assert_eq!(source.to_string(), text);
    }
    let json = printed(&detached(End::Error, None, None), true);
    assert!(
        json.contains("\"policy\":\"default\",\"file\":null,\"object\":null"),
        "{json}"
    );
}

#[test]
fn every_line_is_one_line() {
    let mut hostile = detached(End::Error, None, None);
    if let Line::Detached { what, .. } = &mut hostile {
        what.policy = Some("a\nb".to_owned());
    }
    for line in [
        hostile,
        detached(End::Error, None, Some("never")),
        decision(&event(), "/a b"),
    ] {
        for json in [false, true] {
            assert_eq!(printed(&line, json).matches('\n').count(), 1);
        }
    }
}
