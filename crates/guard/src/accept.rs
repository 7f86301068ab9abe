//! One thread that serves clients: it takes new settings, accepts, and waits for the last client.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::figures::Figures;
use crate::health;
use crate::listeners::adopt;
use crate::serve::greet;
use crate::setup::Setup;
use crate::thread::{Client, Phase, Thread};
use crate::warm;
use crate::worker::Worker;

/// After an accept that failed, as when descriptors are used up.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves until the phase says otherwise and the last client is gone, or the time for that is over.
/// `number`: of this thread. The first one also checks the replicas' health.
pub async fn run(
    number: usize,
    mut setups: watch::Receiver<Arc<Setup>>,
    phase: watch::Receiver<Phase>,
    figures: Arc<Figures>,
) {
    let first = Arc::clone(&setups.borrow_and_update());
    let thread = Rc::new(Thread {
        worker: RefCell::new(Worker::new(&first, &figures)),
        phase,
        grace: Cell::new(first.options.grace),
        clients: Cell::new(0),
        left: Notify::new(),
    });
    let mut accepting = HashMap::new();
    let mut checks = JoinSet::new();
    take_up(&thread, number, &first, &mut accepting, &mut checks);
    drop(first);
    loop {
        tokio::select! {
            changed = setups.changed() => if changed.is_err() {
                break;
            },
            () = thread.stops_accepting() => break,
        }
        let setup = Arc::clone(&setups.borrow_and_update());
        let next = thread.worker().next(&setup);
        thread.worker.replace(next);
        thread.grace.set(setup.options.grace);
        take_up(&thread, number, &setup, &mut accepting, &mut checks);
    }
    drop(accepting); // its tasks end with it, and close their sockets
    let gone = async {
        while thread.clients.get() > 0 {
            thread.left.notified().await;
        }
    };
    // After a hand-over, idle connections stay open for as long again.
    let mut phase = thread.phase.clone();
    let grace = thread.grace.get();
    let ends = async {
        if *phase.borrow_and_update() == Phase::HandedOver {
            let _ = timeout(grace, phase.wait_for(|phase| *phase == Phase::Ends)).await;
        }
        sleep(grace).await;
    };
    tokio::select! {
        () = gone => {}
        () = ends => {}
    }
}

/// Accepts where these settings say, and no longer elsewhere. Clients that were accepted stay.
fn take_up(
    thread: &Rc<Thread>,
    number: usize,
    setup: &Setup,
    accepting: &mut HashMap<SocketAddr, JoinSet<()>>,
    checks: &mut JoinSet<()>,
) {
    accepting.retain(|address, _| {
        setup
            .listeners
            .iter()
            .any(|(listens, _)| listens == address)
    });
    for (address, sockets) in &setup.listeners {
        accepting.entry(*address).or_insert_with(|| {
            // More sockets than threads came from a guard that had more of them.
            let ours = sockets.iter().skip(number).step_by(setup.options.threads);
            let mut tasks = JoinSet::new();
            for listener in ours.filter_map(|socket| adopt(socket).ok()) {
                tasks.spawn_local(accept(Rc::clone(thread), listener));
            }
            tasks
        });
    }
    if number > 0 {
        return;
    }
    checks.abort_all();
    let path: Option<Uri> = setup.options.health.as_ref().and_then(|p| p.parse().ok());
    for replica in setup.fleet.replicas() {
        checks.spawn_local(warm::watch(thread.worker(), Arc::clone(replica)));
        match &path {
            Some(path) => {
                let (worker, path) = (thread.worker(), path.clone());
                checks.spawn_local(health::watch(worker, Arc::clone(replica), path));
            }
            None => replica.set_well(true),
        }
    }
}

async fn accept(thread: Rc<Thread>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                Figures::add(&thread.worker.borrow().figures.connections);
                spawn_local(greet(Client::new(&thread), stream, peer));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
