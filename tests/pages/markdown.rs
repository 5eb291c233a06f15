// SPDX-License-Identifier: GPL-2.0-only
//! Reads the fenced blocks of a page, and the comments that belong to them.

use super::matching::ANY;

/// Where a block's commands run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// In the VM.
    Guest,
    /// On the host, in a scratch clone of the checkout.
    Host,
    /// In no test; a comment behind the block says why.
    Elsewhere,
}

/// A line of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub text: String,
}

/// A command and what it prints.
#[derive(Clone, Debug)]
pub struct Step {
    /// Line of its prompt.
    pub number: usize,
    /// With its continuation lines.
    pub command: String,
    /// "$ ", not "# ".
    pub as_user: bool,
    /// Expected output, without "^C".
    pub expected: Vec<Line>,
    /// How many lines of `expected` come before "^C".
    pub interrupt: Option<usize>,
    /// Exit code that the page promises.
    pub exit: Option<i32>,
}

/// A fenced block of commands.
#[derive(Clone, Debug)]
pub struct Block {
    /// Line of its opening fence.
    pub number: usize,
    pub class: Class,
    /// Runs in a second shell, while the block before waits for its ^C.
    pub meanwhile: bool,
    /// Runs once this many lines of the block before have come; `None`: all before its ^C.
    pub after: Option<usize>,
    /// Hidden commands that come first.
    pub setup: Vec<Line>,
    pub steps: Vec<Step>,
}

impl Block {
    /// The step that ends by ^C.
    pub fn interrupted(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.interrupt.is_some())
    }
}

/// A page: its blocks of commands, and what is wrong with their form.
#[derive(Debug)]
pub struct Page {
    pub name: String,
    pub blocks: Vec<Block>,
    /// Why blocks run in no test, and what proves them instead.
    pub reasons: Vec<Line>,
    /// "PAGE:LINE: what".
    pub problems: Vec<String>,
}

/// What a reason names as proof.
#[derive(Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// Of the Makefile, in a span of code: `make X`.
    Target(&'a str),
    /// Below tests/ or lab/.
    Path(&'a str),
}

impl Line {
    /// The targets and files that it names.
    pub fn named(&self) -> Vec<Named<'_>> {
        let spans = self.text.split('`').skip(1).step_by(2);
        let targets = spans.filter_map(|span| {
            let (command, words) = span.split_once(char::is_whitespace)?;
            let target = words.split_whitespace().find(|word| !word.contains('='))?;
            (command == "make").then_some(Named::Target(target))
        });
        let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let words = self.text.split(|c: char| !is_of_path(c));
        let words = words.map(|word| word.trim_end_matches(['.', '-']));
        let paths = words.filter(|word| word.starts_with("tests/") || word.starts_with("lab/"));
        targets.chain(paths.map(Named::Path)).collect()
    }
}

/// Languages of fences that hold no commands.
const PLAIN: [&str; 7] = ["text", "ini", "json", "c", "diff", "toml", "kconfig"];

/// Comments with a meaning here.
const KEYS: [&str; 5] = ["guest", "host", "exit", "after", "elsewhere"];

/// Comments that wait for the block they stand before.
#[derive(Default)]
struct Pending {
    setup: Vec<(Class, Line)>,
    exit: Option<(usize, i32)>,
    after: Option<(usize, usize)>,
}

struct Reader<'a> {
    name: &'a str,
    lines: Vec<&'a str>,
    at: usize,
    pending: Pending,
    /// Between a list's first item and the next paragraph, where indented text is the items' own.
    in_list: bool,
    page: Page,
}

/// Reads a page.
pub fn parse(name: &str, text: &str) -> Page {
    let mut reader = Reader {
        name,
        lines: text.lines().collect(),
        at: 0,
        pending: Pending::default(),
        in_list: false,
        page: Page {
            name: name.to_owned(),
            blocks: Vec::new(),
            reasons: Vec::new(),
            problems: Vec::new(),
        },
    };
    while reader.at < reader.lines.len() {
        reader.next();
    }
    reader.close();
    reader.page
}

/// The fence that a line opens: its character, its length, its indentation, its words.
fn fence(line: &str) -> Option<(char, usize, usize, &str)> {
    let rest = line.trim_start();
    let mark = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = rest.trim_start_matches(mark);
    let length = rest.len() - info.len();
    // One line of code between fences of its own is no opening fence.
    (length >= 3 && !info.contains('`')).then_some((
        mark,
        length,
        line.len() - rest.len(),
        info.trim(),
    ))
}

/// "# " or "$ " and a command.
fn prompt(line: &str) -> Option<(bool, &str)> {
    let (user, rest) = match line.strip_prefix("# ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("$ ")?),
    };
    (!rest.trim().is_empty()).then_some((user, rest))
}

fn starts_item(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let marks: &[&str] = match rest.len() < line.len() {
        true => &[". ", ") "],
        false => &["- ", "* ", "+ "],
    };
    marks.iter().any(|mark| rest.starts_with(mark))
}

impl Reader<'_> {
    fn problem(&mut self, number: usize, what: &str) {
        self.page
            .problems
            .push(format!("{}:{number}: {what}", self.name));
    }

    fn next(&mut self) {
        let line = self.lines[self.at];
        let number = self.at + 1;
        if line.trim_start().starts_with("<!--") {
            let body = self.comment();
            self.directive(number, &body);
            return;
        }
        if let Some((mark, length, indent, info)) = fence(line) {
            let body = self.fenced(mark, length, indent);
            self.block(number, info, body);
            return;
        }
        self.at += 1;
        self.prose(number, line);
    }

    /// Text, in which nothing may look like a command.
    fn prose(&mut self, number: usize, line: &str) {
        if KEYS
            .iter()
            .any(|key| line.contains(&format!("<!-- {key}:")))
        {
            self.problem(number, "a comment for blocks begins a line of its own");
        }
        if line.starts_with('>') && fence(line.trim_start_matches(['>', ' '])).is_some() {
            self.problem(number, "a block in a quotation is never run");
        }
        let depth = line.len() - line.trim_start_matches([' ', '\t']).len();
        let before_is_empty = number < 2 || self.lines[number - 2].trim().is_empty();
        if line.trim().is_empty() {
            return;
        }
        if depth == 0 {
            // Text right below an item is the item's.
            self.in_list = starts_item(line) || (self.in_list && !before_is_empty);
            return;
        }
        let code = if self.in_list { 8 } else { 4 };
        let tab = line.starts_with('\t');
        if before_is_empty && (tab || depth >= code) {
            self.problem(
                number,
                "an indented block of code; use a fence with a class",
            );
        }
    }

    /// The comment that begins here, without its marks.
    fn comment(&mut self) -> String {
        let first = self.at;
        let mut text = String::new();
        while self.at < self.lines.len() {
            let line = self.lines[self.at];
            self.at += 1;
            text.push_str(line);
            text.push('\n');
            if let Some((body, _)) = text.split_once("-->") {
                return body.trim().trim_start_matches("<!--").trim().to_owned();
            }
        }
        self.problem(first + 1, "a comment without an end");
        String::new()
    }

    fn directive(&mut self, number: usize, body: &str) {
        let Some((key, value)) = body.split_once(':') else {
            return;
        };
        let value = value.trim();
        let setup = |class| {
            let text = value.to_owned();
            (class, Line { number, text })
        };
        match key {
            "guest" => self.pending.setup.push(setup(Class::Guest)),
            "host" => self.pending.setup.push(setup(Class::Host)),
            "exit" => match value.parse() {
                Ok(code) => self.pending.exit = Some((number, code)),
                Err(_) => self.problem(number, "exit: wants a number"),
            },
            "after" => match value.parse() {
                Ok(lines) => self.pending.after = Some((number, lines)),
                Err(_) => self.problem(number, "after: wants a number of lines"),
            },
            "elsewhere" => self.problem(number, "a reason without an `elsewhere` block before it"),
            _ => {}
        }
    }

    /// The lines of the fence that opens here.
    fn fenced(&mut self, mark: char, length: usize, indent: usize) -> Vec<Line> {
        let first = self.at;
        let mut body = Vec::new();
        self.at += 1;
        while self.at < self.lines.len() {
            let line = self.lines[self.at];
            self.at += 1;
            let rest = line.trim();
            if rest.len() >= length && rest.chars().all(|c| c == mark) {
                return body;
            }
            let own = line.len() - line.trim_start_matches(' ').len();
            body.push(Line {
                number: self.at,
                text: line[own.min(indent)..].to_owned(),
            });
        }
        self.problem(first + 1, "a block without an end");
        body
    }

    fn block(&mut self, number: usize, info: &str, body: Vec<Line>) {
        let words: Vec<&str> = info.split_whitespace().collect();
        let (class, meanwhile) = match words[..] {
            ["console", "guest"] => (Class::Guest, false),
            ["console", "guest", "meanwhile"] => (Class::Guest, true),
            ["console", "host"] => (Class::Host, false),
            ["console", "elsewhere"] => (Class::Elsewhere, false),
            [] => return self.problem(number, "a block without a class"),
            [word] if PLAIN.contains(&word) => {
                let hidden = body.first().is_some_and(|l| prompt(&l.text).is_some());
                if word == "text" && hidden {
                    self.problem(
                        number,
                        "commands in a block of text; its class is `console`",
                    );
                }
                return;
            }
            _ => return self.problem(number, &format!("an unknown class: {info}")),
        };
        let steps = self.steps(class, body);
        if steps.is_empty() {
            self.problem(number, "a block of commands without a command");
        }
        if class == Class::Elsewhere {
            self.reason(number);
        }
        let mut block = Block {
            number,
            class,
            meanwhile,
            after: None,
            setup: Vec::new(),
            steps,
        };
        self.take_pending(&mut block);
        self.check(&block);
        self.page.blocks.push(block);
    }

    /// Splits a block into commands with their output.
    fn steps(&mut self, class: Class, body: Vec<Line>) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut continued = false;
        for line in body {
            if continued {
                let command = &mut steps.last_mut().unwrap().command;
                command.push('\n');
                command.push_str(&line.text);
                continued = line.text.ends_with('\\');
            } else if let Some((as_user, command)) = prompt(&line.text) {
                if class == Class::Host && !as_user {
                    self.problem(line.number, "a test on the host is not root: use \"$ \"");
                }
                continued = command.ends_with('\\');
                steps.push(Step {
                    number: line.number,
                    command: command.to_owned(),
                    as_user,
                    expected: Vec::new(),
                    interrupt: None,
                    exit: None,
                });
            } else if let Some(step) = steps.last_mut() {
                if line.text.trim() != "^C" {
                    step.expected.push(line);
                } else if step.interrupt.replace(step.expected.len()).is_some() {
                    self.problem(line.number, "a second ^C for one command");
                }
            } else {
                self.problem(line.number, "output before the first command");
            }
        }
        steps
    }

    /// The comment behind an `elsewhere` block.
    fn reason(&mut self, number: usize) {
        let mut next = self.at;
        if self.lines.get(next).is_some_and(|l| l.trim().is_empty()) {
            next += 1;
        }
        let is_reason = |l: &&str| l.trim_start().starts_with("<!-- elsewhere:");
        if !self.lines.get(next).is_some_and(is_reason) {
            return self.problem(number, "`elsewhere` without its reason behind it");
        }
        self.at = next;
        let body = self.comment();
        // A reason is a sentence: what prevents it, and what proves the commands instead.
        if body.split_whitespace().count() < 5 {
            self.problem(next + 1, "no reason, and nothing that proves it instead");
        }
        self.page.reasons.push(Line {
            number: next + 1,
            text: body,
        });
    }

    /// The comments that stand before the block belong to it.
    fn take_pending(&mut self, block: &mut Block) {
        let Pending { setup, exit, after } = std::mem::take(&mut self.pending);
        for (class, line) in setup {
            if class != block.class {
                self.problem(line.number, "hidden commands for a block of another class");
            }
            block.setup.push(line);
        }
        if let Some((number, code)) = exit {
            let step = match block.steps.iter().position(|s| s.interrupt.is_some()) {
                Some(index) => block.steps.get_mut(index),
                None => block.steps.last_mut(),
            };
            match step {
                Some(step) if block.class != Class::Elsewhere => step.exit = Some(code),
                _ => self.problem(number, "an exit code for a block that is not run"),
            }
        }
        if let Some((number, lines)) = after {
            block.after = Some(lines);
            if !block.meanwhile {
                self.problem(number, "`after` before a block that is not `meanwhile`");
            }
        }
    }

    /// What a block needs of those before it.
    fn check(&mut self, block: &Block) {
        if block.class == Class::Elsewhere {
            return;
        }
        let interrupts = block.steps.iter().filter(|s| s.interrupt.is_some()).count();
        if interrupts > 1 {
            self.problem(block.number, "more than one ^C in a block");
        }
        // Before its first line nobody knows whether the command would notice ^C.
        let is_silent = |s: &Step| {
            s.interrupt
                .is_some_and(|count| s.expected[..count].iter().all(|l| l.text.trim() == ANY))
        };
        if block.steps.iter().any(is_silent) {
            self.problem(block.number, "no line of output before ^C");
        }
        if !block.meanwhile {
            return;
        }
        if interrupts > 0 {
            self.problem(block.number, "a `meanwhile` block cannot have a ^C");
        }
        let before = self.page.blocks.iter().rev();
        let first = before
            .filter(|one| one.class == Class::Guest)
            .find(|one| !one.meanwhile);
        match first.and_then(Block::interrupted).and_then(|s| s.interrupt) {
            None => self.problem(block.number, "`meanwhile` behind a block without ^C"),
            Some(lines) if block.after.is_some_and(|wanted| wanted > lines) => {
                self.problem(block.number, "`after` more lines than come before the ^C");
            }
            Some(_) => {}
        }
    }

    fn close(&mut self) {
        let Pending { setup, exit, after } = std::mem::take(&mut self.pending);
        let numbers = setup.iter().map(|(_, line)| line.number);
        let numbers = numbers.chain(exit.map(|e| e.0)).chain(after.map(|a| a.0));
        for number in numbers.collect::<Vec<_>>() {
            self.problem(number, "a comment for a block, and no block behind it");
        }
    }
}
