// SPDX-License-Identifier: GPL-2.0-only
//! PID 1 of the guest: sets it up, runs the job, says how it ended, powers off.
//!
//! The verdict goes to a virtio port that only this process holds open, and carries a number that the host
//! drew for this boot. A job can therefore print what it likes, crash or kill: the host never takes that
//! for an end that did not happen.

mod checks;
mod job;
mod relay;
mod setup;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use nix::errno::Errno;
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

use crate::ports;
use job::Job;
use lab_guest::failure::Failure;

/// How the job's first process ended.
enum End {
    Exit(i32),
    Signal(Signal),
}

/// Runs the guest from its first instruction to its power-off; returns only when it is not PID 1.
pub fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!(
            "lab-guest init: this is PID 1 of the lab's guest; it mounts and powers off, so not here"
        );
        return ExitCode::from(2);
    }
    match boot() {
        Ok(()) => {}
        // Without a verdict port there is nobody to tell but the console; the host then reports DIED.
        Err(failure) => eprintln!("lab-guest init: {failure}"),
    }
    nix::unistd::sync();
    let Err(cause) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("lab-guest init: power-off: {cause}");
    ExitCode::FAILURE
}

/// Everything between the mounts and the verdict.
fn boot() -> Result<(), Failure> {
    setup::mount_devices()?;
    let job = Job::take("/lab/job")?;
    setup::mount_rest()?;
    let mut verdict = ports::to_host("verdict")?;
    let text = match run(&job) {
        Ok(End::Exit(code)) => format!("exit {code}"),
        Ok(End::Signal(signal)) => format!("signal {}", signal as i32),
        Err(failure) => format!("error {}", failure.to_string().replace('\n', " ")),
    };
    checks::ask(&job);
    writeln!(verdict, "{} {text}", job.nonce)
        .map_err(|cause| Failure::new("write the verdict", cause))
}

/// Runs the job's argv with its output and results relayed to the host.
fn run(job: &Job) -> Result<End, Failure> {
    setup::controllers(&job.controllers());
    setup::loopback()?;
    setup::protect();

    let results = relay::fifo(relay::RESULTS, ports::to_host("results")?)?;
    let (output, stdout) = relay::pipe(ports::to_host("output")?)?;
    let stderr = stdout
        .try_clone()
        .map_err(|cause| Failure::new("clone the output pipe", cause))?;

    let end = supervise(job, stdout, stderr);
    // Whatever the job left running would write on for ever; the verdict comes after everybody's last word.
    match kill(Pid::from_raw(-1), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(cause) => return Err(Failure::new("kill what the job left", cause)),
    }
    output.finish()?;
    results.finish()?;
    end
}

/// Starts argv and reaps, as PID 1 must, until argv itself has ended.
fn supervise(job: &Job, stdout: File, stderr: File) -> Result<End, Failure> {
    let Some((program, args)) = job.argv.split_first() else {
        return Err(Failure::new(
            "read the job",
            io::Error::other("its argv is empty"),
        ));
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(job.environment())
        .current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    let child = command
        .spawn()
        .map_err(|cause| Failure::new(format!("start {program}"), cause))?;
    // The command holds copies of the pipe's ends that would keep it from ever running dry.
    drop(command);
    let pid =
        i32::try_from(child.id()).map_err(|_| Failure::new("start the job", Errno::EOVERFLOW))?;
    loop {
        match wait() {
            Ok(WaitStatus::Exited(who, code)) if who.as_raw() == pid => return Ok(End::Exit(code)),
            Ok(WaitStatus::Signaled(who, signal, _)) if who.as_raw() == pid => {
                return Ok(End::Signal(signal));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(cause) => return Err(Failure::new("wait for the job", cause)),
        }
    }
}
