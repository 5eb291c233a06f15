// SPDX-License-Identifier: GPL-2.0-only
//! mthp_ext: page-size policy per cgroup.

use std::process::ExitCode;

use mthp_ext::commands::cli::{self, Command};
use mthp_ext::commands::{
    advise, compare, completions, config, detach, events, explain, man, metrics, options, policies,
    reload, run, schema, set, settings, status, support, top,
};

fn main() -> ExitCode {
    let result = match cli::parse().command {
        Command::Run(args) => run::main(&args).map(|()| 0),
        Command::Detach(args) => detach::main(&args).map(|()| 0),
        Command::Advise(args) => advise::main(args.json).map(|()| 0),
        Command::Reload(args) => reload::main(&args).map(|()| 0),
        Command::Set(args) => set::set(&args).map(|()| 0),
        Command::Unset(args) => set::unset(&args).map(|()| 0),
        Command::Status(args) => status::main(&args).map(|()| 0),
        Command::Explain(args) => explain::main(&args).map(|()| 0),
        Command::Events(args) => events::main(&args).map(|()| 0),
        Command::Top(args) => top::main(&args).map(|()| 0),
        Command::Policies(args) => policies::main(&args).map(|()| 0),
        Command::Schema(args) => schema::main(&args).map(|()| 0),
        Command::Compare(args) => compare::main(&args),
        Command::CheckConfig(args) => config::check(&args).map(|()| 0),
        Command::Config(args) if args.keys => config::keys().map(|()| 0),
        Command::Config(args) => config::show(&args.config).map(|()| 0),
        Command::Options(args) => options::main(&args).map(|()| 0),
        Command::Metrics(args) => metrics::main(&args).map(|()| 0),
        Command::Completions { shell } => completions::main(shell).map(|()| 0),
        Command::Man { directory } => man::main(&directory).map(|()| 0),
        Command::Settings { command } => settings::main(&command).map(|()| 0),
        Command::Support(args) => support::main(args.json),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mthp_ext: {error}");
            ExitCode::from(&error)
        }
    }
}
