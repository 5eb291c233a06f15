// SPDX-License-Identifier: GPL-2.0-only
//! What the attached policies decide for each cgroup: gathered from their own programs, and put
//! together as the kernel does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use super::why::{self, Level};
use crate::kernel::attached::Attached;
use crate::kernel::cgroup::{self, Names, Unlisted};
use crate::kernel::neighbours;
use crate::model::abi::{self, Explained, NO_LIMIT, Own, Tunables};
use crate::model::config::XATTR;
use crate::model::counts::{self, BySize, SizeCount};
use crate::model::orders::Sizes;
use crate::model::reason::{ByReason, Reason};
use crate::model::rule::{Rule, Rules};
use crate::model::units::{show_duration, show_size};

/// One cgroup that at least one policy binds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CgroupLine {
    /// Its name.
    pub cgroup: String,
    /// Name of the decision, e.g. `all`, `4K-on-fault`; behind `<=` where a policy is unreadable.
    pub allowed: String,
    why: &'static str,
    /// Policies by which it is decided, where they are not those of the roots.
    profiles: Vec<String>,
    /// One of them is what the cgroup says for itself, or one above it.
    xattr: bool,
    /// The same in words.
    #[serde(skip)]
    by: Vec<String>,
    rules: Vec<Rule>,
    /// Each of them in words, with its numbers.
    pub reasons: Vec<String>,
    /// Of all policies together.
    pub orders: ByReason<u64>,
    /// Name of the decision if the policies that run dry narrowed, too; none if none of them does.
    would_allow: Option<String>,
    #[serde(skip)]
    would_be: ByReason<u64>,
    /// Policies that bind it, too, and that cannot be read, with what the kernel said if it did.
    pub unreadable: Vec<String>,
    /// The kernel would not say what one of them decides.
    #[serde(skip)]
    pub failed: bool,
    /// It counts as stalled.
    pub pressure: bool,
    /// Next to nothing comes back of much that reclaim takes below its limits, and the machine has
    /// room: by no policy do stall or the limits narrow faults, but of advised memory.  Policies without
    /// either rule are not asked, nor are those that run dry.
    pub unmissed: bool,
    /// One of the others says otherwise, or nobody knows what it says.
    #[serde(skip)]
    missed: bool,
    /// As of the last scan; none before the first, and where pressure is not tracked.
    pub stall_ms: Option<u64>,
    elapsed_ms: Option<u64>,
    /// anon+shmem, as far as a rule looks at it.
    pub memory_bytes: Option<u64>,
    /// What is left at `level`.
    pub room_bytes: Option<u64>,
    /// The level that leaves the least: a cgroup's limit, or the machine.
    pub level: Option<Level>,
    /// Of that room, page cache that reclaim would drop first.
    cache_bytes: u64,
    #[serde(flatten)]
    huge: neighbours::Group,
    /// Folios that the policies were asked about, by reason.
    pub requests: BTreeMap<&'static str, u64>,
    /// Those that they narrowed, by reason and by the rule that did.
    pub narrowed: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Both by reason and by the largest size that was possible.
    by_size: BTreeMap<&'static str, Vec<SizeCount>>,
    #[serde(skip)]
    counted: ByReason<BySize>,
}

/// What one policy says about one cgroup.
pub struct Verdict {
    /// The decisions, what they rest on, and the counters.
    pub explained: Explained,
    /// The values of its profile.
    pub tunables: Tunables,
    /// The name of the policy that its profile is of, if it is not that of the root.
    pub profile: Option<String>,
    /// The policy narrows nothing.
    pub dry_run: bool,
    /// The level that leaves the least.
    pub level: Option<Level>,
}

/// A policy's answer about a cgroup.
pub enum Answer {
    /// It decides this.
    Says(Box<Verdict>),
    /// It binds the cgroup, and nobody can say how; the kernel's error if that is why.
    Unreadable(Option<String>),
    /// There is no such cgroup any more.
    Gone,
}

impl Answer {
    /// Asks a policy about the cgroup with this id.
    pub fn of(policy: &Attached, id: u64, names: &Names) -> Self {
        if policy.tunables.is_none() {
            return Answer::Unreadable(policy.failed.as_ref().map(ToString::to_string));
        }
        match policy.explain(id) {
            Ok(Some(explained)) => match policy.values(&explained) {
                Some(tunables) => Answer::Says(Box::new(Verdict {
                    level: Level::of(&explained.now, names),
                    explained,
                    tunables: *tunables,
                    profile: Some(abi::text(&tunables.policy))
                        .filter(|name| *name != policy.name || by_xattr(tunables)),
                    dry_run: policy.dry_run,
                })),
                None => Answer::Unreadable(None),
            },
            Ok(None) => Answer::Gone,
            Err(error) => Answer::Unreadable(Some(error.to_string())),
        }
    }
}

/// Has it one of the rules that are lifted where nobody misses what reclaim takes?
fn narrows_by_what_is_missed(tunables: &Tunables) -> bool {
    let rules = Rules(tunables.rules);
    rules.has(Rule::Pressure) || rules.has(Rule::Room)
}

/// Are they of an override that a cgroup has of its own?
fn by_xattr(tunables: &Tunables) -> bool {
    tunables.own.0 & Own::MTHP_OWN_XATTR.0 != 0
}

/// All cgroups that policies bind.
#[derive(Debug, Default)]
pub struct Bound {
    /// Those that are known.
    pub lines: Vec<CgroupLine>,
    /// In words, where others may be missing.
    pub gaps: Vec<String>,
}

/// Puts together what all policies on the path say about each cgroup.
pub fn bound(policies: &[Attached], names: &Names, sizes: &Sizes) -> Bound {
    let mut lines: BTreeMap<PathBuf, CgroupLine> = BTreeMap::new();
    let mut gaps = Vec::new();
    for policy in policies {
        let id = policy.link.cgroup_id;
        let root = match names.path_of_id(id) {
            Ok(Some(root)) => root,
            // It has gone, and the policy with it, or it is another container's.
            Ok(None) => continue,
            Err(why) => {
                let name = &policy.name;
                gaps.push(format!("the cgroup of policy {name} (id {id}): {why}"));
                continue;
            }
        };
        let unlisted = cgroup::walk(&root, &mut |dir, id| {
            let answer = Answer::of(policy, id, names);
            // A cgroup that goes away meanwhile is left out.
            if matches!(answer, Answer::Gone) {
                return;
            }
            let line = lines
                .entry(dir.to_owned())
                .or_insert_with(|| CgroupLine::new(dir, names));
            line.take(&policy.name, &answer, sizes);
        });
        let below = |one: &Unlisted| format!("below {}: {}", names.of_path(&one.path), one.source);
        gaps.extend(unlisted.iter().map(below));
    }
    // Of policies one below the other.
    gaps.sort();
    gaps.dedup();
    Bound {
        lines: lines.into_values().collect(),
        gaps,
    }
}

impl CgroupLine {
    /// A cgroup that nothing narrows yet.
    pub fn new(dir: &Path, names: &Names) -> Self {
        CgroupLine {
            cgroup: names.of_path(dir),
            allowed: String::new(),
            why: why::first(&[]),
            profiles: Vec::new(),
            xattr: false,
            by: Vec::new(),
            rules: Vec::new(),
            reasons: Vec::new(),
            orders: ByReason::each(u64::MAX),
            would_allow: None,
            would_be: ByReason::each(u64::MAX),
            unreadable: Vec::new(),
            failed: false,
            pressure: false,
            unmissed: false,
            missed: false,
            stall_ms: None,
            elapsed_ms: None,
            memory_bytes: None,
            room_bytes: None,
            level: None,
            cache_bytes: 0,
            huge: neighbours::Group::read(dir),
            requests: BTreeMap::new(),
            narrowed: BTreeMap::new(),
            by_size: BTreeMap::new(),
            counted: ByReason::new(|_| BySize::default()),
        }
    }

    /// Takes in what one more policy says.
    pub fn take(&mut self, policy: &str, answer: &Answer, sizes: &Sizes) {
        match answer {
            Answer::Says(verdict) => self.add(verdict, sizes),
            Answer::Unreadable(why) => self.add_unreadable(policy, why.as_deref(), sizes),
            Answer::Gone => {}
        }
    }

    /// One more policy binds it, and nobody can say how; `why`, if the kernel says.
    pub fn add_unreadable(&mut self, policy: &str, why: Option<&str>, sizes: &Sizes) {
        self.failed |= why.is_some();
        self.unreadable.push(match why {
            Some(why) => format!("{policy}: {why}"),
            None => policy.to_owned(),
        });
        self.missed = true;
        self.unmissed = false;
        self.name(sizes);
    }

    /// Names the decision: no more than this where somebody else may take more away.
    fn name(&mut self, sizes: &Sizes) {
        let bound = if self.unreadable.is_empty() { "" } else { "<=" };
        self.allowed = format!("{bound}{}", sizes.decision_name(&self.orders));
    }

    /// Narrows by one more policy, as the kernel does: AND.
    pub fn add(&mut self, verdict: &Verdict, sizes: &Sizes) {
        let now = &verdict.explained.now;
        let theirs = why::orders(now);
        let dry = verdict.dry_run;
        let with = |mine: &ByReason<u64>| sizes.real(&ByReason::new(|r| mine[r] & theirs[r]));
        self.would_be = with(&self.would_be);
        self.orders = match dry {
            true => sizes.real(&self.orders),
            false => with(&self.orders),
        };
        if dry || self.would_allow.is_some() {
            self.would_allow = Some(sizes.decision_name(&self.would_be));
        }
        self.name(sizes);
        self.rules.extend(why::rules(now));
        self.rules.sort_unstable();
        self.rules.dedup();
        self.why = why::first(&self.rules);
        if let Some(name) = &verdict.profile {
            let xattr = by_xattr(&verdict.tunables);
            self.by.push(match xattr {
                true => format!("by policy {name} ({XATTR})"),
                false => format!("by policy {name}"),
            });
            self.profiles.push(name.clone());
            self.xattr |= xattr;
        }
        for reason in why::reasons(now, verdict.level.as_ref(), &verdict.tunables) {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
        self.pressure |= now.pressure != 0;
        if !dry && narrows_by_what_is_missed(&verdict.tunables) {
            self.missed |= now.unmissed == 0;
            self.unmissed = !self.missed;
        }
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
        self.count(&verdict.explained, sizes);
    }

    fn count(&mut self, explained: &Explained, sizes: &Sizes) {
        for reason in Reason::ALL {
            *self.requests.entry(reason.name()).or_default() += counts::requests(explained, reason);
            self.counted[reason].add(explained, reason);
            let named = self.counted[reason].named(sizes);
            self.by_size.insert(reason.name(), named);
            for rule in Rule::ALL {
                let count = explained.narrowed[reason as usize][rule as usize];
                if count != 0 {
                    let of_reason = self.narrowed.entry(reason.name()).or_default();
                    *of_reason.entry(rule.name()).or_default() += count;
                }
            }
        }
    }

    /// The policies by which it is decided, where they are not those of the roots.
    pub fn by_text(&self) -> Option<String> {
        (!self.by.is_empty()).then(|| self.by.join("; "))
    }

    /// The rules that decide, with their numbers.
    pub fn why_text(&self) -> String {
        let mut parts = self.by.clone();
        parts.extend_from_slice(&self.reasons);
        let unreadable = self.unreadable.iter();
        parts.extend(unreadable.map(|policy| format!("and policy {policy}, unreadable")));
        match parts.as_slice() {
            [] => "-".to_owned(),
            parts => parts.join("; "),
        }
    }

    /// Requests that were answered.
    pub fn requests_total(&self) -> u64 {
        self.requests.values().sum()
    }

    /// Those that a policy narrowed.
    pub fn narrowed_total(&self) -> u64 {
        self.narrowed.values().flat_map(BTreeMap::values).sum()
    }

    /// A row of the table.
    pub fn cells(&self) -> [String; 9] {
        let or_dash = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), show_size);
        let stall = self.stall_ms.map(|ms| show_duration(ms * 1_000_000));
        [
            self.cgroup.clone(),
            match &self.would_allow {
                Some(would) => format!("{} ({would})", self.allowed),
                None => self.allowed.clone(),
            },
            stall.unwrap_or_else(|| "-".to_owned()),
            or_dash(self.memory_bytes),
            or_dash(self.room_bytes),
            self.huge.anon_thp_text(),
            self.requests_total().to_string(),
            self.narrowed_total().to_string(),
            self.why_text(),
        ]
    }
}

/// The table's columns.
pub const COLUMNS: [&str; 9] = [
    "CGROUP", "ALLOWED", "STALL", "MEMORY", "ROOM", "HUGE", "REQUESTS", "NARROWED", "WHY",
];
/// Which of them are numbers.
pub const NUMBERS: std::ops::Range<usize> = 2..8;

#[cfg(test)]
#[allow(missing_docs, reason = "tests")]
pub mod tests {
    use super::*;
    use crate::model::abi::{Decision, Record, RuleNumber};
    use crate::model::orders::X86;
    use crate::model::resolve;

    /// Forced collapse is free.
    pub fn verdict(fault: u64, later: u64, rule: RuleNumber) -> Verdict {
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
            tunables: resolve::defaults(&X86).unwrap(),
            profile: None,
            dry_run: false,
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

    /// Where one of them narrows by stall or a limit it is not.
    #[test]
    fn what_is_lifted_by_all_policies_is() {
        use Rule::{Cap, Pressure, Room, Small, Sparse};
        /// `unmissed`, its rules, and whether it runs dry.
        type Policy = (u32, &'static [Rule], bool);
        const LIFTS: Policy = (1, &Rule::ALL, false);
        const NARROWS: Policy = (0, &Rule::ALL, false);
        let line = |policies: &[Policy], unreadable| {
            let dir = tempfile::tempdir().unwrap();
            let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
            if unreadable {
                line.add_unreadable("theirs", None, &X86);
            }
            for (unmissed, rules, dry_run) in policies {
                let mut one = verdict(!1, !1, RuleNumber::MTHP_NONE);
                one.explained.now.unmissed = *unmissed;
                one.tunables.rules = rules.iter().copied().collect::<Rules>().0;
                one.dry_run = *dry_run;
                line.add(&one, &X86);
            }
            line.unmissed
        };
        assert!(line(&[LIFTS], false) && line(&[LIFTS, LIFTS], false));
        let others: [&[Policy]; 5] = [
            &[],
            &[NARROWS],
            &[LIFTS, NARROWS],
            &[NARROWS, LIFTS],
            &[LIFTS, NARROWS, LIFTS],
        ];
        for policies in others {
            assert!(!line(policies, false), "{policies:?}");
        }
        assert!(!line(&[LIFTS], true));
        let by_neither: [Policy; 4] = [
            (0, &[Cap], false),
            (0, &[Small, Sparse], false),
            (0, &Rule::ALL, true),
            (1, &Rule::ALL, true),
        ];
        for one in by_neither {
            assert!(line(&[one, LIFTS], false), "{one:?}");
            assert!(line(&[LIFTS, one], false), "{one:?}");
            assert!(!line(&[LIFTS, one, NARROWS], false), "{one:?}");
            assert!(!line(&[one], false), "there is nothing to lift: {one:?}");
        }
        for rule in [&[Pressure], &[Room]] {
            assert!(!line(&[LIFTS, (0, rule, false)], false), "{rule:?}");
        }
    }

    /// Whose override it is shows, also where its policy has the name of the root's.
    #[test]
    fn what_a_cgroup_says_for_itself_shows() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let mut by = verdict(0xff, 0xff, RuleNumber::MTHP_ROOM);
        by.profile = Some("web".to_owned());
        line.add(&by, &X86);
        assert_eq!(line.by_text().unwrap(), "by policy web");
        assert!(!line.xattr);
        by.tunables.own = Own(Own::MTHP_OWN_XATTR.0 | Own::MTHP_OWN_FILE.0);
        line.add(&by, &X86);
        let text = "by policy web; by policy web (user.mthp_ext)";
        assert_eq!(line.by_text().unwrap(), text);
        assert!(line.why_text().starts_with(&format!("{text}; room: ")));
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["xattr"], true);
        assert_eq!(json["profiles"], serde_json::json!(["web", "web"]));
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
        one.explained.allowed[Reason::Fault as usize][2] = 4;
        one.explained.denied[Reason::Fault as usize][2] = 3;
        one.explained.narrowed[Reason::Fault as usize][Rule::Room as usize] = 3;
        line.add(&one, &X86);
        line.add(&one, &X86);
        assert_eq!((line.requests["fault"], line.narrowed_total()), (14, 6));
        assert_eq!(line.narrowed["fault"]["room"], 6);
        assert!(!line.narrowed.contains_key("swapin"));
        let json = serde_json::to_value(&line).unwrap();
        let wanted =
            serde_json::json!([{"size": "64K", "requests": 14, "allowed": 8, "denied": 6}]);
        assert_eq!(json["by_size"]["fault"], wanted);
    }

    /// One cgroup of an attachment may have another policy than the others.
    #[test]
    fn a_policy_that_is_not_the_roots_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let mut one = verdict(!1, !1, RuleNumber::MTHP_NONE);
        line.add(&one, &X86);
        assert_eq!(line.why_text(), "-");
        one.profile = Some("web".to_owned());
        line.add(&one, &X86);
        assert_eq!(line.why_text(), "by policy web");
        line.add(&verdict(0, 0, RuleNumber::MTHP_PRESSURE), &X86);
        let text = "by policy web; pressure: taken over from the cgroup above";
        assert_eq!(line.why_text(), text);
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["profiles"], serde_json::json!(["web"]));
    }

    /// What a dry run would take away is named beside what is allowed.
    #[test]
    fn a_dry_run_takes_nothing_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let mut dry = verdict(0xf, 0xf, RuleNumber::MTHP_CAP);
        dry.dry_run = true;
        line.add(&dry, &X86);
        assert_eq!(line.cells()[1], "all (32K-max)");
        line.add(&verdict(0xff, 0xff, RuleNumber::MTHP_ROOM), &X86);
        assert_eq!(line.cells()[1], "512K-max (32K-max)");
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
}
