// SPDX-License-Identifier: GPL-2.0-only
//! mthp_ext beside the workload, if the arm has it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::words::Words;
use lab_guest::failure::Failure;
use lab_guest::results::Results;

/// Guest time that mthp_ext has to attach.
const ATTACH: Duration = Duration::from_secs(30);

/// A running policy, or none.
pub struct Policy {
    running: Option<Running>,
}

struct Running {
    child: Child,
    reader: JoinHandle<()>,
    complaints: Words,
}

impl Policy {
    /// Starts the arm's policy, a command that prints mthp_ext's JSON events, and waits until it is attached. Its
    /// events are passed on to the host. Without a command there is none.
    ///
    /// # Errors
    /// It cannot be started, or does not attach in time.
    pub fn start(command: Option<&[String]>, results: &Arc<Results>) -> Result<Self, Failure> {
        let Some((program, args)) = command.and_then(<[String]>::split_first) else {
            return Ok(Self { running: None });
        };
        let mut child = Command::new(program)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new("start mthp_ext", e))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::other("start mthp_ext", "its output is not piped"));
        };
        let complaints = Words::follow(stderr, |line| eprintln!("{line}"));
        let (attached, is_attached) = channel();
        let results = Arc::clone(results);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(mut event) = serde_json::from_str::<Value>(&line) else {
                    eprintln!("lab-guest: mthp_ext printed no JSON: {line}");
                    continue;
                };
                if event["event"] == "attached" {
                    let _ = attached.send(());
                }
                if let Some(fields) = event.as_object_mut() {
                    fields.insert("type".to_owned(), Value::from("policy"));
                }
                if let Err(e) = results.send(&event) {
                    eprintln!("lab-guest: write an event: {e}");
                    return;
                }
            }
        });
        if let Err(cause) = is_attached.recv_timeout(ATTACH) {
            let what = "attach the policy";
            let _ = child.kill();
            let status = child.wait().map_err(|e| Failure::new(what, e))?;
            complaints.finish();
            let said = complaints.last();
            return Err(match cause {
                RecvTimeoutError::Disconnected => Failure::ended(what, status, "mthp_ext", &said),
                RecvTimeoutError::Timeout => {
                    let why = format!("not attached after {} s", ATTACH.as_secs());
                    Failure::of(what, why, "mthp_ext", &said)
                }
            });
        }
        Ok(Self {
            running: Some(Running {
                child,
                reader,
                complaints,
            }),
        })
    }

    /// Ends the policy as a user would, and checks that it ended well.
    ///
    /// # Errors
    /// It did not, or was gone before.
    pub fn stop(self) -> Result<(), Failure> {
        let Some(Running {
            mut child,
            reader,
            complaints,
        }) = self.running
        else {
            return Ok(());
        };
        let pid = i32::try_from(child.id())
            .map_err(|_| Failure::other("stop mthp_ext", "its pid does not fit"))?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|e| Failure::new("stop mthp_ext", e))?;
        let status = child
            .wait()
            .map_err(|e| Failure::new("wait for mthp_ext", e))?;
        if reader.join().is_err() {
            return Err(Failure::other(
                "read mthp_ext's events",
                "the reader panicked",
            ));
        }
        if !status.success() {
            complaints.finish();
            let said = complaints.last();
            return Err(Failure::ended("stop mthp_ext", status, "mthp_ext", &said));
        }
        Ok(())
    }
}
