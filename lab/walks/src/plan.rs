// SPDX-License-Identifier: GPL-2.0-only
//! What the program is asked to do.

pub const USAGE: &str = "usage: lab-walks MIB COVER ORDER:ACCESSES...

Fills MIB of memory, then reads it in each order. COVER: percent in huge pages, by madvise; `-`: the system's settings
decide. Orders:
  random      independent reads of random lines
  sequential  one line after the other
  dependent   each read says where the next one is
  kernel      the kernel writes to random lines: each access is a system call
  dropped     a page is given back before each read
The word `arm` between them: the TLB model sees what comes after it. Without it, it sees all.";

/// In which order memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Random,
    Sequential,
    Dependent,
    Kernel,
    Dropped,
}

const ORDERS: [Order; 5] = [
    Order::Random,
    Order::Sequential,
    Order::Dependent,
    Order::Kernel,
    Order::Dropped,
];

impl Order {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::Dependent => "dependent",
            Self::Kernel => "kernel",
            Self::Dropped => "dropped",
        }
    }
}

/// One word of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Arm,
    Read(Order, u64),
}

impl Step {
    fn parse(word: &str) -> Option<Self> {
        if word == "arm" {
            return Some(Self::Arm);
        }
        let (name, accesses) = word.split_once(':')?;
        let order = ORDERS.into_iter().find(|order| order.name() == name)?;
        let accesses = accesses.parse().ok().filter(|&accesses| accesses > 0)?;
        Some(Self::Read(order, accesses))
    }
}

/// The whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub mib: usize,
    pub cover: Option<u32>,
    pub steps: Vec<Step>,
}

impl Plan {
    /// None if the words are no plan. The size is a power of 2, so that one permutation fits all.
    pub fn parse(words: &[String]) -> Option<Self> {
        let [mib, cover, steps @ ..] = words else {
            return None;
        };
        let mib: usize = mib.parse().ok()?;
        let cover = match cover.as_str() {
            "-" => None,
            percent => Some(percent.parse().ok().filter(|&percent| percent <= 100)?),
        };
        let steps: Vec<Step> = steps
            .iter()
            .map(|word| Step::parse(word))
            .collect::<Option<_>>()?;
        let plan = Self { mib, cover, steps };
        let fits = (2..=1 << 20).contains(&mib) && mib.is_power_of_two();
        (fits && plan.reads().next().is_some() && plan.keeps_the_chain()).then_some(plan)
    }

    /// Whether the order is among them.
    pub fn has(&self, wanted: Order) -> bool {
        self.reads().any(|order| order == wanted)
    }

    fn reads(&self) -> impl Iterator<Item = Order> {
        self.steps.iter().filter_map(|step| match step {
            Step::Read(order, _) => Some(*order),
            Step::Arm => None,
        })
    }

    /// What the dependent order follows is lost where memory is written or given back before it.
    fn keeps_the_chain(&self) -> bool {
        let mut before = self.reads().take_while(|order| *order != Order::Dependent);
        !self.has(Order::Dependent)
            || !before.any(|order| matches!(order, Order::Kernel | Order::Dropped))
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
        let found = plan("256 - random:1000 arm dependent:5 kernel:7").unwrap();
        assert_eq!((found.mib, found.cover), (256, None));
        let steps = [
            Step::Read(Order::Random, 1000),
            Step::Arm,
            Step::Read(Order::Dependent, 5),
            Step::Read(Order::Kernel, 7),
        ];
        assert_eq!(found.steps, steps);
        assert!(found.has(Order::Dependent) && !found.has(Order::Dropped));
        assert_eq!(plan("2 90 dropped:1").unwrap().cover, Some(90));
        for bad in [
            "",
            "256",
            "256 -",
            "256 - arm",
            "3 - random:1",
            "256 - up:1",
            "256 - random:0",
            "256 - random",
            "256 101 random:1",
            "256 - kernel:1 dependent:1",
            "256 - dropped:1 random:1 dependent:1",
        ] {
            assert_eq!(plan(bad), None, "{bad}");
        }
    }
}
