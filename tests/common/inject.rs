// SPDX-License-Identifier: GPL-2.0-only
//! The program under test with system calls that fail: it is traced, and a call that is to fail is
//! never made.  Needs nothing of the kernel's configuration.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::ext::command;
use super::terminal;

/// Times that the loop of `run` may wait before it has to be over.
const WAITS: u32 = 100;

/// So long it waits for an event, in ms, and no longer: a policy without scans has none to wait for.
/// Longer than the usual window, so that one with scans has scanned.
const LONGEST_MS: u64 = 1200;

/// A policy that scans, and soon.
pub const SCANS: &[&str] = &["--policy", "reactive", "--window", "100ms"];

/// What [`Call::reads`] calls a socket: they have no names.
pub const SOCKET: &str = "a socket";

/// Where what daemons report is kept.
pub const EVENTS: &str = "/run/mthp_ext/events/";

/// A client of a daemon: returns the answer.
pub type Client<'a> = dyn Fn() -> String + Sync + 'a;

/// A system call that is about to be made.
pub struct Call {
    pub number: i64,
    pub args: [u64; 6],
    /// Of the process, whichever of its threads makes it.
    pid: Pid,
}

impl Call {
    /// The path in an argument.
    fn path(&self, at: usize) -> Option<String> {
        self.text(self.args[at])
    }

    /// The text at an address, which ends with 0.
    fn text(&self, at: u64) -> Option<String> {
        let mut bytes = [0; 4096];
        let memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        let length = memory.read_at(&mut bytes, at).ok()?;
        let text = bytes[..length].split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Has the attribute of a bpf(2) call that loads a program this name?
    pub fn names(&self, program: &str) -> bool {
        // linux/bpf.h, union bpf_attr: prog_name, which has a 0 at its end.
        const AT: u64 = 48;
        self.text(self.args[1] + AT).as_deref() == Some(program)
    }

    /// The file that it opens, and whether for writing.
    pub fn opens(&self) -> Option<(String, bool)> {
        let writes = |flags: u64| flags & (libc::O_WRONLY | libc::O_RDWR) as u64 != 0;
        match self.number {
            libc::SYS_open => Some((self.path(0)?, writes(self.args[1]))),
            libc::SYS_openat => Some((self.path(1)?, writes(self.args[2]))),
            _ => None,
        }
    }

    /// The file of its descriptor, which it reads: a file's bytes or a directory's names.
    pub fn reads(&self) -> Option<String> {
        match self.number {
            libc::SYS_read | libc::SYS_recvfrom if self.is_of_a_socket() => Some(SOCKET.to_owned()),
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_getdents64 => self.file(),
            // A file that is mapped is read, too.
            libc::SYS_mmap if self.args[4] as i32 >= 0 => self.descriptor(self.args[4]),
            _ => None,
        }
    }

    /// The file that it asks for an extended attribute.
    pub fn asks_about(&self) -> Option<String> {
        (self.number == libc::SYS_lgetxattr).then(|| self.path(0))?
    }

    /// The file that it removes.
    pub fn removes(&self) -> Option<String> {
        match self.number {
            libc::SYS_unlink => self.path(0),
            libc::SYS_unlinkat => self.path(1),
            _ => None,
        }
    }

    /// The file to which it gives another name.
    pub fn renames(&self) -> Option<String> {
        match self.number {
            libc::SYS_rename => self.path(0),
            libc::SYS_renameat | libc::SYS_renameat2 => self.path(1),
            _ => None,
        }
    }

    /// The file that it writes.
    pub fn writes(&self) -> Option<String> {
        (self.number == libc::SYS_write).then(|| self.file())?
    }

    fn file(&self) -> Option<String> {
        self.descriptor(self.args[0])
    }

    fn is_of_a_socket(&self) -> bool {
        let link = self.link(self.args[0]);
        link.is_some_and(|link| link.starts_with("socket:"))
    }

    fn link(&self, number: u64) -> Option<String> {
        let link = fs::read_link(format!("/proc/{}/fd/{}", self.pid, number as i32)).ok()?;
        Some(link.to_string_lossy().into_owned())
    }

    fn descriptor(&self, number: u64) -> Option<String> {
        let link = self.link(number)?;
        // Not of a pipe, a socket, or the like.  Its own directory has its number in the name.
        let own = format!("/proc/{}/", self.pid);
        link.starts_with('/')
            .then(|| link.replace(&own, "/proc/self/"))
    }
}

/// A command with what is around it.
pub struct Case<'a> {
    /// As the table of what is expected has it.
    pub name: &'a str,
    pub args: Vec<&'a str>,
    pub terminal: bool,
    /// Asks a daemon that waits for events, which has done its work once it has answered.
    pub client: Option<&'a Client<'a>>,
    /// Before each run.
    pub before: &'a dyn Fn(),
    /// After each: what was lost.
    pub lost: &'a dyn Fn(&Ended) -> Option<String>,
}

impl<'a> Case<'a> {
    /// One that changes nothing.
    pub fn new(args: &[&'a str]) -> Self {
        Case {
            name: args[0],
            args: args.to_vec(),
            terminal: false,
            client: None,
            before: &|| {},
            lost: &|_| None,
        }
    }

    pub fn run(&self, fail: impl FnMut(&Call) -> Option<Errno>) -> Ended {
        (self.before)();
        match self.terminal {
            true => on_terminal(command(&self.args), fail),
            false => run_asked(command(&self.args), self.client, fail),
        }
    }
}

/// This thread, and what it starts from now on, on one processor: of two, each would have to wake
/// the other twice for each call.
fn on_one_processor() {
    // SAFETY: plain data, of which zero is a value; the call reads it.
    let done = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one)
    };
    assert_eq!(done, 0);
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None`: a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub said: String,
    /// It came to wait for events, as `run` does when all is in force.
    pub served: bool,
    /// What it has answered to the client; empty without one.
    pub answer: String,
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Runs a command to its end.  Calls for which `fail` has an errno end with that.  What waits for
/// events, as `run` does, is sent SIGTERM when it does so for the second time.
pub fn run(command: Command, fail: impl FnMut(&Call) -> Option<Errno>) -> Ended {
    run_asked(command, None, fail)
}

/// The same; with a client, SIGTERM comes after its answer instead.
fn run_asked(
    mut command: Command,
    client: Option<&Client<'_>>,
    fail: impl FnMut(&Call) -> Option<Errno>,
) -> Ended {
    let [out, said] = [0; 2].map(|_| tempfile::tempfile().unwrap());
    command.stdout(out.try_clone().unwrap());
    command.stderr(said.try_clone().unwrap());
    let traced = traced(command, client, fail);
    Ended {
        out: text(out),
        said: text(said),
        ..traced
    }
}

/// The same on a terminal, which gets all but what is on standard error.
pub fn on_terminal(mut command: Command, fail: impl FnMut(&Call) -> Option<Errno>) -> Ended {
    let pty = terminal();
    let said = tempfile::tempfile().unwrap();
    command.stdin(pty.slave.try_clone().unwrap());
    command.stdout(pty.slave);
    command.stderr(said.try_clone().unwrap());
    let mut master = File::from(pty.master);
    // A terminal that nobody reads is full at some time.
    let shown = std::thread::spawn(move || {
        let mut shown = Vec::new();
        // EIO, once nobody has the other end.
        let _ = master.read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    let traced = traced(command, None, fail);
    Ended {
        out: shown.join().unwrap(),
        said: text(said),
        ..traced
    }
}

/// One of its threads.
struct Thread {
    /// It is about to make a call, or has made it.
    entry: bool,
    failing: Option<Errno>,
}

impl Thread {
    const NEW: Thread = Thread {
        entry: true,
        failing: None,
    };
}

/// Whatever one that was killed meanwhile has to say comes from `waitpid`.
fn unless_killed<T>(result: nix::Result<T>) -> Option<T> {
    match result {
        Err(Errno::ESRCH) => None,
        other => Some(other.unwrap()),
    }
}

/// How it ended, without what it printed.
fn traced(
    mut command: Command,
    client: Option<&Client<'_>>,
    mut fail: impl FnMut(&Call) -> Option<Errno>,
) -> Ended {
    on_one_processor();
    // SAFETY: between fork and exec, a system call alone.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    // Its threads are waited for by that, and no other child is.
    command.process_group(0);
    #[allow(clippy::zombie_processes, reason = "waited for below, by its id")]
    let child = command.spawn().unwrap();
    // It has the other end of a terminal.
    drop(command);
    let pid = Pid::from_raw(child.id() as i32);
    assert!(matches!(waitpid(pid, None), Ok(WaitStatus::Stopped(..))));
    ptrace::setoptions(
        pid,
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACECLONE,
    )
    .unwrap();
    ptrace::syscall(pid, None).unwrap();
    let mut threads = HashMap::from([(pid, Thread::NEW)]);
    let mut waits = 0;
    std::thread::scope(|scope| {
        let mut asking = None;
        let code = loop {
            let group = Pid::from_raw(-pid.as_raw());
            let status = waitpid(group, Some(WaitPidFlag::__WALL)).unwrap();
            let Some(of) = status.pid() else {
                panic!("{status:?}");
            };
            let mut signal = None;
            match status {
                WaitStatus::Exited(_, code) if of == pid => break Some(code),
                WaitStatus::Signaled(..) if of == pid => break None,
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                    threads.remove(&of);
                    continue;
                }
                // A new one begins with this.
                WaitStatus::Stopped(_, Signal::SIGSTOP) if !threads.contains_key(&of) => {
                    threads.insert(of, Thread::NEW);
                }
                WaitStatus::Stopped(_, other) => signal = Some(other),
                WaitStatus::PtraceEvent(..) => {}
                WaitStatus::PtraceSyscall(_) => {
                    let thread = threads.get_mut(&of).unwrap();
                    let Some(mut regs) = unless_killed(ptrace::getregs(of)) else {
                        continue;
                    };
                    if thread.entry {
                        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
                        let number = regs.orig_rax as i64;
                        if [libc::SYS_epoll_wait, libc::SYS_epoll_pwait].contains(&number) {
                            waits += 1;
                            match (waits, client) {
                                (1, Some(client)) => {
                                    asking = Some(scope.spawn(move || {
                                        let answer = client();
                                        // It may have ended by itself.
                                        let _ = kill(pid, Signal::SIGTERM);
                                        answer
                                    }));
                                }
                                (2, None) => kill(pid, Signal::SIGTERM).unwrap(),
                                (WAITS, _) => kill(pid, Signal::SIGKILL).unwrap(),
                                _ => {}
                            }
                            // -1: until there is an event.
                            let wanted = regs.r10 as i32;
                            if wanted < 0 || wanted as u64 > LONGEST_MS {
                                regs.r10 = LONGEST_MS;
                                unless_killed(ptrace::setregs(of, regs));
                            }
                        }
                        thread.failing = fail(&Call { number, args, pid });
                        if thread.failing.is_some() {
                            regs.orig_rax = u64::MAX;
                            unless_killed(ptrace::setregs(of, regs));
                        }
                    } else if let Some(errno) = thread.failing.take() {
                        regs.rax = (-(errno as i64)) as u64;
                        unless_killed(ptrace::setregs(of, regs));
                    }
                    thread.entry = !thread.entry;
                }
                other => panic!("{other:?}"),
            }
            unless_killed(ptrace::syscall(of, signal));
        };
        Ended {
            code,
            out: String::new(),
            said: String::new(),
            served: waits > 0,
            answer: asking.map_or_else(String::new, |asking| asking.join().unwrap()),
        }
    })
}
