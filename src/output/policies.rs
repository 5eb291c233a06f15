// SPDX-License-Identifier: GPL-2.0-only
//! An attached policy, as commands show it.

use schemars::JsonSchema;
use serde::Serialize;

use super::settings::Settings;
use crate::kernel::attached::{Attached, Heartbeat};
use crate::kernel::cgroup::Names;
use crate::model::abi::{Own, Tunables};
use crate::model::rule::Rules;
use crate::model::units::show_duration;

/// One attached policy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PolicyLine {
    /// Its name.
    pub policy: String,
    /// The cgroup that it is attached to.
    pub root: String,
    /// Id of that; 0: detached.
    pub cgroup_id: u64,
    /// Id of the link.
    pub link_id: u32,
    map_id: u32,
    prog_id: u32,
    /// False for programs of another version of mthp_ext, or of somebody's own: their decisions
    /// cannot be read.
    readable: bool,
    /// Why they cannot, if the kernel said so.
    pub error: Option<String>,
    /// The policy is from a file; false: built in.
    pub own_file: Option<bool>,
    /// The BPF object is from a file; false: built in.
    pub own_object: Option<bool>,
    /// It narrows nothing.
    dry_run: bool,
    /// It stays when its daemon ends.
    pinned: bool,
    /// Its scans, where it obeys them for a time only.
    heartbeat: Option<Beat>,
    rules: Rules,
    settings: Option<Settings>,
    /// Its constants.
    #[serde(skip)]
    pub tunables: Option<Tunables>,
}

/// The scans of a policy that may be without its daemon.
#[derive(Debug, Serialize, JsonSchema)]
struct Beat {
    /// False: what has the rule pressure passes everything.
    beats: bool,
    /// Since the last scan.
    age_ms: u64,
    /// Above this what has the rule pressure passes everything.
    oldest_ms: u64,
}

impl From<Heartbeat> for Beat {
    fn from(heartbeat: Heartbeat) -> Self {
        Beat {
            beats: heartbeat.beats(),
            age_ms: heartbeat.age_ns / 1_000_000,
            oldest_ms: heartbeat.oldest_ns / 1_000_000,
        }
    }
}

fn own(policy: &Attached, what: Own) -> Option<bool> {
    policy.tunables.map(|t| t.own.0 & what.0 != 0)
}

impl PolicyLine {
    /// From what the kernel says.
    pub fn of(policy: &Attached, names: &Names) -> Self {
        PolicyLine {
            policy: policy.name.clone(),
            root: match policy.link.cgroup_id {
                0 => "(detached)".to_owned(),
                id => names.of_id(id),
            },
            cgroup_id: policy.link.cgroup_id,
            link_id: policy.link.id,
            map_id: policy.link.map_id,
            prog_id: policy.prog_id,
            readable: policy.tunables.is_some(),
            error: policy.failed.as_ref().map(ToString::to_string),
            own_file: own(policy, Own::MTHP_OWN_FILE),
            own_object: own(policy, Own::MTHP_OWN_OBJECT),
            dry_run: policy.dry_run,
            pinned: policy.pinned,
            heartbeat: policy.heartbeat.map(Beat::from),
            rules: Rules(policy.tunables.map_or(0, |t| t.rules)),
            settings: policy.tunables.as_ref().map(Settings::from),
            tunables: policy.tunables,
        }
    }

    /// "policy web attached to /db (cgroup 22, link 2)"
    pub fn attached_text(&self) -> String {
        let (title, link) = (self.title(), self.link_id);
        match self.cgroup_id {
            0 => format!("{title} (link {link}): detached"),
            id => format!(
                "{title} attached to {} (cgroup {id}, link {link})",
                self.root
            ),
        }
    }

    /// Why its decisions cannot be read; `None` if they can.
    pub fn unreadable_text(&self) -> Option<String> {
        match (&self.tunables, &self.error) {
            (Some(_), _) => None,
            (None, Some(error)) => Some(format!("its decisions cannot be read: {error}")),
            (None, None) => Some(
                "loaded by another version of mthp_ext, or from an object of its own: \
                 its decisions cannot be read"
                    .to_owned(),
            ),
        }
    }

    /// What outlives its daemon, and how far; `None` for what does not.
    pub fn life_text(&self) -> Option<String> {
        let beat = self.heartbeat.as_ref().map(|beat| {
            let [age, oldest] =
                [beat.age_ms, beat.oldest_ms].map(|ms| show_duration(ms * 1_000_000));
            match beat.beats {
                true => format!("; last scan {age} ago"),
                false => format!("; no scan for {age}, over {oldest}: what has the rule pressure passes everything"),
            }
        });
        self.pinned
            .then(|| format!("kept when its daemon ends{}", beat.unwrap_or_default()))
    }

    /// "policy web (own file)": not the one that is built in by that name.
    pub fn title(&self) -> String {
        let own = [(self.own_file, "file"), (self.own_object, "object")];
        let own = own.iter().filter(|(own, _)| *own == Some(true));
        let own: Vec<&str> = own.map(|(_, what)| *what).collect();
        let dry = if self.dry_run { " (dry run)" } else { "" };
        match own.as_slice() {
            [] => format!("policy {}{dry}", self.policy),
            own => format!("policy {} (own {}){dry}", self.policy, own.join(" and ")),
        }
    }
}

#[cfg(test)]
#[allow(missing_docs, reason = "tests")]
pub mod tests {
    use super::*;

    /// One that cannot be read.
    pub fn line() -> PolicyLine {
        PolicyLine {
            policy: "default".to_owned(),
            root: "/".to_owned(),
            cgroup_id: 1,
            link_id: 2,
            map_id: 3,
            prog_id: 4,
            readable: false,
            error: None,
            own_file: None,
            own_object: None,
            dry_run: false,
            pinned: false,
            heartbeat: None,
            rules: Rules::default(),
            settings: None,
            tunables: None,
        }
    }
}
