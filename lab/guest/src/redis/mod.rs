// SPDX-License-Identifier: GPL-2.0-only
//! One cell of the demo: a Redis server in a cgroup, a benchmark beside it, one arm of the comparison.

mod bench;
mod cell;
mod host;
mod policy;
mod sampler;

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::results::{Results, now_ms};
use cell::Cell;

/// What stopped a cell before there was a result.
#[derive(Debug)]
pub struct Failure {
    what: String,
    cause: io::Error,
}

impl Failure {
    /// Names the step that `cause` stopped.
    pub fn new(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self {
            what: what.into(),
            cause: cause.into(),
        }
    }

    /// A failure that no system call reported.
    pub fn other(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(what, io::Error::other(why.into()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

/// `lab-guest redis CELL.json`: runs the cell; 0 when it was measured, whatever the outcome was.
pub fn main(path: Option<&str>) -> ExitCode {
    let Some(path) = path else {
        eprintln!("lab-guest redis: the cell's file is missing; usage: lab-guest redis CELL.json");
        return ExitCode::from(2);
    };
    match run(path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("lab-guest redis: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<(), Failure> {
    let cell = Cell::read(path)?;
    let results =
        Arc::new(Results::open().map_err(|e| Failure::new("open the results channel", e))?);
    host::prepare(&cell)?;
    let group = host::Group::create("redis", &cell)?;
    let policy = policy::Policy::start(&cell, &results)?;
    let mut server = bench::Server::start(&group, &cell)?;

    let before = host::Swapped::read()?;
    let begin = now_ms();
    send(
        &results,
        json!({"type": "begin", "t_ms": begin, "release": host::release()?}),
    )?;
    let sampler = sampler::Sampler::start(
        group.path.clone(),
        Duration::from_millis(cell.sample_ms),
        &results,
    );
    let bench = bench::run(&cell, &mut server, &results)?;
    let end = now_ms();
    sampler.stop()?;

    let swapped = host::Swapped::read()?;
    let served = server.served(bench.served_hint);
    let mut result = json!({
        "type": "result",
        "t_ms": end,
        "elapsed_ms": end.saturating_sub(begin),
        "requests": cell.requests,
        "served": served,
        "bounded": bench.bounded,
        "server_died_ms": bench.server_died_ms,
        "pswpin": swapped.pagein - before.pagein,
        "pswpout": swapped.pageout - before.pageout,
        "oom_kills": group.event("oom_kill")?,
        "memory_peak": group.number("memory.peak")?,
        "psi_some_us": group.stall("some")?,
        "psi_full_us": group.stall("full")?,
    });
    if let (Some(result), Some(summary)) = (result.as_object_mut(), bench.summary) {
        for (name, value) in summary {
            result.insert(name.to_owned(), json!(value));
        }
    }
    policy.stop()?;
    drop(server);
    send(&results, result)
}

fn send(results: &Results, record: Value) -> Result<(), Failure> {
    results
        .send(&record)
        .map_err(|e| Failure::new("write a result", e))
}
