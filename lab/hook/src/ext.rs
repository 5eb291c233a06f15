// SPDX-License-Identifier: GPL-2.0-only
//! mthp_ext at work, as a user starts and stops it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock;
use lab_guest::failure::Failure;

const OUTPUT: &str = "/run/mthp_ext.log";
/// Guest time that it has to attach.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A running `mthp_ext run`. Dropped: killed.
pub struct Ext {
    child: Child,
}

impl Ext {
    /// Starts it and waits until it is attached to `root`.
    ///
    /// # Errors
    /// It cannot be started, ends, or does not attach in time.
    pub fn start(program: &str, args: &[String], root: &Path) -> Result<Self, Failure> {
        let output = File::create(OUTPUT).map_err(|e| Failure::new(format!("make {OUTPUT}"), e))?;
        let child = Command::new(program)
            .args(["run", "--json", "--root"])
            .arg(root)
            .args(args)
            .stdout(output)
            .spawn()
            .map_err(|e| Failure::new(format!("start {program}"), e))?;
        let mut ext = Self { child };
        let mut waited = Duration::ZERO;
        loop {
            let said = fs::read_to_string(OUTPUT).unwrap_or_default();
            if said.contains("\"attached\"") {
                return Ok(ext);
            }
            let ended = ext
                .child
                .try_wait()
                .map_err(|e| Failure::new("wait for mthp_ext", e))?;
            if ended.is_some() || waited > PATIENCE {
                return Err(Failure::other(
                    "attach the policy",
                    format!("mthp_ext ended: {ended:?}; it said: {said}"),
                ));
            }
            sleep(POLL);
            waited += POLL;
        }
    }

    /// Its pid, and that of its only thread.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time it has used so far, nanoseconds.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn used(&self) -> Result<u64, Failure> {
        let pid = i32::try_from(self.child.id())
            .map_err(|_| Failure::other("read the processor time", "the pid does not fit"))?;
        clock::used_by(Pid::from_raw(pid), "mthp_ext")
    }

    /// Ends it as a user would, and checks that it ended well.
    ///
    /// # Errors
    /// It did not.
    pub fn stop(mut self) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id())
            .map_err(|_| Failure::other("stop mthp_ext", "its pid does not fit"))?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|e| Failure::new("stop mthp_ext", e))?;
        let status = self
            .child
            .wait()
            .map_err(|e| Failure::new("wait for mthp_ext", e))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::other("stop mthp_ext", status.to_string()))
    }
}

impl Drop for Ext {
    fn drop(&mut self) {
        // Ended already after stop(); else there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
