// SPDX-License-Identifier: GPL-2.0-only
//! The table of options.
//!
//! Each row is all that is known of an option: the command line, the keys of policy files,
//! `status`, JSON, docs/options.md and shell completion are made of it.  To add one, add a
//! field to `struct mthp_tunables` and a row here.

use serde_json::json;

use super::abi::{self, Bind, Tunables};
use super::caps::Caps;
use super::orders::Sizes;
use super::policy::{Mistake, Policy};
use super::reason::NR_REASONS;
use super::rule::{Rule, Rules};
use super::units;

/// What is counted, and so how a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `100ms`; nanoseconds inside.
    Time,
    /// `16M`; bytes inside.
    Size,
    /// `50`; 1024ths inside.
    Percent,
    /// `1024`.
    Number,
    /// `16`; one less inside, as the programs mask instead of dividing.
    PowerOfTwo,
    /// `1` or `0`; `true` and `false` are the same.
    Switch,
    /// `64K`, or `fault=64K,swapin=4K`.
    Caps,
    /// `advised,collapse`: names of bits.
    Set(&'static [(&'static str, Bind)]),
}

/// A value, as the programs know it; only caps do not, as they depend on the base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// In the unit's inner form.
    Number(u64),
    /// Largest sizes.
    Caps(Caps),
}

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

const BIND: &[(&str, Bind)] = &[
    ("advised", Bind::MTHP_BIND_ADVISED),
    ("collapse", Bind::MTHP_BIND_COLLAPSE),
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
               pages; 0 turns the rule off. Lower: less waste, fewer large folios",
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
        help: "What every rule binds in addition: advised (MADV_HUGEPAGE memory; without it, it \
               gets what the cgroup can hold), collapse (MADV_COLLAPSE); or none",
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
        name: "max-hold",
        value_name: "WINDOWS",
        unit: Unit::Number,
        range: Some(("1", "1024")),
        default: "64",
        help: "Most calm windows in a row before high pressure ends. It takes one at first, and \
               twice as many each time pressure soon returns. 1: neither back-off nor hysteresis",
        rules: &[Rule::Pressure],
        measuring: true,
        field: Field::U32(|t| &mut t.max_hold),
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
        let written = match self.unit {
            Unit::Caps => return Caps::parse(text).map(Value::Caps),
            Unit::Set(bits) => return set(bits, text).map(Value::Number),
            unit => read(unit, text)?,
        };
        if let Some((least, most)) = self.range {
            let bound = |text| read(self.unit, text);
            if !(bound(least)?..=bound(most)?).contains(&written) {
                return Err(format!("must be from {least} to {most}"));
            }
        }
        Ok(Value::Number(match self.unit {
            Unit::Percent => units::share(written),
            Unit::PowerOfTwo if !written.is_power_of_two() => {
                return Err("must be a power of two".to_owned());
            }
            Unit::PowerOfTwo => written - 1,
            _ => written,
        }))
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

    fn set(&self, tunables: &mut Tunables, value: Value) {
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
        match (self.unit, value) {
            (_, Value::Caps(caps)) => caps.text(true),
            (Unit::Time, Value::Number(ns)) => units::show_duration(ns),
            (Unit::Size, Value::Number(bytes)) => units::show_size(bytes),
            (Unit::Percent, Value::Number(share)) => units::percent(share).to_string(),
            (Unit::PowerOfTwo, Value::Number(mask)) => (mask + 1).to_string(),
            (Unit::Set(bits), Value::Number(n)) => match names(bits, n).as_slice() {
                [] => "none".to_owned(),
                names => names.join(","),
            },
            (_, Value::Number(n)) => n.to_string(),
        }
    }

    /// Its value in `tunables`, as it is written.
    pub fn shown(&self, tunables: &Tunables) -> String {
        self.text(self.value(tunables))
    }

    /// Key and value in JSON: the unit is part of the key.
    pub fn json(&self, tunables: &Tunables) -> (String, serde_json::Value) {
        let name = self.name.replace('-', "_");
        match (self.unit, self.value(tunables)) {
            (Unit::Time, Value::Number(ns)) => (name + "_us", json!(ns / 1_000)),
            (Unit::Size, Value::Number(bytes)) => (name + "_bytes", json!(bytes)),
            (Unit::Percent, Value::Number(n)) => (name + "_percent", json!(units::percent(n))),
            (Unit::PowerOfTwo, Value::Number(mask)) => (name, json!(mask + 1)),
            (Unit::Switch, Value::Number(n)) => (name, json!(n != 0)),
            (Unit::Set(bits), Value::Number(n)) => (name, json!(names(bits, n))),
            (_, Value::Caps(caps)) => (name + "_bytes", json!(caps)),
            (_, Value::Number(n)) => (name, json!(n)),
        }
    }

    /// Least and largest value in words.
    pub fn range_text(&self) -> String {
        match (self.range, self.unit) {
            (Some((least, most)), _) => format!("{least} to {most}"),
            (None, Unit::Set(bits)) => bits
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", "),
            (None, Unit::Caps) => "4K and larger, or none".to_owned(),
            (None, _) => "any".to_owned(),
        }
    }
}

/// A number as it is written, in the unit's smallest part.
fn read(unit: Unit, text: &str) -> Result<u64, String> {
    match unit {
        Unit::Time => {
            let nanos = units::duration(text)?.as_nanos();
            u64::try_from(nanos).map_err(|_| "is too large".to_owned())
        }
        Unit::Size => units::size(text),
        Unit::Switch => match text {
            "0" | "false" => Ok(0),
            "1" | "true" => Ok(1),
            _ => Err(format!("has '{text}': it must be 0 or 1")),
        },
        _ => text
            .parse()
            .map_err(|_| format!("has '{text}', which is no number")),
    }
}

fn set(bits: &[(&str, Bind)], text: &str) -> Result<u64, String> {
    let mut all = 0;
    for word in text.split(',').filter(|_| text != "none") {
        let bit = bits.iter().find(|(name, _)| *name == word);
        let (_, bit) = bit.ok_or_else(|| {
            let known: Vec<&str> = bits.iter().map(|(name, _)| *name).collect();
            format!("has '{word}': there are {}, none", known.join(", "))
        })?;
        all |= u64::from(bit.0);
    }
    Ok(all)
}

fn names(bits: &'static [(&'static str, Bind)], value: u64) -> Vec<&'static str> {
    let on = bits.iter().filter(|(_, bit)| value & u64::from(bit.0) != 0);
    on.map(|(name, _)| *name).collect()
}

/// The rule that brings the scan: it is loaded, and PSI needed, for policies that have it.
pub const SCANS: Rule = Rule::Pressure;

/// A value that was given, by a policy or by the user.
#[derive(Clone, Copy, Debug)]
struct Given {
    name: &'static str,
    value: Value,
    /// The line of the policy's file.
    line: Option<usize>,
}

/// Values that were given, by a policy or by the user.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<Given>);

impl Values {
    /// One more; the last one counts.
    pub fn add(&mut self, option: &'static Opt, value: Value) {
        self.add_from(option, value, None);
    }

    /// The same of a line of a policy's file.
    pub fn add_from(&mut self, option: &'static Opt, value: Value, line: Option<usize>) {
        let name = option.name;
        self.0.push(Given { name, value, line });
    }

    fn last(&self, option: &Opt) -> Option<&Given> {
        let mut given = self.0.iter().rev();
        given.find(|given| given.name == option.name)
    }

    /// The value of an option, if it was given.
    pub fn of(&self, option: &Opt) -> Option<Value> {
        self.last(option).map(|given| given.value)
    }

    /// The line that gives it, if a file's does.
    pub fn line_of(&self, option: &Opt) -> Option<usize> {
        self.last(option)?.line
    }

    /// These, and where they have none those of `base`, whose lines are of another file.
    #[must_use]
    pub fn over(&self, base: &Values) -> Values {
        let elsewhere = base.0.iter().map(|given| Given {
            line: None,
            ..*given
        });
        Values(elsewhere.chain(self.0.iter().copied()).collect())
    }

    /// Each option that was given, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Opt, Value)> + '_ {
        OPTIONS
            .iter()
            .filter_map(|option| Some((option, self.of(option)?)))
    }
}

/// The constants of a policy: the table's, then the policy's, then those given.  What the kernel
/// can do is not known here (`takes_back`).
///
/// # Errors
/// Values that are each fine but do not go together; with a line, if the policy's file has them.
pub fn tunables(policy: &Policy, given: &Values, sizes: &Sizes) -> Result<Tunables, Mistake> {
    let machine = Tunables {
        page_shift: sizes.page_shift,
        largest_pages: 1 << sizes.largest(),
        ..Tunables::default()
    };
    let t = filled(policy, given, machine)?;
    // A file may leave the cap to the user.
    if policy.rules.iter().eq([Rule::Cap]) && caps(policy, given).is_none() {
        return Err(Mistake {
            line: None,
            what: format!(
                "policy {} has no cap and would narrow nothing: add a cap",
                policy.name
            ),
        });
    }
    Ok(t)
}

/// Do the values of a policy's file go together?
///
/// # Errors
/// The first mistake.
pub fn sound(policy: &Policy) -> Result<(), Mistake> {
    // No check depends on the machine.
    filled(policy, &Values::default(), Tunables::default()).map(|_| ())
}

/// The constants of `machine`, with those of the options.
fn filled(policy: &Policy, given: &Values, machine: Tunables) -> Result<Tunables, Mistake> {
    let mut t = Tunables {
        rules: policy.rules.0,
        ..machine
    };
    // The kernel keeps no more of it, and two that begin alike would look like one.
    let longest = t.policy.len() - 1;
    if policy.name.len() > longest {
        return Err(Mistake {
            line: None,
            what: format!(
                "the policy's name {} has {} bytes, of {longest} at most: give the file a shorter one",
                policy.name,
                policy.name.len()
            ),
        });
    }
    abi::set_text(&mut t.policy, &policy.name);
    for option in OPTIONS {
        let value = given.of(option).or_else(|| policy.values.of(option));
        let value = value.map_or_else(|| option.parse(option.default), Ok);
        option.set(&mut t, value.map_err(|what| Mistake { line: None, what })?);
    }
    check(policy, given, &t)?;
    Ok(t)
}

fn caps(policy: &Policy, given: &Values) -> Caps {
    let caps = OPTIONS.iter().find_map(|option| {
        match given.of(option).or_else(|| policy.values.of(option)) {
            Some(Value::Caps(caps)) => Some(caps),
            _ => None,
        }
    });
    caps.unwrap_or_default()
}

/// Checks the values against each other.
fn check(policy: &Policy, given: &Values, t: &Tunables) -> Result<(), Mistake> {
    // The last of their lines, of those that the user did not overrule.
    let mistake = |to_blame: &[&str], what: String| {
        let options = to_blame.iter().filter_map(|name| Opt::named(name));
        let own = options.filter(|option| given.of(option).is_none());
        let lines = own.filter_map(|option| policy.values.last(option)?.line);
        Mistake {
            line: lines.max(),
            what,
        }
    };
    // PSI triggers refuse more.
    if t.threshold_ns > t.window_ns {
        return Err(mistake(
            &["threshold", "window"],
            format!(
                "threshold {} is longer than the window ({}), which no stall can reach: \
                 give a smaller threshold, or a longer window",
                units::show_duration(t.threshold_ns),
                units::show_duration(t.window_ns)
            ),
        ));
    }
    // What would bind nothing is a mistake, and nobody would notice it.
    for option in OPTIONS {
        let wanted = given.of(option).or_else(|| policy.values.of(option));
        if wanted.is_some() && !option.belongs_to(policy.rules) {
            let rules: Vec<&str> = option.rules.iter().map(|rule| rule.name()).collect();
            let what = format!(
                "{} has no effect without the rule {}, which policy {} does not have: \
                 leave the option out, or take a policy with that rule",
                option.name,
                rules.join(" or "),
                policy.name
            );
            return Err(mistake(&[option.name], what));
        }
    }
    if t.count_nodes != 0 && t.count_machine == 0 {
        let what = "count-nodes is for the machine, which count-machine 0 leaves out: \
                    give count-nodes 0, too"
            .to_owned();
        return Err(mistake(&["count-nodes", "count-machine"], what));
    }
    // Only the scan sees memory without its page cache, and what a process has left behind.
    let mut scanned = [Rule::Small, Rule::Sparse].into_iter();
    let unscanned = scanned.find(|rule| policy.rules.has(*rule) && !policy.rules.has(SCANS));
    if let Some(rule) = unscanned {
        return Err(Mistake {
            line: policy.rules_line,
            what: format!(
                "the rule {} needs the scan, which comes with the rule {}: add {} to the rules, \
                 or take {} away. Neither runs without PSI; room and cap do",
                rule.name(),
                SCANS.name(),
                SCANS.name(),
                rule.name()
            ),
        });
    }
    if caps(policy, given).collapse_named && t.bind.0 & Bind::MTHP_BIND_COLLAPSE.0 == 0 {
        let what = "cap names collapse, which no rule binds: add collapse to bind".to_owned();
        return Err(mistake(&["cap", "bind"], what));
    }
    Ok(())
}

/// The defaults of the table, with every rule on: for programs that obey no policy, and what the
/// unit tests start from.
///
/// # Errors
/// None: a test reads every default.
pub fn defaults(sizes: &Sizes) -> Result<Tunables, Mistake> {
    let t = tunables(&with_every_rule(), &Values::default(), sizes)?;
    // As on a kernel of this series.
    Ok(Tunables { takes_back: 1, ..t })
}

fn with_every_rule() -> Policy {
    Policy {
        rules: Rule::ALL.into_iter().collect(),
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::orders::X86;

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
                let mut t = defaults(&X86).unwrap();
                option.set(&mut t, value);
                assert_eq!(option.shown(&t), text, "{}", option.name);
            }
        }
    }

    #[test]
    fn the_defaults_are_as_documented() {
        let t = defaults(&X86).unwrap();
        assert_eq!((t.threshold_ns, t.window_ns), (100_000_000, 1_000_000_000));
        assert_eq!((t.min_memory, t.sparse_bytes), (8 << 20, 64 << 20));
        assert_eq!((t.limit_share, t.room_factor), (512, 1024));
        assert_eq!((t.max_hold, t.sample_mask), (64, 15));
        assert_eq!(t.count_nodes, 0);
        assert_eq!((t.count_machine, t.spare_cache, t.some_stall), (1, 1, 0));
        assert_eq!((t.bind, t.bind_khugepaged), (Bind(0), 1));
        assert_eq!(t.cap[1..], [abi::NO_CAP; NR_REASONS - 1]);
        assert_eq!((t.page_shift, t.largest_pages), (12, 512));
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
            ("max-hold", "0"),
            ("max-hold", "1025"),
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
    fn values_must_go_together() {
        let given = |words: &[(&str, &str)]| {
            let mut values = Values::default();
            for (name, text) in words {
                let option = Opt::named(name).unwrap();
                values.add(option, option.parse(text).unwrap());
            }
            tunables(&with_every_rule(), &values, &X86)
        };
        assert!(
            given(&[("threshold", "2s")])
                .unwrap_err()
                .what
                .contains("longer than the window")
        );
        assert!(given(&[("threshold", "1s")]).is_ok());
        assert!(
            given(&[("cap", "collapse=64K")])
                .unwrap_err()
                .what
                .contains("no rule binds")
        );
        let bound = given(&[("cap", "collapse=64K"), ("bind", "collapse")]).unwrap();
        assert_eq!(bound.cap[4], 4);
        for more in ["advised", "collapse", "advised,collapse"] {
            let bound = given(&[("bind", more)]).unwrap();
            assert_eq!(bound.bind_khugepaged, 1, "{more} leaves it bound");
        }
        let nodes = [("count-nodes", "1"), ("count-machine", "0")];
        assert!(given(&nodes[..1]).is_ok() && given(&nodes[1..]).is_ok());
        assert!(given(&nodes).unwrap_err().what.contains("leaves out"));
        let words = [("count-nodes", "true"), ("bind-khugepaged", "false")];
        let t = given(&words).unwrap();
        assert_eq!((t.count_nodes, t.bind_khugepaged), (1, 0));
        let last = given(&[("min-memory", "1M"), ("min-memory", "2M")]).unwrap();
        assert_eq!(last.min_memory, 2 << 20, "the last one counts");
    }

    /// Each option with a rule, given to a policy that lacks it: on the command line, and in
    /// its file.
    #[test]
    fn an_option_without_its_rule_is_refused() {
        let mut refused = 0;
        for option in OPTIONS.iter().filter(|option| !option.rules.is_empty()) {
            let mut values = Values::default();
            values.add(option, option.parse(option.default).unwrap());
            let without = Policy {
                name: "mine".to_owned(),
                rules: Rule::ALL
                    .into_iter()
                    .filter(|rule| !option.rules.contains(rule))
                    .collect(),
                ..Policy::default()
            };
            let in_file = Policy {
                values: values.clone(),
                ..without.clone()
            };
            for result in [
                tunables(&without, &values, &X86),
                tunables(&in_file, &Values::default(), &X86),
            ] {
                let said = result.unwrap_err().what;
                assert!(said.starts_with(option.name), "{said}");
                assert!(said.contains("policy mine"), "{said}");
            }
            assert!(tunables(&with_every_rule(), &values, &X86).is_ok());
            refused += 1;
        }
        assert_eq!(refused, OPTIONS.len() - 1, "bind is everybody's");
    }

    /// `status` has no more of a name than the kernel keeps.
    #[test]
    fn a_name_is_not_cut() {
        let named = |length: usize| {
            let policy = Policy {
                name: "n".repeat(length),
                ..with_every_rule()
            };
            tunables(&policy, &Values::default(), &X86)
        };
        assert_eq!(abi::text(&named(39).unwrap().policy), "n".repeat(39));
        assert!(named(40).unwrap_err().what.contains("40 bytes, of 39"));
    }

    /// Every set of rules is either whole, or refused by name.
    #[test]
    fn small_and_sparse_come_with_the_scan() {
        for bits in 1..1u32 << Rule::ALL.len() {
            // Bit n is rule n, and there is no rule 0.
            let rules = Rules(bits << 1);
            let policy = Policy {
                rules,
                ..Policy::default()
            };
            let mut values = Values::default();
            if rules.has(Rule::Cap) {
                let cap = Opt::named("cap").unwrap();
                values.add(cap, cap.parse("64K").unwrap());
            }
            let unscanned =
                !rules.has(Rule::Pressure) && (rules.has(Rule::Small) || rules.has(Rule::Sparse));
            let result = tunables(&policy, &values, &X86);
            assert_eq!(result.is_err(), unscanned, "{rules:?}");
            if let Err(said) = result {
                assert!(said.what.contains("add pressure to the rules"), "{said:?}");
            }
        }
    }

    #[test]
    fn names_and_fields_are_each_options_own() {
        for (i, option) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..i].iter().all(|o| o.name != option.name));
            // Another value of it changes no other option.
            let mut t = defaults(&X86).unwrap();
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
                .filter(|o| o.shown(&t) != o.shown(&defaults(&X86).unwrap()))
                .map(|o| o.name)
                .collect();
            assert_eq!(changed, [option.name]);
        }
    }
}
