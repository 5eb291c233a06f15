// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext status`: what is attached where, and what each cgroup may use now.
//!
//! Everything comes from the kernel: its list of links, the programs behind them, the cgroup
//! files.  The attached policy's own program says what it decides for a cgroup, and why; the
//! process that attached it is not asked: it may be another version, or gone.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::errors::{Context, Result};
use crate::kernel::attached::{self, Attached, Heartbeat};
use crate::kernel::carrier::Carrier;
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::neighbours;
use crate::kernel::thp::{self, Thp};
use crate::model::abi::{Explained, NO_LIMIT, Own, Tunables};
use crate::model::orders::Sizes;
use crate::model::reason::{ByReason, Reason};
use crate::model::rule::{Rule, Rules};
use crate::model::units::{show_duration, show_size};
use crate::output::settings::{self, Settings};
use crate::output::why::{self, Level};
use crate::output::{print, table};

/// The whole answer.
#[derive(Debug, Serialize)]
struct Report {
    /// transparent_hugepage/enabled, which the policies narrow.
    thp: Option<String>,
    policies: Vec<PolicyLine>,
    neighbours: neighbours::Host,
    cgroups: Vec<CgroupLine>,
}

/// One attached policy.
#[derive(Debug, Serialize)]
struct PolicyLine {
    policy: String,
    root: String,
    cgroup_id: u64,
    link_id: u32,
    map_id: u32,
    prog_id: u32,
    /// False for programs of another version of mthp_ext, or of somebody's own: their decisions
    /// cannot be read.
    readable: bool,
    /// Why they cannot, if the kernel said so.
    error: Option<String>,
    /// The policy is from a file; false: built in.
    own_file: Option<bool>,
    /// The BPF object is from a file; false: built in.
    own_object: Option<bool>,
    /// It stays when its daemon ends.
    pinned: bool,
    /// Its scans, where it obeys them for a time only.
    heartbeat: Option<Beat>,
    rules: Rules,
    settings: Option<Settings>,
    #[serde(skip)]
    tunables: Option<Tunables>,
}

/// The scans of a policy that may be without its daemon.
#[derive(Debug, Serialize)]
struct Beat {
    /// False: it passes everything.
    beats: bool,
    /// Since the last scan.
    age_ms: u64,
    /// Above this it passes everything.
    oldest_ms: u64,
}

impl From<Heartbeat> for Beat {
    fn from(heartbeat: Heartbeat) -> Self {
        Beat {
            beats: heartbeat.beats(),
            age_ms: heartbeat.age_ns / 1_000_000,
            oldest_ms: heartbeat.oldest_ns / 1_000_000,
        }
    }
}

/// One cgroup that at least one policy binds.
#[derive(Debug, Serialize)]
struct CgroupLine {
    cgroup: String,
    /// Name of the decision, e.g. `all`, `4K-on-fault`; behind `<=` where a policy is unreadable.
    allowed: String,
    why: &'static str,
    rules: Vec<Rule>,
    /// Each of them in words, with its numbers.
    reasons: Vec<String>,
    orders: ByReason<u64>,
    /// Policies that bind it, too, and that cannot be read, with what the kernel said if it did.
    unreadable: Vec<String>,
    /// The kernel would not say what one of them decides.
    #[serde(skip)]
    failed: bool,
    pressure: bool,
    /// As of the last scan; none before the first, and where pressure is not tracked.
    stall_ms: Option<u64>,
    elapsed_ms: Option<u64>,
    /// Calm windows in a row that the pressure verdict needs to fall; 0: high was never,
    /// or long ago.
    hold_windows: u32,
    /// Those it has had.
    calm_windows: u32,
    memory_bytes: Option<u64>,
    /// What is left at `level`.
    room_bytes: Option<u64>,
    /// The level that leaves the least: a cgroup's limit, or the machine.
    level: Option<Level>,
    /// Of that room, page cache that reclaim would drop first.
    cache_bytes: u64,
    #[serde(flatten)]
    huge: neighbours::Group,
    /// Folios that the policies were asked about, by reason.
    asked: BTreeMap<&'static str, u64>,
    /// Those that they narrowed, by reason and by the rule that did.
    narrowed: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

/// What one policy says about one cgroup.
struct Verdict {
    explained: Explained,
    tunables: Tunables,
    level: Option<Level>,
}

/// Puts together what all policies on the path say about each cgroup.
fn cgroup_lines(policies: &[Attached], names: &Names, sizes: &Sizes) -> Vec<CgroupLine> {
    let mut lines: BTreeMap<PathBuf, CgroupLine> = BTreeMap::new();
    for policy in policies {
        let Some(root) = names.path_of_id(policy.link.cgroup_id) else {
            continue;
        };
        cgroup::walk(&root, &mut |dir, id| {
            let explained = policy
                .tunables
                .map(|tunables| (policy.explain(id), tunables));
            let verdict = match explained {
                None => Err(policy.failed.as_ref().map(ToString::to_string)),
                Some((Ok(Some(explained)), tunables)) => Ok(Verdict {
                    level: Level::of(&explained.now, names),
                    explained,
                    tunables,
                }),
                // A cgroup that goes away meanwhile is left out.
                Some((Ok(None), _)) => return,
                Some((Err(error), _)) => Err(Some(error.to_string())),
            };
            let line = lines
                .entry(dir.to_owned())
                .or_insert_with(|| CgroupLine::new(dir, names));
            match verdict {
                Ok(verdict) => line.add(&verdict, sizes),
                Err(why) => line.add_unreadable(&policy.name, why.as_deref(), sizes),
            }
        });
    }
    lines.into_values().collect()
}

impl CgroupLine {
    /// A cgroup that nothing narrows yet.
    fn new(dir: &Path, names: &Names) -> Self {
        CgroupLine {
            cgroup: names.of_path(dir),
            allowed: String::new(),
            why: why::first(&[]),
            rules: Vec::new(),
            reasons: Vec::new(),
            orders: ByReason::each(u64::MAX),
            unreadable: Vec::new(),
            failed: false,
            pressure: false,
            stall_ms: None,
            elapsed_ms: None,
            hold_windows: 0,
            calm_windows: 0,
            memory_bytes: None,
            room_bytes: None,
            level: None,
            cache_bytes: 0,
            huge: neighbours::Group::read(dir),
            asked: BTreeMap::new(),
            narrowed: BTreeMap::new(),
        }
    }

    /// One more policy binds it, and nobody can say how; `why`, if the kernel says.
    fn add_unreadable(&mut self, policy: &str, why: Option<&str>, sizes: &Sizes) {
        self.failed |= why.is_some();
        self.unreadable.push(match why {
            Some(why) => format!("{policy}: {why}"),
            None => policy.to_owned(),
        });
        self.name(sizes);
    }

    /// Names the decision: no more than this where somebody else may take more away.
    fn name(&mut self, sizes: &Sizes) {
        let bound = if self.unreadable.is_empty() { "" } else { "<=" };
        self.allowed = format!("{bound}{}", sizes.decision_name(&self.orders));
    }

    /// Narrows by one more policy, as the kernel does: AND.
    fn add(&mut self, verdict: &Verdict, sizes: &Sizes) {
        let now = &verdict.explained.now;
        let theirs = why::orders(now);
        let both = ByReason::new(|reason| self.orders[reason] & theirs[reason]);
        self.orders = sizes.real(&both);
        self.name(sizes);
        self.rules.extend(why::rules(now));
        self.rules.sort_unstable();
        self.rules.dedup();
        self.why = why::first(&self.rules);
        for reason in why::reasons(now, verdict.level.as_ref(), &verdict.tunables) {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
        self.pressure |= now.pressure != 0;
        if now.room_bytes != NO_LIMIT && self.room_bytes.is_none_or(|room| now.room_bytes < room) {
            self.room_bytes = Some(now.room_bytes);
            self.level.clone_from(&verdict.level);
        }
        if now.memory_known != 0 {
            self.memory_bytes = Some(now.memory_bytes);
        }
        if now.seen != 0 {
            self.stall_ms = self.stall_ms.max(Some(now.stall_ns / 1_000_000));
            self.elapsed_ms = self.elapsed_ms.max(Some(now.elapsed_ns / 1_000_000));
        }
        self.cache_bytes = self.cache_bytes.max(now.cache_bytes);
        if now.hold >= self.hold_windows {
            self.hold_windows = now.hold;
            self.calm_windows = now.calm;
        }
        self.count(&verdict.explained);
    }

    fn count(&mut self, explained: &Explained) {
        for reason in Reason::ALL {
            let asked = explained.asked[reason as usize];
            *self.asked.entry(reason.name()).or_default() += asked;
            for rule in Rule::ALL {
                let count = explained.narrowed[reason as usize][rule as usize];
                if count != 0 {
                    let of_reason = self.narrowed.entry(reason.name()).or_default();
                    *of_reason.entry(rule.name()).or_default() += count;
                }
            }
        }
    }

    fn why_text(&self) -> String {
        let mut parts = self.reasons.clone();
        let unreadable = self.unreadable.iter();
        parts.extend(unreadable.map(|policy| format!("and policy {policy}, unreadable")));
        match parts.as_slice() {
            [] => "-".to_owned(),
            parts => parts.join("; "),
        }
    }

    fn narrowed_total(&self) -> u64 {
        self.narrowed.values().flat_map(BTreeMap::values).sum()
    }

    /// A row of the table.
    fn cells(&self) -> [String; 9] {
        let or_dash = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), show_size);
        let stall = self.stall_ms.map(|ms| show_duration(ms * 1_000_000));
        [
            self.cgroup.clone(),
            self.allowed.clone(),
            stall.unwrap_or_else(|| "-".to_owned()),
            or_dash(self.memory_bytes),
            or_dash(self.room_bytes),
            self.huge.anon_thp_text(),
            self.asked.values().sum::<u64>().to_string(),
            self.narrowed_total().to_string(),
            self.why_text(),
        ]
    }
}

/// The table's columns; from the third to the eighth they are numbers.
const COLUMNS: [&str; 9] = [
    "CGROUP",
    "ALLOWED",
    "STALL",
    "ANON+SHMEM",
    "ROOM",
    "HUGE",
    "REQUESTS",
    "NARROWED",
    "WHY",
];
const NUMBERS: std::ops::Range<usize> = 2..8;

fn policy_line(policy: &Attached, names: &Names) -> PolicyLine {
    PolicyLine {
        policy: policy.name.clone(),
        root: match policy.link.cgroup_id {
            0 => "(detached)".to_owned(),
            id => names.of_id(id),
        },
        cgroup_id: policy.link.cgroup_id,
        link_id: policy.link.id,
        map_id: policy.link.map_id,
        prog_id: policy.prog_id,
        readable: policy.tunables.is_some(),
        error: policy.failed.as_ref().map(ToString::to_string),
        own_file: own(policy, Own::MTHP_OWN_FILE),
        own_object: own(policy, Own::MTHP_OWN_OBJECT),
        pinned: policy.pinned,
        heartbeat: policy.heartbeat.map(Beat::from),
        rules: Rules(policy.tunables.map_or(0, |t| t.rules)),
        settings: policy.tunables.as_ref().map(Settings::from),
        tunables: policy.tunables,
    }
}

fn own(policy: &Attached, what: Own) -> Option<bool> {
    policy.tunables.map(|t| t.own.0 & what.0 != 0)
}

impl PolicyLine {
    /// What outlives its daemon, and how far.
    fn life(&self) -> Option<String> {
        let beat = self.heartbeat.as_ref().map(|beat| {
            let [age, oldest] =
                [beat.age_ms, beat.oldest_ms].map(|ms| show_duration(ms * 1_000_000));
            match beat.beats {
                true => format!("; last scan {age} ago"),
                false => format!("; no scan for {age}, over {oldest}: it passes everything"),
            }
        });
        self.pinned
            .then(|| format!("kept when its daemon ends{}", beat.unwrap_or_default()))
    }

    /// "policy web (own file)": not the one that is built in by that name.
    fn title(&self) -> String {
        let own = [(self.own_file, "file"), (self.own_object, "object")];
        let own = own.iter().filter(|(own, _)| *own == Some(true));
        let own: Vec<&str> = own.map(|(_, what)| *what).collect();
        match own.as_slice() {
            [] => format!("policy {}", self.policy),
            own => format!("policy {} (own {})", self.policy, own.join(" and ")),
        }
    }
}

fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let setting = report.thp.as_deref().unwrap_or("missing in this kernel");
    if report.policies.is_empty() {
        return writeln!(
            out,
            "no policy is attached; transparent_hugepage/enabled applies: {setting}"
        );
    }
    for p in &report.policies {
        match p.cgroup_id {
            0 => writeln!(out, "{} (link {}): detached", p.title(), p.link_id)?,
            id => writeln!(
                out,
                "{} attached to {} (cgroup {id}, link {})",
                p.title(),
                p.root,
                p.link_id
            )?,
        }
        if let Some(life) = p.life() {
            writeln!(out, "  {life}")?;
        }
        match (&p.tunables, &p.error) {
            (Some(tunables), _) => settings::text(tunables, out)?,
            (None, Some(error)) => writeln!(out, "  its decisions cannot be read: {error}")?,
            (None, None) => writeln!(
                out,
                "  loaded by another version of mthp_ext, or from an object of its own: \
                 its decisions cannot be read"
            )?,
        }
    }
    writeln!(out, "\ntransparent_hugepage/enabled: {setting}")?;
    writeln!(out, "{}\n", report.neighbours.text())?;
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(report.cgroups.iter().map(CgroupLine::cells));
    table::print(&rows, &NUMBERS, out)
}

/// What the kernel would not say of one policy or cgroup, after all the rest is printed.
fn incomplete(report: &Report) -> Result<()> {
    let policies = report
        .policies
        .iter()
        .filter(|policy| policy.error.is_some());
    let cgroups = report.cgroups.iter().filter(|cgroup| cgroup.failed);
    match (policies.count(), cgroups.count()) {
        (0, 0) => Ok(()),
        (policies, cgroups) => Err(io::Error::other(format!(
            "the kernel did not answer for {policies} of the policies and {cgroups} of the \
             cgroups, whose lines say why; the others are complete: if memory or descriptors were \
             short, run it again"
        )))
        .context(|| "the answer has gaps".to_owned()),
    }
}

/// The command.
///
/// # Errors
/// Without BTF, hook, privilege, or cgroup v2; after the answer, if that has gaps.
pub fn main(json: bool) -> Result<()> {
    let root = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?;
    let carrier = Carrier::probe()?;
    let policies = attached::attached(&carrier)?;
    let names = Names::new(&root.mount);
    let report = Report {
        thp: Thp::of_this_machine().enabled,
        policies: policies.iter().map(|p| policy_line(p, &names)).collect(),
        neighbours: neighbours::Host::read(),
        cgroups: cgroup_lines(&policies, &names, &thp::sizes_of_this_machine()),
    };
    print::print(&report, json, text)?;
    incomplete(&report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::{Decision, Record, RuleNumber};
    use crate::model::options;

    const X86: Sizes = Sizes {
        orders: 0x3fc,
        page_shift: 12,
    };

    /// Forced collapse is free.
    fn verdict(fault: u64, later: u64, rule: RuleNumber) -> Verdict {
        let mut now = Record {
            room_bytes: 1 << 20,
            limit_bytes: 64 << 20,
            used_bytes: 63 << 20,
            ..Record::default()
        };
        for reason in Reason::ALL {
            let orders = match reason {
                Reason::Fault => fault,
                Reason::Collapse => !1,
                _ => later,
            };
            let rule = if orders == !1 {
                RuleNumber::MTHP_NONE
            } else {
                rule
            };
            now.decided[reason as usize] = Decision {
                orders,
                rule,
                room_factor: 1024,
            };
        }
        let dir = tempfile::tempdir().unwrap();
        Verdict {
            level: Level::of(&now, &Names::new(dir.path())),
            explained: Explained {
                now,
                ..Explained::default()
            },
            tunables: options::defaults(&X86).unwrap(),
        }
    }

    /// A cgroup that no scan has seen, or whose pressure is off, is not a calm one.
    #[test]
    fn stall_is_shown_only_where_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let with = |seen, stall_ns| {
            let mut verdict = verdict(!1, !1, RuleNumber::MTHP_NONE);
            verdict.explained.now.seen = seen;
            verdict.explained.now.stall_ns = stall_ns;
            verdict
        };
        line.add(&with(0, 0), &X86);
        assert_eq!(line.stall_ms, None);
        line.add(&with(1, 0), &X86);
        assert_eq!(line.stall_ms, Some(0));
        line.add(&with(1, 7_000_000), &X86);
        assert_eq!(line.stall_ms, Some(7));
        line.add(&with(0, 0), &X86);
        assert_eq!(line.stall_ms, Some(7));
    }

    #[test]
    fn policies_on_one_path_compose_by_and() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        assert_eq!((line.allowed.as_str(), line.why), ("512K-max", "room"));
        line.add(&verdict(0, !1, RuleNumber::MTHP_SMALL), &X86);
        assert_eq!(
            (line.allowed.as_str(), line.why),
            ("4K-on-fault,512K-max", "small")
        );
        assert_eq!(line.rules, [Rule::Small, Rule::Room]);
        assert_eq!(line.orders[Reason::Collapse], 0x3fc);
    }

    /// What cannot be read may leave anything: the row says so, and does not vanish.
    #[test]
    fn an_unreadable_policy_is_no_consent() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add_unreadable("theirs", None, &X86);
        assert_eq!(line.cells()[1], "<=all");
        assert_eq!(line.why_text(), "and policy theirs, unreadable");
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        assert_eq!(line.cells()[1], "<=512K-max");
        assert!(line.why_text().ends_with("; and policy theirs, unreadable"));
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["unreadable"], serde_json::json!(["theirs"]));
        assert_eq!(json["allowed"], "<=512K-max");
        assert!(!line.failed, "it is of another version");
    }

    /// One errno hides nothing: all is printed, and the end is that of a failure.
    #[test]
    fn what_the_kernel_does_not_say_leaves_a_gap_that_shows() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        let mut report = report(vec![line]);
        assert!(incomplete(&report).is_ok());
        report.cgroups[0].add_unreadable("mine", Some("Cannot allocate memory"), &X86);
        let out = printed(&report);
        assert!(out.contains("<=512K-max"), "{out}");
        let why = "and policy mine: Cannot allocate memory, unreadable";
        assert!(out.contains(why), "{out}");
        let error = incomplete(&report).unwrap_err();
        assert_eq!(error.code(), 1);
        assert!(error.to_string().contains("1 of the cgroups"), "{error}");
        report.cgroups.clear();
        report.policies[0].error = Some("Too many open files".to_owned());
        let out = printed(&report);
        assert!(out.contains("cannot be read: Too many open files"), "{out}");
        assert_eq!(incomplete(&report).unwrap_err().code(), 1);
    }

    #[test]
    fn every_key_is_on_the_page() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        assert!(line.level.is_some());
        let answer = serde_json::to_value(report(vec![line])).unwrap();
        assert_eq!(print::undocumented(&answer), [""; 0]);
    }

    /// A host whose `default` is a file of its own is told from the others.
    #[test]
    fn what_is_the_users_own_shows() {
        let mut report = report(Vec::new());
        let policy = &mut report.policies[0];
        assert_eq!(policy.title(), "policy default");
        (policy.own_file, policy.own_object) = (Some(true), Some(false));
        assert_eq!(policy.title(), "policy default (own file)");
        policy.own_object = Some(true);
        assert_eq!(policy.title(), "policy default (own file and object)");
        let first = "policy default (own file and object) attached to / (cgroup 1, link 2)\n";
        assert!(printed(&report).starts_with(first));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["policies"][0]["own_file"], true);
    }

    #[test]
    fn the_nearest_of_all_levels_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        for room in [4 << 20, 1 << 20, 2 << 20, NO_LIMIT] {
            let mut one = verdict(0xff, 0xff, RuleNumber::MTHP_ROOM);
            one.explained.now.room_bytes = room;
            line.add(&one, &X86);
        }
        assert_eq!(line.room_bytes, Some(1 << 20));
        assert_eq!(line.level.unwrap().limit, "machine");
    }

    #[test]
    fn counts_of_all_policies_are_added() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let mut one = verdict(!1, !1, RuleNumber::MTHP_NONE);
        one.explained.asked[Reason::Fault as usize] = 7;
        one.explained.narrowed[Reason::Fault as usize][Rule::Room as usize] = 3;
        line.add(&one, &X86);
        line.add(&one, &X86);
        assert_eq!((line.asked["fault"], line.narrowed_total()), (14, 6));
        assert_eq!(line.narrowed["fault"]["room"], 6);
        assert!(!line.narrowed.contains_key("swapin"));
    }

    #[test]
    fn reasons_of_all_policies_are_shown_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        assert_eq!(line.why_text(), "-");
        line.add(&verdict(0, 0, RuleNumber::MTHP_PRESSURE), &X86);
        line.add(&verdict(0, 0, RuleNumber::MTHP_PRESSURE), &X86);
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        assert_eq!(
            line.why_text(),
            "pressure: taken over from the cgroup above; \
             room: 1M left below the machine's 64M (63M in use), a folio may take 1/1024"
        );
    }

    #[test]
    fn the_table_is_aligned() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        let out = printed(&report(vec![line]));
        let lines: Vec<&str> = out.lines().collect();
        let [first, second, .., head, row] = lines[..] else {
            panic!("{out}");
        };
        assert_eq!(first, "policy default attached to / (cgroup 1, link 2)");
        assert!(second.contains("another version"), "{out}");
        assert!(
            out.contains("\ntransparent_hugepage/enabled: always\n"),
            "{out}"
        );
        assert_eq!(head.find("WHY"), row.rfind("room: 1M"));
        assert!(row.starts_with("/       512K-max  "), "{out}");
        assert_eq!(head.find("NARROWED").map(|at| at + 8), row.find("  room: "));
    }

    #[test]
    fn without_a_policy_the_setting_is_named() {
        let report = Report {
            thp: Some("madvise".to_owned()),
            policies: Vec::new(),
            neighbours: neighbours::Host::read(),
            cgroups: Vec::new(),
        };
        assert_eq!(
            printed(&report),
            "no policy is attached; transparent_hugepage/enabled applies: madvise\n"
        );
    }

    fn report(cgroups: Vec<CgroupLine>) -> Report {
        Report {
            thp: Some("always".to_owned()),
            policies: vec![PolicyLine {
                policy: "default".to_owned(),
                root: "/".to_owned(),
                cgroup_id: 1,
                link_id: 2,
                map_id: 3,
                prog_id: 4,
                readable: false,
                error: None,
                own_file: None,
                own_object: None,
                pinned: false,
                heartbeat: None,
                rules: Rules::default(),
                settings: None,
                tunables: None,
            }],
            neighbours: neighbours::Host::read(),
            cgroups,
        }
    }

    fn printed(report: &Report) -> String {
        let mut out = Vec::new();
        text(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}
