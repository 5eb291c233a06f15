// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext options` and docs/options.md: the table, for people.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::args::OptionsArgs;
use crate::errors::{Error, Result};
use crate::model::options::{OPTIONS, Opt};
use crate::model::rule::Rule;
use crate::output::print;

/// An option as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Shown {
    option: &'static str,
    value: &'static str,
    range: String,
    default: &'static str,
    /// Empty: all.
    rules: &'static [Rule],
    about: &'static str,
    /// Given by `--set`, for measurements.
    measuring: bool,
}

impl From<&'static Opt> for Shown {
    fn from(option: &'static Opt) -> Self {
        Shown {
            option: option.name,
            value: option.value_name,
            range: option.range_text(),
            default: option.default,
            rules: option.rules,
            about: option.help,
            measuring: option.measuring,
        }
    }
}

impl Shown {
    fn rules_text(&self) -> String {
        match self.rules {
            [] => "all".to_owned(),
            rules => rules
                .iter()
                .map(|r| r.name())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

fn text(all: &Vec<Shown>, out: &mut impl Write) -> io::Result<()> {
    for one in all {
        let how = if one.measuring { "--set " } else { "" };
        writeln!(
            out,
            "{how}{} {}: {}; default {}; rules: {}\n    {}",
            one.option,
            one.value,
            one.range,
            one.default,
            one.rules_text(),
            one.about
        )?;
    }
    Ok(())
}

/// The page.
pub fn page() -> String {
    let table = |measuring: bool| {
        let rows = OPTIONS
            .iter()
            .filter(|option| option.measuring == measuring);
        let rows = rows.map(Shown::from).map(|one| {
            let cell = |text: &str| text.replace('|', "\\|");
            format!(
                "| `{}` | `{}` | {} | {} | {} | {} |\n",
                one.option,
                cell(one.value),
                one.range,
                one.default,
                one.rules_text(),
                cell(one.about)
            )
        });
        format!(
            "| option | value | range | default | rules | what it is |\n|---|---|---|---|---|---|\n{}",
            rows.collect::<String>()
        )
    };
    format!(
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         <!-- Made by `mthp_ext options --markdown` from the table in src/model/options.rs. -->\n\
         # Options\n\n\
         Each option has one name: the key in a [policy's file](policies.md#a-policy-of-your-own), and in the settings\n\
         that `mthp_ext status` shows. `mthp_ext run` takes it as `--NAME`, or as `--set NAME=VALUE` if it is [for\n\
         measuring alone](#for-measuring-alone). A value on the command line overrides the policy's, and the policy's\n\
         the default. One that belongs to no rule of the policy is an error. `0` and `1` may be `false` and `true`, in\n\
         files without quotes. When to change an option is in [policies](policies.md#options-worth-changing).\n\n\
         {}\n\
         ## For measuring alone\n\n\
         Constants of the rules. `mthp_ext run --set NAME=VALUE` sets one; nobody should have to.\n\n\
         {}",
        table(false),
        table(true)
    )
}

/// The command.
///
/// # Errors
/// If it cannot be written.
pub fn main(args: &OptionsArgs) -> Result<()> {
    let all: Vec<Shown> = OPTIONS.iter().map(Shown::from).collect();
    if args.markdown {
        return written(io::stdout().write_all(page().as_bytes()));
    }
    print::rows(&all, args.json, text)
}

fn written(result: io::Result<()>) -> Result<()> {
    result.map_err(|source| Error::Output { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_table() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/options.md");
        let there = std::fs::read_to_string(file).unwrap();
        assert!(
            there == page(),
            "run `mthp_ext options --markdown > docs/options.md`"
        );
    }

    #[test]
    fn the_list_says_how_an_option_is_given() {
        let all: Vec<Shown> = OPTIONS.iter().map(Shown::from).collect();
        let mut out = Vec::new();
        text(&all, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.contains("limit-share PERCENT: 0 to 100; default 50; rules: room\n"),
            "{out}"
        );
        assert!(
            out.contains("\n--set sample-every REQUESTS: 1 to 4096;"),
            "{out}"
        );
    }
}
