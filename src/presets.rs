// SPDX-License-Identifier: GPL-2.0-only
//! `--preset`: named sets of options.
//!
//! A preset is nothing but words of the command line, added where the user gave none:
//! it does what its options do.

use std::ffi::OsString;
use std::io::Write;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use serde::Serialize;

use crate::answer;
use crate::cli::{Cli, Command};
use crate::errors::Result;
use crate::orders;

/// The presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// For databases judged by latency, with snapshots by fork: folios up to 64K
    Database,
    /// For hosts with many small processes: large folios only in cgroups that have grown
    SmallServices,
}

/// A preset as `mthp_ext presets` shows it.
#[derive(Debug, Serialize)]
struct Shown {
    preset: String,
    about: String,
    options: Vec<String>,
}

impl Preset {
    /// The options that it sets on a machine with base pages of 2^`page_shift` bytes.
    fn options(self, page_shift: u32) -> Vec<(&'static str, String)> {
        match self {
            Preset::Database => {
                let order = 16u32.saturating_sub(page_shift);
                let caps = format!("fault={order},swapin=0,khugepaged=0");
                vec![("max-order", caps), ("limit-share", "0".to_owned())]
            }
            Preset::SmallServices => vec![
                ("min-memory", "64M".to_owned()),
                ("sparse-waste", "16M".to_owned()),
            ],
        }
    }

    /// As words of the command line.
    fn words(self, page_shift: u32) -> Vec<String> {
        let options = self.options(page_shift);
        options
            .iter()
            .map(|(option, value)| format!("--{option}={value}"))
            .collect()
    }

    fn shown(self) -> Shown {
        let value = self.to_possible_value();
        Shown {
            preset: value
                .as_ref()
                .map_or_else(String::new, |v| v.get_name().to_owned()),
            about: value
                .and_then(|v| v.get_help().map(ToString::to_string))
                .unwrap_or_default(),
            options: self.words(orders::page_shift()),
        }
    }
}

/// Reads a command line.
///
/// # Errors
/// clap's own, which knows its exit code; also where help was asked for.
pub fn parse(argv: &[OsString]) -> std::result::Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(argv)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let Command::Run(args) = &cli.command else {
        return Ok(cli);
    };
    let (Some(preset), Some(given)) = (args.preset, matches.subcommand_matches("run")) else {
        return Ok(cli);
    };
    let mut argv = argv.to_vec();
    for (option, value) in preset.options(orders::page_shift()) {
        let id = option.replace('-', "_");
        if given.value_source(&id) != Some(ValueSource::CommandLine) {
            argv.push(format!("--{option}={value}").into());
        }
    }
    Cli::try_parse_from(argv)
}

/// `mthp_ext presets`: each with what it sets.
///
/// # Errors
/// If it cannot be printed.
pub fn main(json: bool) -> Result<()> {
    let all: Vec<Shown> = Preset::value_variants().iter().map(|p| p.shown()).collect();
    answer::print(&all, json, |all, out| {
        all.iter().try_for_each(|p| {
            writeln!(
                out,
                "{}: {}\n    {}",
                p.preset,
                p.about,
                p.options.join(" ")
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunArgs;

    fn run(words: &str) -> RunArgs {
        let argv: Vec<OsString> = words.split(' ').map(Into::into).collect();
        match parse(&argv).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_preset_is_what_its_options_are() {
        for preset in Preset::value_variants() {
            for page_shift in [12, 14, 16] {
                let words = preset.words(page_shift).join(" ");
                assert!(!words.is_empty());
                run(&format!("mthp_ext run {words}")).check().unwrap();
            }
            let by_name = format!("mthp_ext run --preset {}", preset.shown().preset);
            let written_out = format!(
                "mthp_ext run {}",
                preset.words(orders::page_shift()).join(" ")
            );
            let (mut one, other) = (run(&by_name), run(&written_out));
            assert_eq!(one.preset.take(), Some(*preset));
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
    }

    #[test]
    fn an_option_given_overrides_the_preset() {
        for words in [
            "mthp_ext run --preset small-services --min-memory 1M",
            "mthp_ext run --min-memory=1M --preset=small-services",
        ] {
            let args = run(words);
            assert_eq!(args.min_memory, Some(1 << 20), "{words}");
            assert_eq!(args.sparse_waste, 16 << 20, "{words}");
        }
        assert_eq!(run("mthp_ext run").min_memory, None);
    }

    #[test]
    fn sizes_of_base_pages_are_minded() {
        let caps = |preset: Preset, shift| preset.options(shift)[0].1.clone();
        let database = "fault=4,swapin=0,khugepaged=0";
        assert_eq!(caps(Preset::Database, 12), database, "64K");
        assert_eq!(caps(Preset::Database, 16), database.replace('4', "0"));
    }

    #[test]
    fn every_preset_is_documented_as_it_is() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policies/presets.md");
        let page = std::fs::read_to_string(page).unwrap();
        for preset in Preset::value_variants() {
            let shown = preset.shown();
            let (_, section) = page
                .split_once(&format!("\n## {}\n", shown.preset))
                .unwrap_or_else(|| panic!("no section on {}", shown.preset));
            let section = section.split("\n## ").next().unwrap();
            // Figures for base pages of 4 KiB.
            let words = preset.words(12).join(" ").replace('=', " ");
            let said = section.replace('=', " ");
            assert!(said.contains(&words), "{}: {words}", shown.preset);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let argv = ["mthp_ext", "run", "--preset", "magic"].map(OsString::from);
        assert_eq!(parse(&argv).unwrap_err().exit_code(), 2);
    }
}
