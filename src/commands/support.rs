// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext support`: what this kernel can do.  Facts are gathered, judged by
//! a table, and printed; nothing is changed on the way.

use std::io::Write;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::errors::{Error, Result};
use crate::kernel::abilities::{Abilities, Hook};
use crate::kernel::absent::Absent;
use crate::kernel::carrier::{By, Carrier};
use crate::kernel::cgroup::{self, Cgroup};
use crate::kernel::lacks::{self, Described, Lack};
use crate::kernel::process;
use crate::kernel::psi;
use crate::kernel::thp::Thp;
use crate::model::policy::{BUILT_IN, Policy};
use crate::model::reason::Reason;
use crate::model::rule::Rule;
use crate::output::print;

/// What was found out of one thing: whether it is there, or why nobody knows.
type Known = std::result::Result<bool, String>;

/// What is known about the running system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// A cgroup v2 hierarchy is mounted.
    pub cgroup2: Known,
    /// The kernel has BTF.
    pub btf: Known,
    /// Who carries the hook.
    pub carrier: String,
    /// It is the module, which differs in some things.
    pub module: bool,
    /// Why nobody does, on a kernel without the hook.
    pub absent: Option<Absent>,
    /// What the BTF shows.
    pub abilities: Abilities,
    /// The memory controller is on cgroup v2.
    pub memory: Known,
    /// PSI is on.
    pub psi: Known,
    /// This process may load and attach.
    pub privileged: Known,
    /// The setting that a policy narrows.
    pub thp: Thp,
}

impl Facts {
    /// Reads the running system, with its cgroups at `mount`.
    pub fn gather(mount: &Path) -> Self {
        let carrier = Carrier::probe();
        let btf = known(carrier.as_ref().map(|_| ()));
        let carrier = carrier.ok();
        let cgroup = Cgroup::open(mount);
        let psi_file = psi::file_of(mount, mount);
        let psi = psi::available(&psi_file);
        let module = carrier.as_ref().is_some_and(|c| c.by == By::Module);
        Facts {
            release: process::release(),
            cgroup2: known(cgroup.as_ref().map(|_| ())),
            carrier: match &carrier {
                Some(carrier) => carrier.name(),
                None if btf.is_err() => "unknown".to_owned(),
                None => "none".to_owned(),
            },
            absent: match &carrier {
                Some(carrier) if carrier.abilities.hook == Hook::None => Some(Absent::here()),
                _ => None,
            },
            btf,
            module,
            abilities: carrier.map(|c| c.abilities).unwrap_or_default(),
            memory: match &cgroup {
                Ok(cgroup) => known(cgroup.require_memory().as_ref().copied()),
                Err(error) => known(Err(error)),
            },
            psi: match psi {
                Ok(is_on) => Ok(is_on),
                Err(e) => known(Err(&Error::reading(&psi_file, e))),
            },
            privileged: process::privileged(module).map_err(|e| e.to_string()),
            thp: Thp::of_this_machine(),
        }
    }

    /// Who carries the hook, if anybody does.
    fn by(&self) -> By {
        match self.module {
            true => By::Module,
            false => By::Series,
        }
    }

    /// What brings what the carrier lacks.
    fn remedy(&self) -> &'static str {
        match &self.absent {
            _ if self.btf == Ok(false) => TYPES,
            _ if self.module => MODULE,
            Some(absent) => absent.remedy(),
            None => SERIES,
        }
    }

    /// Has the hook's carrier this?  What its type information says, if that was read.
    fn able(&self, has: impl FnOnce(&Abilities) -> bool) -> Known {
        self.btf.clone().map(|_| has(&self.abilities))
    }
}

/// A lack has an error of its own; what could not be read leaves it open.
fn known(found: std::result::Result<(), &Error>) -> Known {
    match found {
        Ok(()) => Ok(true),
        Err(error @ (Error::System { .. } | Error::NoPrivilege { .. })) => Err(error.to_string()),
        Err(_) => Ok(false),
    }
}

/// Neither carrier can do without.
const TYPES: &str = "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as those of distributions have it; \
     where /sys is not mounted, run `mount -t sysfs none /sys`";

/// Where no build of the module helps: a kernel that has some of the series, or that it does not
/// know.
const SERIES: &str = "install a kernel with the mthp_ext series of this version (docs/install.md)";

/// The module is loaded.
const MODULE: &str = "build and load the module of this version of mthp_ext (docs/carriers.md), or install a kernel \
     with the mthp_ext series (docs/install.md)";

/// What the module does without on purpose.
const BY_DESIGN: &str = "none is needed: the module does without it by design (docs/carriers.md); a kernel with the \
     mthp_ext series has it (docs/install.md)";

/// One line of the table: an ability, where it comes from, how to get it.
struct Feature {
    name: &'static str,
    what: &'static str,
    from: &'static str,
    /// `None`: another carrier, or another version of it.
    remedy: Option<&'static str>,
    /// Exit code of `support` without it; 0: everything works, only less well.
    code: u8,
    has: fn(&Facts) -> Known,
}

/// The table, in the order in which a lack is reported.
const FEATURES: &[Feature] = &[
    Feature {
        name: "cgroup2",
        what: "a cgroup v2 hierarchy to attach to",
        from: "a mount of type cgroup2 at /sys/fs/cgroup",
        remedy: Some(
            "boot with systemd.unified_cgroup_hierarchy=1; \
                 where no cgroups are mounted, run `mount -t cgroup2 none /sys/fs/cgroup`",
        ),
        code: 10,
        has: |f| f.cgroup2.clone(),
    },
    Feature {
        name: "btf",
        what: "type information, by which the programs find kernel fields",
        from: "CONFIG_DEBUG_INFO_BTF=y",
        remedy: None,
        code: 11,
        has: |f| f.btf.clone(),
    },
    Feature {
        name: "hook",
        what: "struct bpf_mthp_ops with mthp_choose",
        from: "the kernel series, CONFIG_BPF_TRANSPARENT_HUGEPAGE=y",
        remedy: None,
        code: 5,
        has: |f| f.able(|has| has.hook != Hook::None),
    },
    Feature {
        name: "interface",
        what: "mthp_choose with the arguments that the policies expect",
        from: "the kernel series of this version: an earlier one called it in another way",
        remedy: None,
        code: 5,
        has: |f| f.able(|has| has.hook == Hook::Known),
    },
    Feature {
        name: "cgroup-links",
        what: "struct_ops links on cgroups (BPF_F_CGROUP_FD)",
        from: "patch 'bpf: attach struct_ops maps to cgroups through links'",
        remedy: None,
        code: 5,
        has: |f| f.able(|has| has.cgroup_links),
    },
    Feature {
        name: "psi-kfuncs",
        what: "bpf_cgroup_flush_stats and bpf_cgroup_stall, for the rule pressure",
        from: "patch 'bpf: add kfuncs to read the pressure stall totals of a cgroup'",
        remedy: None,
        code: 5,
        has: |f| f.able(|has| has.stall),
    },
    Feature {
        name: "memcg-kfuncs",
        what: "bpf_mem_cgroup_page_state and others, for the rule small",
        from: "mm/bpf_memcontrol.c of the kernel, CONFIG_MEMCG=y",
        remedy: None,
        code: 5,
        has: |f| f.able(|has| has.memcg),
    },
    Feature {
        name: lacks::ROOM,
        what: "bpf_cgroup_spare_pages and bpf_cgroup_cold_file_pages, for the rule room",
        from: "patch 'mm: add BPF kfuncs for cold page cache and spare pages'",
        remedy: None,
        code: 0,
        has: |f| f.able(|has| has.room),
    },
    Feature {
        name: lacks::REASONS,
        what: "fault, swapin, khugepaged, collapse and reclaim are asked about, each for itself",
        from: "the kernel series; a kernel without a reason does not ask for it",
        remedy: None,
        code: 0,
        has: |f| f.able(|has| Reason::ALL.into_iter().all(|r| has.reasons[r])),
    },
    Feature {
        name: "memory-controller",
        what: "the memory controller on cgroup v2, for sizes and limits",
        from: "CONFIG_MEMCG=y",
        remedy: Some(
            "boot without cgroup_disable=memory; where the controller is on cgroup v1, \
                 boot with systemd.unified_cgroup_hierarchy=1",
        ),
        code: 7,
        has: |f| f.memory.clone(),
    },
    Feature {
        name: "psi",
        what: "pressure stall information, for policies with the rule pressure",
        from: "CONFIG_PSI=y",
        remedy: Some("boot with psi=1, or use `--policy headroom`"),
        code: 6,
        has: |f| f.psi.clone(),
    },
    Feature {
        name: PRIVILEGE,
        what: "CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN, which the module takes), and CAP_SYS_RESOURCE",
        from: "root, or a file or service with these capabilities",
        remedy: Some("run mthp_ext as root"),
        code: 4,
        has: |f| f.privileged.clone(),
    },
];

/// The row of rights.
const PRIVILEGE: &str = "privilege";

/// The module takes more of them.
const OF_THE_MODULE: &str = "run mthp_ext as root; a service needs CAP_SYS_ADMIN, which mthp-hook.conf gives it \
     (docs/carriers.md)";

/// What only policies with a scan need.
const OF_SCANS: [&str; 3] = ["psi-kfuncs", "memcg-kfuncs", "psi"];

/// Exit code where the first feature that is not there cannot be looked at: as of a failed call.
const UNREAD: u8 = 1;

/// One judged feature.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Line {
    name: &'static str,
    /// False, too, where nobody knows.
    present: bool,
    /// Why nobody knows, in words.
    error: Option<String>,
    what: &'static str,
    from: &'static str,
    /// What is lacking of it, and how it is then, where that is not all of it.
    lacks: Vec<Described>,
    /// The carrier does without what is lacking on purpose: nothing is to be done.
    by_design: bool,
    remedy: &'static str,
    /// By every policy.
    #[serde(skip)]
    needed: bool,
}

/// The whole answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// `full`, or the name of the first feature that is missing, or that nobody knows of.
    pub verdict: &'static str,
    /// Exit code: 0, or that of docs/exit-codes.md.
    pub exit_code: u8,
    kernel: String,
    /// Who carries the hook: `kernel`, `module NAME VERSION`, `none`, or `unknown`.
    carrier: String,
    /// Why there is none, in words.
    cause: Option<String>,
    /// What is different with this carrier.
    differences: Vec<Described>,
    /// transparent_hugepage/enabled.
    thp: Option<String>,
    /// The same in words.
    #[serde(skip)]
    setting: String,
    policies: Vec<&'static str>,
    features: Vec<Line>,
}

/// Judges the facts.
pub fn judge(facts: &Facts) -> Report {
    let of_carrier: Vec<&Lack> = match facts.abilities.hook {
        Hook::Known => lacks::of(facts.by(), &facts.abilities).collect(),
        Hook::None | Hook::Foreign => Vec::new(),
    };
    let features: Vec<Line> = FEATURES
        .iter()
        .map(|f| {
            let has = (f.has)(facts);
            let lacks = of_carrier
                .iter()
                .filter(|lack| lack.feature == Some(f.name));
            let lacks: Vec<&&Lack> = lacks.collect();
            let by_design =
                facts.module && !lacks.is_empty() && lacks.iter().all(|lack| lack.of_module);
            Line {
                lacks: lacks.iter().map(|lack| lack.described()).collect(),
                by_design,
                name: f.name,
                present: has == Ok(true),
                error: has.err(),
                what: f.what,
                from: f.from,
                remedy: match f.remedy {
                    _ if by_design => BY_DESIGN,
                    _ if facts.module && f.name == PRIVILEGE => OF_THE_MODULE,
                    Some(remedy) => remedy,
                    // It is the kernel that the module does not know.
                    None if facts.module && f.name == lacks::REASONS => SERIES,
                    None => facts.remedy(),
                },
                needed: f.code != 0 && !OF_SCANS.contains(&f.name),
            }
        })
        .collect();
    let lack = FEATURES
        .iter()
        .zip(&features)
        .find(|(f, line)| f.code != 0 && !line.present);
    // Rules read page counters and the process; only the scan needs more.
    let base = features.iter().all(|line| line.present || !line.needed);
    let scan = features
        .iter()
        .all(|line| line.present || !OF_SCANS.contains(&line.name));
    let runs = |policy: &Policy| base && (scan || !policy.rules.has(Rule::Pressure));
    let policies = BUILT_IN
        .iter()
        .filter(|(name, text)| Policy::parse(name, text).is_ok_and(|policy| runs(&policy)))
        .map(|(name, _)| *name)
        .collect();
    Report {
        verdict: lack.map_or("full", |(f, _)| f.name),
        exit_code: match lack {
            None => 0,
            Some((_, Line { error: Some(_), .. })) => UNREAD,
            Some((f, _)) => f.code,
        },
        kernel: facts.release.clone(),
        carrier: facts.carrier.clone(),
        cause: facts.absent.as_ref().map(Absent::cause),
        differences: of_carrier
            .iter()
            .filter(|lack| facts.module && lack.of_module)
            .map(|lack| lack.described())
            .collect(),
        thp: facts.thp.enabled.clone(),
        setting: facts.thp.text(),
        policies,
        features,
    }
}

fn text(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "kernel {}; {}", report.kernel, report.setting)?;
    writeln!(out, "carrier: {}", report.carrier)?;
    if let Some(cause) = &report.cause {
        writeln!(out, "  cause: {cause}")?;
    }
    for one in &report.differences {
        writeln!(out, "  different: {one}")?;
    }
    for line in &report.features {
        let mark = match (line.present, &line.error) {
            (true, _) => "yes",
            (false, None) if line.by_design => "part",
            (false, None) => "NO",
            (false, Some(_)) => "?",
        };
        writeln!(out, "{mark:>5}  {:18} {}", line.name, line.what)?;
        match &line.error {
            Some(error) => writeln!(out, "{:25} unknown: {error}", "")?,
            None if line.by_design => {
                writeln!(
                    out,
                    "{:25} by design, with this carrier (docs/carriers.md)",
                    ""
                )?;
            }
            None if !line.present => writeln!(out, "{:25} comes with {}", "", line.from)?,
            None => {}
        }
        for lack in &line.lacks {
            writeln!(out, "{:25} without it: {lack}", "")?;
        }
    }
    let missing = |unknown: bool| {
        let lines = report.features.iter();
        let lines = lines.filter(|line| !line.present && !line.by_design);
        lines.filter(move |line| line.error.is_some() == unknown)
    };
    for (what, unknown) in [("missing", false), ("unknown", true)] {
        let names: Vec<&str> = missing(unknown).map(|line| line.name).collect();
        if !names.is_empty() {
            writeln!(out, "{what}: {}", names.join(", "))?;
        }
    }
    let mut remedies: Vec<&str> = Vec::new();
    for line in missing(false) {
        if !remedies.contains(&line.remedy) {
            remedies.push(line.remedy);
            writeln!(out, "  remedy: {}", line.remedy)?;
        }
    }
    match report.policies.as_slice() {
        [] if report.exit_code == UNREAD && missing(false).all(|line| !line.needed) => {
            writeln!(out, "whether a policy can run here is unknown")
        }
        [] => writeln!(out, "no policy can run here"),
        list => writeln!(out, "policies that can run here: {}", list.join(", ")),
    }
}

/// The command.  Returns the exit code.
///
/// # Errors
/// Only if the answer cannot be written.
pub fn main(json: bool) -> Result<u8> {
    let report = judge(&Facts::gather(Path::new(cgroup::DEFAULT_MOUNT)));
    print::print(&report, json, text)?;
    Ok(report.exit_code)
}

#[cfg(test)]
mod tests;
