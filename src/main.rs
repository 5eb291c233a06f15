// SPDX-License-Identifier: GPL-2.0-only
//! mthp_ext: page-size policy per cgroup.

mod abi;
mod answer;
mod caps;
mod carrier;
mod cgroup;
mod cli;
mod decide;
mod errors;
mod events;
mod links;
mod loader;
mod neighbours;
mod orders;
mod policies;
mod presets;
mod psi;
mod reasons;
mod run;
mod settings;
mod status;
mod support;
mod units;

use std::ffi::OsString;
use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let cli = presets::parse(&argv).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Run(args) => run::main(&args).map(|()| 0),
        Command::Status(args) => status::main(args.json).map(|()| 0),
        Command::Presets(args) => presets::main(args.json).map(|()| 0),
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
