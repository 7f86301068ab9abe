//! What systemd and a service have to do with each other: the service says that it is ready
//! (`sd_notify(3)`), and systemd may pass it a socket (`sd_listen_fds(3)`).

use std::env;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use listenfd::ListenFd;

/// The socket that systemd listens at for `/metrics`. With it, the service needs no network.
pub(crate) fn passed_listener() -> Option<TcpListener> {
    ListenFd::from_env().take_tcp_listener(0).ok().flatten()
}

/// Sends a state, like `READY=1`. Without systemd nobody asks, and it is nobody's trouble.
pub fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
