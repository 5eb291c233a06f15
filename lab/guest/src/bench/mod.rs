// SPDX-License-Identifier: GPL-2.0-only
//! One cell of the benchmark suite: settings, cgroups, a policy, servers, load, samples, totals. It knows no
//! workload: what runs is all in the cell, and what the tasks print is read on the host.

mod cell;
mod meter;
mod task;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Map, Value, json};

use lab_walks::mark;

use crate::policy::Policy;
use crate::sampler::Sampler;
use crate::stop::Stop;
use cell::{Cell, Role, Wave};
use lab_guest::failure::Failure;
use lab_guest::knobs::{self, Group};
use lab_guest::results::{self, Results, now_ms};
use meter::Meter;
use task::Task;

/// How often the ends of processes are looked for.
const POLL: Duration = Duration::from_millis(5);
/// Guest time that a probe has.
const PROBE_MS: u64 = 60_000;
const DISK: &str = "/dev/zram1";

/// `lab-guest bench CELL.json`: runs the cell; 0 when it was measured, whatever the outcome was.
pub fn main(path: Option<&str>) -> ExitCode {
    let Some(path) = path else {
        eprintln!("lab-guest bench: the cell's file is missing; usage: lab-guest bench CELL.json");
        return ExitCode::from(2);
    };
    match run(path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            results::fail("bench", &failure);
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<(), Failure> {
    let stop = Stop::listen();
    let cell = Cell::read(path)?;
    let results = Arc::new(Results::open()?);
    for (file, value) in &cell.writes {
        knobs::write(file, value)?;
    }
    let disk_of_swap = (cell.swap_wait_us > 0).then_some(knobs::Disk {
        wait_us: cell.swap_wait_us,
        mib_per_s: cell.swap_mib_per_s,
    });
    knobs::swap(cell.swap_bytes, disk_of_swap, cell.min_free_kbytes)?;
    if cell.disk_bytes > 0 {
        disk(cell.disk_bytes)?;
    }
    let mut groups = Vec::new();
    for spec in &cell.groups {
        groups.push((
            spec.name.clone(),
            Group::create(&spec.name, &spec.settings)?,
        ));
    }
    let policy = Policy::start(cell.policy.as_deref(), &results)?;
    let servers = before(&cell, &stop, &results)?;
    measure(&cell, &groups, servers, &stop, &results)?;
    policy.stop()
}

/// A file system in memory that no cgroup pays for, for what programs write to disk.
fn disk(bytes: u64) -> Result<(), Failure> {
    let number = knobs::read("/sys/class/zram-control/hot_add")?;
    if number.trim() != "1" {
        return Err(Failure::other(
            "make a second zram device",
            format!("it is number {number}"),
        ));
    }
    knobs::write("/sys/block/zram1/disksize", &bytes.to_string())?;
    // Blocks of a page: zram takes no smaller ones.
    knobs::command("/bin/mke2fs", &["-b", "4096", DISK])?;
    knobs::command("/bin/mount", &["-t", "ext4", DISK, "/mnt"])
}

/// Starts the servers and runs what must be done before the measured time, in the cell's order.
fn before(cell: &Cell, stop: &Stop, results: &Arc<Results>) -> Result<Vec<Task>, Failure> {
    let mut servers = Vec::new();
    for spec in &cell.tasks {
        match spec.role {
            Role::Server => servers.push(Task::start(spec, results)?),
            Role::Setup => {
                let mut task = Task::start(spec, results)?;
                let until = now_ms() + cell.deadline_ms;
                // How it ended is in its record; the host knows what that means.
                task.wait(until, stop)?;
                task.finish(results)?;
            }
            Role::Load | Role::Beside | Role::Probe => {}
        }
    }
    Ok(servers)
}

/// The measured time and what comes after it.
fn measure(
    cell: &Cell,
    groups: &[(String, Group)],
    mut servers: Vec<Task>,
    stop: &Stop,
    results: &Arc<Results>,
) -> Result<(), Failure> {
    let vmstat = watch::vmstat()?;
    let mut totals = Vec::new();
    for (_, group) in groups {
        totals.push(watch::Totals::read(group)?);
    }
    mark::arm();
    let begin = now_ms();
    results.send(&json!({
        "type": "begin",
        "t_ms": begin,
        "release": knobs::release()?,
        "oom_kills": watch::oom_kills(&vmstat),
    }))?;
    mark::begin::<{ mark::SUITE }>();
    let sampler = sampler(cell, groups, results)?;
    let mut meters = Vec::new();
    for spec in &cell.meters {
        meters.push(Meter::start(spec, results)?);
    }
    let waves: Vec<Waving> = cell
        .waves
        .iter()
        .map(|wave| Waving::start(wave, results))
        .collect();
    let (mut loads, mut beside) = (Vec::new(), Vec::new());
    for spec in &cell.tasks {
        match spec.role {
            Role::Load => loads.push(Task::start(spec, results)?),
            Role::Beside => beside.push(Task::start(spec, results)?),
            Role::Server | Role::Setup | Role::Probe => {}
        }
    }
    let stopped = watch_over(cell, begin, stop, &mut servers, &mut loads)?;
    let end = now_ms();
    mark::end::<{ mark::SUITE }>();

    for wave in waves {
        wave.stop()?;
    }
    for meter in meters {
        meter.stop()?;
    }
    sampler.stop()?;
    let changed: Map<String, Value> = watch::vmstat()?
        .iter()
        .zip(&vmstat)
        .map(|(now, before)| (now.0.to_owned(), json!(now.1 - before.1)))
        .collect();
    for ((name, group), before) in groups.iter().zip(&totals) {
        results.send(&watch::group_end(name, group, before)?)?;
    }
    for spec in cell.tasks.iter().filter(|spec| spec.role == Role::Probe) {
        let mut task = Task::start(spec, results)?;
        task.wait(now_ms() + PROBE_MS, &Stop::never())?;
        task.finish(results)?;
    }
    for task in loads.into_iter().chain(beside).chain(servers) {
        task.finish(results)?;
    }
    results.send(&json!({
        "type": "end",
        "t_ms": end,
        "bounded": stopped.is_some(),
        "by_host": stopped == Some(By::Host),
        "vmstat": changed,
    }))
}

/// What stops a load before its end.
#[derive(PartialEq, Eq)]
enum By {
    /// The cell's deadline, in guest time.
    Deadline,
    /// The host's request, by its own clock.
    Host,
}

/// Waits for the end of the load; by what it had to be stopped, if it had to.
fn watch_over(
    cell: &Cell,
    begin: u64,
    stop: &Stop,
    servers: &mut [Task],
    loads: &mut [Task],
) -> Result<Option<By>, Failure> {
    loop {
        // Asked of all, so that each end gets its own time.
        let mut running = false;
        for load in loads.iter_mut() {
            running |= !load.has_ended()?;
        }
        for server in servers.iter_mut() {
            server.has_ended()?;
        }
        let passed = now_ms() - begin;
        if !running || cell.duration_ms.is_some_and(|time| passed >= time) {
            return Ok(None);
        }
        if stop.asked() {
            return Ok(Some(By::Host));
        }
        if passed > cell.deadline_ms {
            return Ok(Some(By::Deadline));
        }
        std::thread::sleep(POLL);
    }
}

fn sampler(
    cell: &Cell,
    groups: &[(String, Group)],
    results: &Arc<Results>,
) -> Result<Sampler, Failure> {
    let sampled: Vec<(String, Group)> = groups
        .iter()
        .zip(&cell.groups)
        .filter(|(_, spec)| spec.sampled)
        .map(|(group, _)| group.clone())
        .collect();
    let sizes = watch::Sizes::find()?;
    let results = Arc::clone(results);
    Ok(Sampler::start(
        Duration::from_millis(cell.sample_ms),
        move || {
            let sample = watch::sample(&sampled, &sizes);
            results.send(&sample.map_err(|e| Failure::new("take a sample", e))?)
        },
    ))
}

/// A setting that changes while the load runs.
struct Waving {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Waving {
    fn start(wave: &Wave, results: &Arc<Results>) -> Self {
        let (stop, stopped) = channel();
        let (wave, results) = (wave.clone(), Arc::clone(results));
        let thread = std::thread::spawn(move || {
            let file = std::path::Path::new(knobs::CGROUP)
                .join(&wave.group)
                .join(&wave.file);
            let rounds = if wave.again { usize::MAX } else { 1 };
            for value in std::iter::repeat_n(&wave.values, rounds).flatten() {
                // Before the write: lowering a limit reclaims, and so takes its time.
                let record = json!({"type": "wave", "t_ms": now_ms(), "group": wave.group,
                                    "file": wave.file, "value": value});
                results.send(&record)?;
                knobs::write(&file, value)?;
                match stopped.recv_timeout(Duration::from_millis(wave.every_ms)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            Ok(())
        });
        Self { stop, thread }
    }

    fn stop(self) -> Result<(), Failure> {
        // The thread may have ended with an error of its own, which join reports.
        let _ = self.stop.send(());
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Failure::other("change a setting", "the thread panicked")))
    }
}
