// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext reload`, and the socket on which `run` hears it, and hears of cgroups that have another
//! override of their own: one for each cgroup that a policy is attached to.  A request is a line,
//! the answer a line of JSON, and then the end.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::ReloadArgs;
use super::exporter;
use crate::errors::{Context, Error, Result};
use crate::kernel::cgroup::Cgroup;
use crate::kernel::named;
use crate::model::shown;
use crate::output::print;

/// Where the sockets are.
const DIRECTORY: &str = "/run/mthp_ext";

/// How their names begin; the id of the cgroup follows.
const SOCKET: &str = "reload-";

/// What is asked.  Another version may ask in another way.
const REQUEST: &str = "reload 1\n";

/// The same for one cgroup's own override: its directory follows, and a zero.
const LOOK: &str = "look 1\n";

/// Bytes of the longest request.
const LONGEST: u64 = 8192;

/// What the loop of `run` waits for one who has connected: who asks is ready to.
const MOMENT: Duration = Duration::from_secs(1);

/// What `reload` waits for the answer: a loop that hangs for longer is ended by its watchdog.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `set` waits for each of them: the start of a service may wait for it.
const LOOKED: Duration = Duration::from_secs(5);

/// What has become of the new configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Else the former one is, as before.
    pub in_force: bool,
    /// In words: what is in force, or why not.
    pub text: String,
    /// The exit code for the reason; 0 if there is none.
    pub code: u8,
}

/// What somebody asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// To read the configuration again.
    Reload,
    /// To look at the own override of the cgroup with this directory.
    Look(PathBuf),
}

/// Reads a request; `None` if it is none.
fn request(stream: impl Read) -> io::Result<Option<Asked>> {
    let mut reader = BufReader::new(stream.take(LONGEST));
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    if line == REQUEST.as_bytes() {
        return Ok(Some(Asked::Reload));
    }
    if line != LOOK.as_bytes() {
        return Ok(None);
    }
    let mut path = Vec::new();
    reader.read_until(0, &mut path)?;
    let whole = path.pop() == Some(0);
    Ok(whole.then(|| Asked::Look(OsString::from_vec(path).into())))
}

/// The socket of a cgroup.
fn path_of(id: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{SOCKET}{id}"))
}

/// Hears requests.  Dropped: the socket is removed.
pub struct Requests {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Requests {
    /// For the policy of a cgroup.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn listen(root: &Cgroup) -> Result<Self> {
        let path = path_of(root.id);
        Self::at(&path).context(|| format!("making the socket {}", path.display()))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let listener = exporter::bind(path)?;
        let requests = Requests {
            listener,
            path: path.to_owned(),
            inode: fs::symlink_metadata(path)?.ino(),
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        // One who hangs up before it is accepted would stop the loop.
        requests.listener.set_nonblocking(true)?;
        Ok(requests)
    }

    /// Serves one who has connected, if it is still there and asks.
    ///
    /// # Errors
    /// Those of `answer`.  What becomes of the answer is the other's business.
    pub fn serve(&self, answer: impl FnOnce(Asked) -> Result<Verdict>) -> Result<()> {
        let Ok((mut stream, _)) = self.listener.accept() else {
            return Ok(());
        };
        let asked = || -> io::Result<Option<Asked>> {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(MOMENT))?;
            stream.set_write_timeout(Some(MOMENT))?;
            request(&stream)
        };
        if let Some(asked) = asked().ok().flatten() {
            let verdict = answer(asked)?;
            let _ = serde_json::to_writer(&stream, &verdict);
            let _ = stream.write_all(b"\n");
        }
        Ok(())
    }
}

impl AsFd for Requests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        exporter::remove(&self.path, self.inode);
    }
}

/// The daemon of one cgroup, of one process, or the only one there is.
fn connect(args: &ReloadArgs) -> Result<UnixStream> {
    if let Some(root) = &args.root {
        let root = named::root(root)?;
        return UnixStream::connect(path_of(root.id)).map_err(|e| nobody(&root.path, e));
    }
    let directory = Path::new(DIRECTORY);
    let (mut found, mut failed) = all().map_err(|e| nobody(directory, e))?;
    if let Some(pid) = args.pid {
        found.retain(|one| listens(one) == Some(pid));
        if found.is_empty() {
            let what = format!("process {pid} has no socket there");
            failed = io::Error::new(io::ErrorKind::NotFound, what);
        }
    }
    match (found.pop(), found.len()) {
        (Some(stream), 0) => Ok(stream),
        (Some(_), others) => Err(Error::Usage(format!(
            "{} daemons of mthp_ext run here: name the --root of one, as `mthp_ext status` shows it.",
            others + 1
        ))),
        (None, _) => Err(nobody(directory, failed)),
    }
}

/// The process at the other end: the one that listened.
fn listens(stream: &UnixStream) -> Option<i32> {
    let other = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Some(other.pid.as_raw_nonzero().get())
}

/// All that hear, and why one does not.
fn all() -> io::Result<(Vec<UnixStream>, io::Error)> {
    let (found, mut failed) = heard(Path::new(DIRECTORY))?;
    let none = || io::Error::from(io::ErrorKind::NotFound);
    Ok((found, failed.pop().unwrap_or_else(none)))
}

/// Of the sockets of a directory those at which somebody hears, and why at the others nobody does.
fn heard(directory: &Path) -> io::Result<(Vec<UnixStream>, Vec<io::Error>)> {
    let ours = |name: &str| name.starts_with(SOCKET);
    let mut failed = Vec::new();
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                failed.push(e);
                continue;
            }
        };
        if entry.file_name().to_str().is_some_and(ours) {
            match UnixStream::connect(entry.path()) {
                Ok(stream) => found.push(stream),
                // What a daemon that was killed has left, too.
                Err(e) => failed.push(e),
            }
        }
    }
    Ok((found, failed))
}

/// Is nobody there?  Of one that may not be asked, or does not answer, that is unknown.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused)
}

/// Nobody hears, or nobody may ask.
fn nobody(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::NoPrivilege {
            what: "ask a daemon of root".to_owned(),
        },
        _ if is_nobody(&error) => Error::NotRunning {
            path: path.to_owned(),
            why: error.to_string(),
        },
        _ => Error::System {
            what: format!("looking for a daemon in {}", shown::path(path)),
            source: error,
        },
    }
}

/// Asks, and waits for the answer.
fn ask(mut stream: UnixStream, request: &[u8], patience: Duration) -> io::Result<Verdict> {
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// What daemons say of the own override of a cgroup.
#[derive(Debug, Default)]
pub struct Answers {
    /// Each that has answered.
    pub verdicts: Vec<Verdict>,
    /// Why others have not, though they may be there, each reason once: they will find the override by
    /// themselves.
    pub unanswered: Vec<String>,
}

/// Has all daemons look at the own override of a cgroup.
pub fn look(cgroup: &Path) -> Answers {
    looked(Path::new(DIRECTORY), cgroup, LOOKED)
}

fn looked(directory: &Path, cgroup: &Path, patience: Duration) -> Answers {
    let (found, failed) = heard(directory).unwrap_or_else(|e| (Vec::new(), vec![e]));
    let unanswered = failed.iter().filter(|e| !is_nobody(e)).map(why_unanswered);
    let mut answers = Answers {
        unanswered: unanswered.collect(),
        ..Answers::default()
    };
    let request = [LOOK.as_bytes(), cgroup.as_os_str().as_bytes(), b"\0"].concat();
    for one in found {
        match ask(one, &request, patience) {
            Ok(verdict) => answers.verdicts.push(verdict),
            Err(e) => answers.unanswered.push(why_unanswered(&e)),
        }
    }
    // Sockets that killed daemons left cannot be told from others by who may not connect.
    answers.unanswered.sort();
    answers.unanswered.dedup();
    answers
}

/// In words.
fn why_unanswered(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("only root may ask it ({error})"),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "it has not answered in time".to_owned()
        }
        _ => format!("it has not answered ({error})"),
    }
}

/// The command.
///
/// # Errors
/// [`Error::NotRunning`] without a daemon, [`Error::Refused`] with its reason.
pub fn main(args: &ReloadArgs) -> Result<()> {
    let stream = connect(args)?;
    let verdict = ask(stream, REQUEST.as_bytes(), PATIENCE).context(|| {
        "waiting for what the daemon says (it has ended, hangs, or is of another version; its log \
         may say more)"
            .to_owned()
    })?;
    print::print(&verdict, args.json, |verdict, out| {
        match verdict.in_force {
            true => writeln!(out, "{}", verdict.text),
            // On standard error, below.
            false => Ok(()),
        }
    })?;
    match verdict {
        Verdict { in_force: true, .. } => Ok(()),
        Verdict { text, code, .. } => Err(Error::Refused { text, code }),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::model::shown::tests::HOSTILE;

    fn verdict(in_force: bool) -> Verdict {
        Verdict {
            in_force,
            text: "so it is: \"x\"\n".to_owned(),
            code: if in_force { 0 } else { 2 },
        }
    }

    #[test]
    fn who_asks_hears_the_verdict() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made").join("socket");
        let requests = Requests::at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        for in_force in [true, false] {
            let stream = UnixStream::connect(&path).unwrap();
            let asking = thread::spawn(|| ask(stream, REQUEST.as_bytes(), MOMENT).unwrap());
            let answer = |asked| {
                assert_eq!(asked, Asked::Reload);
                Ok(verdict(in_force))
            };
            requests.serve(answer).unwrap();
            let answer = asking.join().unwrap();
            assert_eq!(answer, verdict(in_force));
            let json = serde_json::to_value(answer).unwrap();
            assert_eq!(print::undocumented(&json), [""; 0]);
        }
        drop(requests);
        assert!(!path.exists());
    }

    /// Whoever looks whether somebody is there reloads nothing; nor does it stop the loop.
    #[test]
    fn nothing_is_reloaded_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let requests = Requests::at(&path).unwrap();
        let never = |_| -> Result<Verdict> { panic!("reloaded") };
        requests.serve(never).unwrap();
        drop(UnixStream::connect(&path).unwrap());
        requests.serve(never).unwrap();
        let mut other = UnixStream::connect(&path).unwrap();
        other.write_all(b"reload 2\n").unwrap();
        requests.serve(never).unwrap();
        // Who is not answered is told, and does not wait for ever.
        let reload = REQUEST.as_bytes();
        assert!(ask(other, reload, MOMENT).is_err());
        let silent = UnixStream::connect(&path).unwrap();
        assert!(ask(silent, reload, Duration::from_millis(10)).is_err());
    }

    #[test]
    fn a_request_is_read_to_its_end_and_no_further() {
        let asked = |bytes: &[u8]| request(bytes).unwrap();
        assert_eq!(asked(b"reload 1\nmore"), Some(Asked::Reload));
        let path = [b"/c/", HOSTILE].concat();
        let look = [b"look 1\n", path.as_slice(), b"\0more"].concat();
        let path = PathBuf::from(OsString::from_vec(path));
        assert_eq!(asked(&look), Some(Asked::Look(path)));
        let long = [b"look 1\n".as_slice(), &[b'a'; 10_000], b"\0"].concat();
        for none in [&b""[..], b"reload", b"look 2\n/c\0", b"look 1\n/c", &long] {
            assert_eq!(asked(none), None);
        }
    }

    /// One that is there and does not answer is not taken for none; what a killed one left is.
    #[test]
    fn who_does_not_answer_is_not_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let unanswered = |directory: &Path| {
            let answers = looked(directory, Path::new("/c"), Duration::from_millis(10));
            assert_eq!(answers.verdicts, []);
            answers.unanswered
        };
        assert_eq!(unanswered(&dir.path().join("none")), [""; 0]);
        assert_eq!(unanswered(dir.path()), [""; 0]);
        drop(UnixListener::bind(dir.path().join("reload-1")).unwrap());
        assert_eq!(unanswered(dir.path()), [""; 0]);
        let _silent = UnixListener::bind(dir.path().join("reload-2")).unwrap();
        assert_eq!(unanswered(dir.path()), ["it has not answered in time"]);
        let _another = UnixListener::bind(dir.path().join("reload-3")).unwrap();
        assert_eq!(unanswered(dir.path()), ["it has not answered in time"]);
        assert_eq!(unanswered(Path::new("/dev/null")).len(), 1);
        // Root may connect to any: the kernel's answer to others.
        let denied = io::Error::from_raw_os_error(nix::libc::EACCES);
        assert!(!is_nobody(&denied));
        assert_eq!(
            why_unanswered(&denied),
            "only root may ask it (Permission denied (os error 13))"
        );
        assert_eq!(nobody(dir.path(), denied).code(), 4);
    }

    #[test]
    fn what_a_killed_daemon_left_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        // Closed, and its file stays.
        drop(UnixListener::bind(&path).unwrap());
        let _first = Requests::at(&path).unwrap();
        assert!(Requests::at(&path).is_err());
    }
}
