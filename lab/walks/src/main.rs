// SPDX-License-Identifier: GPL-2.0-only
//! Reads memory in a chosen order: what a TLB has to do for it can be computed. In the lab's guest it checks the TLB
//! model; on real hardware `perf stat` counts what it costs (lab/tlb/hardware.py).

mod memory;
mod plan;

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use lab_walks::{mark, next};
use nix::time::{ClockId, clock_gettime};
use serde_json::json;

use memory::{HUGE, Memory, PAGE, SLOT};
use plan::{Order, Plan, Step, USAGE};

/// Reads before the measured ones, so that what is kept of translations is full: 2,048 entries are after some 4,000.
const WARM_UP: u64 = 20_000;
/// Pages that are dropped in turn, few enough for all to be found again if a flush were missed.
const DROPPED: usize = 16;

/// Reads `count` times; what was read, so that nothing is left out.
fn read(memory: &Memory, order: Order, start: usize, count: u64) -> (usize, u64) {
    let slots = memory.slots();
    let (mut slot, mut sum) = (start, 0_u64);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ start as u64;
    for _ in 0..count {
        let value = match order {
            Order::Kernel => memory.written_by_kernel(slot),
            Order::Dropped => memory.dropped(slot),
            _ => memory.read(slot),
        };
        sum = sum.wrapping_add(value);
        slot = match order {
            Order::Sequential => (slot + 1) & (slots - 1),
            Order::Dropped => (slot + PAGE / SLOT) & (DROPPED * PAGE / SLOT - 1),
            Order::Dependent => value as usize,
            Order::Random | Order::Kernel => {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as usize & (slots - 1)
            }
        };
    }
    (slot, sum)
}

fn now() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

fn run(plan: &Plan) -> io::Result<()> {
    let mut memory = Memory::map(plan.mib << 20, plan.cover)?;
    let slots = memory.slots();
    // The dependent order needs every slot, the others each page.
    let step = if plan.has(Order::Dependent) {
        1
    } else {
        PAGE / SLOT
    };
    for slot in (0..slots).step_by(step) {
        memory.write(slot, next(slot, slots) as u64);
    }
    let mut seen = !plan.steps.contains(&Step::Arm);
    if seen {
        mark::arm();
    }
    for step in &plan.steps {
        let &Step::Read(order, accesses) = step else {
            mark::arm();
            seen = true;
            continue;
        };
        let (start, warm) = read(&memory, order, 1, WARM_UP.min(accesses));
        let before = now()?;
        if seen {
            mark::begin::<{ mark::PROGRAM }>();
        }
        let (_, sum) = read(&memory, order, start, accesses);
        if seen {
            mark::end::<{ mark::PROGRAM }>();
        }
        let passed = now()? - before;
        let huge = memory.huge()?;
        let record = json!({
            "type": "walks",
            "order": order.name(),
            "mib": plan.mib,
            "accesses": accesses,
            "seen": seen,
            "cover": plan.cover,
            "covered": huge as f64 / ((plan.mib << 20) / HUGE * HUGE) as f64,
            "ns": passed.as_nanos() as u64,
            "sum": warm.wrapping_add(sum),
        });
        println!("{record}");
    }
    Ok(())
}

/// In a thread with a name of its own: what a thread does counts for its process.
fn in_thread(plan: Plan) -> io::Result<()> {
    let reader = thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || run(&plan))?;
    reader
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the reading thread panicked")))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = Plan::parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mib = plan.mib;
    match in_thread(plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "lab-walks: {mib} MiB of memory: {error}; likely the kernel has no transparent huge pages, or too \
                 little memory is free"
            );
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_read_what_was_written() {
        let mut memory = Memory::map(HUGE, None).unwrap();
        let slots = memory.slots();
        for slot in 0..slots {
            memory.write(slot, next(slot, slots) as u64);
        }
        let count = slots as u64;
        let all: u64 = (0..count).sum();
        assert_eq!(read(&memory, Order::Sequential, 0, count).1, all);
        assert_eq!(read(&memory, Order::Dependent, 0, count), (0, all));
        assert_ne!(read(&memory, Order::Random, 1, count).1, all);
        // The first pages are dropped and empty, the others are as they were.
        let pages = DROPPED as u64;
        assert_eq!(read(&memory, Order::Dropped, 0, pages), (0, 0));
        let first = DROPPED * PAGE / SLOT;
        assert_eq!(memory.read(first - 1), 0);
        assert_eq!(memory.read(first), next(first, slots) as u64);
    }
}
