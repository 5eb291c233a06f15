// SPDX-License-Identifier: GPL-2.0-only
//! Runs the blocks of a page in order, and says what is not as the page shows it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::markdown::{Block, Class, Line, Page, Step};
use super::matching::{self, Mismatch};
use super::session::{self, Event, Request, Session};

/// How many lines of what came are shown with a failure.
const SHOWN: usize = 20;

/// Where and how a page is run.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub class: Class,
    /// Directory in which the page's shells begin.
    pub directory: &'a Path,
    /// Comes first in PATH.
    pub path: Option<&'a Path>,
    /// Commands after "$ " run as nobody.
    pub is_root: bool,
    /// How long a command may print nothing.
    pub patience: Duration,
    /// How long a block may take as a whole.
    pub limit: Duration,
}

/// Why a page cannot be run further.
struct Stuck;

struct Runner<'a> {
    page: &'a Page,
    place: Place<'a>,
    failures: Vec<String>,
}

/// Runs the blocks of `place.class`; returns the failures.
pub fn run(page: &Page, place: Place<'_>) -> Vec<String> {
    let mut runner = Runner {
        page,
        place,
        failures: Vec::new(),
    };
    if runner.blocks().is_err() {
        runner
            .failures
            .push("the rest of the page was not run".to_owned());
    }
    runner.failures
}

/// Prints the exit code of the command before it.
fn asks_for_code(step: &Step) -> bool {
    step.command.trim() == "echo $?"
}

/// Adds the end of what a command printed.
fn show(text: &mut String, came: &[&str]) {
    text.push_str(&format!("\n  all that came ({} lines):", came.len()));
    let skipped = came.len().saturating_sub(SHOWN);
    if skipped > 0 {
        text.push_str(&format!("\n    ({skipped} lines before)"));
    }
    for line in &came[skipped..] {
        text.push_str(&format!("\n    {line}"));
    }
}

impl Runner<'_> {
    fn blocks(&mut self) -> Result<(), Stuck> {
        let mine = |block: &&Block| block.class == self.place.class;
        let blocks: Vec<&Block> = self.page.blocks.iter().filter(mine).collect();
        let Place {
            directory, path, ..
        } = self.place;
        let start = || Session::start(directory, path);
        let (mut first, mut second) = (start(), None);
        let mut rest = &blocks[..];
        while let [block, behind @ ..] = rest {
            let others = behind.iter().take_while(|b| b.meanwhile).count();
            let (meanwhile, next) = behind.split_at(others);
            if !meanwhile.is_empty() && second.is_none() {
                second = Some(start());
            }
            self.block(block, meanwhile, &mut first, second.as_mut())?;
            rest = next;
        }
        Ok(())
    }

    fn block(
        &mut self,
        block: &Block,
        meanwhile: &[&Block],
        session: &mut Session,
        mut second: Option<&mut Session>,
    ) -> Result<(), Stuck> {
        let end = Instant::now() + self.place.limit;
        for line in &block.setup {
            self.hidden(line, session, end)?;
        }
        for (index, step) in block.steps.iter().enumerate() {
            let asked = block.steps.get(index + 1).is_some_and(asks_for_code);
            let request = Request {
                command: &step.command,
                as_nobody: step.as_user && self.place.is_root,
                output: None,
                own_group: step.interrupt.is_some(),
            };
            let mut running = Running::start(request, session, self.place, end);
            if let Some(count) = step.interrupt {
                for other in meanwhile {
                    let lines = &step.expected[..other.after.unwrap_or(count)];
                    if !running.wait_for(lines) {
                        break;
                    }
                    let Some(shell) = second.as_deref_mut() else {
                        break;
                    };
                    self.block(other, &[], shell, None)?;
                }
                let as_shown = running.wait_for(&step.expected[..count]);
                // Also where other lines came: the rest of the page may be in order.
                if !running.interrupt() && as_shown {
                    let text = self.at(step.number, &step.command);
                    self.failures.push(format!("{text}\n  it ended before ^C"));
                }
            }
            running.finish();
            self.judge(step, &running.came, running.code, asked);
            if running.code.is_none() {
                self.failures.push(format!("  {}", running.why));
                return Err(Stuck);
            }
        }
        Ok(())
    }

    fn hidden(&mut self, line: &Line, session: &mut Session, end: Instant) -> Result<(), Stuck> {
        let output = tempfile::NamedTempFile::new().unwrap();
        let request = Request {
            command: &line.text,
            as_nobody: false,
            output: Some(output.path()),
            own_group: false,
        };
        let mut running = Running::start(request, session, self.place, end);
        running.finish();
        if running.code == Some(0) {
            return Ok(());
        }
        let what = match running.code {
            Some(code) => format!("exit code {code}"),
            None => running.why.clone(),
        };
        let mut text = self.at(line.number, &format!("hidden: {}\n  {what}", line.text));
        let printed = fs::read(output.path()).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        // A shell that ends says why by itself.
        let lines: Vec<&str> = printed.lines().collect();
        let own = running.came.iter().map(String::as_str);
        show(&mut text, &lines.into_iter().chain(own).collect::<Vec<_>>());
        self.failures.push(text);
        Err(Stuck)
    }

    fn at(&self, number: usize, what: &str) -> String {
        format!("{}:{number}: {what}", self.page.name)
    }

    /// Notes what is not as expected.
    fn judge(&mut self, step: &Step, came: &[String], code: Option<i32>, asked: bool) {
        let expected: Vec<&str> = step.expected.iter().map(|l| l.text.as_str()).collect();
        let actual: Vec<&str> = came.iter().map(String::as_str).collect();
        let mut found = match matching::lines(&expected, &actual, false) {
            Ok(()) => None,
            Err(Mismatch { expected, actual }) => Some((expected, actual)),
        };
        // An exit code is no measured number.
        if asks_for_code(step) && found.is_none() && expected != actual {
            found = Some((0, 0));
        }
        let wanted = step.exit.unwrap_or(0);
        let wrong = code.filter(|&code| code != wanted && !(asked && step.exit.is_none()));
        if found.is_none() && wrong.is_none() {
            return;
        }
        let prompt = if step.as_user { '$' } else { '#' };
        let mut text = self.at(step.number, &format!("{prompt} {}", step.command));
        if let Some((expected, actual)) = found {
            match step.expected.get(expected) {
                Some(line) => {
                    let Line { number, text: want } = line;
                    text.push_str(&format!("\n  expected (line {number}): {want}"));
                }
                None => text.push_str("\n  expected: no further line"),
            }
            let line = came.get(actual).map_or("no further line", String::as_str);
            text.push_str(&format!("\n  came: {line}"));
        }
        if let Some(code) = wrong {
            text.push_str(&format!("\n  exit code {code}, expected {wanted}"));
        }
        show(&mut text, &actual);
        self.failures.push(text);
    }
}

/// A command that was started.
struct Running<'a> {
    session: &'a Session,
    place: Place<'a>,
    end: Instant,
    came: Vec<String>,
    group: Option<i32>,
    code: Option<i32>,
    /// Why there is no code.
    why: String,
    /// No line came in time.
    is_silent: bool,
}

impl<'a> Running<'a> {
    fn start(
        request: Request<'_>,
        session: &'a mut Session,
        place: Place<'a>,
        end: Instant,
    ) -> Self {
        session.run(request);
        Running {
            session,
            place,
            end,
            came: Vec::new(),
            group: None,
            code: None,
            why: String::new(),
            is_silent: false,
        }
    }

    /// Takes what comes next; false once nothing more will.
    fn take(&mut self) -> bool {
        if self.code.is_some() || !self.why.is_empty() {
            return false;
        }
        let left = self.end.saturating_duration_since(Instant::now());
        let patience = self.place.patience.min(left);
        match self.session.next(patience) {
            Event::Line(line) => self.came.push(line),
            Event::Group(group) => self.group = Some(group),
            Event::Done(code) => self.code = Some(code),
            Event::End => self.why = "the shell has ended".to_owned(),
            Event::Silence => {
                self.is_silent = true;
                self.why = format!("nothing came for {patience:.0?}");
            }
        }
        self.why.is_empty() && self.code.is_none()
    }

    /// Waits until `lines` have come; not once it is plain that they will not.
    fn wait_for(&mut self, lines: &[Line]) -> bool {
        let expected: Vec<&str> = lines.iter().map(|l| l.text.as_str()).collect();
        let fixed = expected.iter().take_while(|l| l.trim() != matching::ANY);
        let fixed = fixed.count();
        loop {
            let actual: Vec<&str> = self.came.iter().map(String::as_str).collect();
            match matching::lines(&expected, &actual, true) {
                // Without a line to wait for it must at least run.
                Ok(()) if self.group.is_some() => return true,
                Err(at) if at.expected < fixed && at.actual < actual.len() => return false,
                _ => {}
            }
            if !self.take() {
                return false;
            }
        }
    }

    /// Sends ^C; false if there is nothing to send it to.
    fn interrupt(&mut self) -> bool {
        // How it ends is another matter than that no line came before.
        if self.is_silent {
            (self.is_silent, self.why) = (false, String::new());
        }
        self.group.is_some_and(session::interrupt)
    }

    /// Waits for the end.
    fn finish(&mut self) {
        while self.take() {}
    }
}

impl Drop for Running<'_> {
    /// What does not end is killed.
    fn drop(&mut self) {
        if let (None, Some(group)) = (self.code, self.group) {
            session::destroy(group);
        }
    }
}
