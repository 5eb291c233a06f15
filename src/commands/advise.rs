// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext advise`: what the policies that run dry would have done.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::Serialize;

use crate::errors::{Context, Error, Result};
use crate::kernel::attached::{self, Attached};
use crate::kernel::carrier::Carrier;
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::thp::Thp;
use crate::output::advice::{Findings, Found};
use crate::output::print;

/// The answer.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Advised {
    dry_runs: Vec<Findings>,
    /// Policies that are, and of which not all is known.
    unread: Vec<Unread>,
}

/// A dry run about which nothing can be advised.
#[derive(Debug, Serialize, JsonSchema)]
struct Unread {
    policy: String,
    /// Why, in words.
    error: String,
}

/// Asks a policy about each cgroup that it covers; `None` for one that is no dry run.
fn findings(
    policy: &Attached,
    names: &Names,
    setting: Option<&str>,
    now: Duration,
) -> Option<Result<Findings>> {
    if let Some(error) = &policy.failed {
        let what = || format!("looking whether policy {} runs dry", policy.name);
        return Some(Err(io::Error::new(error.kind(), error.to_string())).context(what));
    }
    let tunables = policy.tunables.filter(|_| policy.dry_run)?;
    let id = policy.link.cgroup_id;
    let root = match names.path_of_id(id) {
        Ok(Some(root)) => root,
        // It has gone, and the policy with it, or it is another container's.
        Ok(None) => return None,
        Err(one) => {
            let what = || {
                let (name, path) = (&policy.name, names.of_path(&one.path));
                format!("looking for the cgroup (id {id}) of policy {name} in {path}")
            };
            return Some(Err(one.source).context(what));
        }
    };
    let mut found = Vec::new();
    let mut failed = None;
    let unlisted = cgroup::walk(&root, &mut |dir, id| match policy.explain(id) {
        Ok(Some(explained)) => {
            found.push(Found::of(
                names.of_path(dir),
                &explained,
                tunables.page_shift,
            ));
        }
        // It was removed meanwhile.
        Ok(None) => {}
        Err(error) => failed = Some(error),
    });
    if let Some(error) = failed {
        let what = || format!("asking policy {} what it has counted", policy.name);
        return Some(Err(error).context(what));
    }
    if let Some(first) = unlisted.into_iter().next() {
        let what = || format!("listing the cgroups below {}", names.of_path(&first.path));
        return Some(Err(first.source).context(what));
    }
    Some(Ok(Findings::new(
        policy.name.clone(),
        names.of_path(&root),
        now.saturating_sub(policy.loaded).as_secs(),
        found,
        setting,
    )))
}

/// The command.
///
/// # Errors
/// Without a dry run, BTF, hook, privilege, or cgroup v2; after the answer, if that lacks one.
pub fn main(json: bool) -> Result<()> {
    let root = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?;
    let carrier = Carrier::probe()?;
    let policies = attached::attached(&carrier)?;
    let names = Names::new(&root.mount);
    let setting = Thp::of_this_machine().enabled;
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).context(|| "reading the clock".to_owned())?;
    let mut answer = Advised::default();
    let mut failed = None;
    for policy in &policies {
        match findings(policy, &names, setting.as_deref(), now.into()) {
            Some(Ok(findings)) => answer.dry_runs.push(findings),
            Some(Err(error)) => {
                answer.unread.push(Unread {
                    policy: policy.name.clone(),
                    error: error.to_string(),
                });
                failed = Some(error);
            }
            None => {}
        }
    }
    if answer.dry_runs.is_empty() && failed.is_none() {
        return Err(Error::Usage(
            "no policy runs dry, so nothing was counted that a policy would do: start \
             `mthp_ext run --dry-run`, and ask again after an hour. What policies in force do, \
             `mthp_ext status` shows."
                .to_owned(),
        ));
    }
    print::print(&answer, json, text)?;
    failed.map_or(Ok(()), Err)
}

fn text(answer: &Advised, out: &mut impl Write) -> io::Result<()> {
    for findings in &answer.dry_runs {
        findings.text(out)?;
    }
    for unread in &answer.unread {
        writeln!(out, "policy {}: no advice: {}", unread.policy, unread.error)?;
    }
    Ok(())
}
