// SPDX-License-Identifier: GPL-2.0-only
//! One cell of the demo: a Redis server in a cgroup, a benchmark beside it, one arm of the comparison.

mod bench;
mod cell;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::knobs;
use crate::policy::Policy;
use crate::results::{self, Results, now_ms};
use crate::sampler::Sampler;
use crate::stop::Stop;
use cell::Cell;

/// `lab-guest redis CELL.json`: runs the cell; 0 when it was measured, whatever the outcome was.
pub fn main(path: Option<&str>) -> ExitCode {
    let Some(path) = path else {
        eprintln!("lab-guest redis: the cell's file is missing; usage: lab-guest redis CELL.json");
        return ExitCode::from(2);
    };
    match run(path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            results::fail("redis", &failure);
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<(), Failure> {
    let stop = Stop::listen();
    let cell = Cell::read(path)?;
    let results =
        Arc::new(Results::open().map_err(|e| Failure::new("open the results channel", e))?);
    knobs::thp(&cell.thp)?;
    knobs::swap(cell.swap_bytes, cell.min_free_kbytes)?;
    let group = knobs::Group::create("redis", &cell.limits())?;
    let policy = Policy::start(cell.policy_command().as_deref(), &results)?;
    let mut server = bench::Server::start(&group, &cell)?;

    let before = Swapped::read()?;
    let begin = now_ms();
    send(
        &results,
        json!({"type": "begin", "t_ms": begin, "release": knobs::release()?}),
    )?;
    let sampler = {
        let (path, results) = (group.path.clone(), Arc::clone(&results));
        Sampler::start(Duration::from_millis(cell.sample_ms), move || {
            watch::sample(&path, &results)
        })
    };
    let bench = bench::run(&cell, &mut server, &stop, &results)?;
    let end = now_ms();
    sampler.stop()?;

    let swapped = Swapped::read()?;
    let served = server.served(bench.served_hint);
    let mut result = json!({
        "type": "result",
        "t_ms": end,
        "elapsed_ms": end.saturating_sub(begin),
        "requests": cell.requests,
        "served": served,
        "bounded": bench.bounded,
        "by_host": bench.by_host,
        "server_died_ms": bench.server_died_ms,
        "server_said": bench::last_words(),
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

/// Pages swapped in and out since boot.
struct Swapped {
    pagein: u64,
    pageout: u64,
}

impl Swapped {
    fn read() -> Result<Self, Failure> {
        let text = knobs::read("/proc/vmstat")?;
        Ok(Self {
            pagein: knobs::keyed(&text, "pswpin"),
            pageout: knobs::keyed(&text, "pswpout"),
        })
    }
}
