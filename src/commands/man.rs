// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext man`: the manual pages, made of the command line, which has the table of options.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::cli::Cli;
use crate::errors::{Context, EXIT_CODES, Result};
use crate::model::shown;

/// Commands of administrators.
const SECTION: &str = "8";

/// The files beside the program, in the page of the program itself.
const FILES: [(&str, &str); 4] = [
    (
        "/etc/mthp_ext/config.toml",
        "the configuration; drop-ins are in config.d beside it",
    ),
    ("/etc/mthp_ext/policies/", "policies of your own"),
    (
        "/run/mthp_ext/",
        "what `events` reads, and the socket of `reload`",
    ),
    (
        "/sys/fs/bpf/mthp_ext/",
        "policies that are kept when their daemon ends",
    ),
];

/// A section whose lines stay as they are.
fn verbatim<'a>(roff: &mut Roff, title: &str, lines: impl IntoIterator<Item = &'a str>) {
    roff.control("SH", [title]);
    roff.control("nf", []);
    roff.text(
        lines
            .into_iter()
            .map(|line| roman(format!("{line}\n")))
            .collect::<Vec<_>>(),
    );
    roff.control("fi", []);
}

/// Name and text of the page of a command, and of those below it.
fn pages(command: &Command, found: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let is_top = command.get_name() == "mthp_ext";
    // In place of clap's EXTRA, which is the exit codes without their lines.
    let has_codes = command.get_after_help().is_some();
    let man = Man::new(command.clone())
        .section(SECTION)
        .manual("mthp_ext")
        .source(format!("mthp_ext {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let mut roff = Roff::default();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if is_top {
        roff.control("SH", ["FILES"]);
        for (file, about) in FILES {
            roff.control("TP", []);
            roff.text([roman(file)]);
            roff.text([roman(about)]);
        }
    }
    if has_codes {
        verbatim(&mut roff, "EXIT STATUS", EXIT_CODES.lines().skip(1));
    }
    roff.to_writer(&mut text)?;
    found.push((man.get_filename(), text));
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        pages(one, found)?;
    }
    Ok(())
}

fn all() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut found = Vec::new();
    pages(&command, &mut found)?;
    Ok(found)
}

/// The command.
///
/// # Errors
/// If a page cannot be written.
pub fn main(directory: &Path) -> Result<()> {
    let pages = all().context(|| "making the manual pages".to_owned())?;
    for (name, text) in pages {
        let file = directory.join(name);
        fs::write(&file, text).context(|| format!("writing {}", shown::path(&file)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options::OPTIONS;

    fn page(name: &str) -> String {
        let found = all().unwrap().into_iter().find(|(one, _)| one == name);
        let (_, text) = found.unwrap_or_else(|| panic!("no {name}"));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn each_command_has_a_page() {
        let names: Vec<String> = all().unwrap().into_iter().map(|(name, _)| name).collect();
        let mut command = Cli::command();
        command.build();
        for one in command.get_subcommands() {
            let name = format!("mthp_ext-{}.8", one.get_name());
            assert!(
                names.contains(&name) || one.get_name() == "help",
                "{names:?}"
            );
        }
        assert!(names.contains(&"mthp_ext-settings-apply.8".to_owned()));
    }

    #[test]
    fn the_page_of_run_has_the_table_and_the_codes() {
        let text = page("mthp_ext-run.8").replace("\\-", "-");
        for option in OPTIONS {
            let name = format!("--{}", option.name);
            assert_eq!(text.contains(&name), !option.measuring, "{name}");
        }
        assert!(
            text.contains(".SH \"EXIT STATUS\"\n.nf\n   0  done"),
            "{text}"
        );
        assert!(!page("mthp_ext-completions.8").contains("EXIT STATUS"));
    }

    #[test]
    fn the_first_page_names_the_files() {
        let text = page("mthp_ext.8");
        assert!(text.contains(crate::commands::lookup::CONFIG), "{text}");
    }
}
