//! The control socket: who may connect asks for the window up to now, and is told where it is.
//!
//! A line in, `window`, and a line of JSON out: `{"window": PATH}` or `{"error": WHY}`. The socket is
//! its owner's alone, and who else connects all the same is shown the door: a window tells what every
//! process of the machine did.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::Notice;

/// The one thing that can be asked for.
const ASKS: &[u8] = b"window\n";
/// So many may be connected at a time.
const MOST_ASKERS: usize = 16;
/// So long one may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long writing a window may take, for who asks.
const LONGEST: Duration = Duration::from_secs(60);
/// An answer is a path or a sentence.
const MOST_ANSWER: u64 = 16 << 10;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Window(PathBuf),
    Error(String),
}

/// How far one has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not said yet what it wants.
    Speaks,
    /// It waits for a window that is not being written yet.
    Waits,
    /// It waits for this one.
    Waiting(u64),
    /// It was answered, or is gone.
    Over,
}

#[derive(Debug)]
struct Asker {
    stream: UnixStream,
    said: Vec<u8>,
    since: Instant,
    stage: Stage,
}

impl Asker {
    /// Reads on. The longest that is read is what can be asked for, and a byte.
    fn listen(&mut self) {
        let mut buffer = [0; ASKS.len() + 1];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.stage = Stage::Over,
            Ok(length) => self.said.extend(&buffer[..length]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.stage = Stage::Over,
        }
        if self.said == ASKS {
            self.stage = Stage::Waits;
        } else if !ASKS.starts_with(&self.said) {
            self.answer(&Answer::Error(
                "unknown request; only 'window' is supported".into(),
            ));
        } else if self.since.elapsed() > PATIENCE {
            self.stage = Stage::Over;
        }
    }

    fn answer(&mut self, answer: &Answer) {
        let mut line = serde_json::to_vec(answer).unwrap_or_default();
        line.push(b'\n');
        // It fits into the socket's memory; whoever is gone does not miss it.
        let _ = self.stream.write_all(&line);
        self.stage = Stage::Over;
    }
}

/// The recorder's side.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
    /// Device and inode of the socket that is ours.
    bound: Option<(u64, u64)>,
    listener: UnixListener,
    askers: Vec<Asker>,
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

impl Control {
    /// Serves a path. One that a recorder left behind when it was killed is taken over.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let left_behind = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if left_behind {
            match UnixStream::connect(path) {
                Ok(_) => return Err(io::Error::other("another flight recorder serves it")),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
                Err(e) => return Err(e),
            }
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            bound: inode(path),
            path: path.to_owned(),
            listener,
            askers: Vec::new(),
        })
    }

    /// Looks who asks. True: somebody wants a window that is not being written yet.
    pub(super) fn poll(&mut self) -> bool {
        while let Ok((stream, _)) = self.listener.accept() {
            let user = socket_peercred(&stream).map(|peer| peer.uid);
            let may = user.is_ok_and(|user| user.is_root() || user == geteuid());
            if may && self.askers.len() < MOST_ASKERS && stream.set_nonblocking(true).is_ok() {
                self.askers.push(Asker {
                    stream,
                    said: Vec::new(),
                    since: Instant::now(),
                    stage: Stage::Speaks,
                });
            }
        }
        for asker in &mut self.askers {
            if asker.stage == Stage::Speaks {
                asker.listen();
            }
        }
        self.askers.retain(|asker| asker.stage != Stage::Over);
        self.askers.iter().any(|asker| asker.stage == Stage::Waits)
    }

    /// The window of this number is being written: it is what all who asked so far wait for.
    pub(super) fn begun(&mut self, number: u64) {
        for asker in &mut self.askers {
            if asker.stage == Stage::Waits {
                asker.stage = Stage::Waiting(number);
            }
        }
    }

    /// Something is to be told of the window of this number.
    pub(super) fn told(&mut self, number: u64, notice: &Notice) {
        let answer = match notice {
            // Whoever asks may be in another folder.
            Notice::Written { path, .. } => {
                Answer::Window(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
            }
            Notice::Failed { why } => Answer::Error(why.clone()),
            Notice::Note(_) | Notice::Holds { .. } => return,
        };
        for asker in &mut self.askers {
            if asker.stage == Stage::Waiting(number) {
                asker.answer(&answer);
            }
        }
        // The end of its answer is the connection's.
        self.askers.retain(|asker| asker.stage != Stage::Over);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for asker in &mut self.askers {
            asker.answer(&Answer::Error("the flight recorder ended".into()));
        }
        if self.bound.is_some() && inode(&self.path) == self.bound {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Asks the flight recorder at this socket for the window up to now, and gives back its file.
pub fn ask_for_window(socket: &Path) -> io::Result<PathBuf> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LONGEST))?;
    stream.write_all(ASKS)?;
    let mut text = Vec::new();
    stream.take(MOST_ANSWER).read_to_end(&mut text)?;
    match serde_json::from_slice(&text) {
        Ok(Answer::Window(path)) => Ok(path),
        Ok(Answer::Error(why)) => Err(io::Error::other(why)),
        Err(_) => Err(io::Error::other(
            "its answer is not that of a flight recorder",
        )),
    }
}

/// Has those who wait for windows told of them. What is told goes on.
pub(super) fn hear(mut control: Option<&mut Control>, told: Vec<(u64, Notice)>) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (number, notice) in told {
        if let Some(control) = &mut control {
            control.told(number, &notice);
        }
        notices.push(notice);
    }
    notices
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn written(path: &str) -> Notice {
        Notice::Written {
            path: path.into(),
            reason: crate::about::Reason::Asked,
            held_ns: 1,
            events: 1,
            lost: 0,
            took_ns: 1,
        }
    }

    /// Looks until somebody asks.
    fn asked(control: &mut Control) {
        let begin = Instant::now();
        while !control.poll() {
            assert!(begin.elapsed() < Duration::from_secs(20), "nobody asks");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_asks_gets_the_next_window_and_not_one_that_was_begun_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let mut control = Control::open(&path).expect("served");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let first = thread::spawn({
            let path = path.clone();
            move || ask_for_window(&path)
        });
        asked(&mut control);
        control.begun(1);
        let second = thread::spawn({
            let path = path.clone();
            move || ask_for_window(&path)
        });
        asked(&mut control);
        control.told(1, &written("/one"));
        control.begun(2);
        control.told(2, &Notice::Failed { why: "full".into() });
        assert_eq!(
            first.join().expect("no panic").expect("a window"),
            Path::new("/one")
        );
        let why = second.join().expect("no panic").expect_err("none");
        assert_eq!(why.to_string(), "full");
        drop(control);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_question_is_refused_and_costs_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let mut control = Control::open(&path).expect("served");
        let mut stream = UnixStream::connect(&path).expect("connects");
        stream.write_all(&[b'x'; 64]).expect("takes it");
        // It is there already, so that one look takes it in and refuses it.
        assert!(!control.poll());
        assert!(control.askers.is_empty());
        let mut text = [0; 64];
        let length = stream.read(&mut text).unwrap_or_default();
        assert!(String::from_utf8_lossy(&text[..length]).contains("only 'window'"));
    }

    #[test]
    fn a_socket_that_is_served_is_not_taken_and_one_left_behind_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let served = Control::open(&path).expect("served");
        let error = Control::open(&path).expect_err("it is served");
        assert!(error.to_string().contains("another"), "{error}");
        drop(served);
        drop(UnixListener::bind(&path).expect("bound")); // its file stays
        Control::open(&path).expect("taken over");
        let other = folder.path().join("file");
        fs::write(&other, "precious").expect("written");
        assert!(Control::open(&other).is_err());
        assert_eq!(fs::read_to_string(&other).expect("there"), "precious");
    }
}
