// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext explain CGROUP`: what one cgroup may use now, which rule decides for each reason, by
//! which numbers, and what would change it.  Asked of the kernel, as `status` does.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::ExplainArgs;
use crate::errors::{Error, Result};
use crate::kernel::attached::{self, Attached};
use crate::kernel::carrier::Carrier;
use crate::kernel::cgroup::{Cgroup, Names};
use crate::kernel::clock::now_ms;
use crate::kernel::named::named;
use crate::kernel::thp::{self, Thp};
use crate::kernel::xattr;
use crate::model::config::XATTR;
use crate::model::counts::{self, BySize, SizeCount};
use crate::model::orders::Sizes;
use crate::model::reason::Reason;
use crate::model::rule::Rule;
use crate::model::units::show_age;
use crate::output::cgroups::{Answer, CgroupLine, Verdict};
use crate::output::change::{Change, changes};
use crate::output::policies::PolicyLine;
use crate::output::why;
use crate::output::{print, table};

/// The whole answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// transparent_hugepage/enabled, which the policies narrow.
    thp: Option<String>,
    /// The same in words.
    #[serde(skip)]
    setting: String,
    /// What the cgroup says for itself, or the nearest one above it that says anything.
    said: Option<Said>,
    /// Of all policies together.
    #[serde(flatten)]
    line: CgroupLine,
    /// From the one nearest to the root.
    policies: Vec<Policy>,
}

/// An override that a cgroup has of its own: as it is written, in force or not.
#[derive(Debug, Serialize, JsonSchema)]
struct Said {
    cgroup: String,
    value: String,
}

impl Said {
    fn nearest(cgroup: &Cgroup, names: &Names) -> Option<Self> {
        let up = cgroup.path.ancestors();
        let mut up = up.take_while(|path| path.starts_with(&cgroup.mount));
        up.find_map(|path| {
            Some(Said {
                value: match xattr::read(path) {
                    Ok(found) => found?.shown(),
                    Err(e) => format!("(cannot be read: {e})"),
                },
                cgroup: names.of_path(path),
            })
        })
    }
}

/// One policy on the path.
#[derive(Debug, Serialize, JsonSchema)]
struct Policy {
    #[serde(flatten)]
    line: PolicyLine,
    /// What it decides; null if nobody can say.
    decides: Option<Decides>,
}

/// What one policy decides for the cgroup.
#[derive(Debug, Serialize, JsonSchema)]
struct Decides {
    /// Something is kept of the cgroup; else it is judged like a new one.
    kept: bool,
    /// Next to nothing comes back of much that reclaim takes below its limits, and the machine has
    /// room: neither stall nor a limit narrows faults, but of advised memory.
    unmissed: bool,
    decisions: BTreeMap<&'static str, Decision>,
    /// Each rule that decides in words, with its numbers.
    reasons: Vec<String>,
    /// For each of them, what would end that.
    changes: Vec<Change>,
    level: Option<why::Level>,
}

/// What it decides for one reason.
#[derive(Debug, Serialize, JsonSchema)]
struct Decision {
    allowed: String,
    orders: u64,
    rule: Option<Rule>,
    /// A folio has to fit so many times into the room; null: nobody looked at it.
    room_factor: Option<u32>,
    /// `CLOCK_MONOTONIC`, milliseconds: since when this is what the programs found; null: nothing
    /// is kept of the cgroup, or the next sample will be the first to find it.
    since_ms: Option<u64>,
    requests: u64,
    narrowed: BTreeMap<&'static str, u64>,
    /// Both by the largest size that was possible.
    by_size: Vec<SizeCount>,
}

impl Decides {
    fn of(verdict: &Verdict, sizes: &Sizes) -> Self {
        let (now, level) = (&verdict.explained.now, verdict.level.as_ref());
        let of = |reason: Reason| {
            let decided = now.decided[reason as usize];
            let narrowed = verdict.explained.narrowed[reason as usize];
            Decision {
                allowed: sizes.mask_name(reason, decided.orders),
                orders: decided.orders & sizes.of(reason),
                rule: Rule::of(decided.rule),
                room_factor: (decided.room_factor != 0).then_some(decided.room_factor),
                since_ms: match verdict.explained.since_ns[reason as usize] {
                    0 => None,
                    ns => Some(ns / 1_000_000),
                },
                requests: counts::requests(&verdict.explained, reason),
                narrowed: Rule::ALL
                    .into_iter()
                    .map(|rule| (rule.name(), narrowed[rule as usize]))
                    .filter(|(_, count)| *count != 0)
                    .collect(),
                by_size: BySize::of(&verdict.explained, reason).named(sizes),
            }
        };
        Decides {
            kept: verdict.explained.kept != 0,
            unmissed: now.unmissed != 0,
            decisions: Reason::ALL
                .into_iter()
                .map(|reason| (reason.name(), of(reason)))
                .collect(),
            reasons: why::reasons(now, level, &verdict.tunables),
            changes: changes(now, level, &verdict.tunables, sizes),
            level: verdict.level.clone(),
        }
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let head = [
            "REASON", "ALLOWED", "RULE", "SINCE", "REQUESTS", "NARROWED", "BY",
        ];
        let now = now_ms();
        let mut rows = vec![head.map(str::to_owned)];
        for reason in Reason::ALL {
            let Some(decision) = self.decisions.get(reason.name()) else {
                continue;
            };
            let by: Vec<String> = decision
                .narrowed
                .iter()
                .map(|(rule, count)| format!("{rule} {count}"))
                .collect();
            rows.push([
                reason.name().to_owned(),
                decision.allowed.clone(),
                decision.rule.map_or("-", Rule::name).to_owned(),
                decision.since_ms.map_or_else(
                    || "-".to_owned(),
                    |since| show_age(now.saturating_sub(since) / 1000),
                ),
                decision.requests.to_string(),
                decision.narrowed.values().sum::<u64>().to_string(),
                by.join(", "),
            ]);
        }
        table::print(&rows, &(3..6), out)?;
        self.sizes(out)?;
        if !self.kept {
            writeln!(
                out,
                "it has asked for nothing yet, and is judged like a new one"
            )?;
        }
        if self.unmissed {
            writeln!(
                out,
                "next to nothing comes back of what reclaim takes, and the machine has room: neither stall \
                 nor a limit narrows fault, but of advised memory"
            )?;
        }
        for (reason, change) in self.reasons.iter().zip(&self.changes) {
            writeln!(out, "{reason}\n    {}", change.text)?;
        }
        Ok(())
    }
}

impl Decides {
    /// What was counted by size, if anything was.
    fn sizes(&self, out: &mut impl Write) -> io::Result<()> {
        let head = ["REASON", "SIZE", "REQUESTS", "ALLOWED", "DENIED"];
        let mut rows = vec![head.map(str::to_owned)];
        for reason in Reason::ALL {
            let decision = self.decisions.get(reason.name());
            for one in decision.map(|d| d.by_size.as_slice()).unwrap_or_default() {
                rows.push([
                    reason.name().to_owned(),
                    one.size.clone(),
                    one.count.requests.to_string(),
                    one.count.allowed.to_string(),
                    one.count.denied.to_string(),
                ]);
            }
        }
        match rows.len() {
            1 => Ok(()),
            _ => table::print(&rows, &(1..5), out),
        }
    }
}

fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let line = &report.line;
    writeln!(out, "{}: {}", line.cgroup, line.allowed)?;
    if let Some(by) = line.by_text() {
        writeln!(out, "{by}")?;
    }
    if let Some(said) = &report.said {
        writeln!(out, "{XATTR} of {}: {}", said.cgroup, said.value)?;
    }
    writeln!(out, "transparent_hugepage/enabled: {}", report.setting)?;
    for policy in &report.policies {
        writeln!(out, "\n{}", policy.line.attached_text())?;
        match (&policy.decides, policy.line.unreadable_text()) {
            (Some(decides), _) => decides.text(out)?,
            (None, Some(why)) => writeln!(out, "{why}")?,
            // The kernel's error is one of the line's.
            (None, None) => writeln!(
                out,
                "its decisions cannot be read: {}",
                line.unreadable.join("; ")
            )?,
        }
    }
    Ok(())
}

/// The policies on the way from the root to the cgroup, in this order.
fn on_path<'a>(cgroup: &Cgroup, policies: &'a [Attached]) -> Vec<&'a Attached> {
    let levels: Vec<u64> = cgroup
        .path
        .ancestors()
        .take_while(|path| path.starts_with(&cgroup.mount))
        .filter_map(|path| Some(fs::metadata(path).ok()?.ino()))
        .collect();
    let place = |policy: &&Attached| levels.iter().rposition(|id| *id == policy.link.cgroup_id);
    let mut found: Vec<&Attached> = policies.iter().filter(|p| place(p).is_some()).collect();
    found.sort_by_key(|policy| std::cmp::Reverse(place(policy)));
    found
}

/// The command.
///
/// # Errors
/// Without such a cgroup, BTF, hook, privilege, or cgroup v2; [`Error::NotBound`]; after the
/// answer, if the kernel gave an error for a policy.
pub fn main(args: &ExplainArgs) -> Result<()> {
    let cgroup = named(&args.cgroup)?;
    let carrier = Carrier::probe()?;
    let policies = attached::attached(&carrier)?;
    let (names, sizes) = (Names::new(&cgroup.mount), thp::sizes_of_this_machine());
    let name = names.of_path(&cgroup.path);
    let thp = Thp::of_this_machine();
    let setting = thp.word();
    let mut line = CgroupLine::new(&cgroup.path, &names);
    let mut answers = Vec::new();
    for policy in on_path(&cgroup, &policies) {
        let answer = Answer::of(policy, cgroup.id, &names);
        line.take(&policy.name, &answer, &sizes);
        answers.push(Policy {
            line: PolicyLine::of(policy, &names),
            decides: match &answer {
                Answer::Says(verdict) => Some(Decides::of(verdict, &sizes)),
                Answer::Unreadable(_) => None,
                Answer::Gone => {
                    return Err(Error::NoSuchCgroup {
                        name,
                        why: "it was removed meanwhile".to_owned(),
                    });
                }
            },
        });
    }
    if answers.is_empty() {
        return Err(Error::NotBound { name, setting });
    }
    let report = Report {
        thp: thp.enabled,
        setting,
        said: Said::nearest(&cgroup, &names),
        line,
        policies: answers,
    };
    print::print(&report, args.json, text)?;
    match report.line.failed {
        false => Ok(()),
        true => Err(Error::gaps(&report.line.unreadable.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::RuleNumber;
    use crate::model::orders::X86;
    use crate::output::cgroups::tests::verdict;
    use crate::output::policies;

    /// A cgroup with little room, by one policy that can be read and one that cannot.
    fn report() -> Report {
        let dir = tempfile::tempdir().unwrap();
        let mut verdict = verdict(0x4, 0x4, RuleNumber::MTHP_ROOM);
        verdict.explained.allowed[Reason::Fault as usize][2] = 4;
        verdict.explained.denied[Reason::Fault as usize][2] = 3;
        // In the future: whatever the clock shows, no time has passed.
        verdict.explained.since_ns[Reason::Fault as usize] = u64::MAX;
        verdict.explained.narrowed[Reason::Fault as usize][Rule::Room as usize] = 3;
        let decides = Decides::of(&verdict, &X86);
        let mut line = CgroupLine::new(dir.path(), &Names::new(dir.path()));
        line.take("default", &Answer::Says(Box::new(verdict)), &X86);
        line.take("theirs", &Answer::Unreadable(None), &X86);
        let policy = |decides| Policy {
            line: policies::tests::line(),
            decides,
        };
        Report {
            thp: Some("always".to_owned()),
            setting: "always".to_owned(),
            said: Some(Said {
                cgroup: "/".to_owned(),
                value: "cap=64K".to_owned(),
            }),
            line,
            policies: vec![policy(Some(decides)), policy(None)],
        }
    }

    #[test]
    fn each_reason_has_its_row_and_each_rule_what_ends_it() {
        let mut out = Vec::new();
        text(&report(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "/: <=16K-max");
        assert_eq!(lines[1], "user.mthp_ext of /: cap=64K");
        let row = |name: &str| *lines.iter().find(|l| l.starts_with(name)).unwrap();
        assert_eq!(
            row("fault"),
            "fault       16K-max  room     0s         7         3  room 3"
        );
        assert!(
            lines.contains(&"fault    64K         7        4       3"),
            "{lines:#?}"
        );
        assert_eq!(
            row("collapse"),
            "collapse    all      -         -         0         0"
        );
        assert_eq!(
            row("room: "),
            "room: 1M left below the machine's 64M (63M in use), a folio may take 1/1024"
        );
        assert_eq!(
            row("    All"),
            "    All sizes come back when usage of the machine falls to 30M (now 63M). \
             32K comes back with 32M left (now 1M)."
        );
        assert!(row("it has asked").ends_with("like a new one"));
        assert!(lines.last().unwrap().contains("another version"), "{out}");
    }

    #[test]
    fn every_key_is_on_the_page() {
        let answer = serde_json::to_value(report()).unwrap();
        assert_eq!(print::undocumented(&answer), [""; 0]);
        let fault = &answer["policies"][0]["decides"]["decisions"]["fault"];
        let wanted = serde_json::json!({
            "allowed": "16K-max", "orders": 4, "rule": "room", "room_factor": 1024,
            "since_ms": u64::MAX / 1_000_000, "requests": 7, "narrowed": {"room": 3},
            "by_size": [{"size": "64K", "requests": 7, "allowed": 4, "denied": 3}],
        });
        assert_eq!(*fault, wanted);
        assert_eq!(answer["policies"][1]["decides"], serde_json::Value::Null);
    }
}
