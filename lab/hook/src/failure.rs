// SPDX-License-Identifier: GPL-2.0-only
//! The one error of this program: the step that failed, and why.

use std::fmt;
use std::io;

/// What stopped the measurement.
#[derive(Debug)]
pub struct Failure {
    what: String,
    cause: io::Error,
}

impl Failure {
    /// Names the step that `cause` stopped.
    pub fn new(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self {
            what: what.into(),
            cause: cause.into(),
        }
    }

    /// A failure that no system call reported.
    pub fn other(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(what, io::Error::other(why.into()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}
