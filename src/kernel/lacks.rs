// SPDX-License-Identifier: GPL-2.0-only
//! What a carrier of the hook does without, and the rules for which that matters.  `support` says
//! it of the machine, `run` of the policies in force.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::abilities::Abilities;
use super::carrier::By;
use crate::model::abi::{Bind, NO_CAP, Tunables};
use crate::model::reason::Reason;
use crate::model::rule::{Rule, Rules, SCANS};

/// The row of `support` about reasons.
pub const REASONS: &str = "reasons";
/// That about what is left of the machine.
pub const ROOM: &str = "room-kfuncs";

/// One thing that a carrier does without.
pub struct Lack {
    /// What JSON calls it, whatever the words are.
    pub name: &'static str,
    /// Of what, in words.
    pub what: &'static str,
    /// How it is then.
    pub how: &'static str,
    /// The row of `support` that says so, if one does.
    pub feature: Option<&'static str>,
    /// The module does without it on every kernel, or on some of a version: docs/carriers.md has
    /// these rows.
    pub of_module: bool,
    is: fn(By, &Abilities) -> bool,
    /// The rules to which it matters, in a policy with these values.
    matters: fn(&Tunables) -> Rules,
}

/// What matters to no rule.
fn to_none(_: &Tunables) -> Rules {
    Rules(0)
}

/// The rules that may narrow a reason, whatever the facts: `mthp_decide()` of `bpf/decide.h`, which
/// `tests/change.rs` compares.
pub fn binding(t: &Tunables, reason: Reason) -> Rules {
    let forced = reason == Reason::Collapse;
    let bound = !forced || t.bind.0 & Bind::MTHP_BIND_COLLAPSE.0 != 0;
    let fills = forced
        || reason == Reason::Fault
        || (reason == Reason::Khugepaged && t.bind_khugepaged != 0);
    let binds = |rule: &Rule| {
        Rules(t.rules).has(*rule)
            && match rule {
                Rule::Pressure | Rule::Room => true,
                Rule::Small => fills && t.min_memory != 0,
                Rule::Sparse => fills && t.sparse_bytes != 0,
                Rule::Cap => t.cap[reason as usize] < NO_CAP,
            }
    };
    Rule::ALL
        .into_iter()
        .filter(|r| bound && binds(r))
        .collect()
}

/// The rule room, where `is`.
fn room(t: &Tunables, is: bool) -> Rules {
    let room = Some(Rule::Room).filter(|_| is && Rules(t.rules).has(Rule::Room));
    room.into_iter().collect()
}

/// A reason that is not asked about.
const fn reason(
    of: Reason,
    how: &'static str,
    is: fn(By, &Abilities) -> bool,
    matters: fn(&Tunables) -> Rules,
) -> Lack {
    Lack {
        name: of.name(),
        what: of.name(),
        how,
        feature: Some(REASONS),
        of_module: matches!(of, Reason::Reclaim),
        is,
        matters,
    }
}

/// What only the module has.
const fn module(
    name: &'static str,
    what: &'static str,
    how: &'static str,
    matters: fn(&Tunables) -> Rules,
) -> Lack {
    Lack {
        name,
        what,
        how,
        feature: None,
        of_module: true,
        is: |by, _| by == By::Module,
        matters,
    }
}

/// All of them.
const LACKS: [Lack; 14] = [
    reason(
        Reason::Reclaim,
        "not asked about: what was given stays, so rules give up earlier",
        |_, has| !has.reasons[Reason::Reclaim],
        |t| binding(t, Reason::Reclaim),
    ),
    module(
        "offer",
        "sizes offered",
        "before the kernel has looked which fit the range: counters show more requests",
        to_none,
    ),
    module(
        "zero-page",
        "a huge zero page older than the policy",
        "a write to it is not asked about (Linux 7.x)",
        to_none,
    ),
    module(
        "khugepaged-search",
        "khugepaged",
        "finds a process whose faults are all narrowed only once memory is merged or advised",
        to_none,
    ),
    module(
        "count-nodes",
        "count-nodes",
        "counts the whole machine: the cpuset is out of reach",
        |t| room(t, t.count_nodes != 0 && t.count_machine != 0),
    ),
    Lack {
        is: |by, has| by == By::Module && !has.page_state,
        ..module(
            "page-cache",
            "page cache, without kfuncs of memory cgroups",
            "of cgroups below a limit it counts as used",
            // Without a scan that is so everywhere.
            |t| room(t, t.spare_cache != 0 && Rules(t.rules).has(SCANS)),
        )
    },
    module(
        "shared-map",
        "one map, several cgroups",
        "no: a map names its cgroup",
        to_none,
    ),
    module(
        "attach-right",
        "the right to attach",
        "is looked at when a map is filled, not again when it is attached",
        to_none,
    ),
    module(
        "refusals",
        "refusals by size in sysfs",
        "no anon_bpf_refused",
        to_none,
    ),
    module(
        "ftrace",
        "ftrace",
        "has to be on (kernel.ftrace_enabled), and stays on while a policy is attached",
        to_none,
    ),
    reason(
        Reason::Swapin,
        "not asked about; with the module fault is asked about instead",
        |_, has| !has.reasons[Reason::Swapin],
        |t| binding(t, Reason::Swapin),
    ),
    reason(
        Reason::Khugepaged,
        "not asked about",
        |_, has| !has.reasons[Reason::Khugepaged],
        |t| binding(t, Reason::Khugepaged),
    ),
    reason(
        Reason::Collapse,
        "not asked about",
        |_, has| !has.reasons[Reason::Collapse],
        |t| binding(t, Reason::Collapse),
    ),
    Lack {
        name: "machine",
        what: "memory left on the machine",
        how: "does not count, and page cache as of the last scan",
        feature: Some(ROOM),
        of_module: false,
        is: |_, has| !has.room,
        matters: |t| room(t, t.count_machine != 0 || t.spare_cache != 0),
    },
];

impl Lack {
    /// As answers have it.
    pub fn described(&self) -> Described {
        Described {
            of: self.name,
            what: self.what,
            how: self.how,
        }
    }
}

/// One of them, in answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Described {
    /// Of what: a name that stays, whatever the words.
    of: &'static str,
    /// The same in words.
    what: &'static str,
    how: &'static str,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.how)
    }
}

/// What a carrier does without.
pub fn of(by: By, abilities: &Abilities) -> impl Iterator<Item = &'static Lack> {
    LACKS.iter().filter(move |lack| (lack.is)(by, abilities))
}

/// What is not in force of policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Missed {
    #[serde(flatten)]
    lack: Described,
    /// The rules to which it matters.
    rules: Rules,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<&str> = self.rules.iter().map(Rule::name).collect();
        let Described { what, how, .. } = self.lack;
        write!(f, "{what} ({}): {how}", rules.join(", "))
    }
}

/// What policies with these values miss on a carrier.
pub fn missed(by: By, abilities: &Abilities, policies: &[&Tunables]) -> Vec<Missed> {
    let one = |lack: &Lack| Missed {
        lack: lack.described(),
        rules: Rules(
            policies
                .iter()
                .fold(0, |rules, t| rules | (lack.matters)(t).0),
        ),
    };
    let all = of(by, abilities).map(one);
    all.filter(|missed| missed.rules.iter().next().is_some())
        .collect()
}

/// The module's, on a kernel that it knows and that counts page cache.
#[cfg(test)]
pub fn of_the_module() -> Abilities {
    let mut abilities = everything();
    abilities.reasons[Reason::Reclaim] = false;
    abilities
}

/// Those of a kernel with all of the series.
#[cfg(test)]
pub fn everything() -> Abilities {
    Abilities {
        hook: super::abilities::Hook::Known,
        cgroup_links: true,
        stall: true,
        memcg: true,
        page_state: true,
        room: true,
        reasons: crate::model::reason::ByReason::each(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::given::Values;
    use crate::model::options::Opt;
    use crate::model::orders::X86;
    use crate::model::policy::Policy;
    use crate::model::resolve;

    fn policy(name: &str, more: &[(&str, &str)]) -> Tunables {
        let policy = Policy::built_in(name).unwrap().unwrap();
        let mut values = Values::default();
        for (name, text) in more {
            let option = Opt::named(name).unwrap();
            values.add(option, option.parse(text).unwrap());
        }
        resolve::tunables(&policy, &values, &X86).unwrap()
    }

    /// What a policy misses, in short.
    fn misses(by: By, abilities: &Abilities, t: &Tunables) -> Vec<String> {
        let short = |one: &Missed| {
            let text = one.to_string();
            text.split_once("): ").unwrap().0.to_owned() + ")"
        };
        missed(by, abilities, &[t]).iter().map(short).collect()
    }

    #[test]
    fn a_kernel_with_all_of_the_series_lacks_nothing() {
        assert_eq!(of(By::Series, &everything()).count(), 0);
        assert_eq!(
            missed(By::Series, &everything(), &[&policy("default", &[])]),
            []
        );
    }

    /// Consumers of JSON compare them.
    #[test]
    fn each_has_a_name_of_its_own_and_no_markup() {
        let names: std::collections::BTreeSet<&str> = LACKS.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), LACKS.len());
        for one in &LACKS {
            let plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(one.name.chars().all(plain), "{}", one.name);
            let words = one.described().to_string();
            assert!(!words.contains(['`', '*', '[']), "{words}");
        }
    }

    #[test]
    fn each_policy_misses_what_it_would_use() {
        let module = of_the_module();
        let mut old = module;
        old.page_state = false;
        let mut blind = module;
        blind.reasons[Reason::Swapin] = false;
        let cap = policy("fixed", &[("cap", "64K")]);
        let of_faults = policy("fixed", &[("cap", "fault=64K")]);
        let nodes = policy("default", &[("count-nodes", "1")]);
        for (abilities, t, missed) in [
            (
                &module,
                &policy("default", &[]),
                &["reclaim (pressure, room)"][..],
            ),
            (
                &module,
                &policy("headroom", &[]),
                &["reclaim (room)", "count-nodes (room)"],
            ),
            (
                &module,
                &nodes,
                &["reclaim (pressure, room)", "count-nodes (room)"],
            ),
            (&module, &cap, &["reclaim (cap)"]),
            (&module, &of_faults, &[]),
            (
                &old,
                &policy("default", &[]),
                &[
                    "reclaim (pressure, room)",
                    "page cache, without kfuncs of memory cgroups (room)",
                ],
            ),
            // It has no scan, and so sees no such cache anywhere.
            (
                &old,
                &policy("headroom", &[]),
                &["reclaim (room)", "count-nodes (room)"],
            ),
            (&blind, &cap, &["reclaim (cap)", "swapin (cap)"]),
            (&blind, &of_faults, &[]),
        ] {
            assert_eq!(misses(By::Module, abilities, t), missed);
        }
    }

    #[test]
    fn an_earlier_kernel_of_the_series_misses_what_came_later() {
        let mut earlier = everything();
        earlier.room = false;
        for reason in [Reason::Khugepaged, Reason::Collapse] {
            earlier.reasons[reason] = false;
        }
        let misses = |t: &Tunables| misses(By::Series, &earlier, t);
        let all = "khugepaged (pressure, small, sparse, room)";
        let room = "memory left on the machine (room)";
        let loose = [("bind-khugepaged", "0")];
        let forced = [("bind", "collapse")];
        assert_eq!(misses(&policy("default", &[])), [all, room]);
        assert_eq!(
            misses(&policy("default", &loose)),
            ["khugepaged (pressure, room)", room]
        );
        let collapse = "collapse (pressure, small, sparse, room)";
        assert_eq!(misses(&policy("default", &forced)), [all, collapse, room]);
        assert_eq!(
            misses(&policy(
                "default",
                &[("count-machine", "0"), ("spare-cache", "0")]
            )),
            [all]
        );
    }

    /// A value of 0 turns these rules off.
    #[test]
    fn a_rule_that_its_value_turns_off_misses_nothing() {
        let mut earlier = everything();
        earlier.reasons[Reason::Khugepaged] = false;
        let misses = |more| misses(By::Series, &earlier, &policy("default", more));
        assert_eq!(
            misses(&[("sparse-waste", "0"), ("min-memory", "0")]),
            ["khugepaged (pressure, room)"]
        );
    }

    /// Of several policies each rule counts once.
    #[test]
    fn policies_are_taken_together() {
        let (one, other) = (policy("headroom", &[]), policy("fixed", &[("cap", "64K")]));
        let found = missed(By::Module, &of_the_module(), &[&one, &other]);
        assert_eq!(
            found[0].to_string(),
            "reclaim (room, cap): not asked about: what was given stays, so rules give up earlier"
        );
        assert_eq!(found.len(), 2);
    }
}
