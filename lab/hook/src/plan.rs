// SPDX-License-Identifier: GPL-2.0-only
//! What to measure, as the host wrote it.

use serde::Deserialize;

use lab_guest::failure::Failure;

/// Who answers the kernel's question.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nobody.
    None,
    /// A program that returns the offer.
    Empty,
    /// A program that refuses the offer.
    Refuse,
    /// A program that counts and returns the offer.
    Count,
    /// `mthp_ext run` with the arm's arguments.
    Ext,
}

/// Where it is attached.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// At the root cgroup.
    Root,
    /// At a cgroup that is not on the path to any place.
    Sibling,
    /// At every cgroup on the path, the root included.
    Path,
}

/// A cgroup in which faults are measured.
#[derive(Clone, Debug, Deserialize)]
pub struct Place {
    /// Name of its topmost cgroup.
    pub name: String,
    /// Levels below the root, at least 1.
    pub depth: u32,
    /// memory.high of each of them, in bytes; no limit if absent.
    pub high: Option<u64>,
    /// Memory that another process holds there, so that the cgroup is not a small one.
    pub ballast_mib: u32,
}

/// What is compared.
#[derive(Clone, Debug, Deserialize)]
pub struct Arm {
    /// Its name in the results.
    pub name: String,
    /// Who is attached.
    pub policy: Policy,
    /// Arguments of `mthp_ext run`.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where.
    pub at: At,
    /// Names of the places to measure in.
    pub places: Vec<String>,
    /// Sizes of the faults to measure: 4, 16, 64, 2048.
    pub sizes_kib: Vec<u32>,
}

/// Everything.
#[derive(Clone, Debug, Deserialize)]
pub struct Plan {
    /// Guest path of mthp_ext; used by its arms only.
    pub mthp_ext: String,
    /// How often each arm is measured; the arms take turns.
    pub repeats: u32,
    /// All places.
    pub places: Vec<Place>,
    /// All arms.
    pub arms: Vec<Arm>,
    /// Numbers of cgroups to attach above, rising; none: that is not measured.
    pub cgroups: Vec<u32>,
    /// There, how long `cgroup_mutex` is held is measured, and nothing else.
    pub holds: bool,
    /// Sizes that are on, one after the other, while fork, exec and khugepaged are measured; 0: none is. Empty: that is
    /// not measured.
    pub lives_kib: Vec<u32>,
    /// Instead of faults, what reclaim takes is measured by all arms.
    pub reclaims: bool,
    /// With policies; else only what an unpatched kernel can do.
    pub patched: bool,
}

impl Plan {
    /// Reads a plan's file.
    ///
    /// # Errors
    /// The file cannot be read, or is no plan.
    pub fn read(path: &str) -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string(path).map_err(|e| Failure::new(format!("read {path}"), e))?;
        serde_json::from_str(&text)
            .map_err(|e| Failure::other(format!("parse {path}"), e.to_string()))
    }

    /// The place of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn place(&self, name: &str) -> Result<&Place, Failure> {
        self.places
            .iter()
            .find(|place| place.name == name)
            .ok_or_else(|| Failure::other("read the plan", format!("there is no place {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_as_the_host_writes_it() {
        let text = r#"{"mthp_ext": "/x", "repeats": 2, "patched": true, "cgroups": [], "holds": false, "lives_kib": [], "reclaims": false,
            "places": [{"name": "plain1", "depth": 1, "high": null, "ballast_mib": 24}],
            "arms": [{"name": "a", "policy": "ext", "args": ["--policy", "reactive"], "at": "root",
                      "places": ["plain1"], "sizes_kib": [4]}]}"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        assert_eq!(plan.arms[0].policy, Policy::Ext);
        assert_eq!(plan.arms[0].at, At::Root);
        assert_eq!(plan.place("plain1").unwrap().high, None);
        assert!(plan.place("plain2").is_err());
    }
}
