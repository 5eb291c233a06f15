// SPDX-License-Identifier: GPL-2.0-only
//! A client of Redis with keys of unequal popularity: redis-benchmark draws all alike, and `redis-cli --lru-test`
//! has values of a few bytes. By Zipf's law, the popular keys scattered over all that were stored.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use lab_guest::failure::Failure;

const USAGE: &str = "lab-guest zipf SOCKET KEYS EXPONENT_PERCENT GET_PERCENT VALUE_BYTES CLIENTS PIPELINE \
                     WARM_UP_S SECONDS (0: store each key once)";
/// Steps of the histogram of latencies: each is 2 % wider than the one before, from a microsecond on.
const STEPS: usize = 1200;
const STEP: f64 = 1.02;

/// `lab-guest zipf ...`: loads a server and reports requests per second and latencies of the time after the warm-up.
pub fn main(words: &[String]) -> ExitCode {
    let Some(load) = Load::read(words) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match load.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("lab-guest zipf: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// What is asked of the server.
struct Load {
    socket: String,
    keys: u64,
    exponent: f64,
    get_percent: u64,
    value_bytes: u64,
    clients: u64,
    pipeline: u64,
    warm_up: Duration,
    time: Duration,
}

impl Load {
    fn read(words: &[String]) -> Option<Self> {
        let [socket, numbers @ ..] = words else {
            return None;
        };
        let numbers: Vec<u64> = numbers
            .iter()
            .map(|word| word.parse())
            .collect::<Result<_, _>>()
            .ok()?;
        let &[
            keys,
            exponent,
            get_percent,
            value_bytes,
            clients,
            pipeline,
            warm_up,
            time,
        ] = numbers.as_slice()
        else {
            return None;
        };
        let sound = keys > 0 && clients > 0 && pipeline > 0 && exponent < 100;
        sound.then(|| Self {
            socket: socket.clone(),
            keys,
            exponent: exponent as f64 / 100.0,
            get_percent,
            value_bytes,
            clients,
            pipeline,
            warm_up: Duration::from_secs(warm_up),
            time: Duration::from_secs(time),
        })
    }

    fn run(&self) -> Result<(), Failure> {
        let failed = |e| Failure::new(format!("talk to {}", self.socket), e);
        let mut clients = Vec::new();
        for _ in 0..self.clients {
            clients.push(Client::connect(&self.socket).map_err(failed)?);
        }
        let mut keys = if self.time.is_zero() {
            Keys::each_once(self.keys)
        } else {
            Keys::zipf(self.keys, self.exponent, seed())
        };
        let begin = Instant::now();
        let mut latencies = Latencies::default();
        let mut measured_from = begin;
        loop {
            let passed = begin.elapsed();
            if passed < self.warm_up {
                latencies = Latencies::default();
                measured_from = Instant::now();
            }
            let over = !self.time.is_zero() && passed >= self.time;
            for client in &mut clients {
                if client.waits_for == 0 && !over {
                    client.send(self.batch(&mut keys)).map_err(failed)?;
                }
            }
            if clients.iter().all(|client| client.waits_for == 0) {
                break;
            }
            for client in waiting(&clients).map_err(|e| failed(e.into()))? {
                let client = &mut clients[client];
                if let Some(served) = client.receive().map_err(failed)? {
                    latencies.add(client.sent.elapsed(), served);
                }
            }
        }
        println!("{}", latencies.report(measured_from.elapsed()));
        Ok(())
    }

    /// As many commands as a client has under way, and how many that are; none when every key was stored.
    fn batch(&self, keys: &mut Keys) -> (Vec<u8>, u64) {
        let mut text = Vec::new();
        let mut count = 0;
        while count < self.pipeline {
            let Some(key) = keys.next() else { break };
            count += 1;
            let name = format!("key:{key:012}");
            if !self.time.is_zero() && keys.random.below(100) < self.get_percent {
                text.extend_from_slice(
                    format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len()).as_bytes(),
                );
            } else {
                let head = format!(
                    "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n",
                    name.len(),
                    self.value_bytes
                );
                text.extend_from_slice(head.as_bytes());
                add_value(&mut text, key, self.value_bytes);
                text.extend_from_slice(b"\r\n");
            }
        }
        (text, count)
    }
}

/// A key's value, which does not compress: swap of what does costs next to nothing.
fn add_value(text: &mut Vec<u8>, key: u64, bytes: u64) {
    let mut random = Random(key);
    let end = text.len() + usize::try_from(bytes).unwrap_or_default();
    while text.len() < end {
        text.extend_from_slice(&random.number().to_le_bytes());
    }
    text.truncate(end);
}

/// As redis-benchmark seeds itself, so that the lab can choose both alike.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs()) ^ u64::from(std::process::id())
}

/// The clients that have something to read.
fn waiting(clients: &[Client]) -> nix::Result<Vec<usize>> {
    let mut polled: Vec<PollFd> = clients
        .iter()
        .map(|client| PollFd::new(client.stream.as_fd(), PollFlags::POLLIN))
        .collect();
    poll(&mut polled, PollTimeout::NONE)?;
    Ok(polled
        .iter()
        .enumerate()
        .filter(|(_, one)| one.any().unwrap_or(true))
        .map(|(index, _)| index)
        .collect())
}

/// A connection with requests under way.
struct Client {
    stream: UnixStream,
    sent: Instant,
    waits_for: u64,
    /// Answers of the batch that have come whole.
    came: u64,
    /// What came of the next one.
    rest: Vec<u8>,
}

impl Client {
    fn connect(socket: &str) -> std::io::Result<Self> {
        Ok(Self {
            stream: UnixStream::connect(socket)?,
            sent: Instant::now(),
            waits_for: 0,
            came: 0,
            rest: Vec::new(),
        })
    }

    fn send(&mut self, (text, count): (Vec<u8>, u64)) -> std::io::Result<()> {
        if count > 0 {
            self.sent = Instant::now();
            (self.waits_for, self.came) = (count, 0);
            self.stream.write_all(&text)?;
        }
        Ok(())
    }

    /// Takes what has come; how many requests were served once the batch is whole.
    fn receive(&mut self) -> std::io::Result<Option<u64>> {
        let mut chunk = [0; 65536];
        let count = self.stream.read(&mut chunk)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.rest.extend_from_slice(&chunk[..count]);
        let mut from = 0;
        while let Some(length) = answer(&self.rest[from..])? {
            from += length;
            self.came += 1;
        }
        self.rest.drain(..from);
        if self.came < self.waits_for {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.waits_for)))
    }
}

/// Length of the whole answer at the beginning of `text`: "+OK", or "$LENGTH" and a value, or "$-1" for none.
fn answer(text: &[u8]) -> std::io::Result<Option<usize>> {
    let Some(head) = text.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&text[..head]);
    let whole = match line.split_at_checked(1) {
        Some(("+", _)) => head + 2,
        Some(("$", "-1")) => head + 2,
        Some(("$", length)) => {
            head + 4
                + length
                    .parse::<usize>()
                    .map_err(|_| ErrorKind::InvalidData)?
        }
        _ => return Err(std::io::Error::other(format!("it answers {line:?}"))),
    };
    Ok((text.len() >= whole).then_some(whole))
}

/// Numbers that come out the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Which key is next. Drawn by Gray and others' formula ("Quickly generating billion-record synthetic databases",
/// 1994): no table, whatever the number of keys.
struct Keys {
    count: u64,
    random: Random,
    /// Keys that are still to be stored once; None: drawn without end.
    left: Option<u64>,
    exponent: f64,
    zeta: f64,
    eta: f64,
}

impl Keys {
    fn each_once(count: u64) -> Self {
        Self {
            left: Some(count),
            ..Self::zipf(count, 0.0, 0)
        }
    }

    fn zipf(count: u64, exponent: f64, seed: u64) -> Self {
        let sum = |count: u64| -> f64 { (1..=count).map(|n| (n as f64).powf(-exponent)).sum() };
        let zeta = sum(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - exponent)) / (1.0 - sum(2) / zeta);
        Self {
            count,
            random: Random(seed),
            left: None,
            exponent,
            zeta,
            eta,
        }
    }

    fn next(&mut self) -> Option<u64> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
            return Some(*left);
        }
        Some(scattered(self.rank(), self.count))
    }

    /// 0 is the most popular.
    fn rank(&mut self) -> u64 {
        let share = self.random.share();
        let reached = share * self.zeta;
        if reached < 1.0 {
            return 0;
        }
        if reached < 1.0 + 0.5f64.powf(self.exponent) {
            return 1.min(self.count - 1);
        }
        let power = 1.0 / (1.0 - self.exponent);
        let rank = self.count as f64 * (self.eta * share - self.eta + 1.0).powf(power);
        (rank as u64).min(self.count - 1)
    }
}

/// The key of a rank: neighbours in popularity were not stored side by side. One to one, as the factor is a prime
/// that no number of keys here is a multiple of.
fn scattered(rank: u64, count: u64) -> u64 {
    (u128::from(rank) * 2_654_435_761 % u128::from(count)) as u64
}

/// How long requests took: the time from the first byte of their batch to the last of its answers.
struct Latencies {
    steps: Vec<u64>,
    served: u64,
    whole: Duration,
    worst: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            steps: vec![0; STEPS],
            served: 0,
            whole: Duration::ZERO,
            worst: Duration::ZERO,
        }
    }
}

impl Latencies {
    fn add(&mut self, took: Duration, served: u64) {
        let step = ((took.as_secs_f64() * 1e6).max(1.0).ln() / STEP.ln()) as usize;
        self.steps[step.min(STEPS - 1)] += served;
        self.served += served;
        self.whole += took * u32::try_from(served).unwrap_or(u32::MAX);
        self.worst = self.worst.max(took);
    }

    /// Milliseconds below which `share` of all requests are, none of them above the worst.
    fn quantile(&self, share: f64) -> f64 {
        let worst = self.worst.as_secs_f64() * 1000.0;
        let mut left = share * self.served as f64;
        for (step, &count) in self.steps.iter().enumerate() {
            left -= count as f64;
            if left <= 0.0 {
                let above = STEP.powi(i32::try_from(step).unwrap_or_default() + 1) / 1000.0;
                return above.min(worst);
            }
        }
        worst
    }

    fn report(&self, passed: Duration) -> String {
        let served = self.served as f64;
        format!(
            "zipf: served={} rps={:.1} avg={:.3} p50={:.3} p95={:.3} p99={:.3} max={:.3}",
            self.served,
            served / passed.as_secs_f64(),
            self.whole.as_secs_f64() * 1000.0 / served.max(1.0),
            self.quantile(0.5),
            self.quantile(0.95),
            self.quantile(0.99),
            self.worst.as_secs_f64() * 1000.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn each_key_once_is_each_key_once() {
        let mut keys = Keys::each_once(100);
        let drawn: Vec<u64> = std::iter::from_fn(|| keys.next()).collect();
        assert_eq!(drawn.len(), 100);
        assert_eq!(drawn.into_iter().collect::<BTreeSet<_>>().len(), 100);
    }

    #[test]
    fn ranks_follow_the_law() {
        let mut keys = Keys::zipf(1000, 0.99, 7);
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for _ in 0..200_000 {
            *counts.entry(keys.rank()).or_default() += 1;
        }
        let share = |rank: u64| f64::from(counts[&rank]) / 200_000.0;
        for rank in [0, 1, 9, 99] {
            let law = ((rank + 1) as f64).powf(-0.99) / keys.zeta;
            assert!(
                (share(rank) / law - 1.0).abs() < 0.25,
                "{rank}: {} {law}",
                share(rank)
            );
        }
        assert!(counts.keys().all(|&rank| rank < 1000));
    }

    #[test]
    fn scattering_is_one_to_one() {
        for count in [1, 20_000, 200_000] {
            let keys: BTreeSet<u64> = (0..count).map(|rank| scattered(rank, count)).collect();
            assert_eq!(keys.len() as u64, count);
        }
    }

    #[test]
    fn values_are_each_keys_own_and_do_not_compress() {
        let mut values = BTreeSet::new();
        for key in 0..100 {
            let mut value = b"head".to_vec();
            add_value(&mut value, key, 1021);
            assert_eq!(value.len(), 4 + 1021);
            let words: BTreeSet<&[u8]> = value[4..].chunks(4).collect();
            assert!(words.len() > 250, "{}", words.len());
            values.insert(value);
        }
        assert_eq!(values.len(), 100);
    }

    #[test]
    fn without_skew_all_keys_are_alike() {
        let mut keys = Keys::zipf(100, 0.0, 7);
        let mut counts = [0u32; 100];
        for _ in 0..100_000 {
            counts[usize::try_from(keys.rank()).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn answers_are_counted_whole() {
        assert_eq!(answer(b"+OK\r\n$").unwrap(), Some(5));
        assert_eq!(answer(b"$-1\r\n").unwrap(), Some(5));
        let value = b"$3\r\nabc\r\n";
        assert_eq!(answer(value).unwrap(), Some(value.len()));
        for end in 0..value.len() {
            assert_eq!(answer(&value[..end]).unwrap(), None, "{end}");
        }
        assert!(answer(b"-ERR no\r\n").is_err());
    }

    #[test]
    fn latencies_are_within_a_step() {
        let mut latencies = Latencies::default();
        for n in 1..=100 {
            latencies.add(Duration::from_millis(n), 1);
        }
        assert!((latencies.quantile(0.99) / 99.0 - 1.0).abs() < 0.03);
        assert!((latencies.quantile(0.5) / 50.0 - 1.0).abs() < 0.03);
        let report = latencies.report(Duration::from_secs(2));
        assert!(
            report.starts_with("zipf: served=100 rps=50.0 avg=50.500 "),
            "{report}"
        );
        assert!(report.ends_with(" max=100.000"), "{report}");
        assert_eq!(latencies.quantile(1.0).to_bits(), 100.0_f64.to_bits());
    }

    #[test]
    fn words_that_make_no_load_are_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(Load::read(&words("/s 10 99 90 1024 16 32 5 60")).is_some());
        for bad in [
            "/s",
            "/s 0 99 90 1024 16 32 5 60",
            "/s 10 100 90 1024 16 32 5 60",
            "/s 1 2 3",
        ] {
            assert!(Load::read(&words(bad)).is_none(), "{bad}");
        }
    }
}
