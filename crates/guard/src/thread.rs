//! What the clients of one thread share: its settings, and how far it is from its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::worker::Worker;

/// How far a guard is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It accepts clients.
    Serves,
    /// Another guard accepts on the same sockets. Each client is asked to connect anew with its next
    /// answer. An idle one is left open for a while: its next request may be on its way.
    HandedOver,
    /// It ends: idle connections are closed, and open requests may finish.
    Ends,
}

/// What the connections of one thread share.
#[derive(Debug)]
pub struct Thread {
    pub(crate) worker: RefCell<Rc<Worker>>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) grace: Cell<Duration>,
    pub(crate) clients: Cell<usize>,
    pub(crate) left: Notify,
}

/// A client that is served, from its accept to its end.
#[derive(Debug)]
pub struct Client(Rc<Thread>);

impl Client {
    /// One more client of this thread.
    pub(crate) fn new(thread: &Rc<Thread>) -> Self {
        thread.clients.set(thread.clients.get() + 1);
        Self(Rc::clone(thread))
    }

    /// Its thread.
    pub fn thread(&self) -> &Rc<Thread> {
        &self.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.set(self.0.clients.get() - 1);
        self.0.left.notify_one();
    }
}

impl Thread {
    /// The settings that hold now.
    pub fn worker(&self) -> Rc<Worker> {
        Rc::clone(&self.worker.borrow())
    }

    /// Whether clients are asked to connect anew.
    pub fn leaves(&self) -> bool {
        *self.phase.borrow() != Phase::Serves
    }

    /// Returns when a connection is to be closed as soon as it is idle. `has_goaway`: the protocol
    /// tells the client, so that no request is lost on its way.
    pub async fn closes(&self, has_goaway: bool) {
        let mut phase = self.phase.clone();
        loop {
            let now = *phase.borrow_and_update();
            match now {
                Phase::Serves => {
                    if phase.changed().await.is_err() {
                        return;
                    }
                }
                Phase::HandedOver if !has_goaway => {
                    tokio::select! {
                        _ = phase.changed() => {}
                        () = sleep(self.grace.get()) => return,
                    }
                }
                Phase::HandedOver | Phase::Ends => return,
            }
        }
    }

    /// Returns when no more clients are to be accepted.
    pub(crate) async fn stops_accepting(&self) {
        let mut phase = self.phase.clone();
        let _ = phase.wait_for(|phase| *phase != Phase::Serves).await;
    }
}
