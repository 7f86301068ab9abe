//! Connections of HTTP/2, on which requests overlap. Each stream is like a connection of its own.

use std::collections::HashMap;

use tailscope_signals::slice::{Frame, Role, Slice};

use super::hpack::{Headers, Table};
use super::link::Trace;
use super::socket::Socket;
use super::thread::Thread;
use super::{MOST_REMEMBERED, Requests};

/// So many connections have a table of what their headers refer to. On more, only what a request says
/// in full gives it a name.
const MOST_TABLES: usize = 8192;

/// A connection of HTTP/2.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Streams on which something is open, and the numbers that they have among the sockets.
    streams: HashMap<u32, u64>,
    table: Table,
    /// Whether the table is kept from one request to the next.
    has_table: bool,
    /// Headers that are not complete, and the request's number among the sockets.
    block: Vec<u8>,
    block_of: Option<u64>,
    /// So many losses of entries there had been when the table was read last.
    losses: u64,
}

impl Requests {
    /// The number of this stream among the sockets. `begins`: it is given one if it has none.
    fn stream(&mut self, slice: &Slice, begins: bool) -> Option<u64> {
        let full = self.sockets.len() >= MOST_REMEMBERED;
        let has_table = self.connections < MOST_TABLES;
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        // What was taken for a request before its frames were known.
        if let Some(work) = socket.open.take() {
            self.works.end(work);
        }
        socket.calls.clear();
        let peer = socket.peer;
        let connection = socket.frames.get_or_insert_with(|| {
            self.connections += 1;
            Box::new(Connection {
                has_table,
                ..Connection::default()
            })
        });
        if let Some(known) = connection.streams.get(&slice.length) {
            return Some(*known);
        }
        if !begins || full {
            self.missed.forgotten += u64::from(begins);
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

    pub(super) fn receive_stream(
        &mut self,
        thread: &mut Thread,
        slice: &Slice,
        role: Role,
        frame: Frame,
    ) {
        let begins = frame.begins && role == Role::Server;
        let Some(stream) = self.stream(slice, begins) else {
            return;
        };
        if frame.resets && role == Role::Server {
            self.end_stream(slice, stream);
            return;
        }
        self.receive(thread, &of_stream(slice, stream), role);
        if begins {
            self.begin_headers(slice, stream);
            self.take_headers(slice, frame);
        }
        if role == Role::Client && (frame.ends || frame.resets) {
            self.end_stream(slice, stream);
        }
    }

    pub(super) fn send_stream(
        &mut self,
        thread: &mut Thread,
        slice: &Slice,
        role: Role,
        frame: Frame,
    ) {
        let begins = frame.begins && role == Role::Client;
        let Some(stream) = self.stream(slice, begins) else {
            return;
        };
        self.send(thread, &of_stream(slice, stream), role);
        if frame.resets || (frame.ends && role == Role::Server) {
            self.end_stream(slice, stream);
        }
    }

    fn end_stream(&mut self, slice: &Slice, stream: u64) {
        self.end_of(stream, slice.at);
        self.sockets.remove(&stream);
        if let Some(connection) = self.connection(slice.socket) {
            connection.streams.remove(&slice.length);
        }
    }

    fn connection(&mut self, socket: u64) -> Option<&mut Connection> {
        self.sockets.get_mut(&socket)?.frames.as_deref_mut()
    }

    fn begin_headers(&mut self, slice: &Slice, stream: u64) {
        let losses = self.losses;
        if let Some(connection) = self.connection(slice.socket) {
            if connection.block_of.is_some() || connection.losses != losses {
                connection.table.forget(); // headers in between are not known
            }
            connection.losses = losses;
            connection.block.clear();
            connection.block_of = Some(stream);
        }
    }

    /// Takes the headers of this entry. They are read when they are complete.
    pub(super) fn take_headers(&mut self, slice: &Slice, frame: Frame) {
        let losses = self.losses;
        let Some(connection) = self.connection(slice.socket) else {
            return;
        };
        connection.block.extend(&slice.text);
        if frame.more {
            return;
        }
        let Some(stream) = connection.block_of.take() else {
            return;
        };
        let lost = connection.losses != losses;
        let cut = frame.cut || lost || !connection.has_table;
        let block = std::mem::take(&mut connection.block);
        let headers = connection.table.read(&block, cut);
        if !lost {
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

    /// The connection sends no more.
    pub(super) fn close_streams(&mut self, socket: u64, at: u64) {
        for stream in self.take_streams(socket) {
            self.end_of(stream, at);
            self.sockets.remove(&stream);
        }
    }

    /// Where frames begin is not known any more: nobody can tell when what is open ends.
    pub(super) fn lose_streams(&mut self, socket: u64) {
        for stream in self.take_streams(socket) {
            let open = self.sockets.remove(&stream).and_then(|s| s.open);
            let work = open.and_then(|work| self.works.end(work));
            self.missed.multiplexed += u64::from(work.is_some());
        }
    }

    fn take_streams(&mut self, socket: u64) -> Vec<u64> {
        let socket = self.sockets.get_mut(&socket);
        let Some(connection) = socket.and_then(|socket| socket.frames.take()) else {
            return Vec::new();
        };
        self.connections -= 1;
        connection.streams.into_values().collect()
    }
}

/// The entry as if the stream were a socket of its own.
fn of_stream(slice: &Slice, stream: u64) -> Slice {
    Slice {
        socket: stream,
        length: 1,
        text: Vec::new(),
        shares: Vec::new(),
        ..*slice
    }
}
