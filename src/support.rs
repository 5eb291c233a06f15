// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext support`: what this kernel can do.  Facts are gathered, judged by
//! a table, and printed; nothing is changed on the way.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::answer;
use crate::carrier::{Abilities, Carrier};
use crate::cgroup::{self, Cgroup};
use crate::errors::Result;
use crate::{orders, psi};

/// `uname -r`.
pub fn release() -> String {
    nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_else(|_| "unknown".to_owned())
}

/// What is known about the running system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// A cgroup v2 hierarchy is mounted.
    pub cgroup2: bool,
    /// The kernel has BTF.
    pub btf: bool,
    /// What the BTF tells.
    pub abilities: Abilities,
    /// The memory controller is on cgroup v2.
    pub memory: bool,
    /// PSI is on.
    pub psi: bool,
    /// This process may load and attach.
    pub privileged: bool,
    /// transparent_hugepage/enabled: what the policy narrows.
    pub thp: Option<String>,
}

impl Facts {
    /// Looks at the running system, with its cgroups at `mount`.
    pub fn gather(mount: &Path) -> Self {
        let carrier = Carrier::probe().ok();
        let cgroup = Cgroup::open(mount).ok();
        Facts {
            release: release(),
            cgroup2: cgroup.is_some(),
            btf: carrier.is_some(),
            abilities: carrier.map(|c| c.abilities).unwrap_or_default(),
            memory: cgroup.is_some_and(|c| c.require_memory().is_ok()),
            psi: psi::available(&psi::file_of(mount, mount)),
            privileged: privileged(),
            thp: setting(&Path::new(orders::THP_SYSFS).join("enabled")),
        }
    }
}

/// The word in brackets of a sysfs choice.
fn setting(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Capability numbers (linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// May this process do what `run` does?
pub fn privileged() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_caps(&status).is_some_and(enough)
}

fn effective_caps(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The bit of a capability in a set.
fn bit(cap: u32) -> u64 {
    1 << cap
}

fn enough(caps: u64) -> bool {
    let has = |cap: u32| caps & bit(cap) != 0;
    // The two BPF capabilities were split off CAP_SYS_ADMIN, which still covers
    // them; without CAP_SYS_RESOURCE a PSI trigger must have a 2 s window.
    has(CAP_SYS_RESOURCE) && (has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON)))
}

/// One line of the table: an ability, where it comes from, who needs it.
struct Feature {
    name: &'static str,
    what: &'static str,
    from: &'static str,
    /// Exit code of `support` without it; 0: everything works, only less well.
    code: u8,
    has: fn(&Facts) -> bool,
}

/// The table, in the order in which a lack is reported.
const FEATURES: &[Feature] = &[
    Feature {
        name: "cgroup2",
        what: "a cgroup v2 hierarchy to attach to",
        from: "mount -t cgroup2, or systemd.unified_cgroup_hierarchy=1",
        code: 10,
        has: |f| f.cgroup2,
    },
    Feature {
        name: "btf",
        what: "type information, by which the programs find kernel fields",
        from: "CONFIG_DEBUG_INFO_BTF=y",
        code: 11,
        has: |f| f.btf,
    },
    Feature {
        name: "hook",
        what: "struct bpf_mthp_ops with mthp_choose",
        from: "patch 'mm: let BPF policies narrow the orders of anonymous large folios', CONFIG_BPF_TRANSPARENT_HUGEPAGE=y",
        code: 5,
        has: |f| f.abilities.hook,
    },
    Feature {
        name: "cgroup-links",
        what: "struct_ops links on cgroups (BPF_F_CGROUP_FD)",
        from: "patch 'bpf: attach struct_ops maps to cgroups through links'",
        code: 5,
        has: |f| f.abilities.cgroup_links,
    },
    Feature {
        name: "psi-kfuncs",
        what: "bpf_cgroup_flush_stats and bpf_cgroup_stall, for the pressure rule",
        from: "patch 'bpf: add kfuncs to read the pressure stall totals of a cgroup'",
        code: 5,
        has: |f| f.abilities.stall,
    },
    Feature {
        name: "memcg-kfuncs",
        what: "bpf_mem_cgroup_page_state and others, for the small-cgroup rule",
        from: "mm/bpf_memcontrol.c, there in Linux 7.3; CONFIG_MEMCG=y",
        code: 5,
        has: |f| f.abilities.memcg,
    },
    Feature {
        name: "swapin-reason",
        what: "swap-in told apart from other faults",
        from: "patch 'mm: give swap-in its own reason in thp_vma_allowable_orders()'",
        code: 0,
        has: |f| f.abilities.swapin,
    },
    Feature {
        name: "memory-controller",
        what: "the memory controller on cgroup v2, for sizes and limits",
        from: "CONFIG_MEMCG=y, no cgroup_disable=memory, not on cgroup v1",
        code: 7,
        has: |f| f.memory,
    },
    Feature {
        name: "psi",
        what: "pressure stall information, for the pressure rule",
        from: "CONFIG_PSI=y, psi=1",
        code: 6,
        has: |f| f.psi,
    },
    Feature {
        name: "privilege",
        what: "CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and CAP_SYS_RESOURCE",
        from: "root",
        code: 4,
        has: |f| f.privileged,
    },
];

/// One judged feature.
#[derive(Debug, Serialize)]
pub struct Line {
    name: &'static str,
    present: bool,
    what: &'static str,
    from: &'static str,
}

/// The whole answer.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `full`, or the name of the first feature that is missing.
    pub verdict: &'static str,
    /// Exit code: 0, or that of docs/exit-codes.md.
    pub exit_code: u8,
    kernel: String,
    thp: Option<String>,
    policies: Vec<&'static str>,
    features: Vec<Line>,
}

/// Judges the facts.
pub fn judge(facts: &Facts) -> Report {
    let features: Vec<Line> = FEATURES
        .iter()
        .map(|f| Line {
            name: f.name,
            present: (f.has)(facts),
            what: f.what,
            from: f.from,
        })
        .collect();
    let lack = FEATURES.iter().find(|f| f.code != 0 && !(f.has)(facts));
    // The headroom rule reads page counters only, and a cap nothing at all.
    let base = facts.cgroup2
        && facts.abilities.hook
        && facts.abilities.cgroup_links
        && facts.memory
        && facts.privileged;
    let mut policies = Vec::new();
    if base && facts.psi && facts.abilities.stall && facts.abilities.memcg {
        policies.extend(["adaptive", "reactive"]);
    }
    if base {
        policies.extend(["headroom", "fixed"]);
    }
    Report {
        verdict: lack.map_or("full", |f| f.name),
        exit_code: lack.map_or(0, |f| f.code),
        kernel: facts.release.clone(),
        thp: facts.thp.clone(),
        policies,
        features,
    }
}

fn text(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "kernel {}", report.kernel)?;
    if let Some(thp) = &report.thp {
        let note = if thp == "never" {
            " (nothing to narrow)"
        } else {
            ""
        };
        writeln!(out, "transparent_hugepage/enabled: {thp}{note}")?;
    }
    for line in &report.features {
        let mark = if line.present { "yes" } else { "NO" };
        writeln!(out, "{mark:>5}  {:18} {}", line.name, line.what)?;
        if !line.present {
            writeln!(out, "{:26} needs: {}", "", line.from)?;
        }
    }
    match report.policies.as_slice() {
        [] => writeln!(out, "no policy can run here: {} is missing", report.verdict),
        list => writeln!(out, "policies that can run here: {}", list.join(", ")),
    }
}

/// The command.  Returns the exit code.
///
/// # Errors
/// Only if the answer cannot be written.
pub fn main(json: bool) -> Result<u8> {
    let report = judge(&Facts::gather(Path::new(cgroup::DEFAULT_MOUNT)));
    answer::print(&report, json, text)?;
    Ok(report.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Facts {
        Facts {
            release: "7.3.4".to_owned(),
            cgroup2: true,
            btf: true,
            abilities: Abilities {
                hook: true,
                cgroup_links: true,
                stall: true,
                memcg: true,
                swapin: true,
            },
            memory: true,
            psi: true,
            privileged: true,
            thp: Some("always".to_owned()),
        }
    }

    #[test]
    fn everything_there_is_full() {
        let report = judge(&full());
        assert_eq!((report.verdict, report.exit_code), ("full", 0));
        assert_eq!(
            report.policies,
            ["adaptive", "reactive", "headroom", "fixed"]
        );
    }

    #[test]
    fn each_lack_has_its_code() {
        type Lack = fn(&mut Facts);
        let cases: [(Lack, u8, &str); 8] = [
            (|f| f.cgroup2 = false, 10, "cgroup2"),
            (|f| f.btf = false, 11, "btf"),
            (|f| f.abilities.hook = false, 5, "hook"),
            (|f| f.abilities.cgroup_links = false, 5, "cgroup-links"),
            (|f| f.memory = false, 7, "memory-controller"),
            (|f| f.psi = false, 6, "psi"),
            (|f| f.privileged = false, 4, "privilege"),
            (|f| f.abilities.swapin = false, 0, "full"),
        ];
        for (lack, code, verdict) in cases {
            let mut facts = full();
            lack(&mut facts);
            let report = judge(&facts);
            assert_eq!((report.exit_code, report.verdict), (code, verdict));
        }
    }

    #[test]
    fn without_psi_only_headroom_can_run() {
        let report = judge(&Facts {
            psi: false,
            ..full()
        });
        assert_eq!(report.policies, ["headroom", "fixed"]);
    }

    #[test]
    fn a_stock_kernel_lacks_the_hook_first_of_all() {
        let facts = Facts {
            abilities: Abilities::default(),
            psi: false,
            privileged: false,
            ..full()
        };
        assert_eq!(judge(&facts).exit_code, 5);
    }

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        let all = effective_caps("Name:\tx\nCapEff:\t000001ffffffffff\n").unwrap();
        assert!(enough(all));
        assert!(!enough(all & !bit(CAP_SYS_RESOURCE)));
        assert!(enough(
            bit(CAP_BPF) | bit(CAP_PERFMON) | bit(CAP_SYS_RESOURCE)
        ));
        assert!(!enough(bit(CAP_BPF) | bit(CAP_SYS_RESOURCE)));
        assert_eq!(effective_caps("CapEff:\tnone\n"), None);
        assert_eq!(effective_caps(""), None);
    }

    #[test]
    fn text_names_what_is_missing_and_where_it_comes_from() {
        let mut out = Vec::new();
        text(
            &judge(&Facts {
                psi: false,
                ..full()
            }),
            &mut out,
        )
        .unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("NO  psi"), "{out}");
        assert!(out.contains("psi=1"), "{out}");
    }
}
