//! What entries that were lost leave doubtful: better no row than a wrong one.

use tailscope_signals::slice::{Act, Role, Slice};

use super::Requests;
use super::thread::Thread;

impl Requests {
    /// An entry of the thread was lost: what it did in that time, and for whom, is not known.
    pub(super) fn lose_thread(&mut self, thread: &mut Thread) {
        let pending = thread.pending.iter().map(|(work, _)| *work);
        let held = thread.held;
        let in_hand = thread.owner.into_iter().chain(thread.after).chain(held);
        for work in pending.chain(in_hand) {
            if let Some(work) = self.works.get_mut(work) {
                work.ambiguous = true;
            }
        }
        thread.forget();
    }

    /// An entry of the socket was lost before this one: when what is open there began or ended is not
    /// known, nor whose the next answer is.
    pub(super) fn lose_open(&mut self, slice: &Slice) {
        let mut lost = 0;
        let mut asked = Vec::new();
        for stream in self.take_streams(slice.socket) {
            let Some(stream) = self.sockets.remove(&stream) else {
                continue;
            };
            lost += u64::from(stream.open.and_then(|work| self.works.end(work)).is_some());
            asked.extend(stream.calls);
        }
        if let Some(socket) = self.sockets.get_mut(&slice.socket) {
            let open = socket.take_open().into_iter();
            lost += open.filter_map(|work| self.works.end(work)).count() as u64;
            asked.extend(socket.calls.drain(..));
            socket.answers = None;
            // Each datagram is a whole request.
            socket.lost = socket.frames.is_none() && !slice.datagram;
        }
        for call in asked {
            if let Some(work) = self.works.get_mut(call.work) {
                work.ambiguous = true;
            }
        }
        let is_of_request = matches!(
            slice.act,
            Act::Receive(Role::Server) | Act::Send(Role::Server) | Act::Socket(Role::Server)
        );
        self.missed.incomplete += lost.max(is_of_request.into());
    }
}
