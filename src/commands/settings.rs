// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext settings`: the system's settings that a policy needs.  Nothing else of mthp_ext
//! changes them.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::args::{ApplyArgs, OutputArgs, SettingsCommand};
use crate::errors::{Error, Result};
use crate::kernel::settings::{Fate, MinFree, Place, Setting, Undone};
use crate::output::{print, table};

/// The answer of `show` and `apply`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    baseline: Vec<Line>,
    /// Null: as before.
    min_free_kbytes: Option<MinFree>,
    #[serde(skip)]
    closing: String,
}

/// A setting.
#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    setting: String,
    now: Option<String>,
    /// What it was, if it was set; null otherwise.
    before: Option<String>,
    wanted: String,
    state: State,
    why: &'static str,
}

/// How a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As wanted, or as good.
    Ok,
    /// Another one than wanted.
    Differs,
    /// It was one that differs, and was set.
    Set,
    /// It differs, and `apply` leaves it: somebody has changed it since the last one.
    Left,
    /// This kernel does not have it.
    Absent,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Differs => "differs",
            State::Set => "set",
            State::Left => "left",
            State::Absent => "absent",
        }
    }
}

/// Those that differ, in the state `differing`.
fn lines(settings: &[Setting], differing: State) -> Vec<Line> {
    let line = |setting: &Setting| Line {
        setting: setting.file.clone(),
        now: match differing {
            State::Set if setting.is_to_be_set() => Some(setting.wanted.clone()),
            _ => setting.now.clone(),
        },
        before: match differing {
            State::Set if setting.is_to_be_set() => setting.now.clone(),
            _ => None,
        },
        wanted: setting.wanted.clone(),
        state: match (&setting.now, setting.fits, setting.left) {
            (None, ..) => State::Absent,
            (_, true, _) => State::Ok,
            (_, _, true) => State::Left,
            (_, _, false) => differing,
        },
        why: setting.why,
    };
    settings.iter().map(line).collect()
}

/// The value, and where it was set what it was.
fn shown(line: &Line) -> String {
    let now = line.now.as_deref().unwrap_or("-");
    match &line.before {
        Some(before) => format!("{before} -> {now}"),
        None => now.to_owned(),
    }
}

fn text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut rows = vec![["", "SETTING", "NOW", "WANTED", "WHY"].map(str::to_owned)];
    let mut said = "";
    for line in &report.baseline {
        rows.push([
            line.state.text().to_owned(),
            line.setting.clone(),
            shown(line),
            line.wanted.clone(),
            // Once for all sizes.
            if line.why == said { "" } else { line.why }.to_owned(),
        ]);
        said = line.why;
    }
    table::print(&rows, &(0..0), out)?;
    if let Some(MinFree { before, now }) = report.min_free_kbytes {
        writeln!(
            out,
            "vm.min_free_kbytes: {before} -> {now}, by the kernel, for the sizes that are on"
        )?;
    }
    writeln!(out, "{}", report.closing)
}

fn report(settings: &[Setting], differing: State, closing: String) -> Report {
    Report {
        baseline: lines(settings, differing),
        min_free_kbytes: None,
        closing,
    }
}

/// What a preview says.
fn preview(settings: &[Setting], place: &Place) -> Report {
    let differ = differing(settings);
    let mut closing = match differ {
        0 => return report(settings, State::Differs, NOTHING_TO_SET.to_owned()),
        _ => format!("{differ} of {} differ; nothing was changed", settings.len()),
    };
    if let (1.., Ok(Some(kib))) = (to_be_set(settings), place.min_free()) {
        closing +=
            &format!("\nvm.min_free_kbytes is {kib}: the kernel may raise it when one is written");
    }
    closing += &left(settings);
    report(settings, State::Differs, closing)
}

/// Of those that are left; empty without one.
fn left(settings: &[Setting]) -> String {
    match settings.iter().filter(|setting| setting.left).count() {
        0 => String::new(),
        count => format!(
            "\n{count} left as it is: changed by hand since `apply`; to have it set, \
             `mthp_ext settings undo`, then `mthp_ext settings apply`"
        ),
    }
}

const NOTHING_TO_SET: &str = "all are as a policy needs them; nothing was changed";

fn differing(settings: &[Setting]) -> usize {
    settings.iter().filter(|setting| !setting.fits).count()
}

fn to_be_set(settings: &[Setting]) -> usize {
    let set = settings.iter().filter(|setting| setting.is_to_be_set());
    set.count()
}

/// What `apply` says.
fn applied(settings: &[Setting]) -> String {
    let closing = match (to_be_set(settings), differing(settings)) {
        (0, 0) => NOTHING_TO_SET.to_owned(),
        (0, _) => "nothing was changed".to_owned(),
        (count, _) => format!(
            "{count} set, until the next boot; `mthp_ext settings undo` puts back what was before"
        ),
    };
    closing + &left(settings)
}

/// The command.
///
/// # Errors
/// [`Error::SettingsDiffer`] for `show`; [`Error::SettingsNotWritable`] and others of the system.
pub fn main(command: &SettingsCommand) -> Result<()> {
    let place = Place::of_this_machine();
    match command {
        SettingsCommand::Show(args) => show(&place, args),
        SettingsCommand::Apply(args) => apply(&place, args),
        SettingsCommand::Undo(args) => undo(&place, args),
    }
}

fn show(place: &Place, args: &OutputArgs) -> Result<()> {
    let settings = place.settings()?;
    print::print(&preview(&settings, place), args.json, text)?;
    match differing(&settings) {
        0 => Ok(()),
        count => Err(Error::SettingsDiffer { count }),
    }
}

fn apply(place: &Place, args: &ApplyArgs) -> Result<()> {
    let settings = place.settings()?;
    if args.dry_run {
        return print::print(&preview(&settings, place), args.json, text);
    }
    let min_free_kbytes = place.apply(&settings)?;
    let report = Report {
        min_free_kbytes,
        ..report(&settings, State::Set, applied(&settings))
    };
    print::print(&report, args.json, text)
}

/// The answer of `undo`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UndoReport {
    /// Null: nothing was applied.
    undone: Option<Vec<Undone>>,
}

fn undo_text(report: &UndoReport, out: &mut impl Write) -> io::Result<()> {
    let Some(undone) = &report.undone else {
        return writeln!(out, "nothing was applied since boot, or it was undone");
    };
    let mut rows = vec![["", "SETTING", "NOW", "BEFORE"].map(str::to_owned)];
    rows.extend(undone.iter().map(|one| {
        [
            match one.state {
                Fate::PutBack => "put back",
                Fate::AsBefore => "as before",
                Fate::Left => "left",
            }
            .to_owned(),
            one.setting.clone(),
            one.now.clone().unwrap_or_else(|| "-".to_owned()),
            one.before.clone(),
        ]
    }));
    table::print(&rows, &(0..0), out)?;
    let left = undone.iter().filter(|one| one.state == Fate::Left).count();
    match left {
        0 => writeln!(out, "all are as they were before"),
        _ => writeln!(
            out,
            "{left} left as it is: changed by hand since `apply`; write BEFORE to put it back"
        ),
    }
}

fn undo(place: &Place, args: &OutputArgs) -> Result<()> {
    let report = UndoReport {
        undone: place.undo()?,
    };
    print::print(&report, args.json, undo_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(file: &str, now: Option<&str>, fits: bool) -> Setting {
        Setting {
            file: file.to_owned(),
            now: now.map(str::to_owned),
            wanted: "always".to_owned(),
            fits,
            left: false,
            why: "because",
        }
    }

    fn settings() -> [Setting; 3] {
        [
            setting("enabled", Some("never"), false),
            setting("defrag", Some("madvise"), true),
            setting("shrink_underused", None, true),
        ]
    }

    fn shown(report: &Report) -> String {
        let mut out = Vec::new();
        text(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_setting_has_its_state_and_a_reason_is_said_once() {
        let out = shown(&report(&settings(), State::Differs, "end".to_owned()));
        assert_eq!(
            out,
            "         SETTING           NOW      WANTED  WHY\n\
             differs  enabled           never    always  because\n\
             ok       defrag            madvise  always\n\
             absent   shrink_underused  -        always\nend\n"
        );
        let mut set = report(&settings(), State::Set, "end".to_owned());
        set.min_free_kbytes = Some(MinFree { before: 1, now: 2 });
        let out = shown(&set);
        assert!(
            out.contains("set     enabled           never -> always  always"),
            "{out}"
        );
        assert!(out.contains("vm.min_free_kbytes: 1 -> 2"), "{out}");
        let json = serde_json::to_value(&set).unwrap();
        assert_eq!(json["baseline"][0]["state"], "set");
        assert_eq!(json["baseline"][0]["before"], "never");
        assert_eq!(print::undocumented(&json), [""; 0]);
    }

    #[test]
    fn what_apply_leaves_is_said_with_a_remedy() {
        let mut settings = settings();
        assert!(!applied(&settings).contains("left"));
        settings[0].left = true;
        let set = report(&settings, State::Set, applied(&settings));
        let out = shown(&set);
        assert!(
            out.contains("\nleft    enabled           never    always  because\n"),
            "{out}"
        );
        let closing = "nothing was changed\n1 left as it is: changed by hand since `apply`; to have \
                       it set, `mthp_ext settings undo`, then `mthp_ext settings apply`\n";
        assert!(out.ends_with(closing), "{out}");
        let json = serde_json::to_value(&set).unwrap();
        assert_eq!(json["baseline"][0]["state"], "left");
        assert_eq!(json["baseline"][0]["before"], serde_json::Value::Null);
        // Another one is set all the same, and counted alone.
        settings[1].fits = false;
        assert!(applied(&settings).starts_with("1 set, until"));
    }

    #[test]
    fn what_is_left_is_said() {
        let one = |state| Undone {
            setting: "enabled".to_owned(),
            now: Some("never".to_owned()),
            before: "madvise".to_owned(),
            state,
        };
        let shown = |undone| {
            let report = UndoReport { undone };
            let mut out = Vec::new();
            undo_text(&report, &mut out).unwrap();
            let json = serde_json::to_value(&report).unwrap();
            assert_eq!(print::undocumented(&json), [""; 0]);
            String::from_utf8(out).unwrap()
        };
        let out = shown(Some(vec![
            one(Fate::Left),
            one(Fate::PutBack),
            one(Fate::PutBack),
        ]));
        assert!(out.contains("left      enabled  never  madvise\n"), "{out}");
        assert!(out.contains("\n1 left as it is"), "{out}");
        assert!(shown(Some(vec![one(Fate::AsBefore)])).ends_with("all are as they were before\n"));
        assert!(shown(None).starts_with("nothing was applied"));
    }
}
