// SPDX-License-Identifier: GPL-2.0-only
//! The rules, by the kernel side's own numbers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::abi::RuleNumber;

/// A rule that a policy may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "docs/policies.md describes the rules")]
pub enum Rule {
    Pressure = RuleNumber::MTHP_PRESSURE.0 as isize,
    Small = RuleNumber::MTHP_SMALL.0 as isize,
    Sparse = RuleNumber::MTHP_SPARSE.0 as isize,
    Room = RuleNumber::MTHP_ROOM.0 as isize,
    Cap = RuleNumber::MTHP_CAP.0 as isize,
}

impl Rule {
    /// All, in the order in which they are asked.
    pub const ALL: [Rule; RuleNumber::MTHP_NR_RULES.0 as usize - 1] = [
        Rule::Pressure,
        Rule::Small,
        Rule::Sparse,
        Rule::Room,
        Rule::Cap,
    ];

    /// As policies and output call it.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Pressure => "pressure",
            Rule::Small => "small",
            Rule::Sparse => "sparse",
            Rule::Room => "room",
            Rule::Cap => "cap",
        }
    }

    /// The rule of this name.
    pub fn named(name: &str) -> Option<Self> {
        Rule::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The rule that a record names; `None`: nothing narrows.
    pub fn of(number: RuleNumber) -> Option<Self> {
        Rule::ALL.into_iter().find(|rule| *rule as u32 == number.0)
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl JsonSchema for Rule {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Rule".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Rule::ALL.map(Rule::name) })
    }
}

/// The rule that brings the scan: it is loaded, and PSI needed, for policies that have it.
pub const SCANS: Rule = Rule::Pressure;

/// A set of rules, as the programs know it: bit n is rule n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub u32);

impl Rules {
    /// Is it one of them?
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, rule: Rule) -> Self {
        Rules(self.0 | (1 << rule as u32))
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Rule> {
        Rule::ALL.into_iter().filter(move |rule| self.has(*rule))
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        rules.into_iter().fold(Rules::default(), Rules::with)
    }
}

impl JsonSchema for Rules {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Rules".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <Vec<Rule>>::json_schema(generator)
    }
}

impl Serialize for Rules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_rules_in_order() {
        let rules: Rules = [Rule::Cap, Rule::Small].into_iter().collect();
        assert_eq!(rules.iter().collect::<Vec<_>>(), [Rule::Small, Rule::Cap]);
        assert!(!rules.has(Rule::Room));
        assert_eq!(serde_json::to_string(&rules).unwrap(), r#"["small","cap"]"#);
    }

    #[test]
    fn each_rule_has_a_name_and_a_number() {
        for rule in Rule::ALL {
            assert_eq!(Rule::named(rule.name()), Some(rule));
            assert_eq!(Rule::of(RuleNumber(rule as u32)), Some(rule));
        }
        assert_eq!(Rule::of(RuleNumber::MTHP_NONE), None);
        assert_eq!(Rule::named("none"), None);
    }
}
