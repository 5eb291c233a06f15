// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext completions`: what shells need, made of the command line, which has the table of
//! options.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use super::cli::Cli;
use crate::errors::{Error, Result};

/// The command.
///
/// # Errors
/// If it cannot be written.
pub fn main(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mthp_ext", &mut text);
    let written = io::stdout().write_all(&text);
    written.map_err(|source| Error::Output { source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options::OPTIONS;

    #[test]
    fn completion_knows_every_public_option() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Cli::command(), "mthp_ext", &mut script);
        let script = String::from_utf8(script).unwrap();
        for option in OPTIONS {
            let word = format!("--{} ", option.name);
            assert_eq!(script.contains(&word), !option.measuring, "{word}");
        }
    }
}
