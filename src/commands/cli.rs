// SPDX-License-Identifier: GPL-2.0-only
//! The command line: its commands, and reading it.  Doc comments here and of the arguments (args.rs)
//! are the help texts; the options of the rules are in the table (model/options.rs).

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use super::args::{
    CompareArgs, ConfigArgs, DetachArgs, EventsArgs, ExplainArgs, OptionsArgs, OutputArgs,
    PoliciesArgs, ReloadArgs, RunArgs, SetArgs, SettingsCommand, ShowArgs, StatusArgs, TopArgs,
    UnsetArgs,
};
use super::schema::SchemaArgs;
use crate::errors::EXIT_CODES;
use crate::model::options::Opt;

/// Page-size policy per cgroup: makes transparent huge pages safe under memory
/// pressure
///
/// A BPF policy in the kernel decides at each request which page sizes a cgroup may
/// get. It needs a kernel with the mthp_ext series. When mthp_ext ends, in whatever
/// way, the next page fault follows transparent_hugepage/enabled again, unless the
/// policy is to be kept.
#[derive(Debug, Parser)]
#[command(name = "mthp_ext", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Attach a policy to a cgroup and print each changed decision, until Ctrl-C or SIGTERM
    ///
    /// Each line begins with the seconds since boot, as in dmesg.
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Detach policies that `run --on-exit keep` has left
    #[command(after_help = EXIT_CODES)]
    Detach(DetachArgs),
    /// Have the running daemon read its configuration again, and wait until that is in force or refused
    #[command(after_help = EXIT_CODES)]
    Reload(ReloadArgs),
    /// Give one cgroup a policy or other values: write its user.mthp_ext, and have daemons take it over
    ///
    /// It is for a unit that says for itself what it needs: without --cgroup it is for the unit that
    /// runs it, as ExecStartPre=. It ends with the cgroup.
    #[command(after_help = EXIT_CODES)]
    Set(SetArgs),
    /// Take away what `set` has written
    #[command(after_help = EXIT_CODES)]
    Unset(UnsetArgs),
    /// Show where policies are attached, and what each cgroup may use now and why
    #[command(after_help = EXIT_CODES)]
    Status(StatusArgs),
    /// Say in words what the policies of `run --dry-run` would have done, what to expect of them and what to do
    #[command(after_help = EXIT_CODES)]
    Advise(OutputArgs),
    /// Say what one cgroup may use now, which rules decide that, by which numbers, and what would
    /// change it
    #[command(after_help = EXIT_CODES)]
    Explain(ExplainArgs),
    /// Show the cgroups on the terminal, the busiest first, with what each may use and why; q quits
    #[command(after_help = EXIT_CODES)]
    Top(TopArgs),
    /// Print what the daemons have reported: decisions with their reasons, configurations, starts and ends
    ///
    /// The lines are those of `run`, which keeps the newest of them in /run/mthp_ext/events; in text they begin with
    /// the time of day in place of seconds since boot.
    #[command(after_help = EXIT_CODES)]
    Events(EventsArgs),
    /// Say what two nodes, or two days of one, do otherwise, beyond noise: of two files with answers of
    /// `status --json`
    #[command(after_help = EXIT_CODES)]
    Compare(CompareArgs),
    /// List the policies of `run`: for whom, which rules, which options they set
    #[command(after_help = EXIT_CODES)]
    Policies(PoliciesArgs),
    /// List the options of policies: unit, range, default, and what they do
    #[command(after_help = EXIT_CODES)]
    Options(OptionsArgs),
    /// List the metrics that `run --metrics` serves: type, labels, and what they are
    #[command(after_help = EXIT_CODES)]
    Metrics(OptionsArgs),
    /// Print the JSON schema of what a command prints with --json; without a name, list them
    #[command(after_help = EXIT_CODES)]
    Schema(SchemaArgs),
    /// Name each mistake of a configuration, with file and line; changes nothing
    #[command(after_help = EXIT_CODES)]
    CheckConfig(ConfigArgs),
    /// Show what a configuration comes to: each value, and where it is from
    #[command(after_help = EXIT_CODES)]
    Config(ShowArgs),
    /// Show, set or put back the settings of transparent huge pages that a policy needs
    Settings {
        /// What to do.
        #[command(subcommand)]
        command: SettingsCommand,
    },
    /// Check this system for what mthp_ext needs; changes nothing
    #[command(after_help = EXIT_CODES)]
    Support(OutputArgs),
    /// Print what a shell needs to complete commands and options
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    Man {
        /// The directory that gets them
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// The command line of this process, which ends with a message if it has a mistake.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let runs = std::env::args_os().nth(1).is_some_and(|word| word == "run");
        let error = if runs { hinted(error) } else { error };
        error.exit()
    })
}

/// Policies set every option by its name, the command line most of them: it says how the others
/// are given.
fn hinted(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = word.trim_start_matches('-').split('=').next();
    let option = name.and_then(Opt::named).filter(|option| option.measuring);
    if let Some(option) = option {
        let how = format!(
            "it is for measuring alone: '--set {}={}'",
            option.name, option.value_name
        );
        error.remove(ContextKind::SuggestedArg);
        let hint = ContextValue::StyledStrs(vec![how.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Command as Clap, CommandFactory};

    use super::*;
    use crate::commands::schema;
    use crate::model::options::OPTIONS;

    fn parsed(args: &[&str]) -> Result<Command, clap::Error> {
        let cli = Cli::try_parse_from(["mthp_ext", "run"].iter().chain(args))?;
        Ok(cli.command)
    }

    #[test]
    fn a_time_to_watch_by_may_be_left_out() {
        let watch = |args: &[&str]| {
            let cli = Cli::try_parse_from(["mthp_ext", "status"].iter().chain(args)).ok()?;
            match cli.command {
                Command::Status(status) => Some(status.watch),
                _ => None,
            }
        };
        assert_eq!(watch(&[]), Some(None));
        assert_eq!(watch(&["--watch"]), Some(Some(Duration::from_secs(2))));
        let given = watch(&["--watch", "500ms", "--json"]);
        assert_eq!(given, Some(Some(Duration::from_millis(500))));
        for bad in ["0s", "1ms", "2d", "-1s"] {
            assert_eq!(watch(&["--watch", bad]), None, "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_option_for_measuring_says_how_it_is_given() {
        for words in [
            &["--sample-every", "8"][..],
            &["--sample-every=8"],
            &["--some-stall"],
        ] {
            let error = hinted(parsed(words).unwrap_err());
            assert_eq!(error.exit_code(), 2);
            let said = error.to_string();
            let name = words[0].trim_start_matches('-').split('=').next().unwrap();
            assert!(said.contains(&format!("'--set {name}=")), "{said}");
        }
        let said = hinted(parsed(&["--magic"]).unwrap_err()).to_string();
        assert!(!said.contains("--set"), "{said}");
    }

    #[test]
    fn the_help_has_every_public_option_with_its_default() {
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").unwrap().render_help();
        // Lines are wrapped anywhere.
        let help = help.to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let help = help.join(" ");
        for option in OPTIONS {
            let name = format!("--{} <", option.name);
            assert_eq!(help.contains(&name), !option.measuring, "{name}");
            let default = format!("[default: {}]", option.default);
            assert!(option.measuring || help.contains(&default), "{default}");
        }
    }

    /// Has it, or one below it, the option?
    fn has_json(command: &Clap) -> bool {
        let own = command.get_arguments().any(|arg| arg.get_id() == "json");
        own || command.get_subcommands().any(has_json)
    }

    #[test]
    fn each_command_with_json_has_a_schema() {
        let cli = Cli::command();
        let commands = cli.get_subcommands().filter(|command| has_json(command));
        let mut wanted: Vec<&str> = commands.map(Clap::get_name).collect();
        wanted.extend(["run-check", "settings-undo"]);
        wanted.sort_unstable();
        assert_eq!(wanted, schema::names());
    }
}
