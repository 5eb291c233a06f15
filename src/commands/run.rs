// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext run`: attach, then one loop over everything that can happen.

mod daemon;
mod event_loop;
mod lines;
mod pace;
mod partial;
mod planned;
mod ready;
mod service;
mod values;

use std::path::Path;
use std::sync::Arc;

use self::daemon::Daemon;
use self::lines::Lines;
use self::planned::RunPlan;
use self::ready::Ready;
use self::service::{Ended, Service};
use super::args::RunArgs;
use super::exporter::{self, Counters};
use super::notify;
use crate::errors::{Error, Result};
use crate::kernel::clock::now_ms;
use crate::kernel::thp::{self, Thp, Watched};
use crate::output::log::{End, Line};

/// The command.
///
/// # Errors
/// Each with its own exit code; nothing is attached after any of them.
pub fn main(args: &RunArgs) -> Result<()> {
    // Before anything is opened, which could be mistaken for it.
    let handed = notify::handed()?;
    let planned = RunPlan::of(args)?;
    if args.check {
        return planned.show(args.json);
    }
    let ready = Ready::find(planned, args)?;
    let mut daemon = Daemon::attach(ready, handed, args)?;
    let at = daemon.names.of_path(&daemon.root.path);
    // Not before: of two daemons that want this cgroup only one comes here.
    let lines = Lines::open(&at, &daemon.root, args.json);
    // Whatever fails from here on, the policy is detached below.
    let ended = serve(&mut daemon, &lines, &at);
    end(daemon, &lines, at, ended)
}

/// Reports what is in force, and serves until something ends it.
fn serve(daemon: &mut Daemon, lines: &Lines, at: &str) -> Result<Ended> {
    let link_id = daemon.loaded.link_id()?;
    let holds = match daemon.hands_over() {
        true => daemon.loaded.hand_over()?,
        false => Vec::new(),
    };
    daemon.manager.hold(&holds, daemon.goes_on)?;
    // Before it is said what they are: then no change is missed.
    let settings = Watched::new(Path::new(thp::THP_SYSFS));
    report_start(daemon, lines, at, link_id)?;
    let counters = serve_metrics(daemon)?;
    report_configuration(daemon, lines)?;
    let attachment = format!(
        "attached to {at} (link {link_id}){}",
        match daemon.unheld {
            true => "; it ends with the daemon, see the log",
            false => "",
        }
    );
    let service = Service::new(daemon, lines, settings, &counters, attachment);
    service.put_into_force(true);
    event_loop::serve(&service)
}

/// What was attached, and what was asked for in vain.
fn report_start(daemon: &Daemon, lines: &Lines, at: &str, link_id: u32) -> Result<()> {
    let thp = Thp::of_this_machine();
    let load_time = daemon.loaded.load_time.as_millis();
    lines.print(&Line::Attached {
        t_ms: daemon.loaded.in_force_ms,
        what: daemon.what.borrow().clone(),
        root: at.to_owned(),
        cgroup_id: daemon.root.id,
        link_id,
        load_ms: u64::try_from(load_time).unwrap_or(u64::MAX),
        ending: daemon.ending.clone(),
        setting: thp.text(),
        thp: thp.enabled,
    })?;
    if let Some(line) = daemon.partial() {
        lines.print(&line)?;
    }
    if daemon.unheld {
        lines.print(&lines::unheld())?;
    }
    for (address, error) in &daemon.exporter.refused {
        lines.print(&lines::unserved(address, error))?;
    }
    Ok(())
}

/// Serves metrics from now on, in threads.
fn serve_metrics(daemon: &mut Daemon) -> Result<Arc<Counters>> {
    let counters = Arc::new(Counters::default());
    daemon.exporter.serve(exporter::Source {
        root: daemon.root.path.clone(),
        mount: daemon.root.mount.clone(),
        sizes: daemon.sizes,
        explain: daemon.loaded.explain()?,
        counters: counters.clone(),
        patience: daemon.manager.patience,
    })?;
    Ok(counters)
}

/// What of the configuration is in force.
fn report_configuration(daemon: &Daemon, lines: &Lines) -> Result<()> {
    let Some(assigner) = &daemon.assigner else {
        return Ok(());
    };
    // Each cgroup has had its policy since before that of the root was in force.
    let mut assigner = assigner.borrow_mut();
    lines.print(&lines::configured(true, assigner.text()))?;
    for change in assigner.take_changes() {
        lines.print(&lines::overridden(change))?;
    }
    Ok(())
}

/// Leaves the policy to whoever comes next, or detaches it; and reports that.
fn end(daemon: Daemon, lines: &Lines, at: String, ended: Result<Ended>) -> Result<()> {
    let (keeps, hands_over) = (daemon.keeps(), daemon.hands_over());
    let stays = (keeps || hands_over) && matches!(ended, Ok(Ended::By(_)));
    daemon.manager.stopping(match (stays, hands_over) {
        (false, _) => "detaching",
        (true, false) => "ending; the policy stays attached",
        (true, true) => "ending; a restart goes on with the policy, a stop ends it",
    });
    let what = daemon.what.into_inner();
    if let (true, Ok(Ended::By(signal))) = (stays, &ended) {
        return lines.print(&Line::Kept {
            t_ms: now_ms(),
            what,
            root: at,
            signal: signal.as_str(),
            handed: hands_over,
        });
    }
    let unpinned = daemon.loaded.detach();
    let (why, signal, result) = match ended {
        Ok(Ended::By(signal)) => (End::Signal, Some(signal.as_str()), Ok(())),
        Ok(Ended::RootRemoved) => {
            let error = Error::RootRemoved {
                path: daemon.root.path,
            };
            (End::RootRemoved, None, Err(error))
        }
        Err(error) => {
            let why = match error {
                Error::Detached { .. } => End::LinkDetached,
                Error::NoPsi { .. } => End::PsiOff,
                _ => End::Error,
            };
            (why, None, Err(error))
        }
    };
    let printed = lines.print(&Line::Detached {
        t_ms: now_ms(),
        what,
        root: at,
        why,
        signal,
        thp: Thp::of_this_machine().enabled,
    });
    // What ended the loop matters more than a line that could not be printed.
    result.and(unpinned).and(printed)
}
