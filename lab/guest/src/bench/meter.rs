// SPDX-License-Identifier: GPL-2.0-only
//! A counter of a server, read on a period: how its work goes over time, by its own account.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use super::cell::MeterSpec;
use lab_guest::failure::Failure;
use lab_guest::results::{Results, now_ms};

/// How often a meter whose server does not answer looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// A running meter.
pub struct Meter {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Meter {
    /// Connects and begins to read. Each answer becomes a record with the time at which it came: a server that
    /// stalls answers late, and counts on from there.
    ///
    /// # Errors
    /// The server does not listen.
    pub fn start(spec: &MeterSpec, results: &Arc<Results>) -> Result<Self, Failure> {
        let failed = |e| Failure::new(format!("connect to {}", spec.socket), e);
        let stream = UnixStream::connect(&spec.socket).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let (stop, stopped) = channel();
        let (spec, results) = (spec.clone(), Arc::clone(results));
        let thread = std::thread::spawn(move || follow(stream, &spec, &results, &stopped));
        Ok(Self { stop, thread })
    }

    /// Ends it.
    ///
    /// # Errors
    /// A record could not be written.
    pub fn stop(self) -> Result<(), Failure> {
        // The thread may have ended before, with its server.
        let _ = self.stop.send(());
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Failure::other("read a counter", "the meter panicked")))
    }
}

fn follow(
    mut stream: UnixStream,
    spec: &MeterSpec,
    results: &Results,
    stopped: &Receiver<()>,
) -> Result<(), Failure> {
    loop {
        // A server that is gone has its own record.
        let Some(answer) = ask(&mut stream, &spec.ask, stopped) else {
            return Ok(());
        };
        // A counter that the server does not know yet has counted nothing.
        let count = counter_in(&answer, &spec.counter).unwrap_or(0);
        let record = json!({"type": "meter", "meter": spec.name, "t_ms": now_ms(), "count": count});
        results.send(&record)?;
        match stopped.recv_timeout(Duration::from_millis(spec.every_ms)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// The text that the server answers; None if it is gone, or if this is to stop.
fn ask(stream: &mut UnixStream, question: &str, stopped: &Receiver<()>) -> Option<String> {
    stream
        .write_all(format!("{question}\r\n").as_bytes())
        .ok()?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(text) = bulk(&answer) {
            return Some(text);
        }
        match stream.read(&mut chunk) {
            Ok(0) => return None,
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stopped.try_recv() != Err(TryRecvError::Empty) {
                    return None;
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// The text of a whole answer "$LENGTH\r\nTEXT\r\n"; None of a part of one.
fn bulk(answer: &[u8]) -> Option<String> {
    let head = answer.windows(2).position(|pair| pair == b"\r\n")?;
    let length: usize = std::str::from_utf8(answer.get(1..head)?)
        .ok()?
        .parse()
        .ok()?;
    let text = answer.get(head + 2..head + 2 + length)?;
    answer.get(head + 4 + length - 1)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// The number behind `counter`, at the beginning of a line.
fn counter_in(text: &str, counter: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(counter))?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_counter_stands_at_the_beginning_of_its_line() {
        let text = "# Commandstats\r\ncmdstat_set:calls=126,usec=9\r\nx_total:7\r\n";
        assert_eq!(counter_in(text, "cmdstat_set:calls="), Some(126));
        assert_eq!(counter_in(text, "x_total:"), Some(7));
        assert_eq!(counter_in(text, "total:"), None);
        assert_eq!(counter_in("n:", "n:"), None);
    }

    #[test]
    fn only_a_whole_answer_counts() {
        let whole = b"$5\r\na:1\r\n\r\n";
        assert_eq!(bulk(whole).as_deref(), Some("a:1\r\n"));
        for end in 0..whole.len() {
            assert_eq!(bulk(&whole[..end]), None, "{end}");
        }
    }

    #[test]
    fn each_answer_becomes_a_record_and_the_end_of_the_server_ends_it() {
        let name = |kind| {
            let process = std::process::id();
            std::env::temp_dir().join(format!("lab-guest-meter-{kind}-{process}"))
        };
        let (socket, file) = (name("socket"), name("records"));
        std::fs::write(&file, "").unwrap();
        let server = UnixListener::bind(&socket).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            for count in [5, 9] {
                let mut question = [0; 6];
                stream.read_exact(&mut question).unwrap();
                assert_eq!(&question, b"HOWS\r\n");
                let text = format!("n:{count}\r\n");
                write!(stream, "${}\r\n{text}\r\n", text.len()).unwrap();
            }
        });
        let results = Arc::new(Results::to(&file).unwrap());
        let spec = MeterSpec {
            name: "served".to_owned(),
            socket: socket.to_string_lossy().into_owned(),
            ask: "HOWS".to_owned(),
            counter: "n:".to_owned(),
            every_ms: 1,
        };
        let meter = Meter::start(&spec, &results).unwrap();
        serving.join().unwrap();
        meter.thread.join().unwrap().unwrap();
        let records = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&socket).unwrap();
        let counts: Vec<u64> = records
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|record| record["count"].as_u64().unwrap())
            .collect();
        assert_eq!(counts, [5, 9]);
    }
}
