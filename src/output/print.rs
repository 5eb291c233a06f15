// SPDX-License-Identifier: GPL-2.0-only
//! How a command that shows something prints its answer.

use std::io::{self, Write};

use serde::Serialize;

use crate::errors::{Error, Result};

/// Prints `answer` on standard output: as one line of JSON, or by `text`.
///
/// # Errors
/// [`Error::Output`] if it cannot be written.
pub fn print<T: Serialize>(
    answer: &T,
    json: bool,
    text: impl FnOnce(&T, &mut io::StdoutLock<'static>) -> io::Result<()>,
) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = if json {
        serde_json::to_writer(&mut out, answer)
            .map_err(Into::into)
            .and_then(|()| writeln!(out))
    } else {
        text(answer, &mut out)
    };
    written.map_err(|source| Error::Output { source })
}
