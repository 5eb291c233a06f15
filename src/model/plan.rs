// SPDX-License-Identifier: GPL-2.0-only
//! What a configuration comes to: the values of the root's policy and of each override, where
//! each of them is from, and which override a cgroup has.

use std::path::{Path, PathBuf};

use globset::{GlobSet, GlobSetBuilder};

use super::abi::{self, Bind, NO_CAP, Own, PROFILES, Tunables};
use super::caps::Caps;
use super::config::{Config, OFF, Override, Problem, Spoils, XATTR};
use super::ending::{Ending, OnExit};
use super::given::Values;
use super::options::{OPTIONS, Opt};
use super::orders::Sizes;
use super::place::Place;
use super::policy::{Mistake, Policy};
use super::profiles::Profiles;
use super::reason::NR_REASONS;
use super::resolve;
use super::rule::{Rule, Rules};
use super::units::show_duration;
use super::value::Value;

/// The policy of the root where nothing names one.
pub const DEFAULT: &str = "default";

/// The one option that all cgroups have in common: one scan serves them.
const COMMON: &str = "window";

/// Finds a policy that the configuration does not have itself.
pub type Find<'a> = &'a dyn Fn(&str) -> Result<Policy, String>;

/// Values with one origin.
#[derive(Clone, Debug)]
struct Layer {
    /// In words.
    what: String,
    /// The file whose lines they have.
    file: Option<PathBuf>,
    values: Values,
}

/// A policy with what it has from others.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// Rules, and all values.
    pub policy: Policy,
    /// Where the values are from; the first that has one counts.
    layers: Vec<Layer>,
    /// Where the rules are from.
    pub rules_from: String,
}

impl Resolved {
    /// Where the value of an option is from.
    pub fn origin(&self, option: &Opt) -> String {
        let has = |layer: &&Layer| layer.values.of(option).is_some();
        let Some(layer) = self.layers.iter().find(has) else {
            return "built in".to_owned();
        };
        match (&layer.file, layer.values.line_of(option)) {
            (Some(file), Some(line)) => format!("{}, {}:{line}", layer.what, file.display()),
            _ => layer.what.clone(),
        }
    }

    /// Gives it other values, of an override.
    fn add(&mut self, values: &Values, what: String, file: Option<PathBuf>) {
        self.policy.name = changed_name(&self.policy.name, values);
        self.policy.values = values.over(&self.policy.values);
        let values = values.clone();
        self.layers.insert(0, Layer { what, file, values });
    }

    fn is_off(&self) -> bool {
        self.policy.rules == Rules::default()
    }
}

/// Some cgroups' policy.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Where it is configured.
    pub place: Place,
    /// The patterns of its cgroups' paths.
    pub patterns: Vec<String>,
    /// Where its values are from.
    pub resolved: Resolved,
    /// What programs need of it.
    pub tunables: Tunables,
}

/// What is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the root's values are from.
    pub root: Resolved,
    /// The root's.
    pub tunables: Tunables,
    /// What becomes of the policy when its daemon ends, and where that is said; `None`: nowhere.
    pub on_exit: Option<(OnExit, Place)>,
    /// Those without mistakes, in their order.
    pub overrides: Vec<Planned>,
    /// Its policies of its own, and nothing else.
    own: Config,
    /// For each pattern its override.
    of_pattern: Vec<usize>,
    patterns: GlobSet,
}

impl Plan {
    /// What becomes of the policy in the end, where the command line says `given`.
    pub fn ending(&self, given: Option<OnExit>) -> Ending {
        Ending::chosen(given, self.on_exit.as_ref())
    }

    /// The override of a cgroup, by its path below the mount, which does not begin with a slash.
    /// The last one that matches.
    pub fn index_of(&self, path: impl AsRef<Path>) -> Option<usize> {
        let found = self.patterns.matches(path);
        let all = found.iter().filter_map(|at| self.of_pattern.get(*at));
        all.max().copied()
    }

    /// What an override of [`XATTR`] comes to, where the cgroup would have `base` without it: that
    /// is what it changes if it names no policy.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn with_xattr(
        &self,
        base: &Resolved,
        one: &Override,
        find: Find<'_>,
        sizes: &Sizes,
    ) -> Result<Planned, String> {
        let made = planned(&self.own, one, (base, &self.tunables), XATTR, find, sizes);
        let mut made = made.map_err(|problem| problem.what)?;
        made.tunables.own.0 |= Own::MTHP_OWN_XATTR.0;
        Ok(made)
    }

    /// The same where others than root may write it: nothing that it allows may be more than
    /// `base` with `tunables` does, so it may have a cap, and the smaller one counts.  No file is
    /// read for it.
    ///
    /// # Errors
    /// If it has something else, or lowers nothing.
    pub fn lowered(
        &self,
        base: &Resolved,
        tunables: &Tunables,
        one: &Override,
    ) -> Result<Planned, String> {
        let given: Vec<_> = one.values.iter().collect();
        let ([(option, Value::Caps(caps))], None) = (given.as_slice(), &one.policy) else {
            return Err(
                "it may only lower what is allowed, and so have a cap, as cap=64K, and nothing \
                 else"
                    .to_owned(),
            );
        };
        let has_caps = base.policy.rules.has(Rule::Cap);
        let before = match has_caps {
            true => tunables.cap,
            false => [NO_CAP; NR_REASONS],
        };
        let asked = caps.orders(tunables.page_shift);
        let mut cap = before;
        for (cap, asked) in cap.iter_mut().zip(asked) {
            *cap = asked.min(*cap);
        }
        if cap == before {
            return Err(format!(
                "it may only lower what is allowed, and lowers nothing: the cap is {} without it",
                Caps::of_orders(before, tunables.page_shift).text(true)
            ));
        }
        let (mut resolved, mut values) = (base.clone(), Values::default());
        values.add(
            option,
            Value::Caps(Caps::of_orders(cap, tunables.page_shift)),
        );
        let rules = Rules(tunables.rules | [Rule::Cap].into_iter().collect::<Rules>().0);
        if !has_caps {
            resolved.rules_from = format!("{}, {XATTR}", resolved.rules_from);
        }
        resolved.policy.rules = rules;
        resolved.add(&values, XATTR.to_owned(), None);
        let mut tunables = Tunables {
            cap,
            rules: rules.0,
            own: Own(tunables.own.0 | Own::MTHP_OWN_XATTR.0),
            ..*tunables
        };
        abi::set_text(&mut tunables.policy, &resolved.policy.name);
        Ok(Planned {
            place: Place::default(),
            patterns: Vec::new(),
            resolved,
            tunables,
        })
    }

    /// The same, itself.
    pub fn matching(&self, path: impl AsRef<Path>) -> Option<&Planned> {
        self.overrides.get(self.index_of(path)?)
    }
}

/// What a configuration comes to, and what is wrong with parts of it; if one of its problems spoils
/// the whole, all of them.
pub type Made = Result<(Plan, Vec<Problem>), Vec<Problem>>;

/// Works a configuration out.  Its problems are those of the files, and what was found wrong with
/// what they name.
///
/// # Errors
/// All problems, if one of them spoils the whole.
pub fn plan(config: &Config, find: Find<'_>, sizes: &Sizes) -> Made {
    let mut problems = config.problems.clone();
    let made = root(config, find, sizes);
    let (root, tunables) = match made {
        Ok(made) => made,
        Err(problem) => {
            problems.push(problem);
            return Err(problems);
        }
    };
    if problems.iter().any(|one| one.spoils == Spoils::All) {
        return Err(problems);
    }
    let mut overrides = Vec::new();
    let mut places = Profiles::new(&tunables, 0);
    let (mut builder, mut of_pattern) = (GlobSetBuilder::new(), Vec::new());
    for one in config.overrides.iter().filter(|one| !one.broken) {
        match planned(config, one, (&root, &tunables), "override", find, sizes) {
            Ok(made) if places.add(&[made.tunables]).is_some() => {
                for pattern in &one.patterns {
                    builder.add(pattern.clone());
                    of_pattern.push(overrides.len());
                }
                overrides.push(made);
            }
            // Those that come later may still have a policy that has its place.
            Ok(_) => problems.push(Problem {
                place: one.place.clone(),
                what: format!(
                    "there is no place for another policy ({PROFILES} at a time, which the root \
                     and the overrides before this one have): use fewer different ones"
                ),
                spoils: Spoils::Override,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    for own in config.policies.iter().filter(|own| !own.broken) {
        // Nobody may use it; it should be right all the same.
        if let Err(problem) = check(config, &own.policy.name, &tunables, find, sizes) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    let patterns = match builder.build() {
        Ok(patterns) => patterns,
        Err(e) => {
            problems.push(Problem {
                place: Place::default(),
                what: format!("the patterns cannot be used together: {e}"),
                spoils: Spoils::All,
            });
            return Err(problems);
        }
    };
    let plan = Plan {
        root,
        tunables,
        on_exit: config.on_exit.clone(),
        overrides,
        own: Config {
            policies: config.policies.clone(),
            ..Config::default()
        },
        of_pattern,
        patterns,
    };
    Ok((plan, problems))
}

fn root(config: &Config, find: Find<'_>, sizes: &Sizes) -> Result<(Resolved, Tunables), Problem> {
    let (name, place) = match &config.policy {
        Some((name, place)) => (name.as_str(), place.clone()),
        None => (DEFAULT, Place::default()),
    };
    let spoilt = |problem: Problem| Problem {
        spoils: Spoils::All,
        ..problem
    };
    let resolved = resolve(config, name, &place, find).map_err(spoilt)?;
    let tunables = values(&resolved, &Values::default(), sizes, None);
    let tunables = tunables.map_err(|m| spoilt(of_policy(config, &resolved, &place, m)))?;
    Ok((resolved, tunables))
}

fn check(
    config: &Config,
    name: &str,
    root: &Tunables,
    find: Find<'_>,
    sizes: &Sizes,
) -> Result<(), Problem> {
    let place = config.own(name).map(|own| own.place.clone());
    let place = place.unwrap_or_default();
    let resolved = resolve(config, name, &place, find)?;
    match values(&resolved, &Values::default(), sizes, Some(root)) {
        // A policy may leave the cap to those who use it.
        Err(mistake) if mistake.line.is_some() => {
            Err(of_policy(config, &resolved, &place, mistake))
        }
        _ => Ok(()),
    }
}

/// A mistake in the values of a policy: of its own lines, or of those who name it at `place`.
fn of_policy(config: &Config, resolved: &Resolved, place: &Place, mistake: Mistake) -> Problem {
    let own = config.own(&resolved.policy.name);
    let place = match (own, mistake.line) {
        (Some(own), Some(line)) => Place {
            file: own.place.file.clone(),
            line: Some(line),
        },
        (Some(own), None) => own.place.clone(),
        (None, _) => place.clone(),
    };
    Problem {
        place,
        what: mistake.what,
        spoils: Spoils::Policy,
    }
}

/// `base`: what it changes without a policy; `common`: what all have in common; `what`: the
/// origin of its values.
fn planned(
    config: &Config,
    one: &Override,
    (base, common): (&Resolved, &Tunables),
    what: &str,
    find: Find<'_>,
    sizes: &Sizes,
) -> Result<Planned, Problem> {
    let wrong = |what: String, line: Option<usize>| Problem {
        place: Place {
            line: line.or(one.place.line),
            ..one.place.clone()
        },
        what,
        spoils: Spoils::Override,
    };
    let base = match &one.policy {
        Some(name) => resolve(config, name, &one.place, find).map_err(|p| wrong(p.what, None))?,
        None => base.clone(),
    };
    let first = one.values.iter().next().map(|(option, _)| option);
    if let (true, Some(option)) = (base.is_off(), first) {
        let what = format!(
            "{} has no effect where the policy is \"{OFF}\": leave it out, or name a policy",
            option.name
        );
        return Err(wrong(what, one.values.line_of(option)));
    }
    let line = first.and_then(|option| one.values.line_of(option));
    let mut tunables = values(&base, &one.values, sizes, Some(common))
        .map_err(|mistake| wrong(mistake.what, line))?;
    let mut resolved = base;
    let file = Some(one.place.file.clone());
    resolved.add(&one.values, what.to_owned(), file);
    abi::set_text(&mut tunables.policy, &resolved.policy.name);
    Ok(Planned {
        place: one.place.clone(),
        patterns: one.patterns.iter().map(|p| p.glob().to_owned()).collect(),
        resolved,
        tunables,
    })
}

/// `default+cap`: not the policy of that name, but the same with another cap.
fn changed_name(name: &str, values: &Values) -> String {
    let mut changed = name.to_owned();
    for (option, _) in values.iter() {
        // An override of an override.
        if !name.split('+').skip(1).any(|word| word == option.name) {
            changed = format!("{changed}+{}", option.name);
        }
    }
    changed
}

/// The values of a policy with those given beside it.  `root`: whose times it has in common.
fn values(
    resolved: &Resolved,
    given: &Values,
    sizes: &Sizes,
    root: Option<&Tunables>,
) -> Result<Tunables, Mistake> {
    if resolved.is_off() {
        return off(sizes);
    }
    let policy = &resolved.policy;
    let common = root.zip(Opt::named(COMMON));
    if let Some((root, option)) = common {
        let own = given.of(option).or_else(|| policy.values.of(option));
        if own.is_some_and(|own| own != option.value(root)) {
            return Err(Mistake {
                line: policy.values.line_of(option),
                what: format!(
                    "{COMMON} is {} for all cgroups, that of the root's policy, as one scan \
                     serves them: leave it out here, or set it in the policy of the root",
                    option.shown(root)
                ),
            });
        }
    }
    let mut t = resolve::tunables(policy, given, sizes)?;
    if let Some(root) = root {
        t.window_ns = root.window_ns;
        if t.threshold_ns > t.window_ns {
            return Err(Mistake {
                line: None,
                what: format!(
                    "threshold {} is longer than the {COMMON} of the root's policy ({}), which no \
                     stall can reach: give a smaller threshold, or the root a longer {COMMON}",
                    show_duration(t.threshold_ns),
                    show_duration(t.window_ns)
                ),
            });
        }
    }
    t.own = abi::Own(if policy.file.is_some() {
        abi::Own::MTHP_OWN_FILE.0
    } else {
        0
    });
    Ok(t)
}

/// Narrows nothing.
fn off(sizes: &Sizes) -> Result<Tunables, Mistake> {
    let mut t = resolve::defaults(sizes)?;
    t.rules = 0;
    t.bind = Bind(0);
    abi::set_text(&mut t.policy, OFF);
    Ok(t)
}

/// A policy by its name or file, with what it has from its base.
fn resolve(
    config: &Config,
    name: &str,
    place: &Place,
    find: Find<'_>,
) -> Result<Resolved, Problem> {
    resolve_within(config, name, place, find, &mut Vec::new())
}

fn resolve_within(
    config: &Config,
    name: &str,
    place: &Place,
    find: Find<'_>,
    seen: &mut Vec<String>,
) -> Result<Resolved, Problem> {
    let wrong = |what: String| Problem {
        place: place.clone(),
        what,
        spoils: Spoils::Policy,
    };
    if name == OFF {
        return Ok(Resolved {
            policy: Policy {
                name: OFF.to_owned(),
                ..Policy::default()
            },
            layers: Vec::new(),
            rules_from: "off".to_owned(),
        });
    }
    // One that has the name of its own base means that of outside.
    let own = config
        .own(name)
        .filter(|_| seen.last().is_none_or(|last| last != name));
    let Some(own) = own else {
        let policy = find(name).map_err(wrong)?;
        let what = match &policy.file {
            Some(_) => format!("policy {name}"),
            None => format!("policy {name} (built in)"),
        };
        return Ok(Resolved {
            layers: vec![Layer {
                what: what.clone(),
                file: policy.file.clone(),
                values: policy.values.clone(),
            }],
            rules_from: what,
            policy,
        });
    };
    if own.broken {
        return Err(wrong(format!(
            "policy {name} has mistakes ({}), so nobody can have it: correct them",
            own.place
        )));
    }
    if seen.iter().any(|one| one == name) {
        return Err(wrong(format!(
            "the bases of policy {name} go round in a circle ({}): give one of them another base",
            seen.join(", ")
        )));
    }
    seen.push(name.to_owned());
    let mut made = match &own.base {
        Some(base) => resolve_within(config, base, &own.place, find, seen)?,
        None => Resolved::default(),
    };
    let what = format!("policy {name}");
    if own.policy.rules_line.is_some() {
        made.policy.rules = own.policy.rules;
        made.policy.rules_line = own.policy.rules_line;
        made.rules_from = match own.policy.rules_line {
            Some(line) => format!("{what}, {}:{line}", own.place.file.display()),
            None => what.clone(),
        };
    } else {
        made.policy.rules_line = None;
    }
    if !own.policy.about.is_empty() {
        made.policy.about.clone_from(&own.policy.about);
    }
    made.policy.values = own.policy.values.over(&made.policy.values);
    made.policy.name = name.to_owned();
    made.policy.file = Some(own.place.file.clone());
    made.layers.insert(
        0,
        Layer {
            what,
            file: Some(own.place.file.clone()),
            values: own.policy.values.clone(),
        },
    );
    Ok(made)
}

/// Each value that a policy's rules look at, as it is written, with its origin.
pub fn shown(resolved: &Resolved, tunables: &Tunables) -> Vec<(&'static Opt, String, String)> {
    let rules = resolved.policy.rules;
    let looked_at = OPTIONS.iter().filter(|option| {
        let usual = option.shown(tunables) == option.default;
        option.belongs_to(rules) && !(option.measuring && usual)
    });
    looked_at
        .filter(|_| !resolved.is_off())
        .map(|option| (option, option.shown(tunables), resolved.origin(option)))
        .collect()
}
