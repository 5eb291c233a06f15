// SPDX-License-Identifier: GPL-2.0-only
//! The configuration: which policy has the root, which cgroups have others.  Made of files; each
//! mistake has its place.

use std::fmt;

use globset::Glob;
use schemars::JsonSchema;
use serde::Serialize;

use super::ending::{ON_EXIT, OnExit};
use super::given::Values;
use super::place::Place;
use super::policy::Policy;

mod read;

pub use read::of_xattr;

/// The policy of cgroups that nothing is narrowed for.
pub const OFF: &str = "off";

/// The extended attribute of a cgroup's directory that is an override of this cgroup.
pub const XATTR: &str = "user.mthp_ext";

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

impl Config {
    /// A policy of its own.
    pub fn own(&self, name: &str) -> Option<&Own> {
        self.policies.iter().find(|own| own.policy.name == name)
    }
}
