// SPDX-License-Identifier: GPL-2.0-only
//! The options of the table on the command line.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::model::given::Values;
use crate::model::options::{OPTIONS, Opt};
use crate::model::value::Value;

/// Of the option that gives any other, for measurements.
const SET: &str = "set";

/// The values that were given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// By option.
    pub values: Values,
}

/// One of the table's rows as an argument.
fn argument(option: &'static Opt) -> Arg {
    let range = match option.range {
        Some((least, most)) => format!("; {least} to {most}"),
        None => String::new(),
    };
    let help = format!("{}{range} [default: {}]", option.help, option.default);
    Arg::new(option.name)
        .long(option.name)
        .value_name(option.value_name)
        .help(help)
        .value_parser(move |text: &str| option.parse(text))
}

/// Reads NAME=VALUE, for the options that have no argument of their own.
fn set(text: &str) -> Result<(&'static str, Value), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    let measuring = || OPTIONS.iter().filter(|option| option.measuring);
    let option = measuring()
        .find(|option| option.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = measuring().map(|option| option.name).collect();
            format!("names '{name}': there are {}", known.join(", "))
        })?;
    let value = option.parse(value);
    Ok((option.name, value.map_err(|e| format!("{name} {e}"))?))
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        let public = OPTIONS.iter().filter(|option| !option.measuring);
        command.args(public.map(argument)).arg(
            Arg::new(SET)
                .long(SET)
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .hide_short_help(true)
                .help("Set a constant of the rules, for measurements; docs/options.md lists them")
                .value_parser(set),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Given::default();
        for option in OPTIONS.iter().filter(|option| !option.measuring) {
            if let Some(value) = matches.get_one::<Value>(option.name) {
                given.values.add(option, *value);
            }
        }
        for (name, value) in matches
            .get_many::<(&'static str, Value)>(SET)
            .into_iter()
            .flatten()
        {
            if let Some(option) = Opt::named(name) {
                given.values.add(option, *value);
            }
        }
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
