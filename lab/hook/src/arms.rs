// SPDX-License-Identifier: GPL-2.0-only
//! Measures all arms, taking turns.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::attach::Yardstick;
use crate::ext::Ext;
use crate::faults::{self, Faults};
use crate::groups::{self, Groups};
use crate::plan::{Arm, At, Plan, Policy};
use crate::reclaims::{self, Reclaimed};
use crate::samples::Samples;
use lab_guest::failure::Failure;
use lab_guest::results::Results;

const SIBLING: &str = "sibling";
/// Guest time for mthp_ext to have scanned all cgroups after attaching: two windows and a half. The kernel switches its
/// question off a second after the last policy has gone, so it is long enough for that, too.
const SETTLE: Duration = Duration::from_millis(2500);

/// What is attached for an arm.
enum Attached {
    Nothing,
    Links { _links: Vec<OwnedFd> },
    Ext(Ext),
}

struct Bench<'p> {
    plan: &'p Plan,
    places: BTreeMap<&'p str, Groups>,
    sibling: PathBuf,
    yardstick: Option<Yardstick>,
}

/// Carries out the arms of a plan.
///
/// # Errors
/// Whatever step failed.
pub fn run(plan: &Plan, results: &Results) -> Result<(), Failure> {
    let sibling = Path::new(groups::ROOT).join(SIBLING);
    groups::make(&sibling)?;
    let mut places = BTreeMap::new();
    for place in &plan.places {
        places.insert(place.name.as_str(), Groups::create(place)?);
    }
    let yardstick = plan.patched.then(Yardstick::load).transpose()?;
    let bench = Bench {
        plan,
        places,
        sibling,
        yardstick,
    };
    // Once without keeping anything: the first faults of an mm register it with khugepaged, which has one look.
    for kib in [2048, 64, 16, 4] {
        faults::take(kib, || Ok(0))?;
    }
    sleep(SETTLE);
    for repeat in 0..plan.repeats {
        for arm in &plan.arms {
            let attached = bench.attach(arm)?;
            for place in &arm.places {
                if plan.reclaims {
                    bench.reclaim(arm, place, repeat, results)?;
                } else {
                    bench.measure(arm, place, repeat, results)?;
                }
            }
            if let Attached::Ext(ext) = attached {
                ext.stop()?;
            }
        }
    }
    Ok(())
}

impl Bench<'_> {
    fn yardstick(&self) -> Result<&Yardstick, Failure> {
        self.yardstick
            .as_ref()
            .ok_or_else(|| Failure::other("attach", "the plan is for an unpatched kernel"))
    }

    fn groups(&self, place: &str) -> Result<&Groups, Failure> {
        self.plan.place(place)?;
        self.places
            .get(place)
            .ok_or_else(|| Failure::other("find a place", format!("there is no {place}")))
    }

    /// The cgroups that an arm's policy is attached to.
    fn targets(&self, arm: &Arm) -> Result<Vec<PathBuf>, Failure> {
        let mut targets = vec![PathBuf::from(groups::ROOT)];
        match arm.at {
            At::Root => {}
            At::Sibling => targets = vec![self.sibling.clone()],
            At::Path => {
                for place in &arm.places {
                    targets.extend(self.groups(place)?.path.iter().cloned());
                }
            }
        }
        Ok(targets)
    }

    fn attach(&self, arm: &Arm) -> Result<Attached, Failure> {
        let targets = self.targets(arm)?;
        let name = match arm.policy {
            Policy::None => {
                sleep(SETTLE);
                return Ok(Attached::Nothing);
            }
            Policy::Ext => {
                let [root] = &targets[..] else {
                    return Err(Failure::other(
                        "attach",
                        "mthp_ext is run once, not per level",
                    ));
                };
                let ext = Ext::start(&self.plan.mthp_ext, &arm.args, root)?;
                sleep(SETTLE);
                return Ok(Attached::Ext(ext));
            }
            Policy::Empty => "empty",
            Policy::Refuse => "refuse",
            Policy::Count => "count",
        };
        let yardstick = self.yardstick()?;
        let links = targets
            .iter()
            .map(|path| yardstick.attach(name, path))
            .collect::<Result<_, _>>()?;
        Ok(Attached::Links { _links: links })
    }

    /// How often the kernel has asked so far, where the arm counts that.
    fn calls(&self, arm: &Arm) -> Result<u64, Failure> {
        match arm.policy {
            Policy::Count => self.yardstick()?.calls(),
            _ => Ok(0),
        }
    }

    /// What reclaim takes in one place, for all sizes of an arm.
    fn reclaim(
        &self,
        arm: &Arm,
        place: &str,
        repeat: u32,
        results: &Results,
    ) -> Result<(), Failure> {
        let groups = self.groups(place)?;
        for &kib in &arm.sizes_kib {
            groups.enter()?;
            let asked = || self.calls(arm);
            // Not kept: the first request of a cgroup makes its state.
            reclaims::take(kib, groups.leaf()?, asked)?;
            let Reclaimed {
                instructions,
                scanned,
                swapped,
                split,
                calls,
                folios,
            } = reclaims::take(kib, groups.leaf()?, asked)?;
            groups::leave()?;
            results.send(&json!({
                "type": "reclaim",
                "arm": arm.name,
                "kib": kib,
                "repeat": repeat,
                "instructions": instructions,
                "scanned": scanned,
                "swapped": swapped,
                "split": split,
                "calls": calls,
                "folios": folios,
            }))?;
        }
        Ok(())
    }

    /// All sizes of an arm in one place.
    fn measure(
        &self,
        arm: &Arm,
        place: &str,
        repeat: u32,
        results: &Results,
    ) -> Result<(), Failure> {
        let groups = self.groups(place)?;
        for &kib in &arm.sizes_kib {
            let counting = arm.policy == Policy::Count;
            let asked = || self.calls(arm);
            for other in &self.plan.places {
                self.groups(&other.name)?.drain(other)?;
            }
            groups.enter()?;
            // Not kept: the first request of a cgroup makes its state.
            faults::take(kib, asked)?;
            let Faults { each, large, calls } = faults::take(kib, asked)?;
            let calls = counting.then_some(calls);
            groups::leave()?;
            let each = Samples::new(each);
            results.send(&json!({
                "type": "faults",
                "arm": arm.name,
                "place": place,
                "kib": kib,
                "repeat": repeat,
                "faults": each.count(),
                "large": large,
                "calls": calls,
                "total": each.total(),
                "p10": each.percentile(10),
                "p50": each.percentile(50),
                "p90": each.percentile(90),
                "middle": each.middle(),
            }))?;
        }
        Ok(())
    }
}
