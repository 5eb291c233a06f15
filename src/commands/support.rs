// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext support`: what this kernel can do.  Facts are gathered, judged by
//! a table, and printed; nothing is changed on the way.

use std::io::Write;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::errors::{Error, Result};
use crate::kernel::carrier::{Abilities, By, Carrier, Hook};
use crate::kernel::cgroup::{self, Cgroup};
use crate::kernel::lacks::{self, Lack};
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
        Facts {
            release: process::release(),
            cgroup2: known(cgroup.as_ref().map(|_| ())),
            carrier: match &carrier {
                Some(carrier) => carrier.name(),
                None if btf.is_err() => "unknown".to_owned(),
                None => "none".to_owned(),
            },
            btf,
            module: carrier.as_ref().is_some_and(|c| c.by == By::Module),
            abilities: carrier.map(|c| c.abilities).unwrap_or_default(),
            memory: match &cgroup {
                Ok(cgroup) => known(cgroup.require_memory().as_ref().copied()),
                Err(error) => known(Err(error)),
            },
            psi: match psi {
                Ok(is_on) => Ok(is_on),
                Err(e) => known(Err(&Error::reading(&psi_file, e))),
            },
            privileged: process::privileged().map_err(|e| e.to_string()),
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
        match self.abilities.hook {
            _ if self.module => MODULE,
            Hook::None => KERNEL,
            Hook::Foreign | Hook::Known => SERIES,
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

/// A kernel with all of the series.
const KERNEL: &str = "install a kernel with the mthp_ext series of this version (docs/install.md), \
     or load the module for stock kernels (docs/carriers.md); to try mthp_ext without either, run `make demo`";

/// The series, on a kernel that has some of it: there no module can be loaded.
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
        from: "mm/bpf_memcontrol.c of Linux 7.3, CONFIG_MEMCG=y",
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
        name: "privilege",
        what: "CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and CAP_SYS_RESOURCE",
        from: "root, or a file or service with these capabilities",
        remedy: Some("run mthp_ext as root"),
        code: 4,
        has: |f| f.privileged.clone(),
    },
];

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
    lacks: Vec<String>,
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
    /// What is different with this carrier.
    differences: Vec<String>,
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
                lacks: lacks.iter().map(|lack| lack.text()).collect(),
                by_design,
                name: f.name,
                present: has == Ok(true),
                error: has.err(),
                what: f.what,
                from: f.from,
                remedy: match f.remedy {
                    _ if by_design => BY_DESIGN,
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
        differences: of_carrier
            .iter()
            .filter(|lack| facts.module && lack.of_module)
            .map(|lack| lack.text())
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
mod tests {
    use super::*;

    fn full() -> Facts {
        Facts {
            release: "7.3.4".to_owned(),
            cgroup2: Ok(true),
            btf: Ok(true),
            carrier: "kernel".to_owned(),
            module: false,
            abilities: lacks::everything(),
            memory: Ok(true),
            psi: Ok(true),
            privileged: Ok(true),
            thp: Thp {
                enabled: Some("always".to_owned()),
                unread: None,
                off: false,
            },
        }
    }

    #[test]
    fn everything_there_is_full() {
        let report = judge(&full());
        assert_eq!((report.verdict, report.exit_code), ("full", 0));
        assert_eq!(report.policies.len(), BUILT_IN.len());
    }

    #[test]
    fn each_lack_has_its_code() {
        type Lack = fn(&mut Facts);
        let cases: [(Lack, u8, &str); 10] = [
            (|f| f.cgroup2 = Ok(false), 10, "cgroup2"),
            (|f| f.btf = Ok(false), 11, "btf"),
            (|f| f.abilities.hook = Hook::None, 5, "hook"),
            (|f| f.abilities.hook = Hook::Foreign, 5, "interface"),
            (|f| f.abilities.cgroup_links = false, 5, "cgroup-links"),
            (|f| f.memory = Ok(false), 7, "memory-controller"),
            (|f| f.psi = Ok(false), 6, "psi"),
            (|f| f.privileged = Ok(false), 4, "privilege"),
            (|f| f.abilities.room = false, 0, "full"),
            (|f| f.abilities.reasons[Reason::Swapin] = false, 0, "full"),
        ];
        for (lack, code, verdict) in cases {
            let mut facts = full();
            lack(&mut facts);
            let report = judge(&facts);
            assert_eq!((report.exit_code, report.verdict), (code, verdict));
        }
    }

    #[test]
    fn without_psi_policies_without_pressure_can_run() {
        let report = judge(&Facts {
            psi: Ok(false),
            ..full()
        });
        let can_run = |name| report.policies.contains(&name);
        assert!(can_run("headroom") && can_run("fixed") && !can_run("default"));
    }

    #[test]
    fn a_stock_kernel_lacks_the_hook_first_of_all() {
        let facts = Facts {
            abilities: Abilities::default(),
            psi: Ok(false),
            privileged: Ok(false),
            ..full()
        };
        assert_eq!(judge(&facts).exit_code, 5);
    }

    /// A file that cannot be read is no missing feature, and no missing right.
    #[test]
    fn what_nobody_knows_is_not_missing() {
        let unread = || Err("Input/output error".to_owned());
        let facts = Facts {
            btf: unread(),
            abilities: Abilities::default(),
            ..full()
        };
        let out = shown(&facts);
        assert!(
            out.ends_with("whether a policy can run here is unknown\n"),
            "{out}"
        );
        let facts = Facts {
            privileged: Ok(false),
            ..facts
        };
        assert!(shown(&facts).ends_with("no policy can run here\n"));
        let report = judge(&facts);
        assert_eq!((report.verdict, report.exit_code), ("btf", 1));
        assert_eq!(report.policies, [""; 0]);
        let out = shown(&facts);
        for part in [
            "    ?  hook ",
            "unknown: Input/output error\n",
            "\nmissing: privilege\nunknown: btf, hook, ",
        ] {
            assert!(out.contains(part), "{out}");
        }
        assert!(!out.contains("install a kernel"), "{out}");
        // What is known to be missing comes first where it stands first.
        let facts = Facts {
            cgroup2: Ok(false),
            ..facts
        };
        assert_eq!(judge(&facts).exit_code, 10);
    }

    fn shown(facts: &Facts) -> String {
        let mut out = Vec::new();
        text(&judge(facts), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_names_what_is_missing_and_the_remedy() {
        let without = Facts {
            psi: Ok(false),
            ..full()
        };
        let out = shown(&without);
        assert!(out.contains("   NO  psi "), "{out}");
        let end = format!(
            "missing: psi\n  remedy: boot with psi=1, or use `--policy headroom`\n\
             policies that can run here: {}\n",
            judge(&without).policies.join(", ")
        );
        assert!(out.ends_with(&end), "{out}");
        let out = shown(&full());
        assert!(!out.contains("missing"), "{out}");
        assert!(
            out.starts_with(
                "kernel 7.3.4; transparent_hugepage/enabled is always\ncarrier: kernel\n  yes"
            ),
            "{out}"
        );
    }

    fn module() -> Facts {
        Facts {
            carrier: "module mthp_hook 0.1".to_owned(),
            module: true,
            abilities: lacks::of_the_module(),
            ..full()
        }
    }

    #[test]
    fn what_is_different_with_the_module_is_said() {
        let facts = module();
        let out = shown(&facts);
        assert!(
            out.contains("\ncarrier: module mthp_hook 0.1\n  different: reclaim: not asked about"),
            "{out}"
        );
        // That of Linux 6.12 stands there alone.
        assert_eq!(
            out.matches("  different: ").count(),
            rows_of_the_page().len() - 1
        );
        assert_eq!(judge(&facts).exit_code, 0);
        let mut old = facts;
        old.abilities.page_state = false;
        let here: Vec<String> = judge(&old)
            .differences
            .iter()
            .map(|text| format!("| {} |", text.replacen(": ", " | ", 1)))
            .collect();
        assert_eq!(here, rows_of_the_page());
    }

    /// The table of docs/carriers.md.
    fn rows_of_the_page() -> Vec<&'static str> {
        let page = include_str!("../../docs/carriers.md");
        let (_, rest) = page.split_once("### What is different\n").unwrap();
        let (section, _) = rest.split_once("\n###").unwrap();
        let rows = section.lines().filter(|line| line.starts_with('|'));
        rows.skip(2).collect()
    }

    fn reasons(facts: &Facts) -> serde_json::Value {
        let json = serde_json::to_value(judge(facts)).unwrap();
        let mut features = json["features"].as_array().unwrap().iter();
        let line = features.find(|line| line["name"] == "reasons");
        line.unwrap().clone()
    }

    /// It is loaded already, and no build of it asks at reclaim.
    #[test]
    fn what_the_module_does_without_by_design_is_not_missing() {
        let out = shown(&module());
        assert!(
            out.contains(
                "\n part  reasons            fault, swapin, khugepaged, collapse and reclaim are asked about, \
                 each for itself\n                          by design, with this carrier (docs/carriers.md)\n\
                 \x20                         without it: reclaim: not asked about: "
            ),
            "{out}"
        );
        for part in [" NO ", "missing", "remedy"] {
            assert!(!out.contains(part), "{part}: {out}");
        }
        let line = reasons(&module());
        assert_eq!(
            (&line["present"], &line["by_design"], &line["remedy"]),
            (&false.into(), &true.into(), &BY_DESIGN.into())
        );
        assert_eq!(line["lacks"].as_array().unwrap().len(), 1, "{line}");
        let line = reasons(&full());
        assert_eq!(
            (&line["present"], &line["by_design"], &line["lacks"]),
            (&true.into(), &false.into(), &serde_json::json!([]))
        );
    }

    /// It knows no functions that swap in: another kernel helps, and the module does not.
    #[test]
    fn what_the_module_lacks_on_this_kernel_is_missing() {
        let mut facts = module();
        facts.abilities.reasons[Reason::Swapin] = false;
        let out = shown(&facts);
        for part in [
            "\n   NO  reasons ",
            " without it: reclaim: not asked about",
            " without it: swapin: not asked about; with the module `fault` is",
            "\nmissing: reasons\n  remedy: install a kernel with the mthp_ext series",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
        assert!(!out.contains("load the module"), "{out}");
        assert_eq!(reasons(&facts)["by_design"], false);
        assert_eq!(judge(&facts).exit_code, 0);
    }

    #[test]
    fn a_remedy_is_for_the_carrier_that_is_there() {
        let foreign = |facts: Facts| {
            let mut facts = facts;
            facts.abilities.hook = Hook::Foreign;
            shown(&facts)
        };
        let out = foreign(module());
        let own = "  remedy: build and load the module of this version";
        assert!(out.contains(own), "{out}");
        // Where the kernel has the hook the module is not loaded.
        let out = foreign(full());
        assert!(!out.contains("load the module"), "{out}");
    }

    /// Every policy runs, and what it does without is named.
    #[test]
    fn kfuncs_that_tell_what_is_left_are_named() {
        let mut facts = full();
        facts.abilities.room = false;
        let report = judge(&facts);
        assert_eq!(report.policies.len(), BUILT_IN.len());
        let json = serde_json::to_value(&report).unwrap();
        let line = json["features"].as_array().unwrap();
        let line = line.iter().find(|line| line["name"] == "room-kfuncs");
        assert_eq!(line.unwrap()["present"], false);
        let out = shown(&facts);
        for part in [
            "   NO  room-kfuncs",
            " bpf_cgroup_spare_pages and bpf_cgroup_cold_file_pages, for the rule room\n",
            " without it: memory left on the machine: does not count, and page cache as of the last scan\n",
            "missing: room-kfuncs\n",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }

    #[test]
    fn with_a_foreign_hook_no_policy_can_run() {
        let mut facts = full();
        facts.abilities.hook = Hook::Foreign;
        let report = judge(&facts);
        assert!(report.policies.is_empty());
        let out = shown(&facts);
        assert!(
            out.contains("missing: interface\n  remedy: install a kernel with"),
            "{out}"
        );
    }

    #[test]
    fn a_stock_kernel_gets_one_remedy_for_all_of_it() {
        let out = shown(&Facts {
            abilities: Abilities::default(),
            ..full()
        });
        assert!(
            out.contains(
                "missing: hook, interface, cgroup-links, psi-kfuncs, memcg-kfuncs, room-kfuncs, reasons\n"
            ),
            "{out}"
        );
        assert_eq!(out.matches("remedy:").count(), 1, "{out}");
        assert!(out.contains("docs/install.md"), "{out}");
        assert!(out.ends_with("no policy can run here\n"), "{out}");
    }
}
