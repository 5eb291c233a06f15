// SPDX-License-Identifier: GPL-2.0-only
//! What a cell is: the guest's settings, its cgroups, its tasks and their order, as the host wrote them.

use std::collections::BTreeMap;

use serde::Deserialize;

use lab_guest::failure::Failure;

/// One cell: one arm of one case, in a guest of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Files and what is written to them before anything starts: THP, its shrinker, the LRU flavour.
    pub writes: Vec<(String, String)>,
    /// Size of the swap device in bytes.
    pub swap_bytes: u64,
    /// What each request to it waits for, as on a disk; 0: it is zram.
    pub swap_wait_us: u64,
    /// What that disk moves in a second, MiB; 0: it has no limit.
    pub swap_mib_per_s: u64,
    /// Size of a file system (ext2 on zram, mounted at /mnt) in bytes; 0 for none.
    pub disk_bytes: u64,
    /// vm.min_free_kbytes, the same in every arm: switching THP on would raise it.
    pub min_free_kbytes: u64,
    /// Parents before their children.
    pub groups: Vec<GroupSpec>,
    /// The command of the policy, if the arm has one.
    pub policy: Option<Vec<String>>,
    /// In the order in which they start.
    pub tasks: Vec<TaskSpec>,
    /// Settings that change while the load runs.
    pub waves: Vec<Wave>,
    /// Counters of servers that are read over the measured time.
    pub meters: Vec<MeterSpec>,
    /// Guest time after which the load is stopped.
    pub deadline_ms: u64,
    /// The load is to run for this long; None: until it ends by itself.
    pub duration_ms: Option<u64>,
    /// Guest time between two samples.
    pub sample_ms: u64,
}

/// A cgroup.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Path below the root.
    pub name: String,
    /// File and value.
    pub settings: Vec<(String, String)>,
    /// It is sampled over time.
    pub sampled: bool,
}

/// When a task runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// From the beginning to the end; the next task waits until it is ready.
    Server,
    /// To its end before the measured time begins.
    Setup,
    /// In the measured time; the time ends with the last of them.
    Load,
    /// Beside the load, and killed at its end.
    Beside,
    /// To its end, after the measured time, while the servers still run.
    Probe,
}

/// A process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Names it in the records.
    pub name: String,
    /// Its cgroup; None for the root.
    pub group: Option<String>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// What the program is called by, if not by its path.
    pub arg0: Option<String>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// When it runs.
    pub role: Role,
    /// A Unix socket, or host:port, that takes connections when the task is ready; None: at once.
    pub ready: Option<String>,
    /// Seed of redis-benchmark's keys, seconds since 1970: it takes them from the clock.
    pub seed: Option<u32>,
    /// Its output is of no interest.
    pub quiet: bool,
    /// It and its children get base pages only (PR_SET_THP_DISABLE), as a unit with such a setting would.
    pub thp_off: bool,
}

/// A counter of a server that speaks Redis' protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSpec {
    /// Names it in the records.
    pub name: String,
    /// The server's Unix socket.
    pub socket: String,
    /// The command whose answer has the counter.
    pub ask: String,
    /// What stands before the counter, from the beginning of its line.
    pub counter: String,
    /// Guest time from an answer to the next question.
    pub every_ms: u64,
}

/// A setting of a cgroup that changes at a fixed interval.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wave {
    /// The cgroup.
    pub group: String,
    /// Its file.
    pub file: String,
    /// Written one after the other; the first one when the load starts.
    pub values: Vec<String>,
    /// Over and over; otherwise the last one stays.
    pub again: bool,
    /// Guest time between two of them.
    pub every_ms: u64,
}

impl TaskSpec {
    /// What the program is called, without its directory.
    pub fn program(&self) -> String {
        let name = self.arg0.as_ref().or(self.argv.first());
        let name = name.map_or(self.name.as_str(), String::as_str);
        name.rsplit('/').next().unwrap_or(name).to_owned()
    }
}

impl Cell {
    /// Reads a cell's file.
    pub fn read(path: &str) -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string(path).map_err(|e| Failure::new(format!("read {path}"), e))?;
        serde_json::from_str(&text)
            .map_err(|e| Failure::other(format!("parse {path}"), e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_goes_by_what_it_is_called() {
        let task = r#"{"name": "server", "group": null, "argv": ["/usr/bin/redis-check-rdb"], "arg0": null, "env": {},
                       "role": "server", "ready": null, "seed": null, "quiet": true, "thp_off": false}"#;
        let program = |json: &str| serde_json::from_str::<TaskSpec>(json).unwrap().program();
        assert_eq!(program(task), "redis-check-rdb");
        let named = task.replace("\"arg0\": null", "\"arg0\": \"redis-server\"");
        assert_eq!(program(&named), "redis-server");
    }

    #[test]
    fn what_this_program_does_not_know_is_refused() {
        let wave = r#"{"group": "a", "file": "memory.high", "values": ["1"], "again": true, "every_ms": 5}"#;
        assert_eq!(serde_json::from_str::<Wave>(wave).unwrap().every_ms, 5);
        let more = wave.replace("\"group\"", "\"phase\": 1, \"group\"");
        assert!(serde_json::from_str::<Wave>(&more).is_err());
    }
}
