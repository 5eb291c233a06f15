// SPDX-License-Identifier: GPL-2.0-only
//! What programs get of a policy: its values over the defaults of the table, checked against each
//! other.

use super::abi::{self, Tunables};
use super::caps::Caps;
use super::given::Values;
use super::options::{CLASHES, OPTIONS, Opt};
use super::orders::Sizes;
use super::policy::{Mistake, Policy};
use super::rule::{Rule, SCANS};
use super::value::Value;

/// The constants of a policy: the table's, then the policy's, then those given.  What the kernel
/// can do is not known here (`takes_back`).
///
/// # Errors
/// Values that are each fine but do not go together; with a line, if the policy's file has them.
pub fn tunables(policy: &Policy, given: &Values, sizes: &Sizes) -> Result<Tunables, Mistake> {
    let machine = Tunables {
        page_shift: sizes.page_shift,
        largest_pages: 1 << sizes.largest(),
        pud_pages: sizes.pud_there().map_or(0, |order| 1 << order),
        ..Tunables::default()
    };
    let t = filled(policy, given, machine)?;
    // A file may leave the cap to the user.
    if policy.rules.iter().eq([Rule::Cap]) && caps(policy, given).is_none() {
        return Err(Mistake {
            line: None,
            what: format!(
                "policy {} has no cap and would narrow nothing: add a cap",
                policy.name
            ),
        });
    }
    Ok(t)
}

/// Do the values of a policy's file go together?
///
/// # Errors
/// The first mistake.
pub fn sound(policy: &Policy) -> Result<(), Mistake> {
    // No check depends on the machine.
    filled(policy, &Values::default(), Tunables::default()).map(|_| ())
}

/// The constants of `machine`, with those of the options.
fn filled(policy: &Policy, given: &Values, machine: Tunables) -> Result<Tunables, Mistake> {
    let mut t = Tunables {
        rules: policy.rules.0,
        ..machine
    };
    // The kernel keeps no more of it, and two that begin alike would look like one.
    let longest = t.policy.len() - 1;
    if policy.name.len() > longest {
        return Err(Mistake {
            line: None,
            what: format!(
                "the policy's name {} has {} bytes, of {longest} at most: give the file a shorter one",
                policy.name,
                policy.name.len()
            ),
        });
    }
    abi::set_text(&mut t.policy, &policy.name);
    for option in OPTIONS {
        let value = given.of(option).or_else(|| policy.values.of(option));
        let value = value.map_or_else(|| option.parse(option.default), Ok);
        option.set(&mut t, value.map_err(|what| Mistake { line: None, what })?);
    }
    check(policy, given, &t)?;
    Ok(t)
}

fn caps(policy: &Policy, given: &Values) -> Caps {
    let caps = OPTIONS.iter().find_map(|option| {
        match given.of(option).or_else(|| policy.values.of(option)) {
            Some(Value::Caps(caps)) => Some(caps),
            _ => None,
        }
    });
    caps.unwrap_or_default()
}

/// Checks the values against each other.
fn check(policy: &Policy, given: &Values, t: &Tunables) -> Result<(), Mistake> {
    // The last of their lines, of those that the user did not overrule.
    let mistake = |to_blame: &[&str], what: String| {
        let options = to_blame.iter().filter_map(|name| Opt::named(name));
        let own = options.filter(|option| given.of(option).is_none());
        let lines = own.filter_map(|option| policy.values.line_of(option));
        Mistake {
            line: lines.max(),
            what,
        }
    };
    // What would bind nothing is a mistake, and nobody would notice it.
    for option in OPTIONS {
        let wanted = given.of(option).or_else(|| policy.values.of(option));
        if wanted.is_some() && !option.belongs_to(policy.rules) {
            let rules: Vec<&str> = option.rules.iter().map(|rule| rule.name()).collect();
            let what = format!(
                "{} has no effect without the rule {}, which policy {} does not have: \
                 leave the option out, or take a policy with that rule",
                option.name,
                rules.join(" or "),
                policy.name
            );
            return Err(mistake(&[option.name], what));
        }
    }
    for clash in &CLASHES {
        if (clash.is)(t, &caps(policy, given)) {
            return Err(mistake(&clash.options, (clash.what)(t)));
        }
    }
    // Only the scan sees memory without its page cache, and what a process has left behind.
    let mut scanned = [Rule::Small, Rule::Sparse].into_iter();
    let unscanned = scanned.find(|rule| policy.rules.has(*rule) && !policy.rules.has(SCANS));
    if let Some(rule) = unscanned {
        return Err(Mistake {
            line: policy.rules_line,
            what: format!(
                "the rule {} needs the scan, which comes with the rule {}: add {} to the rules, \
                 or take {} away. Neither runs without PSI; room and cap do",
                rule.name(),
                SCANS.name(),
                SCANS.name(),
                rule.name()
            ),
        });
    }
    Ok(())
}

/// The defaults of the table, with every rule on: for programs that obey no policy, and what the
/// unit tests start from.
///
/// # Errors
/// None: a test reads every default.
pub fn defaults(sizes: &Sizes) -> Result<Tunables, Mistake> {
    let t = tunables(&with_every_rule(), &Values::default(), sizes)?;
    // As on a kernel of this series.
    Ok(Tunables { takes_back: 1, ..t })
}

fn with_every_rule() -> Policy {
    Policy {
        rules: Rule::ALL.into_iter().collect(),
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::Bind;
    use crate::model::orders::{X86, X86_PUD, X86_PUD_OFF};
    use crate::model::policy::BUILT_IN;
    use crate::model::reason::NR_REASONS;
    use crate::model::rule::Rules;

    fn built_in(name: &str) -> Policy {
        Policy::built_in(name).unwrap().unwrap()
    }

    #[test]
    fn the_defaults_are_as_documented() {
        let t = defaults(&X86).unwrap();
        assert_eq!((t.threshold_ns, t.window_ns), (100_000_000, 1_000_000_000));
        assert_eq!((t.min_memory, t.sparse_bytes), (8 << 20, 64 << 20));
        assert_eq!((t.limit_share, t.room_factor), (512, 1024));
        assert_eq!(t.sample_mask, 15);
        assert_eq!(t.count_nodes, 0);
        assert_eq!((t.count_machine, t.spare_cache, t.some_stall), (1, 1, 0));
        assert_eq!((t.bind, t.bind_khugepaged), (Bind(0), 1));
        assert_eq!(t.cap[1..], [abi::NO_CAP; NR_REASONS - 1]);
        assert_eq!((t.page_shift, t.largest_pages, t.pud_pages), (12, 512, 0));
        let with_pud = Tunables {
            pud_pages: 1 << 18,
            ..t
        };
        // Programs have to know it before somebody switches it on.
        let same = [X86_PUD, X86_PUD_OFF]
            .map(|sizes| abi::as_bytes(&with_pud) == abi::as_bytes(&defaults(&sizes).unwrap()));
        assert_eq!(same, [true; 2], "1 GiB changes nothing else");
    }

    #[test]
    fn values_must_go_together() {
        let given = |words: &[(&str, &str)]| {
            let mut values = Values::default();
            for (name, text) in words {
                let option = Opt::named(name).unwrap();
                values.add(option, option.parse(text).unwrap());
            }
            tunables(&with_every_rule(), &values, &X86)
        };
        assert!(
            given(&[("threshold", "2s")])
                .unwrap_err()
                .what
                .contains("longer than the window")
        );
        assert!(given(&[("threshold", "1s")]).is_ok());
        assert!(
            given(&[("cap", "collapse=64K")])
                .unwrap_err()
                .what
                .contains("no rule binds")
        );
        let bound = given(&[("cap", "collapse=64K"), ("bind", "collapse")]).unwrap();
        assert_eq!(bound.cap[4], 4);
        for more in ["advised", "collapse", "advised,collapse"] {
            let bound = given(&[("bind", more)]).unwrap();
            assert_eq!(bound.bind_khugepaged, 1, "{more} leaves it bound");
        }
        let nodes = [("count-nodes", "1"), ("count-machine", "0")];
        assert!(given(&nodes[..1]).is_ok() && given(&nodes[1..]).is_ok());
        assert!(given(&nodes).unwrap_err().what.contains("leaves out"));
        let words = [("count-nodes", "true"), ("bind-khugepaged", "false")];
        let t = given(&words).unwrap();
        assert_eq!((t.count_nodes, t.bind_khugepaged), (1, 0));
        let last = given(&[("min-memory", "1M"), ("min-memory", "2M")]).unwrap();
        assert_eq!(last.min_memory, 2 << 20, "the last one counts");
    }

    /// Each option with a rule, given to a policy that lacks it: on the command line, and in
    /// its file.
    #[test]
    fn an_option_without_its_rule_is_refused() {
        let mut refused = 0;
        for option in OPTIONS.iter().filter(|option| !option.rules.is_empty()) {
            let mut values = Values::default();
            values.add(option, option.parse(option.default).unwrap());
            let without = Policy {
                name: "mine".to_owned(),
                rules: Rule::ALL
                    .into_iter()
                    .filter(|rule| !option.rules.contains(rule))
                    .collect(),
                ..Policy::default()
            };
            let in_file = Policy {
                values: values.clone(),
                ..without.clone()
            };
            for result in [
                tunables(&without, &values, &X86),
                tunables(&in_file, &Values::default(), &X86),
            ] {
                let said = result.unwrap_err().what;
                assert!(said.starts_with(option.name), "{said}");
                assert!(said.contains("policy mine"), "{said}");
            }
            assert!(tunables(&with_every_rule(), &values, &X86).is_ok());
            refused += 1;
        }
        assert_eq!(refused, OPTIONS.len() - 1, "bind is everybody's");
    }

    /// `status` has no more of a name than the kernel keeps.
    #[test]
    fn a_name_is_not_cut() {
        let named = |length: usize| {
            let policy = Policy {
                name: "n".repeat(length),
                ..with_every_rule()
            };
            tunables(&policy, &Values::default(), &X86)
        };
        assert_eq!(abi::text(&named(39).unwrap().policy), "n".repeat(39));
        assert!(named(40).unwrap_err().what.contains("40 bytes, of 39"));
    }

    /// Every set of rules is either whole, or refused by name.
    #[test]
    fn small_and_sparse_come_with_the_scan() {
        for bits in 1..1u32 << Rule::ALL.len() {
            // Bit n is rule n, and there is no rule 0.
            let rules = Rules(bits << 1);
            let policy = Policy {
                rules,
                ..Policy::default()
            };
            let mut values = Values::default();
            if rules.has(Rule::Cap) {
                let cap = Opt::named("cap").unwrap();
                values.add(cap, cap.parse("64K").unwrap());
            }
            let unscanned =
                !rules.has(Rule::Pressure) && (rules.has(Rule::Small) || rules.has(Rule::Sparse));
            let result = tunables(&policy, &values, &X86);
            assert_eq!(result.is_err(), unscanned, "{rules:?}");
            if let Err(said) = result {
                assert!(said.what.contains("add pressure to the rules"), "{said:?}");
            }
        }
    }

    #[test]
    fn those_that_are_built_in_can_be_used() {
        // Base pages of x86-64, and of 16 and 64 KiB, whose PMD is larger.
        for (page_shift, orders) in [(12, X86.orders), (14, 0xffc), (16, 0x3ffc)] {
            let sizes = Sizes {
                orders,
                off: 0,
                page_shift,
            };
            for (name, _) in BUILT_IN {
                // `fixed` insists on a cap.
                let made = tunables(&built_in(name), &Values::default(), &sizes);
                assert_eq!(made.is_err(), *name == "fixed", "{name}: {:?}", made.err());
            }
        }
    }

    #[test]
    fn policies_say_what_they_are_known_for() {
        let made = |name| tunables(&built_in(name), &Values::default(), &X86).unwrap();
        let reactive = made("reactive");
        assert_eq!(reactive.min_memory, 16 << 20);
        assert_eq!(
            reactive.bind_khugepaged, 0,
            "khugepaged is free to collapse later"
        );
        assert_eq!(made("database").cap[1..4], [4, 0, 0]);
        assert_eq!(made("database").limit_share, 0);
        assert_eq!(made("small-services").min_memory, 64 << 20);
        assert!(!Rules(made("headroom").rules).has(Rule::Pressure));
        // It is said, and does not follow from another rule.
        assert_eq!(
            (made("headroom").count_nodes, made("vm-host").count_nodes),
            (1, 0)
        );
    }

    /// It takes two keys: the later one of those that the file has is to blame.
    #[test]
    fn what_does_not_go_together_has_the_line_of_the_file() {
        let all = "about = 'x'\nrules = ['pressure', 'cap']\n";
        for (text, line) in [
            (format!("{all}\nthreshold = '2s'\n"), Some(4)),
            (format!("{all}threshold = '2s'\nwindow = '1s'\n"), Some(4)),
            (format!("{all}cap = {{ collapse = '64K' }}\n"), Some(3)),
            (format!("{all}min-memory = '1M'\n"), Some(3)),
            ("about = 'x'\nrules = ['small']\n".to_owned(), Some(2)),
        ] {
            let policy = Policy::parse("a", &text).unwrap();
            assert_eq!(sound(&policy).unwrap_err().line, line, "{text}");
            let made = tunables(&policy, &Values::default(), &X86);
            assert_eq!(made.unwrap_err().line, line, "{text}");
        }
        // What the user gives is not the file's fault.
        let policy = Policy::parse("a", all).unwrap();
        let mut given = Values::default();
        let threshold = Opt::named("threshold").unwrap();
        given.add(threshold, threshold.parse("2s").unwrap());
        let made = tunables(&policy, &given, &X86);
        assert_eq!(made.unwrap_err().line, None);
    }

    #[test]
    fn values_are_written_as_suits_them() {
        let text = "about = 'x'\nrules = ['cap', 'room', 'small', 'pressure']\nlimit-share = 25\nmin-memory = '1M'\n\
                    bind = ['advised', 'collapse']\nspare-cache = false\n\
                    cap = { fault = '64K', swapin = '4K' }\n";
        let policy = Policy::parse("a", text).unwrap();
        let t = tunables(&policy, &Values::default(), &X86).unwrap();
        assert_eq!(
            (t.limit_share, t.min_memory, t.spare_cache),
            (256, 1 << 20, 0)
        );
        assert_eq!((t.cap[1], t.cap[2], t.cap[3]), (4, 0, 63));
        assert_eq!(t.bind.0, 3);
    }

    /// `true` is no 1, and a list no text: what is meant is asked, not guessed.
    #[test]
    fn each_unit_takes_its_own_kind_of_value() {
        let read = |line: &str| {
            let rules = "'pressure', 'small', 'sparse', 'room', 'cap'";
            let text = format!("about = 'x'\nrules = [{rules}]\n{line}\n");
            Policy::parse("a", &text)
                .map(|policy| tunables(&policy, &Values::default(), &X86).unwrap())
        };
        for line in [
            "room-factor = true",
            "min-memory = true",
            "limit-share = true",
            "min-memory = ['1M']",
            "limit-share = { fault = 1 }",
            "window = 1979-05-27",
            "cap = ['64K']",
            "bind = { advised = 1 }",
            "bind = [1]",
            "spare-cache = 2",
            "room-factor = -1",
        ] {
            let mistake = read(line).unwrap_err();
            assert_eq!(mistake.line, Some(3), "{line}: {mistake:?}");
        }
        assert_eq!(read("room-factor = 0x40").unwrap().room_factor, 64);
        assert_eq!(read("room-factor = 0o100").unwrap().room_factor, 64);
        assert_eq!(read("room-factor = 1_024").unwrap().room_factor, 1024);
        assert_eq!(read("spare-cache = 0").unwrap().spare_cache, 0);
        assert_eq!(read("spare-cache = false").unwrap().spare_cache, 0);
        assert_eq!(read("bind = 'advised'").unwrap().bind.0, 1);
    }
}
