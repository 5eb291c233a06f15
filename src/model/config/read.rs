// SPDX-License-Identifier: GPL-2.0-only
//! Reads the files of a configuration, and the override that a cgroup says itself.

use std::path::Path;

use clap::ValueEnum;
use globset::{Glob, GlobBuilder};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, OFF, Of, Override, Own, Problem, Spoils};
use crate::model::ending::{ON_EXIT, OnExit};
use crate::model::given::Values;
use crate::model::place::Place;
use crate::model::policy::{Mistake, Policy, not_toml};
use crate::model::shown::shown;

/// Reads one file.
struct Reader<'a> {
    file: &'a Path,
    /// Where its lines end.
    ends: Vec<usize>,
    config: &'a mut Config,
}

type Value<'a> = Spanned<DeValue<'a>>;

/// Key and value of a table, in the order of the text.
fn in_order<'t, 'd>(table: &'t DeTable<'d>) -> Vec<(&'t str, usize, &'t Value<'d>)> {
    let mut pairs: Vec<_> = table
        .iter()
        .map(|(key, value)| (key.get_ref().as_ref(), key.span().start, value))
        .collect();
    pairs.sort_by_key(|(_, at, _)| *at);
    pairs
}

impl Config {
    /// Adds what a file says: its values come before those of files added earlier.
    pub fn add(&mut self, file: &Path, text: &str) {
        let mut reader = Reader {
            file,
            ends: text.match_indices('\n').map(|(at, _)| at).collect(),
            config: self,
        };
        match DeTable::parse(text) {
            Ok(table) => reader.top(table.get_ref()),
            Err(e) => {
                let (at, what) = not_toml(&e);
                reader.wrong(at, what, Spoils::All);
            }
        }
    }
}

impl Reader<'_> {
    fn line(&self, at: usize) -> Option<usize> {
        Some(self.ends.partition_point(|end| *end < at) + 1)
    }

    fn place(&self, at: usize) -> Place {
        Place {
            file: self.file.to_owned(),
            line: self.line(at),
        }
    }

    fn wrong(&mut self, at: usize, what: String, spoils: Spoils) {
        let place = self.place(at);
        self.config.problems.push(Problem {
            place,
            what,
            spoils,
        });
    }

    fn mistaken(&mut self, mistake: Mistake, spoils: Spoils) {
        let place = Place {
            file: self.file.to_owned(),
            line: mistake.line,
        };
        self.config.problems.push(Problem {
            place,
            what: mistake.what,
            spoils,
        });
    }

    fn top(&mut self, table: &DeTable<'_>) {
        for (key, at, value) in in_order(table) {
            match (Of::Top.named(key), value.get_ref()) {
                (Some("policy"), DeValue::String(name)) => {
                    self.config.policy = Some((name.to_string(), self.place(at)));
                }
                (Some("policy"), _) => self.wrong(
                    at,
                    "policy must be a text: the name of a policy, its file, or \"off\"".to_owned(),
                    Spoils::All,
                ),
                (Some(ON_EXIT), value) => match value.as_str().and_then(OnExit::named) {
                    Some(on_exit) => self.config.on_exit = Some((on_exit, self.place(at))),
                    None => {
                        let all = OnExit::value_variants().iter().map(|one| one.name());
                        let all: Vec<String> = all.map(|name| format!("\"{name}\"")).collect();
                        let what = format!("{ON_EXIT} must be one of {}", all.join(", "));
                        self.wrong(at, what, Spoils::All);
                    }
                },
                (Some("policies"), DeValue::Table(policies)) => {
                    for (name, at, value) in in_order(policies) {
                        self.own(name, at, value);
                    }
                }
                (Some("policies"), _) => self.wrong(
                    at,
                    "policies must be tables: write [policies.NAME]".to_owned(),
                    Spoils::All,
                ),
                (Some("override"), DeValue::Array(overrides)) => {
                    for one in overrides.iter() {
                        self.one_override(one);
                    }
                }
                (Some("override"), _) => self.wrong(
                    at,
                    "override must be a list of tables: write [[override]]".to_owned(),
                    Spoils::All,
                ),
                _ => self.wrong(
                    at,
                    format!(
                        "'{key}' is no key of a configuration: there are {}",
                        Of::Top
                            .keys()
                            .map(|key| key.name)
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                    Spoils::All,
                ),
            }
        }
    }

    fn own(&mut self, name: &str, at: usize, value: &Value<'_>) {
        let before = self.config.problems.len();
        let mut own = Own {
            policy: Policy {
                name: name.to_owned(),
                file: Some(self.file.to_owned()),
                ..Policy::default()
            },
            base: None,
            place: self.place(at),
            broken: false,
        };
        if name == OFF {
            let what = format!("'{OFF}' is what narrows nothing: give the policy another name");
            self.wrong(at, what, Spoils::Policy);
        }
        match value.get_ref() {
            DeValue::Table(table) => {
                for (key, at, value) in in_order(table) {
                    match (Of::Policy.named(key), value.get_ref()) {
                        (Some("base"), DeValue::String(base)) => own.base = Some(base.to_string()),
                        (Some("base"), _) => {
                            let what = "base must be a text: the name of a policy, or its file";
                            self.wrong(at, what.to_owned(), Spoils::Policy);
                        }
                        _ => self.key(&mut own.policy, key, at, value, Spoils::Policy),
                    }
                }
            }
            _ => self.wrong(
                at,
                format!("write [policies.{name}], and below it its keys"),
                Spoils::Policy,
            ),
        }
        if own.base.is_none() && own.policy.rules_line.is_none() {
            let what = format!("policy {name} has no rules: give rules, or a base that has them");
            self.wrong(at, what, Spoils::Policy);
        }
        own.broken = self.config.problems.len() > before;
        // That of a later file is in the place of the earlier one.
        self.config.policies.retain(|own| own.policy.name != name);
        self.config.policies.push(own);
    }

    fn key(
        &mut self,
        policy: &mut Policy,
        key: &str,
        at: usize,
        value: &Value<'_>,
        spoils: Spoils,
    ) {
        let read = policy.read_key(key, at, value, &|at| self.line(at));
        if let Err(mistake) = read {
            self.mistaken(mistake, spoils);
        }
    }

    fn one_override(&mut self, value: &Value<'_>) {
        let (at, spoils) = (value.span().start, Spoils::Override);
        let before = self.config.problems.len();
        let mut one = Override::at(self.place(at));
        let DeValue::Table(table) = value.get_ref() else {
            let what = "override must be a table: write [[override]]".to_owned();
            return self.wrong(at, what, spoils);
        };
        let mut values = Policy::default();
        for (key, at, value) in in_order(table) {
            match (Of::Override.named(key), value.get_ref()) {
                (Some("cgroups"), DeValue::String(pattern)) => {
                    self.pattern(&mut one, at, pattern);
                }
                (Some("cgroups"), DeValue::Array(patterns)) => {
                    for item in patterns.iter() {
                        let at = item.span().start;
                        match item.get_ref() {
                            DeValue::String(pattern) => self.pattern(&mut one, at, pattern),
                            _ => self.wrong(at, PATTERNS.to_owned(), spoils),
                        }
                    }
                }
                (Some("cgroups"), _) => self.wrong(at, PATTERNS.to_owned(), spoils),
                _ => self.override_key((&mut one, &mut values), key, at, value),
            }
        }
        one.values = values.values;
        let intact = self.config.problems.len() == before;
        if intact && one.patterns.is_empty() {
            let what = "an override needs cgroups: give a list of path patterns";
            self.wrong(at, what.to_owned(), spoils);
        }
        if intact && one.is_empty() {
            self.wrong(at, EMPTY.to_owned(), spoils);
        }
        one.broken = self.config.problems.len() > before;
        self.config.overrides.push(one);
    }

    /// A key that every override may have, whoever says it.
    fn override_key(
        &mut self,
        (one, values): (&mut Override, &mut Policy),
        key: &str,
        at: usize,
        value: &Value<'_>,
    ) {
        let spoils = Spoils::Override;
        match (Of::Override.named(key), value.get_ref()) {
            (Some("policy"), DeValue::String(name)) => one.policy = Some(name.to_string()),
            (Some("policy"), _) => {
                let what = "policy must be a text: a name, a file, or \"off\"";
                self.wrong(at, what.to_owned(), spoils);
            }
            _ if Of::Policy.named(key).is_some() => {
                let what = format!(
                    "an override has no {key}: make a policy of it, [policies.NAME], and \
                     name that here"
                );
                self.wrong(at, what, spoils);
            }
            _ => self.key(values, key, at, value, spoils),
        }
    }

    fn pattern(&mut self, one: &mut Override, at: usize, pattern: &str) {
        match glob(pattern) {
            Ok(glob) => one.patterns.push(glob),
            Err(what) => self.wrong(at, what, Spoils::Override),
        }
    }
}

const PATTERNS: &str = "cgroups must be a path pattern, or a list of them";
const EMPTY: &str = "an override needs a policy, or values of options: it changes nothing";

/// The override that the value of [`XATTR`] is: `off`, or words like `policy=database cap=64K`,
/// with the keys of an override in a file.
///
/// # Errors
/// What is wrong with it, as it is shown.
pub fn of_xattr(value: &[u8]) -> Result<Override, String> {
    let text = std::str::from_utf8(value).map_err(|_| "it is no text (UTF-8)".to_owned())?;
    let mut config = Config::default();
    let mut reader = Reader {
        file: Path::new(""),
        ends: Vec::new(),
        config: &mut config,
    };
    let (mut one, mut values) = (Override::at(Place::default()), Policy::default());
    let mut keys = Vec::new();
    for word in text.split_ascii_whitespace() {
        let pair = match word {
            OFF => Some(("policy", OFF)),
            _ => word.split_once('='),
        };
        let wrong = |what: &str| Err(shown(what.as_bytes()));
        let Some((key, value)) = pair else {
            return wrong(&format!("'{word}' is neither KEY=VALUE nor {OFF}"));
        };
        if keys.contains(&key) {
            return wrong(&format!("{key} is there twice"));
        }
        if key == "cgroups" {
            return wrong("cgroups is for the configuration: this is for one cgroup");
        }
        keys.push(key);
        let value = Spanned::new(0..0, DeValue::String(value.into()));
        reader.override_key((&mut one, &mut values), key, 0, &value);
    }
    // They are of no line.
    one.values = Values::default().over(&values.values);
    match config.problems.first() {
        Some(problem) => Err(shown(problem.what.as_bytes())),
        None if one.is_empty() => Err(EMPTY.to_owned()),
        None => Ok(one),
    }
}

/// A pattern of paths below the mount: `*` and `?` match no slash, `**` does.
fn glob(pattern: &str) -> Result<Glob, String> {
    let relative = pattern.trim_matches('/');
    if relative.is_empty() {
        return Err(format!(
            "the pattern '{pattern}' is the root's: its policy is the key policy, at the top"
        ));
    }
    let built = GlobBuilder::new(relative)
        .literal_separator(true)
        .backslash_escape(true)
        .build();
    built.map_err(|e| {
        format!(
            "the pattern '{pattern}' cannot be read: {}. `*` and `?` match within a name, `**` \
             any number of names, [a-z] one of these; a backslash takes their meaning away",
            e.kind()
        )
    })
}
