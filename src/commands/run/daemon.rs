// SPDX-License-Identifier: GPL-2.0-only
//! Attaches the policy, with all that has to be there before it is in force.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::partial::Partial;
use super::ready::Ready;
use crate::commands::args::RunArgs;
use crate::commands::assign::Assigner;
use crate::commands::exporter::Exporter;
use crate::commands::notify::Manager;
use crate::commands::reload::Requests;
use crate::errors::{Context, Result};
use crate::kernel::assign::Assign;
use crate::kernel::cgroup::{Cgroup, Names};
use crate::kernel::handed::{Left, Named};
use crate::kernel::load::{Assigns, Loaded};
use crate::kernel::process;
use crate::kernel::psi::Trigger;
use crate::kernel::takeover::Stay;
use crate::model::abi::{Load, Tunables};
use crate::model::ending::{Ending, OnExit};
use crate::model::orders::Sizes;
use crate::model::profiles::{self, Profiles};
use crate::output::log::{Line, Source};

/// A policy in force, and what this process has beside it.  What is left of it in the end is dropped
/// in this order; a policy that does not stay is detached before.
pub struct Daemon {
    /// What is in force; a reload changes it.
    pub what: RefCell<Source>,
    /// The configuration, if there is one.
    pub assigner: Option<RefCell<Assigner>>,
    /// Who asks for a new configuration.
    pub requests: Option<Requests>,
    /// The policy.
    pub loaded: Loaded,
    /// Its values, without a configuration.
    pub profiles: Profiles,
    /// Who serves its metrics.
    pub exporter: Exporter,
    /// What wakes the scan; `None`: there is none.
    pub trigger: Option<Trigger>,
    /// What becomes of the policy in the end.
    pub ending: Ending,
    /// What the carrier lacks of it; `None`: the programs obey no policy.
    pub partial: Option<Partial>,
    /// A hand-over was asked for, and there will be none.
    pub unheld: bool,
    /// It goes on with what the process before this one has left.
    pub goes_on: bool,
    /// Who has started this process.
    pub manager: Manager,
    /// Signals, as events.
    pub signals: SignalFd,
    /// Names of cgroups.
    pub names: Rc<Names>,
    /// What it is attached to.
    pub root: Cgroup,
    /// Its name at the start.
    pub title: String,
    /// Values of the policy, or of the configuration's root.
    pub tunables: Tunables,
    /// What this machine has.
    pub sizes: Sizes,
}

impl Daemon {
    /// Attaches what is ready.  `handed`: what the service manager has held for this process.
    ///
    /// # Errors
    /// Whatever is refused; nothing is attached then.
    pub fn attach(ready: Ready, handed: Vec<Named>, args: &RunArgs) -> Result<Self> {
        let Ready {
            planned,
            root,
            names,
            mut assigner,
            ..
        } = ready;
        let tunables = planned.tunables;
        // Blocked before anything is attached: from here on a signal is an event.
        let signals = block_signals()?;
        let manager = Manager::of_this_process(&handed)?;
        let wanted = planned.asked.on_exit == OnExit::HandOver;
        if wanted {
            Manager::required(&planned.asked)?;
        }
        let ending = planned.asked.come_to(planned.here);
        let hand_over = ending.on_exit == OnExit::HandOver;
        let trigger = match planned.scans {
            true => Some(arm(&ready.pressure_file, &tunables, &ready.title)?),
            false => None,
        };
        let exporter = Exporter::listen(&args.metrics);
        let (load, profiles) = values(assigner.as_ref(), &tunables, args.dry_run);
        // The policy is worth more than that it can be asked to reload; SIGHUP does it, too.  Before
        // cgroups are looked at: who writes an override from now on, asks.
        let requests = Requests::listen(&root);
        let left = Left::of(handed, &root, !args.dry_run)?;
        let goes_on = left.is_some();
        let stay = Stay {
            keep: ending.on_exit == OnExit::Keep,
            hand_over,
            left,
        };
        let mut assign = assigner
            .as_mut()
            .map(|assigner| move |to: &Assign| assigner.assign_all(to));
        let assign = assign.as_mut().map(|assign| assign as Assigns<'_>);
        let (programs, carrier) = (planned.programs, ready.carrier);
        let loaded = Loaded::attach(programs, (&load, &profiles), assign, &carrier, &root, stay)?;
        let requests = requests
            .inspect_err(|e| {
                eprintln!("mthp_ext: `mthp_ext reload` will not find this daemon: {e}")
            })
            .ok();
        if let Some(locator) = loaded.locator(&root.mount) {
            names.ask(locator);
        }
        // A dry run has nothing in force.
        let obeys = planned.what.policy.is_some() && !args.dry_run;
        let partial = obeys.then(|| Partial::new(&carrier));
        drop(carrier);
        give_back();
        Ok(Daemon {
            what: RefCell::new(planned.what),
            assigner: assigner.map(RefCell::new),
            requests,
            loaded,
            profiles,
            exporter,
            trigger,
            partial,
            unheld: wanted && !hand_over,
            ending,
            goes_on,
            manager,
            signals,
            names,
            root,
            title: ready.title,
            tunables,
            sizes: planned.sizes,
        })
    }

    /// What the carrier lacks of the policies in force, if it is not what was said last.
    pub fn partial(&self) -> Option<Line> {
        let partial = self.partial.as_ref()?;
        match &self.assigner {
            Some(assigner) => partial.changed(assigner.borrow().policies()),
            None => partial.changed(self.profiles.iter()),
        }
    }

    /// Does the policy stay attached when this process ends?
    pub fn keeps(&self) -> bool {
        self.ending.on_exit == OnExit::Keep
    }

    /// Does the service manager hold the policy for the next process?
    pub fn hands_over(&self) -> bool {
        self.ending.on_exit == OnExit::HandOver
    }
}

/// What is loaded, and the values of policies: those of the configuration, or of the one policy.
fn values(assigner: Option<&Assigner>, tunables: &Tunables, dry_run: bool) -> (Load, Profiles) {
    let (load, profiles) = match assigner {
        Some(assigner) => (assigner.load(), assigner.profiles().clone()),
        None => {
            let profiles = Profiles::new(tunables, process::moment());
            (profiles::load(&profiles, tunables), profiles)
        }
    };
    let load = Load {
        dry_run: dry_run.into(),
        ..load
    };
    (load, profiles)
}

/// What wakes the scan.
fn arm(pressure_file: &Path, tunables: &Tunables, title: &str) -> Result<Trigger> {
    let time = Duration::from_nanos;
    Trigger::arm(
        pressure_file,
        time(tunables.threshold_ns),
        time(tunables.window_ns),
        title,
    )
}

fn block_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block()
        .context(|| "blocking signals".to_owned())?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context(|| "making a signalfd".to_owned())
}

/// Gives back what loading took: the kernel's symbols and types are read then, once.  The
/// daemon stays for months, and runs where memory is short.
fn give_back() {
    // SAFETY: plain C call without arguments that matter; it only frees what is free.
    #[cfg(target_env = "gnu")]
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
