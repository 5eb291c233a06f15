// SPDX-License-Identifier: GPL-2.0-only
//! Does attaching above many cgroups cost more than above few, and does making cgroups?

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::attach::Yardstick;
use crate::clock;
use crate::ext::Ext;
use crate::groups;
use crate::plan::Plan;
use crate::samples::Samples;
use lab_guest::failure::Failure;
use lab_guest::results::Results;

/// Cgroups beside each other in one directory; 200 such directories make 20,000.
const WIDTH: u32 = 100;
/// How often attach and detach are timed.
const ATTACHES: usize = 41;
/// How many cgroups are made while their making is timed.
const MADE: u32 = 400;
/// How many seconds mthp_ext is watched.
const SECONDS: usize = 17;
/// Attaches between two mkdirs while both take turns.
const TURNS: u64 = 1;

/// Fills the tree to each of the plan's numbers of cgroups, and measures there.
///
/// # Errors
/// Whatever step failed.
pub fn run(plan: &Plan, results: &Results) -> Result<(), Failure> {
    let yardstick = plan.patched.then(Yardstick::load).transpose()?;
    let top = Path::new(groups::ROOT).join("many");
    groups::make(&top)?;
    let root = File::open(groups::ROOT).map_err(|e| Failure::new("open the root cgroup", e))?;
    let mut there = 0;
    for &wanted in &plan.cgroups {
        fill(&top, &mut there, wanted)?;
        let send = |what: &str, samples: Vec<u64>| {
            let samples = Samples::new(samples);
            results.send(&json!({
                "type": "scale",
                "cgroups": there,
                "what": what,
                "count": samples.count(),
                "p50": samples.percentile(50),
                "p99": samples.percentile(99),
                "max": samples.percentile(100),
            }))
        };
        send("mkdir, no policy", mkdirs(&top, || Ok(()))?)?;
        let Some(yardstick) = &yardstick else {
            continue;
        };
        let (attach, detach) = attaches(yardstick, &root)?;
        send("attach", attach)?;
        send("detach", detach)?;
        {
            let _link = yardstick.attach("empty", Path::new(groups::ROOT))?;
            send("mkdir, attached", mkdirs(&top, || Ok(()))?)?;
        }
        send(
            "mkdir, attached and detached meanwhile",
            turns(&top, yardstick, &root)?,
        )?;
        let ext = Ext::start(&plan.mthp_ext, &[], Path::new(groups::ROOT))?;
        send("mkdir, mthp_ext running", mkdirs(&top, || Ok(()))?)?;
        send("mthp_ext, one second", seconds(&ext)?)?;
        ext.stop()?;
    }
    Ok(())
}

/// Makes cgroups below `top` until there are `wanted`.
///
/// # Errors
/// One cannot be made.
pub fn fill(top: &Path, there: &mut u32, wanted: u32) -> Result<(), Failure> {
    while *there < wanted {
        let directory = top.join(format!("d{}", *there / WIDTH));
        if *there % WIDTH == 0 {
            groups::make(&directory)?;
            *there += 1;
        }
        for at in 1..WIDTH.min(wanted - *there + 1) {
            groups::make(&directory.join(format!("g{at}")))?;
            *there += 1;
        }
    }
    Ok(())
}

/// What mthp_ext uses of each of some seconds in which nothing happens: the default policy looks at all cgroups
/// in one of sixteen.
fn seconds(ext: &Ext) -> Result<Vec<u64>, Failure> {
    let mut used = vec![ext.used()?];
    for _ in 0..SECONDS {
        thread::sleep(Duration::from_secs(1));
        used.push(ext.used()?);
    }
    Ok(used.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// Attaches to the root and detaches, each timed.
fn attaches(yardstick: &Yardstick, root: &File) -> Result<(Vec<u64>, Vec<u64>), Failure> {
    let (mut attach, mut detach) = (Vec::new(), Vec::new());
    for _ in 0..ATTACHES {
        let begin = clock::now();
        let link = yardstick
            .link("empty", root)
            .map_err(|e| Failure::new("attach to the root", e))?;
        attach.push(clock::now() - begin);
        let begin = clock::now();
        drop(link);
        detach.push(clock::now() - begin);
    }
    Ok((attach, detach))
}

/// Makes cgroups, each timed, and removes them.
///
/// # Errors
/// One cannot be made or removed.
pub fn mkdirs(
    top: &Path,
    mut between: impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<u64>, Failure> {
    let directory = top.join("new");
    groups::make(&directory)?;
    let paths: Vec<PathBuf> = (0..MADE).map(|i| directory.join(format!("g{i}"))).collect();
    let mut times = Vec::with_capacity(paths.len());
    for path in &paths {
        between()?;
        let begin = clock::now();
        let made = fs::create_dir(path);
        times.push(clock::now() - begin);
        made.map_err(|e| Failure::new(format!("make {}", path.display()), e))?;
    }
    for path in paths.iter().chain([&directory]) {
        fs::remove_dir(path).map_err(|e| Failure::new(format!("remove {}", path.display()), e))?;
    }
    Ok(times)
}

/// Makes cgroups while another thread attaches and detaches without a pause.
fn turns(top: &Path, yardstick: &Yardstick, root: &File) -> Result<Vec<u64>, Failure> {
    let stop = AtomicBool::new(false);
    let attached = AtomicU64::new(0);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                yardstick.link("empty", root)?;
                attached.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let times = mkdirs(top, || {
            // One processor: without this the other thread would wait for the end of the time slice.
            let seen = attached.load(Ordering::Relaxed);
            while attached.load(Ordering::Relaxed) < seen + TURNS && !other.is_finished() {
                thread::yield_now();
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        match other.join() {
            Ok(done) => done.map_err(|e: std::io::Error| Failure::new("attach meanwhile", e))?,
            Err(_) => return Err(Failure::other("attach meanwhile", "the thread panicked")),
        }
        times
    })
}
