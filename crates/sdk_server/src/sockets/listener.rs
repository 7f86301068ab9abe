//! One of the sockets at which a recorder listens.
//!
//! A killed recorder leaves its socket file. So `listen_at` connects first: if the connection is
//! refused, it removes the file and binds again. A recorder that takes over from another one binds
//! to the path with a `~` added, and later renames its socket into place (`move_to`).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FileType, Mode, OFlags, XattrFlags, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use super::{ConnectionRequest, PAUSE, ServeError};

/// The most requests that wait in the kernel. A flood fills a queue of any length, and the next request
/// then waits for all of it.
const BACKLOG: i32 = 64;

/// One of the sockets.
#[derive(Debug)]
pub(super) struct Listener {
    /// Where it lies now.
    path: PathBuf,
    /// Device and inode of the socket that is ours.
    bound: Option<(u64, u64)>,
    pub(super) socket: OwnedFd,
    /// The most requests that are accepted at a time.
    most: usize,
    /// Nothing is accepted before.
    not_before: Option<Instant>,
}

impl Listener {
    pub(super) fn open(
        mut path: PathBuf,
        takes_over: bool,
        most: usize,
    ) -> Result<Self, ServeError> {
        if takes_over {
            path.as_mut_os_string().push("~");
        }
        let socket = listen_at(&path, takes_over)?;
        Ok(Self {
            bound: inode(&path),
            path,
            socket,
            most,
            not_before: None,
        })
    }

    pub(super) fn move_to(&mut self, path: PathBuf) -> Result<(), ServeError> {
        match fs::rename(&self.path, &path) {
            Ok(()) => self.path = path,
            Err(source) => return Err(ServeError::System { path, source }),
        }
        Ok(())
    }

    /// Lets only this user connect. The owner stays who it is, as to change that would take a capability
    /// that a recorder has given up.
    pub(super) fn admit_only(&self, user: u32) -> io::Result<()> {
        let held = hold(&self.path)?;
        let list = access_for(user);
        let flags = XattrFlags::empty();
        rustix::fs::setxattr(held.path(), "system.posix_acl_access", &list, flags)?;
        Ok(())
    }

    pub(super) fn accept(&mut self) -> Vec<ConnectionRequest> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let mut requests = Vec::new();
        while requests.len() < self.most {
            match accept_with(&self.socket, flags) {
                Ok(connection) => requests.extend(ConnectionRequest::of(connection)),
                Err(Errno::AGAIN) => return requests,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => break, // no descriptors, no memory: it stays readable, which must not spin
            }
        }
        self.not_before = Some(Instant::now() + PAUSE);
        requests
    }

    /// Whether nothing is accepted at the moment.
    pub(super) fn pauses(&self) -> bool {
        self.not_before
            .is_some_and(|moment| Instant::now() < moment)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another recorder may have taken the place.
        if inode(&self.path) == self.bound {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A POSIX access list (acl(5); include/uapi/linux/posix_acl_xattr.h) by which the owner and this user may
/// read and write, and nobody else anything. To connect to a socket is to write.
fn access_for(user: u32) -> Vec<u8> {
    const VERSION: u32 = 2;
    const READ_WRITE: u16 = 6;
    const NOBODY: u32 = u32::MAX; // entries that are not for a certain one
    let entries = [
        (0x01, READ_WRITE, NOBODY), // the owner
        (0x02, READ_WRITE, user),
        (0x04, 0, NOBODY),          // the owner's group
        (0x10, READ_WRITE, NOBODY), // the most that users and groups may
        (0x20, 0, NOBODY),          // all others
    ];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, may, who) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(may.to_le_bytes());
        list.extend(who.to_le_bytes());
    }
    list
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn listen_at(path: &Path, takes_over: bool) -> Result<OwnedFd, ServeError> {
    let system = |source: io::Error| ServeError::System {
        path: path.to_owned(),
        source,
    };
    let address = SocketAddrUnix::new(path).map_err(|e| system(e.into()))?;
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| system(e.into()))
    };
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(ServeError::NoSocket(path.to_owned()));
        }
        // Left by a recorder that was killed, or of one that lives?
        Ok(_) => match connect(&socket()?, &address) {
            Ok(()) if !takes_over => return Err(ServeError::Taken(path.to_owned())),
            // Its queue is full: somebody lives who is to accept.
            Err(Errno::AGAIN) if !takes_over => return Err(ServeError::Taken(path.to_owned())),
            Ok(()) | Err(Errno::AGAIN | Errno::CONNREFUSED) => {
                fs::remove_file(path).map_err(system)?;
            }
            Err(e) => return Err(system(e.into())),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(system)?;
            }
        }
        Err(e) => return Err(system(e)),
    }
    let listener = socket()?;
    bind(&listener, &address).map_err(|e| match e {
        Errno::ADDRINUSE => ServeError::Taken(path.to_owned()), // somebody came in between
        e => system(e.into()),
    })?;
    allow_everybody(path).map_err(system)?;
    listen(&listener, BACKLOG).map_err(|e| system(e.into()))?;
    Ok(listener)
}

/// Anybody may connect: who is let in is decided by who it is, not by the file's mode. The mode is
/// that of the socket, never of what somebody may have put in its place.
fn allow_everybody(path: &Path) -> io::Result<()> {
    fs::set_permissions(hold(path)?.path(), fs::Permissions::from_mode(0o666))
}

/// A socket's file, whatever else may lie at its path by now.
struct Held(OwnedFd);

impl Held {
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

fn hold(path: &Path) -> io::Result<Held> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("another file took its place"));
    }
    Ok(Held(socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").expect("written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&precious, &link).expect("linked");
        for path in [&precious, &link] {
            for takes_over in [false, true] {
                let error = listen_at(path, takes_over).expect_err("not a socket");
                assert!(error.to_string().contains("is not a socket"), "{error}");
            }
        }
        assert_eq!(fs::read_to_string(&precious).expect("there"), "precious");
    }

    #[test]
    fn a_socket_that_is_left_behind_is_taken_over_and_one_that_is_served_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep").join("sdk.sock");
        let served = listen_at(&path, false).expect("served");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        let error = listen_at(&path, false).expect_err("it is served");
        assert!(matches!(error, ServeError::Taken(_)), "{error}");
        drop(served);
        fs::remove_file(&path).expect("ours");
        drop(UnixListener::bind(&path).expect("bound")); // its file stays
        listen_at(&path, false).expect("taken over");
    }
}
