// SPDX-License-Identifier: GPL-2.0-only
//! The constants of a loaded policy, as `status` shows them.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use super::why;
use crate::model::abi::{Bind, Tunables};
use crate::model::options::{OPTIONS, Opt};
use crate::model::rule::{Rule, Rules};

/// Each option with its value, by name and unit.
#[derive(Debug, Serialize)]
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

/// A line for each rule that the policy has, and one for what else they bind.
///
/// # Errors
/// If it cannot be written.
pub fn text(tunables: &Tunables, out: &mut impl Write) -> io::Result<()> {
    for rule in Rules(tunables.rules).iter() {
        if let Some(sentence) = sentence(rule, tunables) {
            let sentence = filled(&sentence, tunables);
            writeln!(out, "  {:10} {sentence}", format!("{}:", rule.name()))?;
        }
    }
    let also = [
        (Bind::MTHP_BIND_ADVISED, "MADV_HUGEPAGE memory"),
        (Bind::MTHP_BIND_COLLAPSE, "MADV_COLLAPSE"),
    ];
    let also: Vec<&str> = also
        .iter()
        .filter_map(|(bit, what)| binds(tunables, *bit).then_some(*what))
        .collect();
    if also.is_empty() {
        return Ok(());
    }
    writeln!(out, "  all rules bind {} as well", also.join(" and "))
}

fn binds(tunables: &Tunables, what: Bind) -> bool {
    tunables.bind.0 & what.0 != 0
}

/// A rule in words; `None` for a cap that there is not.
fn sentence(rule: Rule, t: &Tunables) -> Option<String> {
    let empty = if t.bind_khugepaged != 0 {
        "base pages on fault and by khugepaged"
    } else {
        "base pages on fault"
    };
    Some(match rule {
        Rule::Pressure => format!(
            "base pages from {{threshold}} of {} stall in {{window}}; {}",
            why::stall(t),
            if t.max_hold == 1 {
                "ends after one calm window"
            } else {
                "ends after 1 to {max-hold} calm windows"
            }
        ),
        Rule::Small if t.min_memory == 0 => "off".to_owned(),
        Rule::Small => format!("{empty} below {{min-memory}} of anon+shmem"),
        Rule::Sparse if t.sparse_bytes == 0 => "off".to_owned(),
        Rule::Sparse => format!(
            "{empty} for a process that fills less than half of the memory it spans, \
             if that wastes {{sparse-waste}}"
        ),
        Rule::Room => "a folio may take 1/{room-factor} of what a limit or the machine has left, \
                       once {limit-share}% of it is in use"
            .to_owned(),
        Rule::Cap if shown(t, "cap") == "none" => return None,
        Rule::Cap => "at most {cap}".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options;
    use crate::model::orders::Sizes;

    fn tunables() -> Tunables {
        let x86 = Sizes {
            orders: 0x3fc,
            page_shift: 12,
        };
        options::defaults(&x86).unwrap()
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
            "  pressure:  base pages from 100ms of full stall in 1s; ends after 1 to 64 calm windows\n  \
             small:     base pages on fault and by khugepaged below 8M of anon+shmem\n  \
             sparse:    base pages on fault and by khugepaged for a process that fills less than half \
             of the memory it spans, if that wastes 64M\n  \
             room:      a folio may take 1/1024 of what a limit or the machine has left, \
             once 50% of it is in use\n"
        );
    }

    #[test]
    fn what_is_off_or_on_besides_shows() {
        let text = printed(&Tunables {
            min_memory: 0,
            sparse_bytes: 0,
            max_hold: 1,
            some_stall: 1,
            cap: [4; 6],
            bind: Bind(3),
            ..tunables()
        });
        for part in [
            "100ms of some stall in 1s; ends after one calm window\n",
            "small:     off\n",
            "sparse:    off\n",
            "cap:       at most 64K\n",
            "all rules bind MADV_HUGEPAGE memory and MADV_COLLAPSE as well\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
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
            for name in sentence.split('{').skip(1) {
                let name = name.split('}').next().unwrap();
                assert!(
                    Opt::named(name).is_some_and(|o| o.rules.contains(&rule)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn every_option_is_a_setting() {
        let settings = serde_json::to_value(Settings::from(&tunables())).unwrap();
        assert_eq!(settings.as_object().unwrap().len(), OPTIONS.len());
        assert_eq!(settings["threshold_us"], 100_000);
        assert_eq!(settings["bind_khugepaged"], true);
    }
}
