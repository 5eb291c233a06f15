// SPDX-License-Identifier: GPL-2.0-only
//! What an attachment needs, looked for before anything is done: cgroup, kernel, PSI, the right.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::planned::{Configured, RunPlan};
use crate::commands::args::RunArgs;
use crate::commands::assign::{Assigner, Start};
use crate::errors::{Error, Result};
use crate::kernel::carrier::{By, Carrier};
use crate::kernel::cgroup::{Cgroup, Names};
use crate::kernel::named;
use crate::kernel::process;
use crate::kernel::psi;
use crate::model::config::{Problem, Spoils};
use crate::model::place::Place;

/// All of it is there.
pub struct Ready {
    /// What is to be attached; its configuration is the assigner's now.
    pub planned: RunPlan,
    /// Its name.
    pub title: String,
    /// Where to.
    pub root: Cgroup,
    /// Cgroups below the same mount.
    pub names: Rc<Names>,
    /// What the kernel has.
    pub carrier: Carrier,
    /// Where the pressure of the root is.
    pub pressure_file: PathBuf,
    /// The configuration, if there is one.
    pub assigner: Option<Assigner>,
}

impl Ready {
    /// Looks for it.
    ///
    /// # Errors
    /// The first that is missing.
    pub fn find(mut planned: RunPlan, args: &RunArgs) -> Result<Self> {
        let title = planned
            .what
            .policy
            .clone()
            .unwrap_or_else(|| planned.what.to_string());
        let root = named::root(&args.root)?;
        let names = Rc::new(Names::new(&root.mount));
        let carrier = Carrier::probe()?;
        carrier.require_hook()?;
        planned.tunables.takes_back = carrier.takes_back().into();
        let pressure_file = psi::file_of(&root.path, &root.mount);
        let psi = psi::available(&pressure_file);
        let mut assigner = None;
        if let Some(configured) = planned.configured.take() {
            let start = Start {
                takes_back: carrier.takes_back(),
                without_psi: without_psi(&psi),
                unread_psi: psi.as_ref().err().map(|e| unread_psi(&pressure_file, e)),
                on_exit: args.on_exit,
                here: planned.here,
            };
            let has_psi = start.without_psi.is_none();
            let Configured {
                file,
                plan,
                problems,
            } = configured;
            let found = (&args.directory, &planned.sizes, &names);
            let made = Assigner::new(file, found, &root, (plan, problems), start)?;
            planned.scans = has_psi || made.needs_scan().is_some();
            assigner = Some(made);
        }
        if planned.scans && !psi.map_err(|e| Error::reading(&pressure_file, e))? {
            return Err(Error::NoPsi {
                policy: title,
                why: psi::why_not(&pressure_file),
            });
        }
        root.require_memory()?;
        let of_a_module = carrier.by == By::Module;
        if !process::privileged(of_a_module)? {
            let what = match of_a_module {
                true => {
                    "load and attach a policy with the module, for which it takes CAP_SYS_ADMIN"
                }
                false => "load and attach a policy",
            };
            return Err(Error::NoPrivilege {
                what: what.to_owned(),
            });
        }
        Ok(Ready {
            planned,
            title,
            root,
            names,
            carrier,
            pressure_file,
            assigner,
        })
    }
}

/// Why a configuration has to do without; `None`: it has not.
fn without_psi(psi: &io::Result<bool>) -> Option<String> {
    match psi {
        Ok(true) => None,
        Ok(false) => Some("was off at the start".to_owned()),
        Err(e) => Some(format!("could not be read at the start ({e})")),
    }
}

/// A configuration may do without.
fn unread_psi(file: &Path, error: &io::Error) -> Problem {
    Problem {
        place: Place {
            file: file.to_owned(),
            line: None,
        },
        what: format!("{error}: policies that need PSI are refused until the next start"),
        spoils: Spoils::Policy,
    }
}
