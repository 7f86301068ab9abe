//! The control socket: its owner asks there for the status, or takes the listening sockets over.
//!
//! A line in says what is asked for. `status` is answered with JSON. `take over` is answered with the
//! number of listening sockets in a line, then with the sockets, each beside a byte that says what it
//! is for. Once the other guard serves on them it writes `serving`, and this one leaves.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use rustix::process::geteuid;
use tokio::sync::watch;

use crate::admin::Page;
use crate::setup::Setup;

const STATUS: &str = "status\n";
const TAKE_OVER: &str = "take over\n";
const SERVING: &str = "serving\n";
const LEAVING: &str = "leaving\n";
/// What a socket is for.
const CLIENTS: u8 = b'c';
const ADMIN: u8 = b'a';
/// More are not handed over.
const MOST_SOCKETS: usize = 4096;
/// The longest line.
const LONGEST: u64 = 64;
/// More than a guard of 64 replicas says.
const MOST_STATUS: u64 = 1 << 20;
/// Connections that are answered at a time.
const MOST: usize = 16;
/// How long a connection may take for each step.
const LIMIT: Duration = Duration::from_secs(5);
/// How long the other guard may take to start.
const START: Duration = Duration::from_secs(120);

/// What the answers are made from.
#[derive(Debug)]
pub(crate) struct Answers {
    pub page: Arc<Page>,
    pub setups: watch::Receiver<Arc<Setup>>,
    pub admin: Option<Arc<TcpListener>>,
    /// Set when another guard serves on all sockets.
    pub handed_over: Arc<AtomicBool>,
    pub connections: AtomicUsize,
}

/// The socket of a running guard. Its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    /// Device and inode of the file that is ours.
    bound: Option<(u64, u64)>,
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

impl Control {
    /// Serves a path. `replaces`: the guard that serves it now is taken over; else only a file that
    /// nobody serves is replaced.
    pub(crate) fn open(path: &Path, replaces: bool, answers: Answers) -> io::Result<Self> {
        if !replaces && is_served(path)? {
            return Err(io::Error::other("another guard serves it"));
        }
        let fresh = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        let listener = Arc::new(UnixListener::bind(&fresh)?);
        // Only a complete one gets the name, in place of the other's.
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&fresh, path))
            .inspect_err(|_| drop(fs::remove_file(&fresh)))?;
        let (ours, answers) = (Arc::clone(&listener), Arc::new(answers));
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&ours, &answers))?;
        Ok(Self {
            bound: inode(path),
            path: path.to_owned(),
            listener,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.bound.is_some() && inode(&self.path) == self.bound {
            let _ = fs::remove_file(&self.path);
        }
        let _ = shutdown(&*self.listener, Shutdown::Both); // its accept fails then
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether a guard serves this path. A file of another kind is an error.
fn is_served(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::other("there is a file that is no socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(false),
        Err(e) => Err(e),
    }
}

fn serve(listener: &UnixListener, answers: &Arc<Answers>) {
    while let Ok((stream, _)) = listener.accept() {
        if answers.connections.fetch_add(1, Relaxed) >= MOST || !is_ours(&stream) {
            answers.connections.fetch_sub(1, Relaxed);
            continue;
        }
        let its = Arc::clone(answers);
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                let _ = answer(&stream, &its); // who asks sees that it failed
                its.connections.fetch_sub(1, Relaxed);
            });
        if thread.is_err() {
            answers.connections.fetch_sub(1, Relaxed);
        }
    }
}

/// Whether root or our own user is at the other end.
fn is_ours(stream: &UnixStream) -> bool {
    let user = socket_peercred(stream).map(|peer| peer.uid);
    user.is_ok_and(|user| user.is_root() || user == geteuid())
}

fn answer(mut stream: &UnixStream, answers: &Answers) -> io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    match line(stream)?.as_str() {
        STATUS => writeln!(stream, "{:#}", answers.page.status()),
        TAKE_OVER => hand_over(stream, answers),
        _ => stream.write_all(b"there are: status, take over\n"),
    }
}

fn line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    // Byte by byte: what follows may come with sockets.
    let mut bytes = BufReader::with_capacity(1, stream.take(LONGEST));
    bytes.read_line(&mut line)?;
    Ok(line)
}

fn hand_over(mut stream: &UnixStream, answers: &Answers) -> io::Result<()> {
    let setup = Arc::clone(&answers.setups.borrow());
    let mut sockets: Vec<(u8, &Arc<TcpListener>)> = Vec::new();
    for listener in setup.listeners.iter().flat_map(|(_, all)| all) {
        if !sockets.iter().any(|(_, one)| Arc::ptr_eq(one, listener)) {
            sockets.push((CLIENTS, listener));
        }
    }
    sockets.extend(answers.admin.iter().map(|one| (ADMIN, one)));
    writeln!(stream, "{}", sockets.len())?;
    for (role, socket) in sockets {
        let fds = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(
            stream,
            &[IoSlice::new(&[role])],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
    }
    stream.set_read_timeout(Some(START))?;
    if line(stream)? != SERVING || answers.handed_over.swap(true, AcqRel) {
        return Err(io::Error::other("it was not taken over"));
    }
    stream.write_all(LEAVING.as_bytes())
}

/// Listening sockets that another guard served on.
#[derive(Debug, Default)]
pub struct Inherited {
    pub(crate) clients: Vec<TcpListener>,
    pub(crate) admin: Option<TcpListener>,
    from: Option<UnixStream>,
}

impl Inherited {
    /// Asks the guard at this control socket for its sockets. `None`: there is no guard.
    ///
    /// # Errors
    /// If it is another user's, or does not answer.
    pub fn ask(path: &Path) -> io::Result<Option<Self>> {
        if !is_served(path)? {
            return Ok(None);
        }
        let stream = UnixStream::connect(path)?;
        if !is_ours(&stream) {
            return Err(io::Error::other("another user serves it"));
        }
        stream.set_read_timeout(Some(LIMIT))?;
        (&stream).write_all(TAKE_OVER.as_bytes())?;
        let count: usize = line(&stream)?
            .trim_end()
            .parse()
            .map_err(|_| io::Error::other("its answer is not that of a guard"))?;
        let mut all = Self::default();
        for _ in 0..count.min(MOST_SOCKETS) {
            match receive(&stream)? {
                (CLIENTS, socket) => all.clients.push(socket.into()),
                (ADMIN, socket) => all.admin = Some(socket.into()),
                _ => return Err(io::Error::other("its answer is not that of a guard")),
            }
        }
        all.from = Some(stream);
        Ok(Some(all))
    }

    /// Whether there is a guard that waits to leave.
    #[must_use]
    pub fn is_from_a_guard(&self) -> bool {
        self.from.is_some()
    }

    /// Has the other guard leave: all its sockets are served.
    pub(crate) fn served(from: UnixStream) -> io::Result<()> {
        (&from).write_all(SERVING.as_bytes())?;
        if line(&from)? != LEAVING {
            return Err(io::Error::other("the other guard does not leave"));
        }
        Ok(())
    }

    pub(crate) fn take_guard(&mut self) -> Option<UnixStream> {
        self.from.take()
    }
}

fn receive(stream: &UnixStream) -> io::Result<(u8, OwnedFd)> {
    let mut role = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut role)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match socket {
        Some(socket) => Ok((role[0], socket)),
        None => Err(io::Error::other("a socket is missing")),
    }
}

/// What the guard at this control socket says of itself, as JSON.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask_for_status(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(STATUS.as_bytes())?;
    let mut text = String::new();
    stream.take(MOST_STATUS).read_to_string(&mut text)?;
    Ok(text)
}

/// The folder of control sockets: systemd's, root's, or that of this session. `None`: this user has
/// none.
#[must_use]
pub fn control_folder() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = of("RUNTIME_DIRECTORY") {
        return Some(folder.into());
    }
    if geteuid().is_root() {
        return Some("/run/tailscope-guard".into());
    }
    Some(PathBuf::from(of("XDG_RUNTIME_DIR")?).join("tailscope-guard"))
}

/// Makes a folder that only its owner may enter, if it does not exist.
///
/// # Errors
/// If it can't be made, or another user could write to it.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let about = fs::symlink_metadata(folder)?;
    if !about.is_dir() || about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
        return Err(io::Error::other("another user could write to this folder"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_served_or_no_socket_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        assert!(!is_served(&path).expect("nothing there"));
        let listener = UnixListener::bind(&path).expect("bound");
        assert!(is_served(&path).expect("it is"));
        drop(listener);
        assert!(!is_served(&path).expect("left behind"));
        let file = folder.path().join("file");
        fs::write(&file, "precious").expect("written");
        assert!(is_served(&file).is_err());
        assert!(Inherited::ask(&file).is_err());
    }

    #[test]
    fn another_program_at_the_path_is_not_taken_for_a_guard() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).expect("bound");
        let other = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                // The first connection only asks whether somebody is there.
                let _ = stream.expect("a client").write_all(b"1\nx");
            }
        });
        assert!(Inherited::ask(&path).is_err());
        other.join().expect("it ends");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let ours = folder.path().join("ours");
        make_private_folder(&ours).expect("made");
        make_private_folder(&ours).expect("there");
        assert_eq!(fs::metadata(&ours).expect("there").mode() & 0o777, 0o700);
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(make_private_folder(&ours).is_err());
    }
}
