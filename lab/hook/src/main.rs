// SPDX-License-Identifier: GPL-2.0-only
//! Counts the instructions of page faults inside the lab's guest: `lab-hook PLAN.json` carries out what the
//! host wrote, and reports each measurement as a JSON line to LAB_RESULTS.  `lab-hook contract` tests the contract of
//! the hook, `lab-hook stress ROUNDS MODULE.ko` that of the module with everything at once; both print TAP.

mod arms;
mod attach;
mod carrier;
mod clock;
mod contract;
mod ext;
mod faults;
mod figures;
mod groups;
mod holds;
mod kfuncs;
mod knobs;
mod lives;
mod plan;
mod reclaims;
mod recorder;
mod samples;
mod scale;
mod stress;

use std::process::ExitCode;

use serde_json::json;

use lab_guest::failure::Failure;
use lab_guest::results::Results;
use plan::Plan;

const USAGE: &str =
    "usage: lab-hook PLAN.json | contract [TEST] | stress ROUNDS MODULE.ko (in the lab's guest)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        [groups::BALLAST, mib] => groups::ballast(mib),
        [lives::LIFE, kind] => lives::live(kind),
        [contract::CONTRACT] => contract::run(None),
        [contract::CONTRACT, name] => contract::run(Some(name)),
        [contract::TENANT, group] => contract::tenant(group),
        [stress::STRESS, rounds, module] => stress::run(rounds, module),
        [stress::BUSY, kind, group] => stress::busy(kind, group),
        [path] => run(path),
        _ => {
            eprintln!("lab-hook: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("lab-hook: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<(), Failure> {
    let plan = Plan::read(path)?;
    let results = Results::open()?;
    knobs::prepare()?;
    if plan.reclaims {
        reclaims::prepare()?;
    }
    results.send(&json!({
        "type": "begin",
        "release": lab_guest::knobs::release()?,
        "ticks_per_instruction": clock::ticks_per_instruction(),
    }))?;
    if !plan.arms.is_empty() {
        arms::run(&plan, &results)?;
    }
    if !plan.lives_kib.is_empty() {
        lives::run(&plan.lives_kib, &results)?;
    }
    if plan.holds {
        holds::run(&plan, &results)?;
    } else if !plan.cgroups.is_empty() {
        scale::run(&plan, &results)?;
    }
    Ok(())
}
