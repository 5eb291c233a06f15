// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::kernel::absent::{Enforced, Hidden};

fn full() -> Facts {
    Facts {
        release: "7.3.4".to_owned(),
        cgroup2: Ok(true),
        btf: Ok(true),
        carrier: "kernel".to_owned(),
        module: false,
        absent: None,
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
    // That of kernels without kfuncs of memory cgroups stands there alone.
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
        .map(|one| format!("| {} |", one.to_string().replacen(": ", " | ", 1)))
        .collect();
    assert_eq!(here, rows_of_the_page());
}

/// The table of docs/carriers.md, without its markup.
fn rows_of_the_page() -> Vec<String> {
    let page = include_str!("../../../docs/carriers.md");
    let (_, rest) = page.split_once("### What is different\n").unwrap();
    let (section, _) = rest.split_once("\n###").unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    // What is code on the page is plain here.
    rows.skip(2).map(|row| row.replace('`', "")).collect()
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
        " without it: swapin: not asked about; with the module fault is",
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
    let out = shown(&without(Absent::NotInstalled));
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

/// A kernel without the hook, and nobody else who has it.
fn without(absent: Absent) -> Facts {
    Facts {
        carrier: "none".to_owned(),
        abilities: Abilities::default(),
        absent: Some(absent),
        ..full()
    }
}

#[test]
fn without_a_carrier_its_cause_has_the_remedy() {
    let mut seen = std::collections::HashSet::new();
    for (absent, cause, remedy) in [
        (Absent::NotInstalled, "not installed", "mthp-ext-dkms"),
        (Absent::NotBuilt, "built no module", "dkms autoinstall"),
        (Absent::NotLoaded, "not loaded", "run `modprobe mthp_hook`"),
        (Absent::Namesake, "another module", "rmmod mthp_hook"),
        (
            Absent::Unsigned(Enforced::Lockdown),
            "locked down",
            "mokutil",
        ),
        (Absent::Refused("a line".to_owned()), "`a line`", "look"),
        (
            Absent::Untold(Hidden::Directory("/lib/modules/6.12".to_owned())),
            "cannot be told from here: there is no /lib/modules/6.12",
            "outside of containers",
        ),
        (
            Absent::Untold(Hidden::File("a file: no".to_owned())),
            "is installed cannot be told from here (a file: no)",
            "`mthp_ext support` as root on the host",
        ),
        (
            Absent::Untold(Hidden::Log("a log: no".to_owned())),
            "was refused cannot be told from here (a log: no)",
            "journalctl -u modprobe@mthp_hook",
        ),
    ] {
        let facts = without(absent);
        let out = shown(&facts);
        let line = out.lines().find(|line| line.starts_with("  cause: "));
        assert!(line.is_some_and(|line| line.contains(cause)), "{out}");
        let remedies: Vec<&str> = out.matches("remedy: ").collect();
        assert_eq!(remedies.len(), 1, "{out}");
        let (_, after) = out.split_once("  remedy: ").unwrap();
        assert!(after.lines().next().unwrap().contains(remedy), "{out}");
        assert!(
            seen.insert(after.lines().next().unwrap().to_owned()),
            "{out}"
        );
        assert_eq!(judge(&facts).exit_code, 5);
    }
    assert_eq!(judge(&full()).cause, None);
}

#[test]
fn without_types_no_carrier_is_advised() {
    let out = shown(&Facts {
        btf: Ok(false),
        abilities: Abilities::default(),
        ..full()
    });
    assert!(
        out.contains("  remedy: boot a kernel with CONFIG_DEBUG_INFO_BTF=y"),
        "{out}"
    );
    assert_eq!(out.matches("remedy:").count(), 1, "{out}");
}

#[test]
fn the_module_takes_another_right() {
    let lacks = |facts: Facts| {
        shown(&Facts {
            privileged: Ok(false),
            ..facts
        })
    };
    let out = lacks(module());
    assert!(out.contains("mthp-hook.conf"), "{out}");
    let out = lacks(full());
    assert!(out.contains("  remedy: run mthp_ext as root\n"), "{out}");
}
