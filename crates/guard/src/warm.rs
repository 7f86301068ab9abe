//! Warming up a replica that has started again: it gets copies of recent safe requests until its
//! answers no longer become faster, and only then clients' requests.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::attempt::send;
use crate::board::Hold;
use crate::figures::Figures;
use crate::replica::Replica;
use crate::template::Template;
use crate::worker::Worker;

/// Copies that are sent at a time.
const AT_A_TIME: usize = 4;
/// Copies after which it is looked whether they have become faster.
const BATCH: usize = 48;
/// Fewer batches are never enough.
const FEWEST: u32 = 8;
/// The answers of a batch no longer become faster if its slow ones take at least this share of what
/// those of the batch before took.
const SETTLED: f64 = 0.9;
/// It gets requests after so long in any case.
const LONGEST: Duration = Duration::from_secs(10);
/// How long one copy may take.
const LIMIT: Duration = Duration::from_secs(2);
/// After a batch without an answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Warms up a replica whenever it has started again.
pub async fn watch(worker: Rc<Worker>, replica: Arc<Replica>) {
    let board = worker.fleet.board();
    let mut changes = board.subscribe(replica.slot);
    loop {
        changes.mark_unchanged();
        if board.is_held(replica.slot, Hold::Warms) {
            warm_up(&worker, &replica).await;
            board.hold(replica.slot, Hold::Warms, false);
            continue;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn warm_up(worker: &Rc<Worker>, replica: &Arc<Replica>) {
    let until = Instant::now() + LONGEST;
    let mut before = None;
    let mut batches = 0;
    while worker.warms_up && Instant::now() < until {
        let requests = worker.recent.all();
        if requests.is_empty() {
            return; // nothing is known that could be sent
        }
        let latencies = batch(worker, replica, &requests).await;
        let Some(slow) = slow_of(latencies) else {
            sleep(PAUSE).await;
            continue;
        };
        batches += 1;
        if batches >= FEWEST && before.is_some_and(|before| has_settled(before, slow)) {
            return;
        }
        before = Some(slow);
    }
}

/// The latency that one in ten exceeds.
fn slow_of(mut latencies: Vec<Duration>) -> Option<Duration> {
    latencies.sort_unstable();
    latencies.get(latencies.len() * 9 / 10).copied()
}

fn has_settled(before: Duration, now: Duration) -> bool {
    now.as_secs_f64() >= SETTLED * before.as_secs_f64()
}

/// Sends copies, and returns how long those took that were answered.
async fn batch(
    worker: &Rc<Worker>,
    replica: &Arc<Replica>,
    requests: &[Rc<Template>],
) -> Vec<Duration> {
    let mut senders = JoinSet::new();
    for first in 0..AT_A_TIME {
        let (worker, replica) = (Rc::clone(worker), Arc::clone(replica));
        let each = (first..BATCH).step_by(AT_A_TIME);
        let ours: Vec<Rc<Template>> = each
            .map(|at| Rc::clone(&requests[at % requests.len()]))
            .collect();
        senders.spawn_local(async move {
            let mut latencies = Vec::new();
            for template in ours {
                let start = Instant::now();
                Figures::add(&worker.figures.warm_ups);
                let sent = send(&worker, replica.lease(), template.request());
                if let Ok(Ok(_)) = timeout(LIMIT, sent).await {
                    latencies.push(start.elapsed());
                }
            }
            latencies
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = senders.join_next().await {
        all.extend(latencies.unwrap_or_default());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_answers_of_a_batch_decide() {
        let ms = |ms: u64| Duration::from_millis(ms);
        assert_eq!(slow_of((1..=10).map(ms).collect()), Some(ms(10)));
        assert_eq!(slow_of(Vec::new()), None);
        assert!(!has_settled(ms(100), ms(50)));
        assert!(has_settled(ms(10), ms(10)) && has_settled(ms(10), ms(12)));
    }
}
