// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext detach`: ends policies that have outlived their daemon.

use std::io::{self, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::DetachArgs;
use crate::errors::Result;
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::kept::Place;
use crate::kernel::named;
use crate::output::print;

/// The whole answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    detached: Vec<Detached>,
    /// Not all of them could be: what is said of the rest is not that there is none.
    #[serde(skip)]
    failed: bool,
}

/// One policy that has ended.
#[derive(Debug, Serialize, JsonSchema)]
struct Detached {
    root: String,
    cgroup_id: u64,
    link_id: u32,
}

fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    if report.detached.is_empty() && !report.failed {
        return writeln!(out, "no policy is kept");
    }
    for one in &report.detached {
        writeln!(
            out,
            "policy detached from {} (cgroup {}, link {})",
            one.root, one.cgroup_id, one.link_id
        )?;
    }
    Ok(())
}

/// The command.
///
/// # Errors
/// [`crate::errors::Error::Running`] for a policy that a daemon runs, after all others are
/// detached.
pub fn main(args: &DetachArgs) -> Result<()> {
    let mount = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?.mount;
    let names = Names::new(&mount);
    let places = match &args.root {
        Some(root) => Place::left(&named::root(root)?)
            .transpose()
            .into_iter()
            .collect(),
        None => Place::all()?,
    };
    let mut report = Report {
        detached: Vec::new(),
        failed: false,
    };
    let mut result = Ok(());
    for place in places {
        match place.and_then(Place::detach) {
            // Its cgroup had gone, and the policy with it.
            Ok(None) => {}
            Ok(Some(link)) => report.detached.push(Detached {
                root: names.of_id(link.cgroup_id),
                cgroup_id: link.cgroup_id,
                link_id: link.id,
            }),
            Err(error) => result = result.and(Err(error)),
        }
    }
    report.failed = result.is_err();
    print::print(&report, args.json, text)?;
    result
}
