// SPDX-License-Identifier: GPL-2.0-only
//! The table of options, and which of their values do not go together.
//!
//! Each row is all that is known of an option: the command line, the keys of policy files,
//! `status`, JSON, docs/options.md and shell completion are made of it.  To add one, add a
//! field to `struct mthp_tunables` and a row here; tests ask for the layout's new number and for
//! docs/options.md.

use super::abi::{Bind, Tunables};
use super::caps::Caps;
use super::reason::NR_REASONS;
use super::rule::{Rule, Rules};
use super::units;
use super::value::{Bit, Unit, Value};

/// Where a value is kept.
enum Field {
    U32(fn(&mut Tunables) -> &mut u32),
    U64(fn(&mut Tunables) -> &mut u64),
    Orders(fn(&mut Tunables) -> &mut [u32; NR_REASONS]),
}

/// A row of the table.
pub struct Opt {
    /// As on the command line and in policy files.
    pub name: &'static str,
    /// What stands for the value in the help.
    pub value_name: &'static str,
    /// What is counted.
    pub unit: Unit,
    /// Least and largest value, as written.
    pub range: Option<(&'static str, &'static str)>,
    /// As written.
    pub default: &'static str,
    /// What it is, and what a higher value does.
    pub help: &'static str,
    /// The rules that it belongs to; none: to all of them.
    pub rules: &'static [Rule],
    /// For measuring alone, and so in no user's help: `--set` gives it.
    pub measuring: bool,
    field: Field,
}

/// What rules may bind besides.
pub const BIND: &[Bit] = &[
    Bit {
        name: "advised",
        bit: Bind::MTHP_BIND_ADVISED,
        what: "MADV_HUGEPAGE memory",
    },
    Bit {
        name: "collapse",
        bit: Bind::MTHP_BIND_COLLAPSE,
        what: "MADV_COLLAPSE",
    },
];

/// The table.
pub static OPTIONS: &[Opt] = &[
    Opt {
        name: "threshold",
        value_name: "TIME",
        unit: Unit::Time,
        range: Some(("1us", "10s")),
        default: "100ms",
        help: "Stall of all tasks within one window that is high pressure; at most the window. \
               Lower: reacts to shorter stalls, with fewer large folios",
        rules: &[Rule::Pressure],
        measuring: false,
        field: Field::U64(|t| &mut t.threshold_ns),
    },
    Opt {
        name: "window",
        value_name: "TIME",
        unit: Unit::Time,
        range: Some(("100ms", "10s")),
        default: "1s",
        help: "Time over which stall is measured, and interval of the scan. Longer: decisions \
               change later and less often",
        rules: &[Rule::Pressure],
        measuring: false,
        field: Field::U64(|t| &mut t.window_ns),
    },
    Opt {
        name: "min-memory",
        value_name: "SIZE",
        unit: Unit::Size,
        range: None,
        default: "8M",
        help: "Anon+shmem below which a cgroup is small and its faults get base pages; 0 turns \
               the rule off. Higher: less waste in small services, large folios come later",
        rules: &[Rule::Small],
        measuring: false,
        field: Field::U64(|t| &mut t.min_memory),
    },
    Opt {
        name: "sparse-waste",
        value_name: "SIZE",
        unit: Unit::Size,
        range: None,
        default: "64M",
        help: "Memory that large folios may waste in one process before its faults get base \
               pages. Of what it grows by, from 16 MiB on, a quarter has to be filled as well, unless \
               half of all is. 0 turns the rule off. Lower: less waste, fewer large folios",
        rules: &[Rule::Sparse],
        measuring: false,
        field: Field::U64(|t| &mut t.sparse_bytes),
    },
    Opt {
        name: "limit-share",
        value_name: "PERCENT",
        unit: Unit::Percent,
        range: Some(("0", "100")),
        default: "50",
        help: "Percentage of a limit, and of the machine, that may be in use before the room \
               left counts. With the rule sparse, a limit below which all fits does not, unless this is 0. \
               Higher: large folios up to closer to a limit",
        rules: &[Rule::Room],
        measuring: false,
        field: Field::U32(|t| &mut t.limit_share),
    },
    Opt {
        name: "room-factor",
        value_name: "K",
        unit: Unit::Number,
        range: Some(("1", "1048576")),
        default: "1024",
        help: "One folio may take 1/K of the room that the nearest limit, or the machine, has \
               left. Higher: folios get smaller earlier",
        rules: &[Rule::Room],
        measuring: false,
        field: Field::U64(|t| &mut t.room_factor),
    },
    Opt {
        name: "count-nodes",
        value_name: "0|1",
        unit: Unit::Switch,
        range: Some(("0", "1")),
        default: "0",
        help: "Of the machine, only the NUMA nodes of the cgroup's cpuset count. For policies \
               without the rule pressure, which would not see a full node",
        rules: &[Rule::Room],
        measuring: false,
        field: Field::U32(|t| &mut t.count_nodes),
    },
    Opt {
        name: "cap",
        value_name: "SIZE|REASON=SIZE,...",
        unit: Unit::Caps,
        range: None,
        default: "none",
        help: "Largest folio, for all reasons or by reason: fault=64K,swapin=4K,khugepaged=2M,\
               collapse=2M,reclaim=2M; or none. Lower: smaller folios",
        rules: &[Rule::Cap],
        measuring: false,
        field: Field::Orders(|t| &mut t.cap),
    },
    Opt {
        name: "bind",
        value_name: "WHAT,...",
        unit: Unit::Set(BIND),
        range: None,
        default: "none",
        help: "What every rule binds as it binds other memory: advised (MADV_HUGEPAGE memory; without it, it \
               gets what the cgroup can hold, also where nobody misses what reclaim takes), collapse \
               (MADV_COLLAPSE); or none",
        rules: &[],
        measuring: false,
        field: Field::U32(|t| &mut t.bind.0),
    },
    // Not in that list: `--bind advised` would take khugepaged out of it.
    Opt {
        name: "bind-khugepaged",
        value_name: "0|1",
        unit: Unit::Switch,
        range: Some(("0", "1")),
        default: "1",
        help: "small and sparse bind khugepaged, too; the other rules do anyway. 0: it may fill \
               small and sparse cgroups with huge pages",
        rules: &[Rule::Small, Rule::Sparse],
        measuring: false,
        field: Field::U32(|t| &mut t.bind_khugepaged),
    },
    Opt {
        name: "sample-every",
        value_name: "REQUESTS",
        unit: Unit::PowerOfTwo,
        range: Some(("1", "4096")),
        default: "16",
        help: "Requests of a cgroup between two samples of its process, limits, page cache and \
               the machine; a power of two",
        rules: &[Rule::Small, Rule::Sparse, Rule::Room],
        measuring: true,
        field: Field::U32(|t| &mut t.sample_mask),
    },
    Opt {
        name: "count-machine",
        value_name: "0|1",
        unit: Unit::Switch,
        range: Some(("0", "1")),
        default: "1",
        help: "The machine is the root's limit",
        rules: &[Rule::Room],
        measuring: true,
        field: Field::U32(|t| &mut t.count_machine),
    },
    Opt {
        name: "spare-cache",
        value_name: "0|1",
        unit: Unit::Switch,
        range: Some(("0", "1")),
        default: "1",
        help: "Page cache that reclaim would drop first is room",
        rules: &[Rule::Room],
        measuring: true,
        field: Field::U32(|t| &mut t.spare_cache),
    },
    Opt {
        name: "some-stall",
        value_name: "0|1",
        unit: Unit::Switch,
        range: Some(("0", "1")),
        default: "0",
        help: "Stall of some tasks counts as pressure, and not only that of all",
        rules: &[Rule::Pressure],
        measuring: true,
        field: Field::U32(|t| &mut t.some_stall),
    },
];

/// Values of two options that are each fine and do not go together.
pub struct Clash {
    /// Both: the later line of a file is to blame.
    pub options: [&'static str; 2],
    /// Is it so?
    pub is: fn(&Tunables, &Caps) -> bool,
    /// What is wrong, and the remedy.
    pub what: fn(&Tunables) -> String,
}

/// All of them.
pub static CLASHES: [Clash; 3] = [
    // PSI triggers refuse more.
    Clash {
        options: ["threshold", "window"],
        is: |t, _| t.threshold_ns > t.window_ns,
        what: |t| {
            format!(
                "threshold {} is longer than the window ({}), which no stall can reach: \
                 give a smaller threshold, or a longer window",
                units::show_duration(t.threshold_ns),
                units::show_duration(t.window_ns)
            )
        },
    },
    Clash {
        options: ["count-nodes", "count-machine"],
        is: |t, _| t.count_nodes != 0 && t.count_machine == 0,
        what: |_| {
            "count-nodes is for the machine, which count-machine 0 leaves out: \
             give count-nodes 0, too"
                .to_owned()
        },
    },
    Clash {
        options: ["cap", "bind"],
        is: |t, caps| caps.collapse_named && t.bind.0 & Bind::MTHP_BIND_COLLAPSE.0 == 0,
        what: |_| "cap names collapse, which no rule binds: add collapse to bind".to_owned(),
    },
];

impl Opt {
    /// The option of this name.
    pub fn named(name: &str) -> Option<&'static Opt> {
        OPTIONS.iter().find(|option| option.name == name)
    }

    /// Has it a meaning for a policy with these rules?
    pub fn belongs_to(&self, rules: Rules) -> bool {
        self.rules.is_empty() || self.rules.iter().any(|rule| rules.has(*rule))
    }

    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with the option.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        self.unit.parse(text, self.range)
    }

    /// Its value in `tunables`.
    pub fn value(&self, tunables: &Tunables) -> Value {
        let mut t = *tunables;
        match self.field {
            Field::U32(field) => Value::Number((*field(&mut t)).into()),
            Field::U64(field) => Value::Number(*field(&mut t)),
            Field::Orders(field) => Value::Caps(Caps::of_orders(*field(&mut t), t.page_shift)),
        }
    }

    /// Gives it a value in `tunables`.
    pub(super) fn set(&self, tunables: &mut Tunables, value: Value) {
        match (&self.field, value) {
            (Field::U32(field), Value::Number(n)) => {
                *field(tunables) = u32::try_from(n).unwrap_or(u32::MAX);
            }
            (Field::U64(field), Value::Number(n)) => *field(tunables) = n,
            (Field::Orders(field), Value::Caps(caps)) => {
                let orders = caps.orders(tunables.page_shift);
                *field(tunables) = orders;
            }
            // A value comes from this option's parse().
            (Field::U32(_) | Field::U64(_), Value::Caps(_))
            | (Field::Orders(_), Value::Number(_)) => {}
        }
    }

    /// A value as it is written.
    pub fn text(&self, value: Value) -> String {
        self.unit.text(value)
    }

    /// Its value in `tunables`, as it is written.
    pub fn shown(&self, tunables: &Tunables) -> String {
        self.text(self.value(tunables))
    }

    /// Key and value in JSON: the unit is part of the key.
    pub fn json(&self, tunables: &Tunables) -> (String, serde_json::Value) {
        self.unit.json(self.name, self.value(tunables))
    }

    /// Least and largest value in words.
    pub fn range_text(&self) -> String {
        match self.range {
            Some((least, most)) => format!("{least} to {most}"),
            None => self.unit.all_text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::Btf;
    use libbpf_rs::btf::types::Enum;

    use super::*;
    use crate::model::abi::OBJECT;
    use crate::model::orders::X86;
    use crate::model::reason::Reason;

    /// The defaults, on a machine.
    fn usual() -> Tunables {
        let mut t = Tunables {
            page_shift: X86.page_shift,
            ..Tunables::default()
        };
        for option in OPTIONS {
            option.set(&mut t, option.parse(option.default).unwrap());
        }
        t
    }

    fn parse(name: &str, text: &str) -> Result<Value, String> {
        Opt::named(name).unwrap().parse(text)
    }

    #[test]
    fn every_default_and_every_bound_is_a_value_that_comes_back() {
        for option in OPTIONS {
            let (least, most) = option.range.unwrap_or((option.default, option.default));
            for text in [option.default, least, most] {
                let value = option.parse(text).unwrap();
                assert_eq!(option.text(value), text, "{}", option.name);
                let mut t = usual();
                option.set(&mut t, value);
                assert_eq!(option.shown(&t), text, "{}", option.name);
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (name, text) in [
            ("threshold", "0ms"),
            ("threshold", "11s"),
            ("threshold", "10x"),
            ("threshold", "999ns"),
            ("window", "99ms"),
            ("window", "11s"),
            ("window", "1"),
            ("min-memory", "1+1"),
            ("min-memory", "16777216T"),
            ("sparse-waste", "1+1"),
            ("limit-share", "101"),
            ("limit-share", "-1"),
            ("room-factor", "0"),
            ("room-factor", "1048577"),
            ("cap", "63"),
            ("bind", "swapin"),
            ("bind", "advised,"),
            ("sample-every", "0"),
            ("sample-every", "24"),
            ("sample-every", "8192"),
            ("count-machine", "2"),
            ("spare-cache", "yes"),
            ("spare-cache", "True"),
        ] {
            assert!(parse(name, text).is_err(), "{name} {text}");
        }
        assert!(Opt::named("magic").is_none());
    }

    #[test]
    fn names_and_fields_are_each_options_own() {
        for (i, option) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..i].iter().all(|o| o.name != option.name));
            // Another value of it changes no other option.
            let mut t = usual();
            let other = match option.unit {
                Unit::Caps => "64K",
                Unit::Set(_) => "collapse",
                Unit::Time => "200ms",
                Unit::Size => "1M",
                Unit::Switch if option.default == "0" => "1",
                Unit::Switch => "0",
                _ => "2",
            };
            option.set(&mut t, option.parse(other).unwrap());
            let changed: Vec<&str> = OPTIONS
                .iter()
                .filter(|o| o.shown(&t) != o.shown(&usual()))
                .map(|o| o.name)
                .collect();
            assert_eq!(changed, [option.name]);
        }
    }

    /// A bit without a name could neither be set nor shown.
    #[test]
    fn each_bit_that_rules_may_bind_has_its_row() {
        let btf = Btf::from_raw("mthp", OBJECT).unwrap().unwrap();
        let there: Enum<'_> = btf.type_by_name("mthp_bind").unwrap();
        let mut there: Vec<i64> = there.iter().map(|bit| bit.value).collect();
        let mut named: Vec<i64> = BIND.iter().map(|bit| bit.bit.0.into()).collect();
        there.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, there);
    }

    /// Help names what there is, and the table of reasons is another one.
    #[test]
    fn help_names_each_reason_and_each_bit() {
        let cap = Opt::named("cap").unwrap().help;
        for reason in Reason::ALL {
            assert!(cap.contains(&format!("{}=", reason.name())), "{cap}");
        }
        let bind = Opt::named("bind").unwrap().help;
        for Bit { name, what, .. } in BIND {
            assert!(bind.contains(&format!("{name} ({what}")), "{bind}");
        }
    }
}
