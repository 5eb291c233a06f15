// SPDX-License-Identifier: GPL-2.0-only
//! Values that were given, by a policy or by the user, each with its line.

use super::options::{OPTIONS, Opt};
use super::value::Value;

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
