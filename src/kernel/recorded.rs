// SPDX-License-Identifier: GPL-2.0-only
//! Lines of a daemon that others read: a file that grows to a bound and then becomes the older of
//! two.  Who writes never waits for who reads, and where the disk is full the oldest lines go first.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// What the names of current files end with.
pub const ENDING: &str = "jsonl";

/// And those of the older ones.
const OLDER: &str = "older";

/// The file that is followed by that of `path`.
fn older(path: &Path) -> PathBuf {
    path.with_extension(OLDER)
}

/// Gives up the older lines: their room is free at once, whoever still has the file open.
fn drop_older(path: &Path) -> io::Result<()> {
    let path = older(path);
    OpenOptions::new().write(true).open(&path)?.set_len(0)?;
    fs::remove_file(path)
}

/// A lock on the whole file: it says that the writer lives, and goes with it, however that ends.
fn lock(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Makes a directory for files that others read.
fn make(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(directory)?;
    // A service's umask leaves the group out.
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

/// Opens a file to append to, as its writer.
fn own(path: &Path) -> io::Result<File> {
    // Root and its group, as of the socket of --metrics; whatever the umask.
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o640).open(path)?;
    file.set_permissions(Permissions::from_mode(0o640))?;
    // Only one daemon is attached to a cgroup, so nobody else has it.
    match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&lock(libc::F_WRLCK))) {
        // A kernel without CONFIG_FILE_LOCKING says EACCES; where another has the lock it is EAGAIN.
        Ok(_) | Err(Errno::EACCES) => Ok(file),
        Err(errno) => Err(errno.into()),
    }
}

/// Who writes.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    length: u64,
    most: u64,
    /// The last line has no end: the writer before was killed.
    torn: bool,
}

impl Writer {
    /// Goes on with `name` in `directory`, which is made if need be; each of the two files gets
    /// `most` bytes.
    ///
    /// # Errors
    /// If there can be none, or another process writes it.
    pub fn open(directory: &Path, name: &str, most: u64) -> io::Result<Self> {
        make(directory)?;
        let path = directory.join(name).with_extension(ENDING);
        let file = own(&path)?;
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length != 0 {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Writer {
            path,
            file,
            length,
            most,
            torn: last != [b'\n'],
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let end: &[u8] = if self.torn { b"\n" } else { b"" };
        let bytes = [end, line].concat();
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.length += bytes.len() as u64;
                self.torn = false;
                Ok(())
            }
            Err(error) => {
                // Not half a line.
                let _ = self.file.set_len(self.length);
                Err(error)
            }
        }
    }

    /// What is there becomes the older file, and what was that goes.
    fn turn(&mut self) -> io::Result<()> {
        match drop_older(&self.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        match fs::rename(&self.path, older(&self.path)) {
            // The last time there could be no new one.
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.begin()
    }

    /// Goes on with a file of this name, whichever there is.
    fn begin(&mut self) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            make(directory)?;
        }
        self.file = own(&self.path)?;
        self.length = self.file.metadata()?.len();
        self.torn = false;
        Ok(())
    }

    /// Adds a line, which ends with a line feed.
    ///
    /// # Errors
    /// If it has no room even without the older lines: it is not there then, and the next one may
    /// be.
    pub fn add(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.as_bytes();
        // Somebody has removed it: nobody would read what comes.
        if self.file.metadata()?.nlink() == 0 {
            self.begin()?;
        }
        if self.length != 0 && self.length + bytes.len() as u64 > self.most {
            self.turn()?;
        }
        let full = |error: &io::Error| {
            matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            )
        };
        match self.write(bytes) {
            Err(e) if full(&e) => {}
            written => return written,
        }
        if drop_older(&self.path).is_ok() && self.write(bytes).is_ok() {
            return Ok(());
        }
        self.turn()?;
        match self.write(bytes) {
            Err(e) if full(&e) => {
                drop_older(&self.path)?;
                self.write(bytes)
            }
            written => written,
        }
    }
}

/// Removes the oldest files that nobody writes any more; the newest `keep` of them stay.
///
/// # Errors
/// If `paths` cannot be looked at; one that has gone meanwhile is no error.
pub fn remove_old(paths: Vec<PathBuf>, keep: usize) -> io::Result<()> {
    let mut left = Vec::new();
    for path in paths.into_iter().filter(|path| !is_written(path)) {
        match path.metadata() {
            Ok(meta) => left.push((meta.modified()?, path)),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    left.sort();
    let gone = left.len().saturating_sub(keep);
    for path in left
        .drain(..gone)
        .flat_map(|(_, path)| [older(&path), path])
    {
        match fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Does a process write it?  A kernel without CONFIG_FILE_LOCKING cannot tell, nor can who may not
/// open it: then one may.
pub fn is_written(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return e.kind() != ErrorKind::NotFound,
    };
    let mut found = lock(libc::F_WRLCK);
    // Asking takes no lock, so a reader never stands in the way of a daemon that starts.
    let asked = fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut found));
    asked.is_err() || i32::from(found.l_type) != libc::F_UNLCK
}

/// One file that is read.
#[derive(Debug)]
struct Part {
    file: File,
    inode: u64,
    /// Bytes of it that were whole lines.
    taken: u64,
}

impl Part {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            file => {
                let file = file?;
                let inode = file.metadata()?.ino();
                Ok(Some(Part {
                    file,
                    inode,
                    taken: 0,
                }))
            }
        }
    }

    /// Whole lines that have come.
    fn take(&mut self, to: &mut Vec<String>) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(self.taken))?;
        self.file.read_to_end(&mut bytes)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let [text @ .., b'\n'] = line {
                self.taken += line.len() as u64;
                to.push(String::from_utf8_lossy(text).into_owned());
            }
        }
        Ok(())
    }
}

/// Who reads.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    older: Option<Part>,
    current: Option<Part>,
}

impl Reader {
    /// From the oldest line on.
    ///
    /// # Errors
    /// If a file cannot be opened; there need be none.
    pub fn open(path: &Path) -> io::Result<Self> {
        // In this order: what becomes the older one meanwhile is then read once, as both.
        let current = Part::open(path)?;
        let older = Part::open(&older(path))?;
        let inode = current.as_ref().map(|part| part.inode);
        Ok(Reader {
            path: path.to_owned(),
            older: older.filter(|part| Some(part.inode) != inode),
            current,
        })
    }

    /// The lines that have come since the last time.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        if let Some(mut older) = self.older.take() {
            older.take(&mut lines)?;
        }
        loop {
            let next = Part::open(&self.path)?;
            let Some(current) = &mut self.current else {
                match next {
                    Some(next) => self.current = Some(next),
                    None => return Ok(lines),
                }
                continue;
            };
            // Looked at before it is read: nothing comes to one that has been replaced.
            let replaced = next.filter(|next| next.inode != current.inode);
            current.take(&mut lines)?;
            match replaced {
                Some(next) => self.current = Some(next),
                None => return Ok(lines),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "1";

    fn writer(directory: &Path, most: u64) -> Writer {
        Writer::open(&directory.join("run/events"), NAME, most).unwrap()
    }

    fn path(directory: &Path) -> PathBuf {
        directory.join("run/events/1.jsonl")
    }

    fn numbers(lines: &[String]) -> Vec<u32> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    /// Whoever comes late has the newest lines; whoever follows has all.
    #[test]
    fn the_files_are_bounded_and_readers_follow() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let mut follower = Reader::open(&path).unwrap();
        assert!(follower.lines().unwrap().is_empty());
        let mut writer = writer(dir.path(), 1000);
        let mut followed = Vec::new();
        for number in 0..1000 {
            writer.add(&format!("{number:09}\n")).unwrap();
            if number % 37 == 0 {
                followed.extend(numbers(&follower.lines().unwrap()));
            }
        }
        followed.extend(numbers(&follower.lines().unwrap()));
        assert_eq!(followed, (0..1000).collect::<Vec<_>>());
        assert!(follower.lines().unwrap().is_empty());
        let late = numbers(&Reader::open(&path).unwrap().lines().unwrap());
        assert_eq!(late, (800..1000).collect::<Vec<_>>());
        for path in [&path, &older(&path)] {
            let meta = fs::metadata(path).unwrap();
            assert!(meta.len() <= 1000 && meta.mode() & 0o777 == 0o640);
        }
    }

    #[test]
    fn a_reader_that_sleeps_misses_the_oldest_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path(), 100);
        writer.add("1\n").unwrap();
        let mut reader = Reader::open(&path(dir.path())).unwrap();
        assert_eq!(numbers(&reader.lines().unwrap()), [1]);
        for number in 2..1000 {
            writer.add(&format!("{number}\n")).unwrap();
        }
        let seen = numbers(&reader.lines().unwrap());
        assert_eq!(seen.last(), Some(&999));
        assert!(seen.is_sorted() && seen.len() < 200, "{seen:?}");
    }

    #[test]
    fn that_the_writer_lives_shows_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        assert!(!is_written(&path));
        let mut first = writer(dir.path(), 10);
        assert!(is_written(&path));
        // The second of one cgroup.
        assert!(Writer::open(path.parent().unwrap(), NAME, 10).is_err());
        for _ in 0..3 {
            first.add("12345678\n").unwrap();
            assert!(is_written(&path));
        }
        drop(first);
        assert!(!is_written(&path));
        // What is there stays, and a line that was cut off stays one.
        fs::write(&path, "a\nhal").unwrap();
        writer(dir.path(), 100).add("b\n").unwrap();
        let lines = Reader::open(&path).unwrap().lines().unwrap();
        assert_eq!(lines[lines.len() - 3..], ["a", "hal", "b"]);
    }

    #[test]
    fn a_file_that_was_removed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let mut writer = writer(dir.path(), 100);
        writer.add("1\n").unwrap();
        fs::remove_file(&path).unwrap();
        writer.add("2\n").unwrap();
        writer.add("3\n").unwrap();
        assert!(is_written(&path));
        assert_eq!(
            numbers(&Reader::open(&path).unwrap().lines().unwrap()),
            [2, 3]
        );
        // Whoever cleans up may take the directory along.
        fs::remove_dir_all(dir.path().join("run")).unwrap();
        writer.add("4\n").unwrap();
        assert_eq!(numbers(&Reader::open(&path).unwrap().lines().unwrap()), [4]);
    }

    #[test]
    fn of_daemons_that_are_gone_the_newest_stay() {
        let dir = tempfile::tempdir().unwrap();
        let file = |n: u64| dir.path().join(format!("{n}.{ENDING}"));
        let written = Writer::open(dir.path(), "0", 100).unwrap();
        for n in 1..=4 {
            fs::write(file(n), "").unwrap();
            fs::write(older(&file(n)), "").unwrap();
            let age = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n);
            File::options()
                .write(true)
                .open(file(n))
                .unwrap()
                .set_modified(age)
                .unwrap();
        }
        remove_old((0..=5).map(file).collect(), 2).unwrap();
        for n in 0..=4 {
            assert_eq!(file(n).exists(), n == 0 || n > 2, "{n}");
            assert_eq!(older(&file(n)).exists(), n > 2, "{n}");
        }
        drop(written);
    }

    /// A service manager removes the directory of a service that stops.
    #[test]
    fn a_reader_goes_on_with_files_that_are_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        writer(dir.path(), 100).add("1\n").unwrap();
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(numbers(&reader.lines().unwrap()), [1]);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert!(reader.lines().unwrap().is_empty());
        writer(dir.path(), 100).add("2\n").unwrap();
        assert_eq!(numbers(&reader.lines().unwrap()), [2]);
    }
}
