// SPDX-License-Identifier: GPL-2.0-only
//! The channel on which a workload reports to the host: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::failure::Failure;

/// The results channel; its path is in LAB_RESULTS.
pub struct Results {
    file: Mutex<File>,
}

impl Results {
    /// Opens the channel.
    ///
    /// # Errors
    /// LAB_RESULTS is not set (this is not the lab's guest), or cannot be opened.
    pub fn open() -> Result<Self, Failure> {
        let what = "open the results channel";
        let path = std::env::var_os("LAB_RESULTS").ok_or_else(|| {
            Failure::other(
                what,
                "LAB_RESULTS is not set: this runs in the lab's guest only",
            )
        })?;
        Self::to(Path::new(&path)).map_err(|e| Failure::new(what, e))
    }

    /// Writes to an existing file or FIFO.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn to(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self {
            file: Mutex::new(file),
        })
    }

    /// Writes one record as a line of its own, whole.
    ///
    /// # Errors
    /// The write failed.
    pub fn send(&self, record: &Value) -> Result<(), Failure> {
        let line = format!("{record}\n");
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())
            .map_err(|e| Failure::new("write a result", e))
    }
}

/// Reports what stopped the workload: on stderr in full, to the host its cause.
pub fn fail(command: &str, failure: &Failure) {
    eprintln!("lab-guest {command}: {failure}");
    let record = json!({"type": "failure", "t_ms": now_ms(), "cause": failure.cause()});
    if let Err(cause) = Results::open().and_then(|results| results.send(&record)) {
        eprintln!("lab-guest {command}: report it to the host: {cause}");
    }
}

/// CLOCK_MONOTONIC in milliseconds: the clock of mthp_ext's events as well.
pub fn now_ms() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .ok()
        .and_then(|t| u64::try_from(t.tv_sec() * 1000 + t.tv_nsec() / 1_000_000).ok())
        .unwrap_or_default()
}
