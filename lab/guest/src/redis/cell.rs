// SPDX-License-Identifier: GPL-2.0-only
//! What a cell is: the arm, the limit and the size of the workload, as the host wrote them.

use serde::Deserialize;

use crate::failure::Failure;

/// The file that limits the cgroup.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// No limit.
    None,
    /// memory.high: reclaim and throttle above it.
    High,
    /// memory.max: the out-of-memory killer above it.
    Max,
}

/// One cell.
#[derive(Clone, Debug, Deserialize)]
pub struct Cell {
    /// "always" or "never", for every THP size.
    pub thp: String,
    /// Policy that mthp_ext runs, if any.
    pub policy: Option<String>,
    /// Guest path of mthp_ext; used with a policy only.
    pub mthp_ext: String,
    /// Guest path of redis-server.
    pub server: String,
    /// Guest path of redis-benchmark.
    pub benchmark: String,
    /// Which limit.
    pub limit: Limit,
    /// Its value in bytes.
    pub limit_bytes: u64,
    /// Size of the zram swap device in bytes.
    pub swap_bytes: u64,
    /// vm.min_free_kbytes, the same in every arm: switching THP on would raise it.
    pub min_free_kbytes: u64,
    /// Keys that the benchmark draws from.
    pub keys: u64,
    /// Requests in all.
    pub requests: u64,
    /// Bytes of each value.
    pub value_bytes: u64,
    /// Connections.
    pub clients: u64,
    /// Requests in flight on each.
    pub pipeline: u64,
    /// Seed of the benchmark's keys, seconds since 1970: it takes them from the clock.
    pub seed: u32,
    /// Guest time after which the benchmark is stopped.
    pub deadline_ms: u64,
    /// Guest time between two samples.
    pub sample_ms: u64,
}

impl Cell {
    /// Reads a cell's file.
    pub fn read(path: &str) -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string(path).map_err(|e| Failure::new(format!("read {path}"), e))?;
        serde_json::from_str(&text)
            .map_err(|e| Failure::other(format!("parse {path}"), e.to_string()))
    }
    /// Settings of the server's cgroup.
    pub fn limits(&self) -> Vec<(String, String)> {
        let file = match self.limit {
            Limit::None => return Vec::new(),
            Limit::High => "memory.high",
            Limit::Max => "memory.max",
        };
        vec![(file.to_owned(), self.limit_bytes.to_string())]
    }

    /// The arm's policy as a command, if it has one.
    pub fn policy_command(&self) -> Option<Vec<String>> {
        let name = self.policy.as_ref()?;
        let words = [self.mthp_ext.as_str(), "run", "--json", "--policy", name];
        Some(words.map(str::to_owned).to_vec())
    }
}
