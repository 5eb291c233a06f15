// SPDX-License-Identifier: GPL-2.0-only
//! The channel to the host: one JSON object a line.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;

use serde_json::Value;

use crate::failure::Failure;

/// The results channel; its path is in LAB_RESULTS.
pub struct Results {
    file: RefCell<File>,
}

impl Results {
    /// Opens the channel.
    ///
    /// # Errors
    /// LAB_RESULTS is not set (this is not the lab's guest), or cannot be opened.
    pub fn open() -> Result<Self, Failure> {
        let path = std::env::var_os("LAB_RESULTS").ok_or_else(|| {
            Failure::other(
                "find the host",
                "LAB_RESULTS is not set: this runs in the lab's guest only",
            )
        })?;
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(|e| Failure::new("open the results channel", e))?;
        Ok(Self {
            file: RefCell::new(file),
        })
    }

    /// Writes one record as a line of its own.
    ///
    /// # Errors
    /// The write failed.
    pub fn send(&self, record: &Value) -> Result<(), Failure> {
        self.file
            .borrow_mut()
            .write_all(format!("{record}\n").as_bytes())
            .map_err(|e| Failure::new("write a result", e))
    }
}
