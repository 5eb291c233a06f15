// SPDX-License-Identifier: GPL-2.0-only
//! What runs inside the lab's virtual machine. As PID 1 (`lab-guest init`) it sets the guest up, runs one
//! job and reports how it ended; its other commands are workloads that a job may start.

mod bench;
mod clock;
mod init;
mod policy;
mod ports;
mod sampler;
mod stop;
mod words;
mod zipf;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("init") => init::main(),
        Some("bench") => bench::main(args.next().as_deref()),
        Some("zipf") => zipf::main(&args.collect::<Vec<_>>()),
        // The kernel hands on whatever words of its command line it does not know itself.
        _ if std::process::id() == 1 => init::main(),
        other => {
            eprintln!(
                "lab-guest: {} is not a command; there are: init (as PID 1 of the lab's guest), bench, zipf",
                other.unwrap_or("(nothing)")
            );
            ExitCode::from(2)
        }
    }
}
