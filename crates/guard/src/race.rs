//! A request that may be sent more than once: its replica is watched while it is there, and if a
//! hazard catches it, it is sent once more to a calm replica. The first good answer wins.

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::Kind;
use tokio::sync::watch;

use crate::attempt::{Failure, Reply, send};
use crate::figures::{Figures, Hedge, Trigger};
use crate::replica::Lease;
use crate::template::Template;
use crate::worker::{Worker, slow};

/// Attempts after those that a dead replica left without an answer.
const MOST_RETRIES: u32 = 3;
/// A hazard that is expected to be over sooner is waited for.
const WORTH: Duration = Duration::from_millis(1);
/// How long a request that no replica can take waits before it is looked again.
const BLOCKED: Duration = Duration::from_millis(5);
/// One loser in this number is followed to its end.
const FOLLOWED: u64 = 8;

type Attempt = Pin<Box<dyn Future<Output = Result<Reply, Failure>>>>;

struct Running {
    attempt: Attempt,
    replica: usize,
    address: SocketAddr,
    is_hedge: bool,
}

impl Running {
    fn start(worker: &Rc<Worker>, template: &Template, lease: Lease, is_hedge: bool) -> Self {
        let (worker, request) = (Rc::clone(worker), template.request());
        Self {
            replica: lease.slot(),
            address: lease.replica.address,
            is_hedge,
            attempt: Box::pin(async move { send(&worker, lease, request).await }),
        }
    }
}

/// Waits for an attempt, or for ever where none runs.
async fn result_of(running: &mut Option<Running>) -> Result<Reply, Failure> {
    match running {
        Some(running) => running.attempt.as_mut().await,
        None => pending().await,
    }
}

/// One request's race.
struct Race<'r> {
    worker: &'r Rc<Worker>,
    template: &'r Template,
    start: Instant,
    /// The original and the extra one.
    running: [Option<Running>; 2],
    /// An answer that is no good, as long as a better one may come.
    poor: Option<Box<Reply>>,
    retries: u32,
    failed: Vec<usize>,
    hedge: Option<Box<Hedge>>,
    /// There was a reason for an extra request, and no calm replica: any change may bring one.
    blocked: Option<watch::Receiver<u64>>,
    /// Whether it is sent once more if its replica is silent.
    heeds_silence: bool,
}

/// Sends a request, once more if that helps, and returns the first good answer.
///
/// # Errors
/// If no replica answered.
pub async fn race(worker: &Rc<Worker>, template: &Template, lease: Lease) -> Result<Reply, String> {
    let first = lease.slot();
    let mut race = Race {
        worker,
        template,
        start: Instant::now(),
        running: [Some(Running::start(worker, template, lease, false)), None],
        poor: None,
        retries: 0,
        failed: Vec::new(),
        hedge: None,
        blocked: None,
        heeds_silence: true,
    };
    let outcome = race.run(first).await;
    race.end(outcome.as_ref().is_ok_and(|(_, won)| *won));
    outcome.map(|(reply, _)| reply)
}

impl Race<'_> {
    async fn run(&mut self, mut replica: usize) -> Result<(Reply, bool), String> {
        let mut may_hedge = true;
        loop {
            let [first, second] = &mut self.running;
            let (place, result) = tokio::select! {
                biased;
                result = result_of(first) => (0, result),
                result = result_of(second) => (1, result),
                trigger = trigger(
                    self.worker, replica, self.start, &mut self.blocked, self.heeds_silence,
                ), if may_hedge => {
                    may_hedge = !self.hedge(trigger, replica);
                    continue;
                }
            };
            let Some(ended) = self.running[place].take() else {
                continue;
            };
            match result {
                Ok(reply) if !reply.status().is_server_error() => {
                    // Where the extra one won, the original takes at least as long.
                    self.worker.record(self.start);
                    return Ok((reply, ended.is_hedge));
                }
                Ok(reply) => {
                    let poor = self.poor.take().unwrap_or_else(|| Box::new(reply));
                    if self.running.iter().all(Option::is_none) {
                        return Ok((*poor, ended.is_hedge));
                    }
                    self.poor = Some(poor);
                }
                Err(failure) => {
                    self.failed.push(ended.replica);
                    if let Some(reply) = self.after(&failure, place).await? {
                        return Ok((reply, false));
                    }
                    if let Some(again) = &self.running[place] {
                        replica = again.replica;
                    }
                }
            }
        }
    }

    /// An attempt failed: another one may still run, or one more is made.
    async fn after(&mut self, failure: &Failure, place: usize) -> Result<Option<Reply>, String> {
        if self.running.iter().any(Option::is_some) {
            return Ok(None);
        }
        if let Some(poor) = self.poor.take() {
            return Ok(Some(*poor));
        }
        if self.retries == MOST_RETRIES {
            return Err(failure.why().to_owned());
        }
        self.retries += 1;
        let figures = &self.worker.figures;
        match failure {
            Failure::NeverSent(..) => Figures::add(&figures.retries_unsent),
            Failure::Lost(_) => Figures::add(&figures.retries_lost),
        }
        let fleet = &self.worker.fleet;
        let lease = match fleet.pick_waiting(&self.failed).await {
            Some(lease) => lease,
            // All have failed once: the best of them once more.
            None => match fleet.pick_waiting(&[]).await {
                Some(lease) => lease,
                None => return Err(failure.why().to_owned()),
            },
        };
        self.running[place] = Some(Running::start(self.worker, self.template, lease, false));
        Ok(None)
    }

    /// Sends the request once more. True: it was, or never will be.
    fn hedge(&mut self, trigger: Trigger, replica: usize) -> bool {
        let worker = self.worker;
        let waited = self.start.elapsed().as_micros() as u64;
        let age = match trigger {
            Trigger::Hazard(kind) => {
                let word = worker.fleet.board().word(replica);
                Some(Monotonic::now().0.saturating_sub(word.since(kind).0) / 1000)
            }
            Trigger::Silent | Trigger::Percentile => None,
        };
        let mut running = self.running.iter().flatten();
        let original = running.find(|one| one.replica == replica);
        let from = original.map_or_else(String::new, |one| one.address.to_string());
        if worker.dry_run {
            Figures::add(&worker.figures.hedges_dry);
            self.hedge = Some(Box::new(Hedge::begin(trigger, from, None, waited, age)));
            return true;
        }
        let any = worker.fleet.board().subscribe_all();
        let is_silent = trigger == Trigger::Silent;
        let Some(lease) = worker.fleet.pick_calm(replica, is_silent) else {
            if self.blocked.is_none() {
                Figures::add(&worker.figures.hedges_without_replica);
            }
            self.blocked = Some(any);
            return false;
        };
        // Half of the budget is kept for hazards, which are certain.
        let part = if is_silent { 0.5 } else { 1.0 };
        if !worker.budget.borrow_mut().take(Instant::now(), part) {
            Figures::add(&worker.figures.hedges_over_budget);
            self.heeds_silence = false;
            return !is_silent;
        }
        worker.figures.hedged(trigger);
        let to = Some(lease.replica.address.to_string());
        self.hedge = Some(Box::new(Hedge::begin(trigger, from, to, waited, age)));
        let free = usize::from(self.running[0].is_some());
        self.running[free] = Some(Running::start(worker, self.template, lease, true));
        true
    }

    /// Logs a hedge, and drops the loser or follows a sample of them.
    fn end(&mut self, won: bool) {
        let Some(mut hedge) = self.hedge.take() else {
            return;
        };
        let figures = &self.worker.figures;
        hedge.won = won;
        hedge.latency_us = self.start.elapsed().as_micros() as u64;
        if won {
            Figures::add(&figures.hedges_won);
        }
        let loser = self.running.iter_mut().find_map(Option::take);
        let number = self.worker.hedges.get();
        self.worker.hedges.set(number + 1);
        match loser {
            Some(loser) if number.is_multiple_of(FOLLOWED) => {
                follow(self.worker, loser, hedge, self.start)
            }
            _ => figures.log(*hedge),
        }
    }
}

/// Follows a loser to its end: what it would have taken is what the hedge saved.
fn follow(worker: &Rc<Worker>, loser: Running, mut hedge: Box<Hedge>, start: Instant) {
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        let limit = worker.timeout;
        if let Ok(Ok(_)) = tokio::time::timeout(limit, loser.attempt).await {
            let took = start.elapsed().as_micros() as u64;
            let saved = took.saturating_sub(hedge.latency_us);
            if hedge.won {
                Figures::add(&worker.figures.losers_followed);
                worker.figures.saved_us.fetch_add(saved, Relaxed);
                hedge.saved_us = Some(saved);
            }
        }
        worker.figures.log(*hedge);
    });
}

/// Waits until there is a reason to send a request once more that is at this replica. `blocked`: not
/// before this changes, or some time has passed. `heeds_silence`: its silence is a reason.
async fn trigger(
    worker: &Worker,
    replica: usize,
    start: Instant,
    blocked: &mut Option<watch::Receiver<u64>>,
    heeds_silence: bool,
) -> Trigger {
    if let Some(any) = blocked {
        tokio::select! {
            _ = any.changed() => {}
            // A replica that was silent or full may take it now: nobody says so.
            () = tokio::time::sleep(BLOCKED) => {}
        }
    }
    let board = worker.fleet.board();
    let mut changes = board.subscribe(replica);
    loop {
        changes.mark_unchanged();
        let now = Monotonic::now();
        let kinds = board.active(replica, now);
        let left = board.expected_end(replica, now).saturating_sub(now.0);
        if let Some(kind) = kinds.kinds().next() {
            if left >= WORTH.as_nanos() as u64 || kind == Kind::Gone {
                return Trigger::Hazard(kind);
            }
            // It may last longer than expected, or another one begin.
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(WORTH) => {}
            }
            continue;
        }
        let has_events = board.coverage(replica).has_events();
        // A request of which any pick or the thread of the hazards sees that its replica is silent needs
        // no timer of its own: most have none.
        let Some(usual) = worker
            .threshold()
            .filter(|_| !has_events || heeds_silence && board.is_silent(replica, now))
        else {
            let _ = changes.changed().await;
            continue;
        };
        let after = if has_events { slow(usual) } else { usual };
        let late = (start + after).saturating_duration_since(Instant::now());
        if has_events && late.is_zero() {
            return Trigger::Silent;
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(late) => {
                if !has_events {
                    return Trigger::Percentile;
                }
            }
        }
    }
}
