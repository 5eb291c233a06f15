// SPDX-License-Identifier: GPL-2.0-only
//! mthp_ext: page-size policy per cgroup.

mod abi;
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
mod psi;
mod run;
mod settings;
mod status;
mod support;
mod units;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(&args).map(|()| 0),
        Command::Status(args) => status::main(args.json).map(|()| 0),
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
