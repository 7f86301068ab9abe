//! How streams end that no frame ends: with their connection, or because they can't be followed.

use std::collections::HashSet;

use super::*;

impl Requests {
    /// The connection sends no more.
    pub(in crate::requests) fn close_streams(&mut self, socket: u64, at: u64) {
        self.end_held(socket, u64::MAX);
        let encrypted = self.sockets.get(&socket).is_some_and(|s| s.encrypted);
        for stream in self.take_streams(socket) {
            if !encrypted || !self.lose_unseen(stream) {
                self.end_of(stream, at);
            }
            self.sockets.remove(&stream);
        }
        if let Some(socket) = self.sockets.get_mut(&socket) {
            socket.frames = None;
        }
    }

    /// Where frames begin is not known: nobody can tell when what is open ends. `received`: what came
    /// in now is not told apart, either.
    pub(in crate::requests) fn lose_streams(&mut self, socket: u64, received: bool) {
        if let Some(connection) = self.connection(socket) {
            connection.table.forget();
        }
        self.end_held(socket, u64::MAX);
        let mut lost = 0;
        for stream in self.take_streams(socket) {
            let open = self.sockets.remove(&stream).and_then(|s| s.open);
            let work = open.and_then(|work| self.works.end(work));
            lost += u64::from(work.is_some());
        }
        self.missed.multiplexed += lost.max(received.into());
    }

    /// Drops what began on connections inside of TLS when it was not seen yet what is sent there.
    pub(in crate::requests) fn lose_streams_over_tls(&mut self) {
        let inside = self.sockets.values().filter(|socket| socket.encrypted);
        let connections = inside.filter_map(|socket| socket.frames.as_deref());
        let streams: Vec<u64> = connections
            .flat_map(|connection| connection.streams.values().copied())
            .collect();
        for stream in streams {
            if self.lose_unseen(stream) {
                self.sockets.remove(&stream);
            }
        }
    }

    /// Drops what is open on this stream if its answer may have been sent unseen.
    fn lose_unseen(&mut self, stream: u64) -> bool {
        let open = self.sockets.get(&stream).and_then(|s| s.open);
        let work = open.and_then(|work| self.works.get(work));
        let request = work.and_then(|work| work.request.as_ref());
        let from = self.writes_seen_from.unwrap_or(u64::MAX);
        let lost = open.filter(|_| request.is_some_and(|r| r.ended == 0 && r.ready < from));
        if let Some(work) = lost {
            self.works.end(work);
            self.missed.multiplexed += 1;
        }
        lost.is_some()
    }

    pub(in crate::requests) fn take_streams(&mut self, socket: u64) -> Vec<u64> {
        let Some(connection) = self.connection(socket) else {
            return Vec::new();
        };
        let streams = connection.numbers().collect();
        connection.streams.clear();
        connection.held.clear();
        connection.unsent.clear();
        streams
    }

    /// The streams that connections follow; any other has lost its connection.
    pub(in crate::requests) fn followed_streams(&self) -> HashSet<u64> {
        let connections = self.sockets.values().filter_map(|s| s.frames.as_deref());
        connections.flat_map(Connection::numbers).collect()
    }

    /// Where many connections have a table, those that were not touched since then lose theirs.
    pub(in crate::requests) fn bound_tables(&mut self, before: u64) {
        let framed = self.sockets.values().filter(|s| s.frames.is_some());
        if framed.count() <= MOST_TABLES {
            return;
        }
        for socket in self.sockets.values_mut().filter(|s| s.touched < before) {
            if let Some(connection) = &mut socket.frames {
                connection.table.forget();
            }
        }
    }
}
