// SPDX-License-Identifier: GPL-2.0-only
//! The policy at work: what a turn of the loop does.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::Instant;

use nix::sys::signal::Signal;

use super::daemon::Daemon;
use super::lines::{self, Lines};
use crate::commands::assign::{Assigner, Looked};
use crate::commands::exporter::Counters;
use crate::commands::reload::Verdict;
use crate::errors::{Error, Result};
use crate::kernel::clock::now_ms;
use crate::kernel::thp::{self, Change, Thp, Watched};
use crate::model::abi;
use crate::model::orders::Sizes;
use crate::model::reason::Reason;
use crate::output::log::Line;
use crate::output::openmetrics::InForce;
use crate::output::why::Level;

/// Why the loop ended without an error.
pub enum Ended {
    /// This one.
    By(Signal),
    /// Its cgroup is gone.
    RootRemoved,
}

/// The policy at work, and what it takes to report it.
pub struct Service<'a> {
    /// What is in force.
    pub daemon: &'a Daemon,
    /// Where it is reported.
    lines: &'a Lines,
    /// What is counted, for metrics.
    pub counters: &'a Counters,
    /// Cgroups that the programs met, until they were looked at.
    met: RefCell<Vec<u64>>,
    /// What the host allows.
    settings: RefCell<Watched>,
    /// The sizes that it lets somebody have.
    sizes: Cell<Sizes>,
    /// Where it is attached, in words.
    attachment: String,
}

impl<'a> Service<'a> {
    /// Of a daemon whose policy is in force; nobody has reported it yet.
    pub(super) fn new(
        daemon: &'a Daemon,
        lines: &'a Lines,
        settings: Watched,
        counters: &'a Counters,
        attachment: String,
    ) -> Self {
        Service {
            daemon,
            lines,
            counters,
            met: RefCell::default(),
            settings: RefCell::new(settings),
            sizes: Cell::new(daemon.sizes),
            attachment,
        }
    }

    /// Scans, and counts it.
    pub(super) fn scan(&self) -> Result<()> {
        let begun = Instant::now();
        self.daemon.loaded.scan()?;
        self.counters.scan(begun.elapsed());
        Ok(())
    }

    /// The administrator's settings bind; what was changed is said.
    pub(super) fn look_at_settings(&self) -> Result<()> {
        self.sizes.set(thp::sizes_as_of_now(&self.sizes.get()));
        let changes = self.settings.borrow_mut().changes();
        if changes.is_empty() {
            return Ok(());
        }
        let off = Thp::of_this_machine().off;
        for Change { file, from, to } in changes {
            self.lines.print(&Line::Setting {
                t_ms: now_ms(),
                file,
                from,
                to,
                off,
            })?;
        }
        self.daemon.manager.changed(&self.status());
        Ok(())
    }

    /// Prints a decision that the kernel reported.
    pub(super) fn report(&self, bytes: &[u8]) -> Result<()> {
        if let Ok(id) = <[u8; 8]>::try_from(bytes) {
            self.met.borrow_mut().push(u64::from_ne_bytes(id));
        }
        let Some(event) = abi::from_bytes::<abi::Event>(bytes) else {
            return Ok(());
        };
        self.counters.decision(event.suppressed);
        let sizes = self.sizes.get();
        // 1 GiB was switched off: that is no decision, and the settings say so.
        let is = |reason: Reason| event.now.decided[reason as usize].orders;
        if !Reason::ALL
            .iter()
            .any(|reason| sizes.differ(event.from[*reason as usize], is(*reason)))
        {
            return Ok(());
        }
        let values = match &self.daemon.assigner {
            Some(assigner) => *assigner.borrow().profiles().of(event.now.profile),
            None => *self.daemon.profiles.of(event.now.profile),
        };
        let name = self.daemon.names.of_id(event.cgroup_id);
        let level = Level::of(&event.now, &self.daemon.names);
        self.lines
            .print(&Line::decision(&event, name, level, &values, &sizes))
    }

    /// Those that were met may have an override.
    pub(super) fn look_at_met(&self) -> Result<()> {
        let met = self.met.take();
        match &self.daemon.assigner {
            Some(assigner) if !met.is_empty() => {
                assigner
                    .borrow_mut()
                    .met(&self.daemon.loaded.assign, &met)?;
                self.report_overrides(assigner)
            }
            _ => Ok(()),
        }
    }

    /// Any cgroup may have another one of its own.
    pub(super) fn look_at_all(&self) -> Result<()> {
        match &self.daemon.assigner {
            Some(assigner) => {
                assigner
                    .borrow_mut()
                    .assign_all(&self.daemon.loaded.assign)?;
                self.report_overrides(assigner)?;
                // The last cgroup with a policy of its own may have gone, which is no change of any.
                self.report_partial()
            }
            None => Ok(()),
        }
    }

    fn report_overrides(&self, assigner: &RefCell<Assigner>) -> Result<()> {
        let changes = assigner.borrow_mut().take_changes();
        if changes.is_empty() {
            return Ok(());
        }
        for change in changes {
            self.lines.print(&lines::overridden(change))?;
        }
        self.report_partial()
    }

    /// Other policies may have come into force.
    fn report_partial(&self) -> Result<()> {
        match self.daemon.partial() {
            Some(line) => self.lines.print(&line),
            None => Ok(()),
        }
    }

    /// A cgroup has another override of its own.
    pub(super) fn look_at(&self, cgroup: &Path) -> Result<Verdict> {
        let verdict = |in_force: bool, text: String, code: u8| Verdict {
            in_force,
            text,
            code,
        };
        let (root, usage) = (
            self.daemon.names.of_path(&self.daemon.root.path),
            Error::Usage(String::new()),
        );
        let Some(assigner) = &self.daemon.assigner else {
            let text = format!(
                "the daemon of {root} has no configuration, which overrides need: start it with \
                 one, which may be empty (run --config)"
            );
            return Ok(verdict(false, text, usage.code()));
        };
        let asked = assigner
            .borrow_mut()
            .asked(&self.daemon.loaded.assign, cgroup)?;
        self.report_overrides(assigner)?;
        Ok(match asked {
            Some(Looked { text, code }) => verdict(code == 0, text, code),
            None => verdict(false, format!("it is not below {root}"), 0),
        })
    }

    /// Notes what is in force now, for metrics, service manager and the last line; `read`: it is
    /// what was read last.
    pub(super) fn put_into_force(&self, read: bool) {
        let mut what = self.daemon.what.borrow_mut();
        let mut in_force = InForce {
            policy: self.daemon.title.clone(),
            dry_run: what.dry_run,
            config_refused: !read,
            config_left_out: 0,
        };
        if let Some(assigner) = &self.daemon.assigner {
            let assigner = assigner.borrow();
            let policy = assigner.policy();
            what.policy = Some(policy.name.clone());
            what.file.clone_from(&policy.file);
            in_force.policy.clone_from(&policy.name);
            in_force.config_left_out = assigner.problems.len();
        }
        self.counters.put_into_force(in_force);
    }

    /// What the service manager shows.
    pub(super) fn status(&self) -> String {
        let refused = match self.counters.in_force().config_refused {
            true => "; the configuration that was read last is refused, see the log",
            false => "",
        };
        let off = match Thp::of_this_machine().off {
            true => "; no size is on, so there is nothing to narrow",
            false => "",
        };
        format!(
            "{} {}{refused}{off}",
            self.daemon.what.borrow(),
            self.attachment
        )
    }

    /// Takes a new configuration over; one that cannot be used leaves the former one in force.
    pub(super) fn reload(&self) -> Result<Verdict> {
        let refused = |text: String, code: u8| Verdict {
            in_force: false,
            text,
            code,
        };
        let verdict = match &self.daemon.assigner {
            Some(assigner) => match assigner.borrow_mut().reload(&self.daemon.loaded.assign) {
                Ok(text) => Verdict {
                    in_force: true,
                    text,
                    code: 0,
                },
                Err(e) => refused(
                    format!("the new configuration is not in force, the former one stays: {e}"),
                    e.code(),
                ),
            },
            None => refused(
                "no configuration was read at the start: restart to use one".to_owned(),
                Error::Usage(String::new()).code(),
            ),
        };
        self.put_into_force(verdict.in_force);
        self.daemon.manager.changed(&self.status());
        self.lines
            .print(&lines::configured(verdict.in_force, verdict.text.clone()))?;
        if let Some(assigner) = &self.daemon.assigner {
            self.report_overrides(assigner)?;
        }
        self.report_partial()?;
        Ok(verdict)
    }

    /// The link hangs up when its cgroup is removed, after the files of that are gone, and when
    /// somebody who has a descriptor of it detaches it.
    pub(super) fn link_gone(&self) -> Result<Ended> {
        if !self.daemon.root.is_there() {
            return Ok(Ended::RootRemoved);
        }
        Err(Error::Detached {
            path: self.daemon.root.path.clone(),
        })
    }

    /// The trigger fails when its file goes away: with the root, or because somebody switched
    /// PSI off there (cgroup.pressure).  The files go before the link is detached, so the link
    /// may not know yet.  `None`: nothing in force needs it.
    pub(super) fn trigger_failed(&self) -> Result<Option<Ended>> {
        if !self.daemon.root.is_there() {
            return Ok(Some(Ended::RootRemoved));
        }
        let needs = |policy| Error::NoPsi {
            policy,
            why: String::new(),
        };
        let Some(assigner) = &self.daemon.assigner else {
            return Err(needs(self.counters.in_force().policy));
        };
        if let Some(policy) = assigner.borrow().needs_scan() {
            return Err(needs(policy));
        }
        assigner.borrow_mut().without_psi();
        self.lines.print(&Line::Setting {
            t_ms: now_ms(),
            file: self
                .daemon
                .root
                .path
                .join("cgroup.pressure")
                .display()
                .to_string(),
            from: "1".to_owned(),
            to: "0".to_owned(),
            off: false,
        })?;
        Ok(None)
    }
}
