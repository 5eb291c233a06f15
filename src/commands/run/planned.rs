// SPDX-License-Identifier: GPL-2.0-only
//! What `run` is to do, by its arguments and the files that they name.  No cgroup is looked at.

use std::path::PathBuf;

use crate::commands::args::RunArgs;
use crate::commands::lookup::Directory;
use crate::commands::{checked, config, notify};
use crate::errors::{Error, Result};
use crate::kernel::programs::Programs;
use crate::kernel::thp;
use crate::model::abi::{Own, Tunables};
use crate::model::config::Problem;
use crate::model::ending::{Ending, Here};
use crate::model::orders::Sizes;
use crate::model::plan::Plan;
use crate::model::policy::Policy;
use crate::model::rule::SCANS;
use crate::output::log::Source;

/// A configuration that can be used.
pub struct Configured {
    /// Where it is.
    pub file: PathBuf,
    /// What it comes to.
    pub plan: Plan,
    /// What is wrong with parts of it.
    pub problems: Vec<Problem>,
}

impl Configured {
    fn read(file: PathBuf, directory: &Directory, sizes: &Sizes) -> Result<Self> {
        match config::plan(&file, directory, sizes) {
            Ok((plan, problems)) => Ok(Configured {
                file,
                plan,
                problems,
            }),
            Err(problems) => Err(config::unusable(&file, &problems)),
        }
    }
}

/// What is to be attached, and what becomes of it.
pub struct RunPlan {
    /// What this machine has.
    pub sizes: Sizes,
    /// What decides.
    pub programs: Programs,
    /// The configuration, if there is one.
    pub configured: Option<Configured>,
    /// Values of the policy, or of the configuration's root.
    pub tunables: Tunables,
    /// Are there scans?
    pub scans: bool,
    /// All that in words.
    pub what: Source,
    /// What is to become of it in the end.
    pub asked: Ending,
    /// What decides about that besides.
    pub here: Here,
}

impl RunPlan {
    /// By the arguments.
    ///
    /// # Errors
    /// If they, or the files that they name, have a mistake.
    pub fn of(args: &RunArgs) -> Result<Self> {
        let sizes = thp::sizes_of_this_machine();
        let programs = Programs::read(args.object.as_deref())?;
        let read = |file| Configured::read(file, &args.directory, &sizes);
        let configured = args.configuration()?.map(read).transpose()?;
        let asked = match &configured {
            Some(one) => one.plan.ending(args.on_exit),
            None => Ending::chosen(args.on_exit, None),
        };
        let here = Here {
            dry_run: args.dry_run,
            held: notify::manager().map(|()| notify::holds(|name| std::env::var_os(name))),
        };
        let (policy, mut tunables) = match &configured {
            Some(one) => {
                // `run` leaves out what has a mistake, and says so.
                if let (true, Some(first)) = (args.check, one.problems.first()) {
                    return Err(Error::Config {
                        file: one.file.clone(),
                        what: first.to_string(),
                    });
                }
                (Some(one.plan.root.policy.clone()), one.plan.tunables)
            }
            None => args.resolve(&sizes, programs.tunable())?,
        };
        let scans = match configured {
            Some(_) => true,
            None => scans(&programs, policy.as_ref())?,
        };
        let what = Source {
            policy: policy.as_ref().map(|policy| policy.name.clone()),
            file: policy.and_then(|policy| policy.file),
            object: args.object.clone(),
            dry_run: args.dry_run,
        };
        tunables.own = own(&what);
        Ok(RunPlan {
            sizes,
            programs,
            configured,
            tunables,
            scans,
            what,
            asked,
            here,
        })
    }

    /// Prints it, and attaches nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn show(self, json: bool) -> Result<()> {
        checked::main(
            &self.what,
            &self.tunables,
            self.programs.tunable(),
            &self.asked.come_to(self.here),
            json,
        )
    }
}

/// Are there scans?  Those of the policy's rules; of an object that obeys no policy, if it has any.
fn scans(programs: &Programs, policy: Option<&Policy>) -> Result<bool> {
    match policy {
        None => Ok(programs.scans()),
        Some(policy) if policy.rules.has(SCANS) => {
            programs.require_scan(&policy.name)?;
            Ok(true)
        }
        Some(_) => Ok(false),
    }
}

/// What of it is the user's own, as `status` shows it.
fn own(what: &Source) -> Own {
    let bit = |is: bool, bit: Own| if is { bit.0 } else { 0 };
    Own(bit(what.file.is_some(), Own::MTHP_OWN_FILE)
        | bit(what.object.is_some(), Own::MTHP_OWN_OBJECT))
}
