// SPDX-License-Identifier: GPL-2.0-only
//! What the carrier lacks of the policies in force.  It is said at the start, and again when other
//! policies make it another.

use std::cell::RefCell;

use crate::kernel::abilities::Abilities;
use crate::kernel::carrier::{By, Carrier};
use crate::kernel::clock::now_ms;
use crate::kernel::lacks::{self, Missed};
use crate::model::abi::Tunables;
use crate::output::log::Line;

/// A carrier, and what was said of it last.
pub struct Partial {
    carrier: String,
    by: By,
    abilities: Abilities,
    said: RefCell<Vec<Missed>>,
}

impl Partial {
    /// Of this carrier nothing was said yet.
    pub fn new(carrier: &Carrier) -> Self {
        Partial {
            carrier: carrier.name(),
            by: carrier.by,
            abilities: carrier.abilities,
            said: RefCell::default(),
        }
    }

    /// The line to print, where these policies miss something else than what was said last.
    pub fn changed<'a>(&self, policies: impl Iterator<Item = &'a Tunables>) -> Option<Line> {
        let policies: Vec<&Tunables> = policies.collect();
        let missed = lacks::missed(self.by, &self.abilities, &policies);
        let before = self.said.replace(missed.clone());
        (missed != before).then(|| Line::Partial {
            t_ms: now_ms(),
            carrier: self.carrier.clone(),
            missed,
        })
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

    /// What is said when these policies come into force; `None`: nothing.
    fn said(partial: &Partial, names: &[&str]) -> Option<usize> {
        let cap = Opt::named("cap").unwrap();
        let of = |name: &&str| {
            let policy = Policy::built_in(name).unwrap().unwrap();
            let mut values = Values::default();
            values.add(cap, cap.parse("fault=64K").unwrap());
            resolve::tunables(&policy, &values, &X86).unwrap()
        };
        let policies: Vec<Tunables> = names.iter().map(of).collect();
        match partial.changed(policies.iter()) {
            Some(Line::Partial { missed, .. }) => Some(missed.len()),
            Some(_) => panic!("another line"),
            None => None,
        }
    }

    #[test]
    fn it_is_said_when_it_is_another_and_not_again() {
        let of = |by, abilities| Partial {
            carrier: "one".to_owned(),
            by,
            abilities,
            said: RefCell::default(),
        };
        let module = of(By::Module, lacks::of_the_module());
        for (names, expected) in [
            // A cap of faults is all in force.
            (&["fixed"][..], None),
            (&["fixed", "headroom"], Some(2)),
            (&["headroom"], None),
            (&["headroom", "vm-host"], Some(2)),
            (&["fixed"], Some(0)),
            (&["fixed"], None),
        ] {
            assert_eq!(said(&module, names), expected, "{names:?}");
        }
        let series = of(By::Series, lacks::everything());
        assert_eq!(said(&series, &["vm-host", "headroom"]), None);
    }
}
