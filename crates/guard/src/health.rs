//! Active health checks: each replica is asked for a path once a second.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Uri, Version};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::attempt::send;
use crate::headers::for_http2;
use crate::replica::Replica;
use crate::template::Template;
use crate::worker::Worker;

/// Between two checks.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Asks one replica again and again.
pub async fn watch(worker: Rc<Worker>, replica: Arc<Replica>, path: Uri) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let is_well = is_well(&worker, &replica, &path).await;
        replica.set_well(is_well);
    }
}

async fn is_well(worker: &Worker, replica: &Arc<Replica>, path: &Uri) -> bool {
    let lease = replica.lease();
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(&replica.address.to_string());
    headers.extend(host.ok().map(|host| (HOST, host)));
    headers.insert(USER_AGENT, HeaderValue::from_static("tailscope-guard"));
    let mut request = Template {
        method: Method::GET,
        uri: path.clone(),
        version: Version::HTTP_11,
        headers,
    }
    .request();
    if worker.pool.is_2() {
        for_http2(&mut request);
    }
    let answer = timeout(LIMIT, send(worker, lease, request)).await;
    matches!(answer, Ok(Ok(reply)) if reply.status().is_success())
}
