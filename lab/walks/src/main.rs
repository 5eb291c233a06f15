// SPDX-License-Identifier: GPL-2.0-only
//! Reads memory in a chosen order: what a TLB has to do for it can be computed. In the lab's guest it checks the TLB
//! model; on real hardware `perf stat` counts what it costs (lab/tlb/hardware.py).

mod memory;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use lab_walks::mark;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;

use memory::{HUGE, Memory, SLOT};

const USAGE: &str = "usage: lab-walks random|sequential|dependent|kernel MIB ACCESSES [COVER]

Reads MIB of memory ACCESSES times. COVER: percent in huge pages, by madvise; without it the system's settings decide.
  random      independent reads of random lines
  sequential  one line after the other
  dependent   each read says where the next one is
  kernel      the kernel writes to random lines: each access is a system call";
/// Reads before the measured ones, so that what is kept of translations is full.
const WARM_UP: u64 = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Random,
    Sequential,
    Dependent,
    Kernel,
}

#[derive(Debug, PartialEq, Eq)]
struct Plan {
    order: Order,
    mib: usize,
    accesses: u64,
    cover: Option<u32>,
}

impl Plan {
    /// None if the words are no plan. The size is a power of 2, so that one permutation fits all.
    fn parse(words: &[String]) -> Option<Self> {
        let order = match words.first()?.as_str() {
            "random" => Order::Random,
            "sequential" => Order::Sequential,
            "dependent" => Order::Dependent,
            "kernel" => Order::Kernel,
            _ => return None,
        };
        let mib: usize = words.get(1)?.parse().ok()?;
        let accesses: u64 = words.get(2)?.parse().ok()?;
        let cover = match words.get(3) {
            Some(word) => Some(word.parse().ok().filter(|&cover| cover <= 100)?),
            None => None,
        };
        let fits = (2..=1 << 20).contains(&mib) && mib.is_power_of_two() && words.len() <= 4;
        (fits && accesses > 0).then_some(Self {
            order,
            mib,
            accesses,
            cover,
        })
    }
}

/// The slot after `slot` in a cycle through all `slots`, a power of 2 (Hull and Dobell): the same for every run.
fn next(slot: usize, slots: usize) -> usize {
    (slot as u64)
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407) as usize
        & (slots - 1)
}

/// Reads `count` times; what was read, so that nothing is left out.
fn read(memory: &Memory, order: Order, start: usize, count: u64) -> (usize, u64) {
    let slots = memory.slots();
    let (mut slot, mut sum) = (start, 0_u64);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ start as u64;
    for _ in 0..count {
        let value = if order == Order::Kernel {
            memory.written_by_kernel(slot)
        } else {
            memory.read(slot)
        };
        sum = sum.wrapping_add(value);
        slot = match order {
            Order::Sequential => (slot + 1) & (slots - 1),
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

fn run(plan: &Plan) -> io::Result<serde_json::Value> {
    let mut memory = Memory::map(plan.mib << 20, plan.cover)?;
    let slots = memory.slots();
    // The dependent order needs every slot, the others each page.
    let step = if plan.order == Order::Dependent {
        1
    } else {
        4096 / SLOT
    };
    for slot in (0..slots).step_by(step) {
        memory.write(slot, next(slot, slots) as u64);
    }
    mark::arm();
    let (start, warm) = read(&memory, plan.order, 1, WARM_UP);
    let before = now()?;
    mark::begin::<{ mark::PROGRAM }>();
    let (_, sum) = read(&memory, plan.order, start, plan.accesses);
    mark::end::<{ mark::PROGRAM }>();
    let passed = now()? - before;
    let huge = memory.huge()?;
    Ok(json!({
        "type": "walks",
        "order": format!("{:?}", plan.order).to_lowercase(),
        "mib": plan.mib,
        "accesses": plan.accesses,
        "cover": plan.cover,
        "covered": huge as f64 / ((plan.mib << 20) / HUGE * HUGE) as f64,
        "ns": passed.as_nanos() as u64,
        "sum": warm.wrapping_add(sum),
    }))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = Plan::parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&plan) {
        Ok(record) => {
            println!("{record}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!(
                "lab-walks: {} MiB of memory: {error}; likely the kernel has no transparent huge pages, or too little \
                 memory is free",
                plan.mib
            );
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Option<Plan> {
        Plan::parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn plans() {
        let usual = Plan {
            order: Order::Random,
            mib: 256,
            accesses: 1000,
            cover: None,
        };
        assert_eq!(plan("random 256 1000"), Some(usual));
        assert_eq!(plan("dependent 2 1 90").unwrap().cover, Some(90));
        for bad in [
            "",
            "random",
            "random 3 1",
            "up 256 1",
            "random 256 0",
            "random 256 1 101",
            "random 256 1 1 1",
        ] {
            assert_eq!(plan(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_dependent_order_meets_every_slot() {
        let slots = 1 << 12;
        let mut seen = vec![false; slots];
        let mut slot = 0;
        for _ in 0..slots {
            assert!(!std::mem::replace(&mut seen[slot], true));
            slot = next(slot, slots);
        }
        assert_eq!(slot, 0);
    }

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
    }
}
