//! Sockets that accept clients.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::setup::Listeners;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A socket for each thread on this address, from `ready` where that has some. Each of `ready` that
/// listens there is used: the kernel spreads clients over all of them.
///
/// # Errors
/// If the address can't be used.
pub fn on(
    address: SocketAddr,
    threads: usize,
    ready: &mut Vec<TcpListener>,
) -> io::Result<Listeners> {
    let is_there = |one: &mut TcpListener| one.local_addr().is_ok_and(|at| at == address);
    let mut all: Vec<Arc<TcpListener>> = ready.extract_if(.., is_there).map(Arc::new).collect();
    let mut address = address;
    if all.is_empty() {
        for _ in 0..threads {
            let listener = listen_on(address, threads > 1)?;
            // Port 0: the others take the same.
            address = listener.local_addr()?;
            all.push(Arc::new(listener));
        }
    }
    // With fewer than threads, some share one.
    let found = all.len();
    for at in found..threads {
        all.push(Arc::clone(&all[at % found]));
    }
    Ok((address, all))
}

/// `shared`: several threads listen there, and the kernel spreads clients among them.
///
/// # Errors
/// If the address can't be used.
pub fn listen_on(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The same socket, for a thread's event loop.
///
/// # Errors
/// If there is no descriptor left.
pub fn adopt(listener: &TcpListener) -> io::Result<tokio::net::TcpListener> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
