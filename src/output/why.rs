// SPDX-License-Identifier: GPL-2.0-only
//! A record of the kernel side in words: what is decided, which rule decided, and the numbers
//! that it compared.  `run` prints it with a changed decision, `status` with each cgroup.

use schemars::JsonSchema;
use serde::Serialize;

use crate::kernel::cgroup::Names;
use crate::model::abi::{Bind, Gaps, NO_LIMIT, Record, Tunables};
use crate::model::caps::Caps;
use crate::model::reason::{ByReason, Reason};
use crate::model::rule::Rule;
use crate::model::sentences::stall;
use crate::model::units::{show_duration, show_size};

/// The level of the tree that leaves the least room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Level {
    /// Name of the cgroup whose limit it is; null: the machine.
    pub cgroup: Option<String>,
    /// `memory.high`, `memory.max`, `machine`, or `nodes`: those of the cgroup's cpuset.
    pub limit: &'static str,
    /// The limit.
    pub bytes: u64,
    /// What of it is in use, page cache included.
    pub used_bytes: u64,
    /// What its cgroup has in swap beside that; 0 for the machine.
    pub swapped_bytes: u64,
}

impl Level {
    /// That of a record; `None` where nothing binds.
    pub fn of(record: &Record, names: &Names) -> Option<Self> {
        if record.room_bytes == NO_LIMIT {
            return None;
        }
        Some(Level {
            cgroup: (record.level_id != 0).then(|| names.of_id(record.level_id)),
            limit: match (record.level_id, record.level_nodes, record.level_high) {
                (0, 0, _) => "machine",
                (0, ..) => "nodes",
                (_, _, 0) => "memory.max",
                _ => "memory.high",
            },
            bytes: record.limit_bytes,
            used_bytes: record.used_bytes,
            swapped_bytes: record.swapped_bytes,
        })
    }

    /// "memory.max 64M of /redis (63M in use, 20M in swap)", "the machine's 1G (700M in use)"
    pub fn text(&self) -> String {
        let bytes = show_size(self.bytes);
        let of = match &self.cgroup {
            Some(cgroup) => format!("{} {bytes} of {cgroup}", self.limit),
            None if self.limit == "nodes" => format!("its nodes' {bytes}"),
            None => format!("the machine's {bytes}"),
        };
        let swapped = match self.swapped_bytes {
            0 => String::new(),
            bytes => format!(", {} in swap", show_size(bytes)),
        };
        format!("{of} ({} in use{swapped})", show_size(self.used_bytes))
    }
}

/// The orders that a record allows.
pub fn orders(record: &Record) -> ByReason<u64> {
    ByReason(record.decided.map(|decision| decision.orders))
}

/// The rules that decided for any reason, each once, in their order.
pub fn rules(record: &Record) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Reason::ALL
        .into_iter()
        .filter_map(|reason| Rule::of(record.decided[reason as usize].rule))
        .collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// The name of the cause: the first rule that decides, or `none`.
pub fn first(rules: &[Rule]) -> &'static str {
    rules.first().map_or("none", |rule| rule.name())
}

/// One text for each rule that decided.
pub fn reasons(record: &Record, level: Option<&Level>, tunables: &Tunables) -> Vec<String> {
    let words = |rule: &Rule| {
        format!(
            "{}: {}",
            rule.name(),
            of_rule(*rule, record, level, tunables)
        )
    };
    rules(record).iter().map(words).collect()
}

/// Does a PUD, 1 GiB, not fit, while all else does?  Then it is its room that the record has, as
/// `mthp_describe_pud()` put it there.
pub fn lacks_room_for_pud(record: &Record, t: &Tunables) -> bool {
    let fault = record.decided[Reason::Fault as usize];
    let by_room =
        |reason: &Reason| Rule::of(record.decided[*reason as usize].rule) == Some(Rule::Room);
    t.pud_pages != 0
        && Reason::ALL
            .iter()
            .filter(|reason| by_room(reason))
            .eq([&Reason::Fault])
        && fault.orders & u64::from(t.largest_pages) != 0
        && fault.orders & u64::from(t.pud_pages) == 0
}

fn of_rule(rule: Rule, record: &Record, level: Option<&Level>, t: &Tunables) -> String {
    match rule {
        Rule::Pressure => pressure(record, t),
        Rule::Small => format!(
            "{} of anon+shmem (below {})",
            show_size(record.memory_bytes),
            show_size(t.min_memory)
        ),
        Rule::Sparse => sparse(&record.gaps, t),
        Rule::Room => {
            let pud = match lacks_room_for_pud(record, t) {
                true => format!(
                    ", too little for {}: with all of it but {} in use",
                    bytes(t.pud_pages, t),
                    bytes(t.largest_pages, t)
                ),
                false => String::new(),
            };
            format!(
                "{} left below {}{pud}, {}",
                show_size(record.room_bytes),
                level.map_or_else(|| "the nearest limit".to_owned(), Level::text),
                shares(record)
            )
        }
        Rule::Cap => {
            let bound = t.bind.0 & Bind::MTHP_BIND_COLLAPSE.0 != 0;
            format!(
                "at most {}",
                Caps::of_orders(t.cap, t.page_shift).text(bound)
            )
        }
    }
}

fn bytes(pages: u32, t: &Tunables) -> String {
    show_size(u64::from(pages) << t.page_shift)
}

/// What of the room one folio may take, by the factors that were applied where that rule decided.
fn shares(record: &Record) -> String {
    let factor = |reason: Reason| {
        let decided = record.decided[reason as usize];
        (Rule::of(decided.rule) == Some(Rule::Room)).then_some(decided.room_factor)
    };
    let new = Reason::ALL.into_iter().filter(|r| *r != Reason::Reclaim);
    let new = new.filter_map(factor).max();
    let used = factor(Reason::Reclaim).filter(|used| new != Some(*used));
    let said = [("a folio may take", new), ("one in use", used)];
    let said: Vec<String> = said
        .iter()
        .filter_map(|(what, factor)| Some(format!("{what} 1/{}", (*factor)?)))
        .collect();
    match (new, said.as_slice()) {
        (None, [used]) => used.replace("one in use", "a folio in use may take"),
        (_, said) => said.join(", "),
    }
}

fn pressure(record: &Record, t: &Tunables) -> String {
    match record.elapsed_ns {
        0 => "taken over from the cgroup above".to_owned(),
        elapsed => format!(
            "{} of {} stall in {} (threshold {} in {})",
            show_duration(record.stall_ns),
            stall(t),
            show_duration(elapsed),
            show_duration(t.threshold_ns),
            show_duration(t.window_ns)
        ),
    }
}

/// Of the process by which the cgroup was found to be sparse, which may have ended.
fn sparse(gaps: &Gaps, t: &Tunables) -> String {
    let bytes = |pages: u64| show_size(pages.saturating_mul(1 << t.page_shift));
    let (filled, of) = (bytes(gaps.filled), bytes(gaps.of));
    let less_than = |one_of: u64| gaps.filled.saturating_mul(one_of) < gaps.of;
    match gaps.grew {
        1 if less_than(4) => {
            format!("a process filled {filled} of the {of} that it grew by (less than a quarter)")
        }
        0 if less_than(2) => format!(
            "a process filled {filled} of the {of} that it spans (less than half, and {} or more \
             are missing)",
            show_size(t.sparse_bytes)
        ),
        // Two CPUs wrote at once.
        _ => "a process filled little of what it grew by, or spans".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::{Decision, NO_CAP, RuleNumber};
    use crate::model::orders::{X86, X86_PUD};
    use crate::model::resolve;

    fn tunables() -> Tunables {
        resolve::defaults(&X86).unwrap()
    }

    fn level() -> Level {
        Level {
            cgroup: Some("/redis".to_owned()),
            limit: "memory.max",
            bytes: 64 << 20,
            used_bytes: 63 << 20,
            swapped_bytes: 0,
        }
    }

    /// Each reason decided by another rule.
    fn record() -> Record {
        let mut record = Record {
            memory_bytes: 3 << 20,
            room_bytes: 1 << 20,
            stall_ns: 230_000_000,
            elapsed_ns: 1_000_000_000,
            gaps: Gaps {
                of: 10_240,
                filled: 768,
                grew: 1,
            },
            ..Record::default()
        };
        for rule in Rule::ALL {
            // As many rules as reasons, from 1 on.
            record.decided[rule as usize] = Decision {
                rule: RuleNumber(rule as u32),
                room_factor: 1024,
                ..Decision::default()
            };
        }
        record
    }

    #[test]
    fn each_rule_gives_its_numbers() {
        let mut t = tunables();
        t.cap = [NO_CAP, 4, 0, 0, NO_CAP, NO_CAP];
        assert_eq!(
            reasons(&record(), Some(&level()), &t),
            [
                "pressure: 230ms of full stall in 1s (threshold 100ms in 1s)",
                "small: 3M of anon+shmem (below 8M)",
                "sparse: a process filled 3M of the 40M that it grew by (less than a quarter)",
                "room: 1M left below memory.max 64M of /redis (63M in use), a folio may take 1/1024",
                "cap: at most fault=64K,swapin=4K,khugepaged=4K",
            ]
        );
    }

    #[test]
    fn what_a_pud_lacks_is_said() {
        let mut record = Record {
            room_bytes: 1 << 30,
            ..Record::default()
        };
        record.decided[Reason::Fault as usize] = Decision {
            orders: 0x3fffe,
            rule: RuleNumber(Rule::Room as u32),
            room_factor: 1024,
        };
        let t = resolve::defaults(&X86_PUD).unwrap();
        let said = |record: &Record| reasons(record, Some(&level()), &t);
        assert!(lacks_room_for_pud(&record, &t));
        assert_eq!(
            said(&record),
            [
                "room: 1G left below memory.max 64M of /redis (63M in use), too little for 1G: with all \
                 of it but 2M in use, a folio may take 1/1024"
            ]
        );
        // Where 2 MiB do not fit, 1 GiB is not what is lacking.
        record.decided[Reason::Fault as usize].orders = 0xfe;
        assert!(!lacks_room_for_pud(&record, &t) && !said(&record)[0].contains("too little"));
        record.decided[Reason::Fault as usize].orders = 0x3fffe;
        assert!(!lacks_room_for_pud(&record, &tunables()), "there is none");
    }

    #[test]
    fn a_verdict_says_where_it_is_from() {
        let plain = Record {
            elapsed_ns: 0,
            ..record()
        };
        let said = reasons(&plain, None, &tunables());
        assert_eq!(said[0], "pressure: taken over from the cgroup above");
        assert!(said[3].contains("below the nearest limit,"), "{said:?}");
    }

    #[test]
    fn a_process_is_sparse_as_a_whole_as_well() {
        let gaps = Gaps {
            of: 51_200,
            filled: 5_120,
            grew: 0,
        };
        let said = reasons(&Record { gaps, ..record() }, None, &tunables());
        let whole = "sparse: a process filled 20M of the 200M that it spans (less than half, and 64M or more \
                     are missing)";
        assert_eq!(said[2], whole);
        let gaps = Gaps {
            grew: 1,
            of: 0,
            ..gaps
        };
        let said = reasons(&Record { gaps, ..record() }, None, &tunables());
        assert!(said[2].contains("little of"), "of two processes: {said:?}");
    }

    /// Reclaim asks by another K; what was applied is in the record.
    #[test]
    fn each_share_is_the_one_that_was_applied() {
        let by_room = |reasons: &[(Reason, u32)]| {
            let mut record = Record::default();
            for &(reason, room_factor) in reasons {
                record.decided[reason as usize] = Decision {
                    orders: 0,
                    rule: RuleNumber(Rule::Room as u32),
                    room_factor,
                };
            }
            shares(&record)
        };
        let (fault, reclaim) = (Reason::Fault, Reason::Reclaim);
        assert_eq!(by_room(&[(fault, 64)]), "a folio may take 1/64");
        assert_eq!(
            by_room(&[(fault, 1024), (Reason::Swapin, 1024), (reclaim, 16)]),
            "a folio may take 1/1024, one in use 1/16"
        );
        assert_eq!(by_room(&[(fault, 8), (reclaim, 8)]), "a folio may take 1/8");
        assert_eq!(by_room(&[(reclaim, 16)]), "a folio in use may take 1/16");
    }

    #[test]
    fn the_level_that_binds_has_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let names = Names::new(dir.path());
        let machine = Record {
            room_bytes: 1 << 20,
            limit_bytes: 1 << 30,
            used_bytes: 700 << 20,
            ..Record::default()
        };
        let level = Level::of(&machine, &names).unwrap();
        assert_eq!((level.limit, &level.cgroup), ("machine", &None));
        assert_eq!(level.text(), "the machine's 1G (700M in use)");
        let swapped = Level {
            swapped_bytes: 20 << 20,
            ..self::level()
        };
        let text = "memory.max 64M of /redis (63M in use, 20M in swap)";
        assert_eq!(swapped.text(), text);
        let nodes = Record {
            level_nodes: 1,
            ..machine
        };
        let level = Level::of(&nodes, &names).unwrap();
        assert_eq!(level.limit, "nodes");
        assert_eq!(level.text(), "its nodes' 1G (700M in use)");
        let gone = Record {
            level_id: u64::MAX,
            level_high: 1,
            ..machine
        };
        let level = Level::of(&gone, &names).unwrap();
        assert_eq!(level.limit, "memory.high");
        assert!(level.text().contains("of (id "), "{}", level.text());
        let none = Record {
            room_bytes: NO_LIMIT,
            ..machine
        };
        assert_eq!(Level::of(&none, &names), None);
    }

    #[test]
    fn the_first_rule_is_the_cause() {
        assert_eq!(first(&rules(&record())), "pressure");
        assert_eq!(first(&rules(&Record::default())), "none");
    }
}
