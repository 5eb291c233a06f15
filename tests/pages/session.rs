// SPDX-License-Identifier: GPL-2.0-only
//! A shell that runs one command after the other, as in a terminal: directory, variables and
//! background jobs stay.  Its output comes line by line, and with it marks of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::{SigHandler, Signal, killpg, signal};
use nix::unistd::{Pid, pipe2};

/// Begins a mark in the output; no command of a page prints it.
const MARK: char = '\x01';

/// Its commands come through standard input, which they must not read themselves.
const START: &str = "exec 3<&0 </dev/null; . /proc/self/fd/3";

/// The functions that print the marks.  The first keeps `$?` for the next command.
const PRELUDE: &str = "\
exec 3<&-
__done() { __code=$?; printf '\\001done %d\\n' \"$__code\"; return \"$__code\"; }
__foreground='trap \"exit \\$?\" INT; printf \"\\001group %d\\n\" \"$$\"; eval \"$1\"'
";

/// What comes out of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A line of output.
    Line(String),
    /// The command ended, with this code.
    Done(i32),
    /// The process group of a command that waits for ^C.
    Group(i32),
    /// Nothing came for too long.
    Silence,
    /// The shell itself has ended.
    End,
}

/// A command, and how it is run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub command: &'a str,
    /// As the user nobody instead of root.
    pub as_nobody: bool,
    /// Output goes to this file, also that of what stays in the background.
    pub output: Option<&'a Path>,
    /// In a process group of its own, named by [`Event::Group`].
    pub own_group: bool,
}

/// The shell.  Dropped: killed, with all of its process group.
pub struct Session {
    child: Child,
    input: ChildStdin,
    events: Receiver<Event>,
}

/// A word of the shell's language that is `text`.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl Session {
    /// Starts a shell in `directory`, where `path` comes before the usual PATH.
    pub fn start(directory: &Path, path: Option<&Path>) -> Session {
        let mut command = Command::new("sh");
        if let Some(path) = path {
            let usual = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{usual}", path.display()));
        }
        // A job in the background of a script ignores ^C, and so would all that it starts.
        // SAFETY: signal() is one system call.
        unsafe {
            command.pre_exec(|| {
                signal(Signal::SIGINT, SigHandler::SigDfl)?;
                Ok(())
            });
        }
        let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let mut child = command
            .args(["-c", START])
            .current_dir(directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(write.try_clone().unwrap())
            .stderr(write)
            .spawn()
            .unwrap();
        // Its copies of the pipe's end are to be the only ones.
        drop(command);
        let (send, events) = channel();
        std::thread::spawn(move || forward(File::from(read), &send));
        let input = child.stdin.take().unwrap();
        let mut session = Session {
            child,
            input,
            events,
        };
        session.write(PRELUDE);
        session
    }

    fn write(&mut self, text: &str) {
        // A shell that has ended shows in the events.
        let _ = self.input.write_all(text.as_bytes());
    }

    /// Starts a command; [`Event::Done`] comes when it ends.
    pub fn run(&mut self, request: Request<'_>) {
        let mut command = request.command.to_owned();
        if request.as_nobody {
            command = format!("su -s /bin/sh nobody -c {}", quoted(&command));
        }
        if request.own_group {
            let inner = quoted(&command);
            command = format!("setsid sh -c \"$__foreground\" sh {inner}");
        }
        let mut line = format!("eval {}", quoted(&command));
        if let Some(output) = request.output {
            let file = quoted(output.to_str().unwrap());
            line.push_str(&format!(" >{file} 2>&1"));
        }
        self.write(&format!("{line}\n__done\n"));
    }

    /// What comes next.
    pub fn next(&self, patience: Duration) -> Event {
        match self.events.recv_timeout(patience) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Silence,
            Err(RecvTimeoutError::Disconnected) => Event::End,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id() as i32);
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// ^C for a process group; false if it has ended by itself.
pub fn interrupt(group: i32) -> bool {
    killpg(Pid::from_raw(group), Signal::SIGINT).is_ok()
}

/// The end of a process group that ^C does not end.
pub fn destroy(group: i32) {
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

/// Cuts the output into lines and marks.
fn forward(mut output: impl Read, events: &Sender<Event>) {
    let mut rest = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        rest.extend_from_slice(&buffer[..count]);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            if split(line.trim_end_matches('\r'))
                .into_iter()
                .any(|event| events.send(event).is_err())
            {
                return;
            }
        }
    }
    if !rest.is_empty() {
        let line = String::from_utf8_lossy(&rest).into_owned();
        let _ = events.send(Event::Line(line));
    }
}

/// A line's events: before a mark there may be output whose line was not ended.
fn split(line: &str) -> Vec<Event> {
    let Some((output, mark)) = line.split_once(MARK) else {
        return vec![Event::Line(line.to_owned())];
    };
    let event = match mark.split_once(' ') {
        Some(("done", code)) => code.parse().map(Event::Done),
        Some(("group", group)) => group.parse().map(Event::Group),
        _ => panic!("not a mark of the shell's: {line:?}"),
    };
    let mut events = vec![event.unwrap()];
    if !output.is_empty() {
        events.insert(0, Event::Line(output.to_owned()));
    }
    events
}
