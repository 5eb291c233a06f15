// SPDX-License-Identifier: GPL-2.0-only
//! What becomes of a policy when its daemon ends, and who says so.

use std::fmt;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::place::Place;

/// The key, and how the option is called.
pub const ON_EXIT: &str = "on-exit";

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
    pub fn named(name: &str) -> Option<Self> {
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
