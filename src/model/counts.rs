// SPDX-License-Identifier: GPL-2.0-only
//! What the programs count of a cgroup: requests, and those that were denied their size.

use schemars::JsonSchema;
use serde::Serialize;

use super::abi::{Explained, LEAST_ORDER, PUD_SIZE, SIZES};
use super::orders::Sizes;
use super::reason::Reason;

/// Requests whose largest size that was possible is this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Count {
    /// All of them.
    pub requests: u64,
    /// Those that could have it.
    pub allowed: u64,
    /// Those to which the policy did not allow it.
    pub denied: u64,
}

impl Count {
    fn of(allowed: u64, denied: u64) -> Self {
        Count {
            requests: allowed + denied,
            allowed,
            denied,
        }
    }

    /// And those of another policy.
    fn add(&mut self, other: Count) {
        *self = Count::of(self.allowed + other.allowed, self.denied + other.denied);
    }
}

/// Requests for a reason, of all sizes.
pub fn requests(explained: &Explained, reason: Reason) -> u64 {
    let each = |counts: &[u64]| counts.iter().sum::<u64>();
    each(&explained.allowed[reason as usize]) + each(&explained.denied[reason as usize])
}

/// The counts of a reason by size, the smallest one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BySize([Count; SIZES]);

/// One of them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SizeCount {
    /// Its name: `64K`.
    pub size: String,
    #[serde(flatten)]
    #[allow(missing_docs, reason = "has its own")]
    pub count: Count,
}

impl BySize {
    /// Those of one policy.
    pub fn of(explained: &Explained, reason: Reason) -> Self {
        let mut all = Self::default();
        all.add(explained, reason);
        all
    }

    /// Takes in what one more policy has counted.
    pub fn add(&mut self, explained: &Explained, reason: Reason) {
        let (allowed, denied) = (
            explained.allowed[reason as usize],
            explained.denied[reason as usize],
        );
        for (place, count) in self.0.iter_mut().enumerate() {
            count.add(Count::of(allowed[place], denied[place]));
        }
    }

    /// Those that there were requests for.
    pub fn named(&self, sizes: &Sizes) -> Vec<SizeCount> {
        // Nothing is counted there where the kernel has none.
        let pud = sizes.pud().unwrap_or(2 * (sizes.page_shift - 3));
        let order = |place: usize| match place {
            PUD_SIZE => pud,
            place => LEAST_ORDER + place as u32,
        };
        let counts = self.0.into_iter().enumerate();
        let counts = counts.map(|(place, count)| (order(place), count));
        let requests = counts.filter(|(_, count)| count.requests != 0);
        let named = requests.map(|(order, count)| SizeCount {
            size: sizes.name(order),
            count,
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::orders::X86;

    #[test]
    fn counts_of_policies_are_added_size_by_size() {
        let mut explained = Explained::default();
        let fault = Reason::Fault as usize;
        (explained.allowed[fault][2], explained.denied[fault][2]) = (4, 3);
        explained.allowed[fault][7] = 1;
        explained.denied[fault][PUD_SIZE] = 5;
        let mut all = BySize::default();
        all.add(&explained, Reason::Fault);
        all.add(&explained, Reason::Fault);
        all.add(&explained, Reason::Swapin);
        let named = serde_json::to_value(all.named(&X86)).unwrap();
        let wanted = serde_json::json!([
            {"size": "64K", "requests": 14, "allowed": 8, "denied": 6},
            {"size": "2M", "requests": 2, "allowed": 2, "denied": 0},
            {"size": "1G", "requests": 10, "allowed": 0, "denied": 10},
        ]);
        assert_eq!(named, wanted);
        assert_eq!(requests(&explained, Reason::Fault), 13);
    }
}
