//! Connections of HTTP/2, on which requests overlap. Each stream is like a connection of its own.

use tailscope_signals::slice::{Frame, NOT_SENT, Role, Shares, Slice};

use super::Requests;
use super::hpack::Headers;
use super::link::Trace;
use super::request::Held;
use super::socket::Socket;
use super::thread::Thread;

pub(super) mod connection;
mod ends;

use connection::Connection;

/// The most streams of a connection that are followed at once.
const MOST_STREAMS: usize = 4096;
/// The most connections that all keep what headers refer to. Beyond that, idle ones lose it.
const MOST_TABLES: usize = 8192;

impl Requests {
    fn connection(&mut self, socket: u64) -> Option<&mut Connection> {
        self.sockets.get_mut(&socket)?.frames.as_deref_mut()
    }

    /// The number of an open stream among the sockets.
    fn open_stream(&mut self, slice: &Slice) -> Option<u64> {
        let socket = self.sockets.get_mut(&slice.socket)?;
        socket.touched = slice.at;
        let connection = socket.frames.as_deref()?;
        connection.streams.get(&slice.length).copied()
    }

    /// Gives a stream that begins a number among the sockets. `None`: it has ended already, or there
    /// is no room.
    fn begin_stream(&mut self, slice: &Slice) -> Option<u64> {
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        if socket.frames.is_none() {
            // What came before its frames were known can't be told apart.
            socket.calls.clear();
            let before = socket.open.take().and_then(|work| self.works.end(work));
            self.missed.multiplexed += u64::from(before.is_some());
        }
        let peer = socket.peer;
        let connection = socket.frames.get_or_insert_default();
        if slice.length <= connection.highest {
            return None;
        }
        connection.highest = slice.length;
        if connection.streams.len() >= MOST_STREAMS {
            self.missed.forgotten += 1;
            return None;
        }
        self.latest_stream = self.latest_stream.wrapping_sub(1);
        connection.streams.insert(slice.length, self.latest_stream);
        let stream = Socket {
            peer,
            stream: slice.length,
            touched: slice.at,
            ..Socket::default()
        };
        self.sockets.insert(self.latest_stream, stream);
        Some(self.latest_stream)
    }

    /// What is decrypted on this socket is HTTP/2. What was taken for a request there is the end of a
    /// handshake, or the connection's preface.
    pub(super) fn begin_frames_in_tls(&mut self, slice: &Slice) {
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        socket.encrypted = true;
        let before = socket.open.take().and_then(|work| self.works.end(work));
        self.missed.handshakes += u64::from(before.is_some());
        socket.frames.get_or_insert_default();
        self.http2_over_tls = true;
        self.tls.decrypts(slice.pid);
    }

    /// Since when the frames that TLS decrypts now could be received; 0: that is not known.
    fn ready_in_tls(&mut self, slice: &Slice) -> Option<u64> {
        let socket = self.sockets.get_mut(&slice.socket)?;
        let connection = socket.frames.as_deref_mut().filter(|_| socket.encrypted)?;
        if socket.ready != 0 {
            connection.ready = (slice.at, std::mem::take(&mut socket.ready));
        }
        let (at, ready) = connection.ready;
        Some(if at == slice.at { ready } else { 0 })
    }

    pub(super) fn receive_stream(
        &mut self,
        thread: &mut Thread,
        slice: &Slice,
        role: Role,
        frame: Frame,
    ) {
        let begins = frame.begins && role == Role::Server;
        let ready = self.ready_in_tls(slice);
        let open = self.open_stream(slice);
        let new = if begins && open.is_none() {
            self.begin_stream(slice)
        } else {
            None
        };
        if let Some(stream) = open.or(new) {
            if frame.resets && role == Role::Server {
                self.end_stream(slice, stream);
                return;
            }
            let mut received = of_stream(slice, stream);
            if let Some(ready) = ready {
                received.since = ready;
            }
            self.receive(thread, &received, role);
            if role == Role::Client && (frame.ends || frame.resets) {
                self.end_stream(slice, stream);
            }
        }
        if begins && let Some(connection) = self.connection(slice.socket) {
            connection.begin_headers(new);
            self.take_headers(slice, frame);
        }
    }

    pub(super) fn send_stream(
        &mut self,
        thread: &mut Thread,
        slice: &Slice,
        role: Role,
        frame: Frame,
    ) {
        self.end_held(slice.socket, slice.at);
        let begins = frame.begins && role == Role::Client;
        let open = self.open_stream(slice);
        match open {
            None if begins => {
                if let Some(stream) = self.begin_stream(slice) {
                    self.send(thread, &of_stream(slice, stream), role);
                }
            }
            None => {}
            Some(stream) if frame.resets => self.end_stream(slice, stream),
            Some(stream) if role == Role::Client => {
                self.ask_on(thread, &of_stream(slice, stream));
            }
            Some(stream) if slice.since == NOT_SENT => {
                let unsent = Slice {
                    since: 0,
                    ..of_stream(slice, stream)
                };
                self.send(thread, &unsent, role);
                self.wait_for_send(slice, stream, frame.ends);
            }
            Some(stream) => {
                self.send(thread, &of_stream(slice, stream), role);
                if frame.ends {
                    self.end_answer(slice, stream);
                }
            }
        }
    }

    /// TLS has encrypted a part of an answer. It ends with the next send on the connection.
    fn wait_for_send(&mut self, slice: &Slice, stream: u64, is_complete: bool) {
        let Some(connection) = self.connection(slice.socket) else {
            return;
        };
        if is_complete {
            connection.streams.remove(&slice.length);
        }
        let full = connection.unsent.len() >= MOST_STREAMS;
        match connection.unsent.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, complete)) => *complete |= is_complete,
            None if !full => connection.unsent.push((stream, is_complete)),
            None if is_complete => self.end_stream(slice, stream),
            None => {}
        }
    }

    /// The program sends what TLS has encrypted.
    pub(super) fn send_encrypted(&mut self, slice: &Slice) {
        let connection = self.connection(slice.socket);
        let unsent = connection.map(|connection| std::mem::take(&mut connection.unsent));
        for (stream, is_complete) in unsent.into_iter().flatten() {
            let open = self.sockets.get(&stream).and_then(|socket| socket.open);
            let work = open.and_then(|work| self.works.get_mut(work));
            if let Some(request) = work.and_then(|work| work.request.as_mut()) {
                request.ended = slice.at;
                request.held = Held::at_send(slice.since);
            }
            let connection = self.connection(slice.socket);
            if let Some(connection) = connection.filter(|_| is_complete && slice.since != 0) {
                connection.held.push((stream, slice.at));
            } else if is_complete {
                self.end_of(stream, slice.at);
                self.sockets.remove(&stream);
            }
        }
    }

    fn end_stream(&mut self, slice: &Slice, stream: u64) {
        self.end_of(stream, slice.at);
        self.sockets.remove(&stream);
        if let Some(connection) = self.connection(slice.socket) {
            connection.streams.remove(&slice.length);
        }
    }

    /// The answer is complete. If TCP keeps back its end, it ends when that is passed on.
    fn end_answer(&mut self, slice: &Slice, stream: u64) {
        match self.connection(slice.socket) {
            Some(connection) if slice.since != 0 => {
                connection.streams.remove(&slice.length);
                connection.held.push((stream, slice.at));
            }
            _ => self.end_stream(slice, stream),
        }
    }

    /// Ends the answers whose ends were kept back at a send before this time.
    fn end_held(&mut self, socket: u64, before: u64) {
        for stream in self.take_held(socket, before) {
            self.end_of(stream, before);
            self.sockets.remove(&stream);
        }
    }

    fn take_held(&mut self, socket: u64, before: u64) -> Vec<u64> {
        let Some(connection) = self.connection(socket) else {
            return Vec::new();
        };
        let held = connection.held.extract_if(.., |(_, at)| *at < before);
        held.map(|(stream, _)| stream).collect()
    }

    /// TCP has passed on what it kept back on this connection.
    pub(super) fn pass_on_streams(&mut self, slice: &Slice) {
        for stream in self.take_held(slice.socket, slice.at) {
            self.pass_on(&of_stream(slice, stream));
            self.end_of(stream, slice.at);
            self.sockets.remove(&stream);
        }
    }

    /// Takes the headers of this entry. They are read when they are complete.
    pub(super) fn take_headers(&mut self, slice: &Slice, frame: Frame) {
        let connection = self.connection(slice.socket);
        if let Some((stream, headers)) = connection.and_then(|c| c.take_headers(slice, frame)) {
            self.name_by_headers(stream, headers);
        }
    }

    fn name_by_headers(&mut self, stream: u64, headers: Headers) {
        let naming = self.naming;
        let open = self.sockets.get(&stream).and_then(|s| s.open);
        let work = open.and_then(|work| self.works.get_mut(work));
        let Some(request) = work.and_then(|work| work.request.as_mut()) else {
            return;
        };
        let trace = headers.trace.filter(|_| self.traces);
        request.trace = trace.and_then(|trace| Trace::parse(&trace));
        if let (Some(method), Some(path)) = (headers.method, headers.path) {
            request.name = naming.name_of_stream(&method, &path);
        }
    }
}

/// The entry as if the stream were a socket of its own.
fn of_stream(slice: &Slice, stream: u64) -> Slice {
    Slice {
        socket: stream,
        length: 1,
        text: Vec::new(),
        shares: Shares::new(),
        peer: None,
        ..*slice
    }
}
