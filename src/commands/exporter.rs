// SPDX-License-Identifier: GPL-2.0-only
//! `run --metrics`: serves the metrics of the policy to whoever asks, beside the loop of `run` and
//! never in it.  Each request has a thread of its own, a bounded number of them, and a bounded
//! time; the cgroups are looked at once for all requests of the same moment.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::errors::{Context, Result};
use crate::kernel::attached;
use crate::kernel::cgroup::{self, Names};
use crate::kernel::clock;
use crate::kernel::thp;
use crate::model::orders::Sizes;
use crate::output::http::{self, MOST_BYTES, Wants};
use crate::output::openmetrics::{self, CONTENT_TYPE, Cgroups, Counts, InForce, Snapshot};

/// Where the page is.
const PATH: &str = "/metrics";

/// Requests that are served at the same time; others get 503.
const MOST_CLIENTS: usize = 8;

/// What one request may take, from its connection to its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers are so old at most.  Who asks more often gets the same again.
const FRESH: Duration = Duration::from_millis(500);

/// Time until an address that was refused is tried again.
pub const AGAIN: Duration = Duration::from_secs(10);

/// Stack of a thread: the tree of cgroups is walked in it.
const STACK: usize = 512 << 10;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port; of loopback, unless another address is given.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match Path::new(path).is_absolute() {
                true => Ok(Address::Unix(path.into())),
                false => {
                    Err("needs an absolute path, as in unix:/run/mthp_ext/metrics.sock".to_owned())
                }
            };
        }
        let port = |text: &str| {
            text.parse()
                .map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
        };
        let address = text
            .parse()
            .or_else(|_| port(text.strip_prefix(':').unwrap_or(text)));
        match address {
            Ok(address) if address.port() == 0 => Err("needs a port".to_owned()),
            Ok(address) => Ok(Address::Tcp(address)),
            Err(_) => Err("must be unix:/PATH, PORT, or IP:PORT".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

/// What the loop of `run` counts and puts into force; read by those that serve.
#[derive(Debug, Default)]
pub struct Counters {
    in_force: Mutex<InForce>,
    scans: AtomicU64,
    scan_ns: AtomicU64,
    reported: AtomicU64,
    suppressed: AtomicU64,
    /// When the loop woke, in ms; 0 while it waits, which it may do for as long as it likes.
    woke_ms: AtomicU64,
}

impl Counters {
    /// The loop has something to do.
    pub fn wakes(&self) {
        self.woke_ms
            .store(clock::now_ms().max(1), Ordering::Relaxed);
    }

    /// It has done that.
    pub fn waits(&self) {
        self.woke_ms.store(0, Ordering::Relaxed);
    }

    /// [`io::ErrorKind::TimedOut`] if it has been at that for longer.
    fn alive(&self, now_ms: u64, patience: Duration) -> io::Result<()> {
        let since = match self.woke_ms.load(Ordering::Relaxed) {
            0 => return Ok(()),
            woke_ms => Duration::from_millis(now_ms.saturating_sub(woke_ms)),
        };
        if since <= patience {
            return Ok(());
        }
        let text = format!(
            "the loop of the daemon has hung for {} s: nothing is scanned (a cgroup tree that cannot be read, or an \
             output that nobody reads?)",
            since.as_secs()
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// A scan is over, which took so long.
    pub fn scan(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.scan_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// A decision was printed, after so many requests whose change was not.
    pub fn decision(&self, suppressed: u64) {
        self.reported.fetch_add(1, Ordering::Relaxed);
        self.suppressed.fetch_add(suppressed, Ordering::Relaxed);
    }

    /// This is in force from now on.
    pub fn put_into_force(&self, in_force: InForce) {
        *locked(&self.in_force) = in_force;
    }

    /// What was put into force last.
    pub fn in_force(&self) -> InForce {
        locked(&self.in_force).clone()
    }

    fn now(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            scans: of(&self.scans),
            scan_ns: of(&self.scan_ns),
            reported: of(&self.reported),
            suppressed: of(&self.suppressed),
        }
    }
}

/// Whoever held it has left it whole, even one that panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is served.
pub struct Source {
    /// The cgroup that it is attached to.
    pub root: PathBuf,
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// What the machine has.
    pub sizes: Sizes,
    /// The program that says what is decided for a cgroup; an object of the user's may have none.
    pub explain: Option<OwnedFd>,
    /// What the loop counts.
    pub counters: Arc<Counters>,
    /// So long may the loop take for a turn.
    pub patience: Duration,
}

impl Source {
    /// What there is to serve now.
    fn page(&self) -> io::Result<String> {
        // Who asks whether it lives asks here, and this is another thread.
        self.counters.alive(clock::now_ms(), self.patience)?;
        let names = Names::new(&self.mount);
        let sizes = thp::sizes_as_of_now(&self.sizes);
        let pud_on = sizes.pud().is_some();
        let (mut all, mut unread) = (Vec::new(), 0);
        if let Some(explain) = &self.explain {
            let unlisted = cgroup::walk(&self.root, &mut |path, id| {
                match attached::explain(explain.as_fd(), id, pud_on) {
                    Ok(Some(explained)) => all.push((names.of_path(path), explained)),
                    // It goes away.
                    Ok(None) => {}
                    Err(_) => unread += 1,
                }
            });
            unread += unlisted.len();
        }
        let snapshot = Snapshot {
            in_force: self.counters.in_force(),
            root: names.of_path(&self.root),
            sizes,
            counts: self.counters.now(),
            cgroups: Cgroups::new(all, unread),
        };
        openmetrics::text(snapshot).map_err(io::Error::other)
    }
}

/// The last page, for those that ask at the same moment.
struct Pages<F> {
    make: F,
    last: Mutex<Option<(Instant, Arc<str>)>>,
    clients: AtomicUsize,
}

impl<F: Fn() -> io::Result<String>> Pages<F> {
    fn new(make: F) -> Self {
        Pages {
            make,
            last: Mutex::new(None),
            clients: AtomicUsize::new(0),
        }
    }

    fn get(&self) -> io::Result<Arc<str>> {
        let mut last = locked(&self.last);
        match &*last {
            Some((made, page)) if made.elapsed() < FRESH => Ok(page.clone()),
            _ => {
                let page: Arc<str> = (self.make)()?.into();
                *last = Some((Instant::now(), page.clone()));
                Ok(page)
            }
        }
    }
}

/// One of the places for clients; dropped, however its thread ends: it is free again.
struct Place<F>(Arc<Pages<F>>);

impl<F> Place<F> {
    fn take(pages: &Arc<Pages<F>>) -> Option<Self> {
        let place = Place(pages.clone());
        let before = pages.clients.fetch_add(1, Ordering::Relaxed);
        (before < MOST_CLIENTS).then_some(place)
    }
}

impl<F> Drop for Place<F> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of either kind.
trait Stream: Read + Write + Send + 'static {
    fn set_timeout(&self, time: Duration) -> io::Result<()>;
    fn end(&self) -> io::Result<()>;
}

macro_rules! stream {
    ($type:ty) => {
        impl Stream for $type {
            fn set_timeout(&self, time: Duration) -> io::Result<()> {
                // None would be no limit at all.
                let time = Some(time.max(Duration::from_millis(1)));
                self.set_read_timeout(time)?;
                self.set_write_timeout(time)
            }

            fn end(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);

/// Serves one client, which may take this long in all: making the page is not its fault.
fn serve<F: Fn() -> io::Result<String>>(
    stream: &mut impl Stream,
    pages: &Pages<F>,
    patience: Duration,
) -> io::Result<()> {
    let deadline = Cell::new(Instant::now() + patience);
    let left = || match deadline.get().saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut request = Vec::new();
    let mut part = [0; 1024];
    let wants = loop {
        stream.set_timeout(left()?)?;
        let room = part.len().min(MOST_BYTES - request.len());
        let count = stream.read(&mut part[..room])?;
        request.extend_from_slice(&part[..count]);
        match http::wants(&request, PATH) {
            // It has hung up.
            Wants::More if count == 0 => return Ok(()),
            Wants::More => {}
            wants => break wants,
        }
    };
    let plain = "text/plain; charset=utf-8";
    let response = match wants {
        Wants::Page { body } => {
            let begun = Instant::now();
            let page = pages.get();
            deadline.set(deadline.get() + begun.elapsed());
            match page {
                Ok(page) => http::response(200, "OK", CONTENT_TYPE, &page, !body),
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    let text = format!("{e}\n");
                    http::response(503, "Service Unavailable", plain, &text, !body)
                }
                Err(_) => http::response(500, "Internal Server Error", plain, "", false),
            }
        }
        Wants::Nothing(code, reason) => {
            let text = format!("{reason}; the metrics are at {PATH}\n");
            http::response(code, reason, plain, &text, false)
        }
        Wants::More => return Ok(()),
    };
    let mut rest = response.as_slice();
    while !rest.is_empty() {
        stream.set_timeout(left()?)?;
        let written = stream.write(rest)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = &rest[written..];
    }
    stream.end()?;
    // What it has sent beyond is read, or closing would take the answer from it.
    for _ in 0..64 {
        stream.set_timeout(left()?.min(Duration::from_millis(200)))?;
        if stream.read(&mut part)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Serves all that come, each in a thread of its own.
fn accept_all<S: Stream, F>(mut accept: impl FnMut() -> io::Result<S>, pages: &Arc<Pages<F>>)
where
    F: Fn() -> io::Result<String> + Send + Sync + 'static,
{
    loop {
        let Ok(mut stream) = accept() else {
            // No descriptors, or no memory: not again at once.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = Place::take(pages) else {
            let busy = http::response(503, "Service Unavailable", "text/plain", "", false);
            // A new connection has room for this; if not, it is just closed.
            let sent = stream
                .set_timeout(Duration::ZERO)
                .and_then(|()| stream.write(&busy));
            drop(sent);
            continue;
        };
        let thread = thread::Builder::new()
            .name("metrics".to_owned())
            .stack_size(STACK);
        // Without a thread the connection is closed.
        let _ = thread.spawn(move || {
            // A client that hangs up or is too slow has nobody to report it to.
            let _ = serve(&mut stream, &place.0, PATIENCE);
        });
    }
}

/// A socket that is listened on.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Files of sockets, with their inodes.
type Files = Arc<Mutex<Vec<(PathBuf, u64)>>>;

/// Listens for scrapes.  Dropped: unix sockets are removed; the threads end with the process.
#[derive(Default)]
pub struct Exporter {
    listeners: Vec<Listener>,
    files: Files,
    /// What could not be had, and why.
    pub refused: Vec<(Address, io::Error)>,
}

impl Exporter {
    /// Listens on all addresses that can be had, and serves nobody yet.
    pub fn listen(addresses: &[Address]) -> Self {
        let mut exporter = Exporter::default();
        for address in addresses {
            match listener(address, &exporter.files) {
                Ok(listener) => exporter.listeners.push(listener),
                Err(e) => exporter.refused.push((address.clone(), e)),
            }
        }
        exporter
    }

    /// Serves from now on, in threads.  Addresses that were refused are tried again: a network
    /// comes up late, and a former daemon ends.
    ///
    /// # Errors
    /// If a thread cannot be made.
    pub fn serve(&mut self, source: Source) -> Result<()> {
        let pages = Arc::new(Pages::new(move || source.page()));
        for listener in self.listeners.drain(..) {
            let pages = pages.clone();
            start(move || accept_from(&listener, &pages))?;
        }
        for (address, _) in self.refused.drain(..) {
            let (pages, files) = (pages.clone(), self.files.clone());
            start(move || {
                loop {
                    thread::sleep(AGAIN);
                    if let Ok(listener) = listener(&address, &files) {
                        return accept_from(&listener, &pages);
                    }
                }
            })?;
        }
        Ok(())
    }
}

/// Runs it in a thread of its own.
fn start(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new()
        .name("metrics".to_owned())
        .stack_size(STACK);
    let started = thread.spawn(run).map(drop);
    started.context(|| "starting a thread for --metrics".to_owned())
}

/// Serves all that come to one address.
fn accept_from<F>(listener: &Listener, pages: &Arc<Pages<F>>)
where
    F: Fn() -> io::Result<String> + Send + Sync + 'static,
{
    match listener {
        Listener::Unix(unix) => accept_all(|| Ok(unix.accept()?.0), pages),
        Listener::Tcp(tcp) => accept_all(|| Ok(tcp.accept()?.0), pages),
    }
}

/// Listens on an address; a unix socket is added to `files`.
fn listener(address: &Address, files: &Files) -> io::Result<Listener> {
    match address {
        Address::Tcp(address) => Ok(Listener::Tcp(TcpListener::bind(address)?)),
        Address::Unix(path) => {
            let listener = bind(path)?;
            locked(files).push((path.clone(), fs::symlink_metadata(path)?.ino()));
            // Root and its group; connecting takes the right to write.
            fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
            Ok(Listener::Unix(listener))
        }
    }
}

/// Binds a unix socket.  One that nobody listens on any more is replaced, and the directory is
/// made if only that is missing.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        match fs::create_dir(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            // Connecting to a file that is no socket is refused as well.
            let dead = fs::symlink_metadata(path)?.file_type().is_socket()
                && UnixStream::connect(path)
                    .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            if !dead {
                return Err(e);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        for (path, inode) in &*locked(&self.files) {
            remove(path, *inode);
        }
    }
}

/// Removes a socket, but not that of another, who came meanwhile.
pub(super) fn remove(path: &Path, inode: u64) {
    if fs::symlink_metadata(path).is_ok_and(|file| file.ino() == inode) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn address(text: &str) -> Option<String> {
        text.parse::<Address>()
            .ok()
            .map(|address| address.to_string())
    }

    #[test]
    fn a_port_alone_is_that_of_loopback() {
        for text in ["9464", ":9464", "127.0.0.1:9464"] {
            assert_eq!(address(text).as_deref(), Some("127.0.0.1:9464"), "{text}");
        }
        assert_eq!(address("[::]:9464").as_deref(), Some("[::]:9464"));
        assert_eq!(address("unix:/run/x").as_deref(), Some("unix:/run/x"));
        for bad in [
            "",
            "0",
            ":0",
            "localhost:9464",
            "unix:x",
            "unix:",
            "99999",
            "127.0.0.1",
        ] {
            assert_eq!(address(bad), None, "{bad}");
        }
    }

    fn pages() -> Arc<Pages<impl Fn() -> io::Result<String>>> {
        Arc::new(Pages::new(|| Ok("a 1\n# EOF\n".to_owned())))
    }

    /// What a client gets that sends this and then nothing more.
    fn answer(request: &[u8], patience: Duration) -> (String, io::Result<()>) {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(request).unwrap();
        let served = serve(&mut server, &pages(), patience);
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        (text, served)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_scrape_is_answered() {
        let (text, _) = answer(b"GET /metrics HTTP/1.1\r\n\r\n", SECOND);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(
            text.contains(CONTENT_TYPE) && text.ends_with("\r\n\r\na 1\n# EOF\n"),
            "{text}"
        );
        let (text, _) = answer(b"HEAD /metrics HTTP/1.1\r\n\r\n", SECOND);
        assert!(
            text.contains("Content-Length: 10\r\n") && text.ends_with("\r\n\r\n"),
            "{text}"
        );
    }

    #[test]
    fn a_loop_that_hangs_has_no_page_and_one_that_waits_has() {
        let counters = Counters::default();
        let at = |after: Duration| {
            let now_ms = clock::now_ms() + u64::try_from(after.as_millis()).unwrap();
            counters.alive(now_ms, SECOND)
        };
        assert!(at(SECOND * 9999).is_ok());
        counters.wakes();
        assert!(at(SECOND / 2).is_ok());
        let error = at(SECOND * 9).unwrap_err().to_string();
        assert!(error.contains("hung for 9 s"), "{error}");
        counters.waits();
        assert!(at(SECOND * 9).is_ok());
    }

    #[test]
    fn garbage_is_answered_with_an_error() {
        let many = vec![b'a'; 3 * MOST_BYTES];
        for (request, code) in [
            (&b"\xff\x00\r\n\r\n"[..], "400"),
            (b"GET /else HTTP/1.1\r\n\r\n", "404"),
            (&many, "431"),
        ] {
            let (text, _) = answer(request, SECOND);
            assert!(
                text.starts_with(&format!("HTTP/1.1 {code} ")),
                "{code}: {text}"
            );
        }
    }

    #[test]
    fn a_slow_client_has_its_time_and_no_more() {
        let begun = Instant::now();
        let (text, served) = answer(b"GET /met", Duration::from_millis(200));
        assert!(served.is_err() && text.is_empty(), "{text}");
        // One that sends now and then, and one that does not read.
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let drips = thread::spawn(move || {
            while client.write_all(b"a").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert!(serve(&mut server, &pages(), Duration::from_millis(200)).is_err());
        drop(server);
        drips.join().unwrap();
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let long = Pages::new(|| Ok("a".repeat(64 << 20)));
        assert!(serve(&mut server, &long, Duration::from_millis(200)).is_err());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    /// A host of ten thousand cgroups takes its time; the client's is for its own part.
    #[test]
    fn making_the_page_is_not_the_clients_time() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let slow = Pages::new(|| {
            thread::sleep(Duration::from_millis(400));
            Ok("a 1\n# EOF\n".to_owned())
        });
        let served = thread::spawn(move || serve(&mut server, &slow, Duration::from_millis(200)));
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        drop(client);
        served.join().unwrap().unwrap();
    }

    #[test]
    fn a_thread_that_panics_gives_its_place_back() {
        let pages = pages();
        let of_thread = pages.clone();
        let panics = thread::spawn(move || {
            let _place = Place::take(&of_thread);
            assert_eq!(of_thread.clients.load(Ordering::Relaxed), 1);
            panic!("as a page that cannot be made might");
        });
        assert!(panics.join().is_err());
        assert_eq!(pages.clients.load(Ordering::Relaxed), 0);
        let places: Vec<_> = (0..MOST_CLIENTS).map(|_| Place::take(&pages)).collect();
        assert!(places.iter().all(Option::is_some) && Place::take(&pages).is_none());
        drop(places);
        assert_eq!(pages.clients.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_asks_too_often_gets_the_same_again() {
        let made = AtomicU32::new(0);
        let pages = Pages::new(|| Ok(made.fetch_add(1, Ordering::Relaxed).to_string()));
        assert_eq!((&*pages.get().unwrap(), &*pages.get().unwrap()), ("0", "0"));
        thread::sleep(FRESH);
        assert_eq!(&*pages.get().unwrap(), "1");
    }

    #[test]
    fn clients_that_wait_leave_a_place_to_nobody_else_and_then_give_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/metrics.sock");
        let listener = bind(&path).unwrap();
        let pages = pages();
        let of_thread = pages.clone();
        thread::spawn(move || accept_all(|| Ok(listener.accept()?.0), &of_thread));
        let get = || {
            let mut client = UnixStream::connect(&path).unwrap();
            // It may be closed before it is read.
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            let mut text = String::new();
            let _ = client.read_to_string(&mut text);
            text
        };
        let waiting: Vec<UnixStream> = (0..MOST_CLIENTS)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        while pages.clients.load(Ordering::Relaxed) < MOST_CLIENTS {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(get().starts_with("HTTP/1.1 503 "));
        drop(waiting);
        while pages.clients.load(Ordering::Relaxed) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(get().starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn a_socket_is_taken_from_the_dead_only_and_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.sock");
        let address = [Address::Unix(path.clone())];
        let listen = || Exporter::listen(&address);
        let first = listen();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o660
        );
        assert!(first.refused.is_empty());
        let second = listen();
        let [(refused, error)] = &second.refused[..] else {
            panic!("it is in use");
        };
        assert_eq!(
            (refused, error.kind()),
            (&address[0], io::ErrorKind::AddrInUse)
        );
        drop(second);
        assert!(path.exists(), "it is the first one's");
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a daemon leaves it that was killed");
        let second = listen();
        assert!(second.refused.is_empty());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "of another").unwrap();
        drop(second);
        assert!(path.exists());
        assert_eq!(listen().refused.len(), 1, "a file is no dead socket");
    }
}
