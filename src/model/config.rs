// SPDX-License-Identifier: GPL-2.0-only
//! The configuration: which policy has the root, which cgroups have others.  Made of files; each
//! mistake has its place.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use globset::{Glob, GlobBuilder};
use schemars::JsonSchema;
use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::options::Values;
use super::policy::{Mistake, Policy, not_toml};
use super::shown::shown;

/// The policy of cgroups that nothing is narrowed for.
pub const OFF: &str = "off";

/// The key, and how the option is called.
pub const ON_EXIT: &str = "on-exit";

/// The extended attribute of a cgroup's directory that is an override of this cgroup.
pub const XATTR: &str = "user.mthp_ext";

/// What becomes of a policy when its daemon ends, by a signal or unforeseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// It ends, too: the next page fault follows the system's setting
    #[default]
    Detach,
    /// It stays, pinned in /sys/fs/bpf/mthp_ext, until the next `run` or `detach`
    Keep,
    /// The service manager holds it: a restart of the service takes it over without a gap, a stop ends it
    HandOver,
}

impl OnExit {
    /// As it is written, on the command line too.
    pub fn name(self) -> &'static str {
        match self {
            OnExit::Detach => "detach",
            OnExit::Keep => "keep",
            OnExit::HandOver => "hand-over",
        }
    }

    /// The one of this name.
    fn named(name: &str) -> Option<Self> {
        <Self as ValueEnum>::from_str(name, false).ok()
    }
}

/// What becomes of the policy in the end, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Ending {
    /// What.
    pub on_exit: OnExit,
    /// `--on-exit`, the place in a configuration, or `default`; in words where it cannot be so.
    #[serde(rename = "on_exit_from")]
    pub from: String,
    /// Somebody does.
    #[serde(skip)]
    pub said: bool,
}

impl Ending {
    /// What holds of what the command line says and a configuration.  Units give `hand-over` on
    /// behalf of every configuration, so one that says something else comes first.
    pub fn chosen(given: Option<OnExit>, configured: Option<&(OnExit, Place)>) -> Self {
        let option = |on_exit| Ending {
            on_exit,
            from: "--on-exit".to_owned(),
            said: true,
        };
        let first = given.filter(|given| *given != OnExit::HandOver);
        let configured = configured.map(|(on_exit, place)| Ending {
            on_exit: *on_exit,
            from: place.to_string(),
            said: true,
        });
        let said = first.map(option).or(configured).or(given.map(option));
        said.unwrap_or_else(|| Ending {
            on_exit: OnExit::default(),
            from: "default".to_owned(),
            said: false,
        })
    }
}

/// What else decides about the end.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// The policy narrows nothing: the next start would refuse to end what that has left.
    pub dry_run: bool,
    /// A service manager would hold it; `None` without one, which `hand-over` needs.
    pub held: Option<bool>,
}

impl Ending {
    /// What becomes of it in fact.
    pub fn come_to(self, here: Here) -> Self {
        let why = match self.on_exit {
            OnExit::Keep if here.dry_run => "a dry run is not kept",
            OnExit::HandOver if here.held == Some(false) => "the service manager holds nothing",
            _ => return self,
        };
        Ending {
            on_exit: OnExit::Detach,
            from: format!("{why}, whatever {} says", self.from),
            said: self.said,
        }
    }
}

impl fmt::Display for Ending {
    /// "keep (/etc/mthp_ext/config.toml:3)"
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.on_exit.name(), self.from)
    }
}

/// The tables of a configuration that have keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The file itself.
    Top,
    /// `[policies.NAME]`
    Policy,
    /// `[[override]]`
    Override,
}

/// A row of the table of keys, of which the reader and docs/configuration.md are made.
pub struct Key {
    /// Where it is.
    pub of: Of,
    /// As it is written.
    pub name: &'static str,
    /// What stands for the value.
    pub value: &'static str,
    /// What it is.
    pub help: &'static str,
}

const fn key(of: Of, name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key {
        of,
        name,
        value,
        help,
    }
}

/// The table.  Options, which have [one of their own](super::options::OPTIONS), are keys, too.
pub static KEYS: [Key; 9] = [
    key(
        Of::Top,
        "policy",
        "NAME, FILE or `\"off\"`",
        "the policy of the root. Without it `default`",
    ),
    key(
        Of::Top,
        ON_EXIT,
        "`\"detach\"`, `\"keep\"` or `\"hand-over\"`",
        "what becomes of the policy [when the daemon ends](operations.md#keep-the-policy). \
         `--on-exit` comes first, but for the unit's `hand-over`",
    ),
    key(
        Of::Top,
        "policies",
        "tables: `[policies.NAME]`",
        "policies of one's own",
    ),
    key(
        Of::Top,
        "override",
        "tables: `[[override]]`",
        "some cgroups' policy",
    ),
    key(Of::Policy, "about", "TEXT", "for whom it is"),
    key(
        Of::Policy,
        "rules",
        "list of names",
        "what narrows. Without it those of `base`",
    ),
    key(
        Of::Policy,
        "base",
        "NAME or FILE",
        "the policy that has the rest",
    ),
    key(
        Of::Override,
        "cgroups",
        "PATTERN, or a list of them",
        "paths below the mount of the hierarchy: `system.slice/redis*.service`, `kubepods.slice/**`",
    ),
    key(
        Of::Override,
        "policy",
        "NAME, FILE or `\"off\"`",
        "`\"off\"`: nothing is narrowed. Without it that of the root",
    ),
];

impl Of {
    /// Its rows.
    pub fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.of == self)
    }

    /// The key of this name, if it has one.
    fn named(self, name: &str) -> Option<&'static str> {
        let mut names = self.keys().map(|key| key.name);
        names.find(|one| *one == name)
    }
}

/// A line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// From 1; `None`: no line of it is to blame.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::shown::path(&self.file))?;
        match self.line {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// What a mistake spoils.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spoils {
    /// The whole configuration.
    All,
    /// A policy of its own, and who uses it.
    Policy,
    /// One override.
    Override,
}

/// A mistake of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// In words, with the remedy.
    pub what: String,
    /// What it spoils.
    pub spoils: Spoils,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// A policy of the configuration's own.
#[derive(Clone, Debug)]
pub struct Own {
    /// Rules and values that it gives itself.
    pub policy: Policy,
    /// The policy that has the others.
    pub base: Option<String>,
    /// Where it begins.
    pub place: Place,
    /// It has mistakes, and may not be used.
    pub broken: bool,
}

/// Some cgroups, and the policy that they have.
#[derive(Clone, Debug)]
pub struct Override {
    /// Of the cgroups' paths below the mount.
    pub patterns: Vec<Glob>,
    /// Its policy; `None`: that of the root, with other values.
    pub policy: Option<String>,
    /// Values that come before the policy's.
    pub values: Values,
    /// Where it begins.
    pub place: Place,
    /// It has mistakes, and is left out.
    pub broken: bool,
}

impl Override {
    /// One that nothing is known of yet.
    fn at(place: Place) -> Self {
        Override {
            patterns: Vec::new(),
            policy: None,
            values: Values::default(),
            place,
            broken: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.policy.is_none() && self.values.iter().next().is_none()
    }
}

/// What the files say together.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The policy of the root, and where that is said.
    pub policy: Option<(String, Place)>,
    /// What becomes of it in the end, and where that is said.
    pub on_exit: Option<(OnExit, Place)>,
    /// Policies of its own.
    pub policies: Vec<Own>,
    /// In the order of the files: the last one that matches wins.
    pub overrides: Vec<Override>,
    /// All that is wrong with them.
    pub problems: Vec<Problem>,
}

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

    /// A policy of its own.
    pub fn own(&self, name: &str) -> Option<&Own> {
        self.policies.iter().find(|own| own.policy.name == name)
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
///
/// # Errors
/// What is wrong with it.
pub fn glob(pattern: &str) -> Result<Glob, String> {
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
