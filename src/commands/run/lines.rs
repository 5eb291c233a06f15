// SPDX-License-Identifier: GPL-2.0-only
//! Lines of the log that are made here, and where they go.

use std::cell::RefCell;
use std::io;

use crate::commands::events::Recorder;
use crate::commands::exporter::{self, Address};
use crate::commands::xattrs;
use crate::errors::{Error, Result};
use crate::kernel::cgroup::Cgroup;
use crate::kernel::clock::now_ms;
use crate::output::log::{Line, Log};

/// Where lines go: to standard output, and to what `events` reads.
pub struct Lines {
    log: RefCell<Log<io::Stdout>>,
    recorder: RefCell<Recorder>,
}

impl Lines {
    /// Of the daemon on `root`, which has the name `at`.
    pub fn open(at: &str, root: &Cgroup, json: bool) -> Self {
        Lines {
            log: RefCell::new(Log::new(io::stdout(), json)),
            recorder: RefCell::new(Recorder::open(at, root.id)),
        }
    }

    /// Prints and keeps one.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub fn print(&self, line: &Line) -> Result<()> {
        self.recorder.borrow_mut().add(line);
        self.log
            .borrow_mut()
            .print(line)
            .map_err(|source| Error::Output { source })
    }
}

/// A line about the configuration.
pub fn configured(in_force: bool, text: String) -> Line {
    Line::Configured {
        t_ms: now_ms(),
        in_force,
        text,
    }
}

/// A line about a cgroup's override of its own.
pub fn overridden(change: xattrs::Change) -> Line {
    Line::Override {
        t_ms: now_ms(),
        cgroup: change.cgroup,
        in_force: change.in_force,
        text: change.text,
    }
}

/// A restart is to have no gap, and will have one.
pub fn unheld() -> Line {
    Line::Unheld {
        t_ms: now_ms(),
        text:
            "the policy ends with this daemon, and a restart has a gap: the service manager holds \
               nothing for it, whatever --on-exit says ($FDSTORE is not set); set \
               FileDescriptorStoreMax=2 in the unit, or use --on-exit keep"
                .to_owned(),
    }
}

/// The policy matters more than its metrics: nobody waits for an address.  But a typing error
/// must show.
pub fn unserved(address: &Address, error: &io::Error) -> Line {
    let (address, seconds) = (address.to_string(), exporter::AGAIN.as_secs());
    Line::Unserved {
        t_ms: now_ms(),
        text: format!(
            "no metrics at {address}: {error}; the policy is in force without them, and the \
             address is tried again every {seconds}s (another process may have it, or a sandbox \
             forbid it)"
        ),
        address,
    }
}
