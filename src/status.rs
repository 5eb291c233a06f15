// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext status`: what is attached where, and what each cgroup may use now.
//!
//! Everything comes from the kernel: its list of links, the maps of the
//! programs behind them, the cgroup files.  The process that attached a policy
//! is not asked; it may be another version, or gone.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use crate::abi::{self, ByReason, CgroupState, Facts, Stall, Tunables};
use crate::answer;
use crate::carrier::Carrier;
use crate::cgroup::{self, Cgroup, Limit, Names};
use crate::decide;
use crate::errors::Result;
use crate::neighbours;
use crate::orders::{Sizes, Thp};
use crate::policies::{self, Policy};
use crate::reasons::Numbers;
use crate::settings::Settings;
use crate::units::{number_in, show_duration, show_size};

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
    /// False for a program of another version of mthp_ext: its decisions cannot
    /// be read.
    readable: bool,
    rules: Vec<&'static str>,
    settings: Option<Settings>,
}

/// One cgroup that at least one policy binds.
#[derive(Debug, Serialize)]
struct CgroupLine {
    cgroup: String,
    /// Name of the decision, e.g. `all`, `4K-on-fault`.
    allowed: String,
    why: &'static str,
    rules: Vec<&'static str>,
    /// Each of them in words, with its numbers.
    reasons: Vec<String>,
    orders: ByReason<u64>,
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
    headroom_bytes: Option<u64>,
    /// The limit that it is measured to.
    limit: Option<Limit>,
    /// Of that headroom, page cache that would make room.
    cache_bytes: u64,
    /// What the host could still give out when this cgroup last asked.
    host_bytes: Option<u64>,
    #[serde(flatten)]
    huge: neighbours::Group,
    /// Folios that the policies were asked about, by reason.
    asked: BTreeMap<&'static str, u64>,
    /// Those that they narrowed, by reason and by the first rule that did.
    narrowed: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

/// What one policy says about one cgroup.
struct Verdict {
    orders: ByReason<u64>,
    rules: u32,
    reasons: Vec<String>,
    limit: Option<Limit>,
    state: Option<CgroupState>,
    facts: Facts,
}

/// Judges a cgroup as the policy's program does; `inherited` is the pressure
/// verdict of the nearest scanned ancestor.
fn judge(policy: &Policy, dir: &Path, names: &Names, inherited: bool) -> Option<Verdict> {
    let tunables = policy.tunables.as_ref()?;
    let state = state_of(policy, dir);
    let current = dir
        .ancestors()
        .take_while(|d| d.starts_with(names.mount()))
        .find_map(|d| number_in(&d.join("memory.current")));
    let cache = state.as_ref().map_or(0, |s| s.cache_bytes);
    let limit = cgroup::nearest_limit(dir, names, cache, tunables);
    let headroom = limit.as_ref().map(|limit| limit.left_bytes);
    let facts = facts_of(state.as_ref(), inherited, current, headroom, tunables);
    let (orders, rules) = decide::decide(&facts, tunables);
    let known = |bytes: u64| (bytes != abi::NO_LIMIT).then_some(bytes);
    let numbers = Numbers {
        tunables,
        stall: state.as_ref().map_or_else(Stall::default, |s| s.stall),
        memory_bytes: (facts.memory_known != 0).then_some(facts.memory_bytes),
        headroom_bytes: headroom,
        host_bytes: known(facts.host_bytes),
        limit: limit.as_ref(),
    };
    Some(Verdict {
        orders,
        rules,
        reasons: numbers.reasons(rules),
        limit,
        state,
        facts,
    })
}

/// The facts, as bpf/state.bpf.h puts them together.
fn facts_of(
    state: Option<&CgroupState>,
    inherited: bool,
    current: Option<u64>,
    headroom: Option<u64>,
    tunables: &Tunables,
) -> Facts {
    let mut facts = Facts {
        orders: abi::ALL_ORDERS,
        headroom_bytes: headroom.unwrap_or(abi::NO_LIMIT),
        host_bytes: abi::NO_LIMIT,
        pressure: inherited.into(),
        ..Facts::default()
    };
    if let Some(state) = state {
        let charged = state.usage_pages << tunables.page_shift;
        facts.pressure = state.stall.high;
        facts.memory_known = state.memory_known;
        facts.populated = state.populated;
        facts.sparse = state.sparse;
        facts.host_bytes = state.host_bytes;
        facts.memory_bytes =
            state.memory_bytes + current.unwrap_or(charged).saturating_sub(charged);
    }
    facts
}

/// The policy's state of a cgroup; `None` if it has not met it yet.
fn state_of(policy: &Policy, dir: &Path) -> Option<CgroupState> {
    let directory = File::open(dir).ok()?;
    let key = directory.as_raw_fd().to_ne_bytes();
    let value = policy.states.as_ref()?.lookup(&key, MapFlags::ANY).ok()??;
    abi::from_bytes(&value)
}

/// Puts together what all policies on the path say about each cgroup.
fn cgroup_lines(policies: &[Policy], names: &Names, sizes: &Sizes) -> Vec<CgroupLine> {
    let mut lines: BTreeMap<PathBuf, CgroupLine> = BTreeMap::new();
    for policy in policies {
        let Some(root) = names.path_of_id(policy.link.cgroup_id) else {
            continue;
        };
        let mut pressure: HashMap<PathBuf, bool> = HashMap::new();
        cgroup::walk(&root, &mut |dir, _| {
            let inherited = dir
                .parent()
                .and_then(|up| pressure.get(up))
                .copied()
                .unwrap_or_default();
            let Some(verdict) = judge(policy, dir, names, inherited) else {
                return;
            };
            pressure.insert(dir.to_owned(), verdict.facts.pressure != 0);
            let line = lines
                .entry(dir.to_owned())
                .or_insert_with(|| CgroupLine::new(dir, names));
            line.add(&verdict, sizes);
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
            why: "none",
            rules: Vec::new(),
            reasons: Vec::new(),
            orders: ByReason::each(u64::MAX),
            pressure: false,
            stall_ms: None,
            elapsed_ms: None,
            hold_windows: 0,
            calm_windows: 0,
            memory_bytes: None,
            headroom_bytes: None,
            limit: None,
            cache_bytes: 0,
            host_bytes: None,
            huge: neighbours::Group::read(dir),
            asked: BTreeMap::new(),
            narrowed: BTreeMap::new(),
        }
    }

    /// Narrows by one more policy, as the kernel does: AND.
    fn add(&mut self, verdict: &Verdict, sizes: &Sizes) {
        let both = ByReason::new(|reason| self.orders[reason] & verdict.orders[reason]);
        self.orders = sizes.real(&both);
        self.allowed = sizes.decision_name(&both);
        for rule in decide::rule_names(verdict.rules) {
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
        for reason in &verdict.reasons {
            if !self.reasons.contains(reason) {
                self.reasons.push(reason.clone());
            }
        }
        self.rules
            .sort_by_key(|rule| decide::RULES.iter().position(|r| r == rule));
        self.why = self.rules.first().copied().unwrap_or("none");
        self.pressure |= verdict.facts.pressure != 0;
        if verdict.facts.headroom_bytes != abi::NO_LIMIT {
            self.headroom_bytes = Some(verdict.facts.headroom_bytes);
            self.limit.clone_from(&verdict.limit);
        }
        if verdict.facts.host_bytes != abi::NO_LIMIT {
            self.host_bytes = Some(verdict.facts.host_bytes);
        }
        if verdict.facts.memory_known != 0 {
            self.memory_bytes = Some(verdict.facts.memory_bytes);
        }
        let Some(state) = &verdict.state else { return };
        if state.stall.seen != 0 {
            self.stall_ms = self.stall_ms.max(Some(state.stall.stall_ns / 1_000_000));
            self.elapsed_ms = self
                .elapsed_ms
                .max(Some(state.stall.elapsed_ns / 1_000_000));
        }
        self.cache_bytes = self.cache_bytes.max(state.cache_bytes);
        if state.stall.hold >= self.hold_windows {
            self.hold_windows = state.stall.hold;
            self.calm_windows = state.stall.calm;
        }
        for (reason, asked) in state.asked.iter() {
            *self.asked.entry(reason.name()).or_default() += asked;
            for (rule, &count) in decide::RULES.into_iter().zip(&state.narrowed[reason]) {
                if count != 0 {
                    *self
                        .narrowed
                        .entry(reason.name())
                        .or_default()
                        .entry(rule)
                        .or_default() += count;
                }
            }
        }
    }

    fn why_text(&self) -> String {
        match self.reasons.as_slice() {
            [] => "-".to_owned(),
            reasons => reasons.join("; "),
        }
    }

    fn narrowed_total(&self) -> u64 {
        self.narrowed.values().flat_map(BTreeMap::values).sum()
    }
}

fn policy_line(policy: &Policy, names: &Names) -> PolicyLine {
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
        rules: policy
            .tunables
            .as_ref()
            .map_or_else(Vec::new, |t| decide::rule_names(t.rules)),
        settings: policy.tunables.as_ref().map(Settings::from),
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
            0 => writeln!(out, "policy {} (link {}): detached", p.policy, p.link_id)?,
            id => writeln!(
                out,
                "policy {} attached to {} (cgroup {id}, link {})",
                p.policy, p.root, p.link_id
            )?,
        }
        match &p.settings {
            Some(settings) => settings.text(&p.rules, out)?,
            None => writeln!(
                out,
                "  loaded by another version of mthp_ext: its decisions cannot be read"
            )?,
        }
    }
    writeln!(out, "\ntransparent_hugepage/enabled: {setting}")?;
    writeln!(out, "{}\n", report.neighbours.text())?;
    let or_dash = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), show_size);
    let mut rows = vec![
        [
            "CGROUP",
            "ALLOWED",
            "STALL",
            "ANON+SHMEM",
            "HEADROOM",
            "HUGE",
            "REQUESTS",
            "NARROWED",
            "WHY",
        ]
        .map(str::to_owned),
    ];
    rows.extend(report.cgroups.iter().map(|c| {
        [
            c.cgroup.clone(),
            c.allowed.clone(),
            c.stall_ms
                .map_or_else(|| "-".to_owned(), |ms| show_duration(ms * 1_000_000)),
            or_dash(c.memory_bytes),
            or_dash(c.headroom_bytes.into_iter().chain(c.host_bytes).min()),
            c.huge.anon_thp_text(),
            c.asked.values().sum::<u64>().to_string(),
            c.narrowed_total().to_string(),
            c.why_text(),
        ]
    }));
    table(&rows, out)
}

/// Columns as wide as their widest cell; numbers to the right, words to the left.
fn table<const N: usize>(rows: &[[String; N]], out: &mut impl Write) -> io::Result<()> {
    const NUMBERS: std::ops::Range<usize> = 2..8;
    let width = |column: usize| {
        rows.iter()
            .map(|r| r[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (cell, &w))| {
                if NUMBERS.contains(&i) {
                    format!("{cell:>w$}")
                } else {
                    format!("{cell:<w$}")
                }
            })
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// The command.
///
/// # Errors
/// Without BTF, hook, privilege, or cgroup v2.
pub fn main(json: bool) -> Result<()> {
    let root = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?;
    let carrier = Carrier::probe()?;
    let policies = policies::attached(&carrier)?;
    let names = Names::new(&root.mount);
    let report = Report {
        thp: Thp::of_this_machine().enabled,
        policies: policies.iter().map(|p| policy_line(p, &names)).collect(),
        neighbours: neighbours::Host::read(),
        cgroups: cgroup_lines(&policies, &names, &Sizes::of_this_machine()),
    };
    answer::print(&report, json, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Reason;

    const X86: Sizes = Sizes {
        orders: 0x3fc,
        page_shift: 12,
    };

    /// The defaults, on a machine with 4 KiB pages and 2 MiB folios.
    fn here() -> Tunables {
        Tunables {
            page_shift: 12,
            largest_pages: 512,
            ..*decide::defaults()
        }
    }

    /// Forced collapse is free.
    fn verdict(fault: u64, later: u64, rules: u32) -> Verdict {
        Verdict {
            orders: ByReason::new(|reason| match reason {
                Reason::Fault => fault,
                Reason::Collapse => !1,
                _ => later,
            }),
            rules,
            reasons: Vec::new(),
            limit: None,
            state: None,
            facts: facts_of(None, false, None, Some(1 << 20), &here()),
        }
    }

    /// A cgroup that no scan has seen, or whose pressure is off, is not a calm one.
    #[test]
    fn stall_is_shown_only_where_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let with = |seen, stall_ns| Verdict {
            state: Some(CgroupState {
                stall: Stall {
                    seen,
                    stall_ns,
                    ..Stall::default()
                },
                ..CgroupState::default()
            }),
            ..verdict(!0, !0, 0)
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
        line.add(&verdict(0xff, 0xff, 1 << 3), &X86);
        assert_eq!((line.allowed.as_str(), line.why), ("512K-max", "headroom"));
        line.add(&verdict(0, !1, 1 << 1), &X86);
        assert_eq!(
            (line.allowed.as_str(), line.why),
            ("4K-on-fault,512K-max", "small")
        );
        assert_eq!(line.rules, ["small", "headroom"]);
        assert_eq!(line.orders[Reason::Collapse], 0x3fc);
    }

    #[test]
    fn growth_since_the_scan_counts_as_memory() {
        let state = CgroupState {
            memory_bytes: 1 << 20,
            usage_pages: 512,
            memory_known: 1,
            ..CgroupState::default()
        };
        let facts = facts_of(Some(&state), false, Some(5 << 20), None, &here());
        assert_eq!(facts.memory_bytes, 4 << 20);
        let shrunk = facts_of(Some(&state), false, Some(1 << 20), None, &here());
        assert_eq!(shrunk.memory_bytes, 1 << 20);
    }

    #[test]
    fn a_cgroup_not_met_yet_inherits_pressure_only() {
        let facts = facts_of(None, true, Some(0), None, &here());
        assert_eq!(
            (facts.pressure, facts.memory_known, facts.populated),
            (1, 0, 0)
        );
        assert_eq!(facts.headroom_bytes, abi::NO_LIMIT);
    }

    #[test]
    fn reasons_of_all_policies_are_shown_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        assert_eq!(line.why_text(), "-");
        let said = |reasons: &[&str]| Verdict {
            reasons: reasons.iter().map(|&r| r.to_owned()).collect(),
            ..verdict(0, 0, 1)
        };
        line.add(&said(&["pressure: a", "small: b"]), &X86);
        line.add(&said(&["pressure: a", "headroom: c"]), &X86);
        assert_eq!(line.why_text(), "pressure: a; small: b; headroom: c");
    }

    #[test]
    fn the_table_is_aligned() {
        let dir = tempfile::tempdir().unwrap();
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        let narrowed = Verdict {
            reasons: vec!["headroom: little".to_owned()],
            ..verdict(0xff, 0xff, 1 << 3)
        };
        line.add(&narrowed, &X86);
        let report = Report {
            thp: Some("always".to_owned()),
            policies: vec![PolicyLine {
                policy: "adaptive".to_owned(),
                root: "/".to_owned(),
                cgroup_id: 1,
                link_id: 2,
                map_id: 3,
                prog_id: 4,
                readable: false,
                rules: Vec::new(),
                settings: None,
            }],
            neighbours: neighbours::Host::read(),
            cgroups: vec![line],
        };
        let out = printed(&report);
        let lines: Vec<&str> = out.lines().collect();
        let [first, second, .., head, row] = lines[..] else {
            panic!("{out}");
        };
        assert_eq!(first, "policy adaptive attached to / (cgroup 1, link 2)");
        assert!(second.contains("another version"), "{out}");
        assert!(
            out.contains("\ntransparent_hugepage/enabled: always\n"),
            "{out}"
        );
        assert_eq!(head.find("WHY"), row.rfind("headroom: little"));
        assert!(row.starts_with("/       512K-max  "), "{out}");
        assert_eq!(
            head.find("NARROWED").map(|at| at + 8),
            row.find("  headroom")
        );
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

    fn printed(report: &Report) -> String {
        let mut out = Vec::new();
        text(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}
