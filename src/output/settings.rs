// SPDX-License-Identifier: GPL-2.0-only
//! The constants of a loaded policy, as `status` shows them.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::abi::Tunables;
use crate::model::options::{BIND, OPTIONS, Opt};
use crate::model::rule::Rules;
use crate::model::sentences::{Sentence, sentence};
use crate::model::value::{self, Unit};

/// Each option with its value, by name and unit.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Settings(Map<String, Value>);

impl From<&Tunables> for Settings {
    fn from(tunables: &Tunables) -> Self {
        Settings(OPTIONS.iter().map(|option| option.json(tunables)).collect())
    }
}

/// An option's value, as it is written.
fn shown(tunables: &Tunables, name: &str) -> String {
    Opt::named(name).map_or_else(String::new, |option| option.shown(tunables))
}

/// Puts values in the place of `{names}`.
fn filled(sentence: &str, tunables: &Tunables) -> String {
    let mut text = String::new();
    for part in sentence.split('{') {
        match part.split_once('}') {
            Some((name, rest)) => {
                text += &shown(tunables, name);
                text += rest;
            }
            None => text += part,
        }
    }
    text
}

/// Options that no sentence says, where they are not as usual.
fn unsaid(tunables: &Tunables) -> Vec<String> {
    let rules = Rules(tunables.rules);
    let sentences: Vec<Sentence> = rules
        .iter()
        .filter_map(|rule| sentence(rule, tunables))
        .collect();
    let unsaid = OPTIONS.iter().filter(|option| {
        let said = sentences.iter().any(|one| one.says(option.name));
        // What is bound besides has its own line.
        !said && !matches!(option.unit, Unit::Set(_)) && option.belongs_to(rules)
    });
    unsaid
        .map(|option| (option, option.shown(tunables)))
        .filter(|(option, shown)| shown != option.default)
        .map(|(option, shown)| format!("{} {shown}", option.name))
        .collect()
}

/// A line for each rule that the policy has, one for other options that are not as usual, and one
/// for what else the rules bind.
///
/// # Errors
/// If it cannot be written.
pub fn text(tunables: &Tunables, out: &mut impl Write) -> io::Result<()> {
    for rule in Rules(tunables.rules).iter() {
        if let Some(sentence) = sentence(rule, tunables) {
            let text = filled(&sentence.text, tunables);
            writeln!(out, "  {:10} {text}", format!("{}:", rule.name()))?;
        }
    }
    let unsaid = unsaid(tunables);
    if !unsaid.is_empty() {
        writeln!(out, "  {:10} {}", "also:", unsaid.join(", "))?;
    }
    let bound: Vec<&str> = value::on(BIND, tunables.bind.0.into())
        .map(|bit| bit.what)
        .collect();
    if bound.is_empty() {
        return Ok(());
    }
    writeln!(out, "  all rules bind {} as well", bound.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::Bind;
    use crate::model::given::Values;
    use crate::model::orders::X86;
    use crate::model::policy::Policy;
    use crate::model::resolve;
    use crate::model::rule::Rule;

    fn tunables() -> Tunables {
        resolve::defaults(&X86).unwrap()
    }

    fn printed(tunables: &Tunables) -> String {
        let mut out = Vec::new();
        text(tunables, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_rule_has_its_line() {
        assert_eq!(
            printed(&tunables()),
            "  pressure:  base pages from 100ms of full stall in 1s, until a window has less\n  \
             small:     base pages on fault and by khugepaged below 8M of anon+shmem\n  \
             sparse:    base pages on fault and by khugepaged for a process that fills less than a quarter \
             of what it grew by, or less than half of all that it spans if that wastes 64M\n  \
             room:      a folio may take 1/1024 of what a limit or the machine has left, \
             once 50% of it is in use; a limit below which all fits is none\n"
        );
    }

    #[test]
    fn what_is_off_or_on_besides_shows() {
        let text = printed(&Tunables {
            min_memory: 0,
            sparse_bytes: 0,
            some_stall: 1,
            cap: [4; 6],
            bind: Bind(3),
            ..tunables()
        });
        for part in [
            "100ms of some stall in 1s, until a window has less\n",
            "small:     off\n",
            "sparse:    off\n",
            "cap:       at most 64K\n",
            "all rules bind MADV_HUGEPAGE memory and MADV_COLLAPSE as well\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// An option that no sentence names shows all the same.
    #[test]
    fn what_is_set_for_measuring_shows() {
        let text = printed(&Tunables {
            count_machine: 0,
            sample_mask: 0,
            ..tunables()
        });
        let line = "\n  also:      sample-every 1, count-machine 0\n";
        assert!(text.contains(line), "{text}");
        assert!(!printed(&tunables()).contains("also:"));
    }

    /// A name in a sentence that the table has not would leave a gap.
    #[test]
    fn sentences_name_options() {
        for rule in Rule::ALL {
            let sentence = sentence(
                rule,
                &Tunables {
                    cap: [4; 6],
                    ..tunables()
                },
            )
            .unwrap();
            for name in sentence.text.split('{').skip(1) {
                let name = name.split('}').next().unwrap();
                assert!(
                    Opt::named(name).is_some_and(|o| o.rules.contains(&rule)),
                    "{name}"
                );
            }
        }
    }

    /// Every option that is not as usual shows: in a sentence, or in the line of the others, and
    /// not in both.
    #[test]
    fn every_value_shows_once() {
        let cap = ["cap", "64K"];
        let shown = |words: &[[&str; 2]]| {
            let mut values = Values::default();
            for [name, text] in words {
                let option = Opt::named(name).unwrap();
                values.add(option, option.parse(text).unwrap());
            }
            let policy = Policy {
                rules: Rule::ALL.into_iter().collect(),
                ..Policy::default()
            };
            let all = printed(&resolve::tunables(&policy, &values, &X86).unwrap());
            let (also, sentences): (Vec<_>, Vec<_>) = all
                .lines()
                .map(str::to_owned)
                .partition(|line| line.starts_with("  also: "));
            (sentences, also)
        };
        let usual = shown(&[cap]);
        for option in OPTIONS {
            let others: &[&str] = match option.unit {
                Unit::Caps => &["4K"],
                Unit::Set(_) => &["advised", "collapse"],
                Unit::Time => &["200ms"],
                Unit::Size => &["0", "1M"],
                Unit::Switch if option.default == "0" => &["1"],
                Unit::Switch => &["0"],
                _ => &["1", "2"],
            };
            for other in others {
                let with = shown(&[cap, [option.name, other]]);
                let said = with.0 != usual.0;
                let listed = with.1.iter().any(|line| line.contains(option.name));
                assert!(said != listed, "{} {other}: {with:?}", option.name);
            }
        }
    }

    #[test]
    fn every_option_is_a_setting() {
        let settings = serde_json::to_value(Settings::from(&tunables())).unwrap();
        assert_eq!(settings.as_object().unwrap().len(), OPTIONS.len());
        // Each unit has its form.
        assert_eq!(settings["threshold_us"], 100_000);
        assert_eq!(settings["min_memory_bytes"], 8 << 20);
        assert_eq!(settings["limit_share_percent"], 50);
        assert_eq!(settings["room_factor"], 1024);
        assert_eq!(settings["sample_every"], 16);
        assert_eq!(settings["bind_khugepaged"], true);
        assert_eq!(settings["cap_bytes"]["fault"], Value::Null);
        assert_eq!(settings["bind"], Value::Array(Vec::new()));
    }
}
