//! What a guard is started with.

use std::net::SocketAddr;
use std::time::Duration;

use crate::proxy_protocol::ProxyHeader;
use crate::tls::{Certificate, TlsError, ToReplicas, Trust, towards_clients};

/// The choices of a running guard.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// Whether each client's connection begins with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// With which header of the PROXY protocol each connection to a replica begins.
    pub send_proxy: Option<ProxyHeader>,
    /// What clients of TLS are shown; none: clients do not use TLS.
    pub tls: Option<Certificate>,
    /// The servers that answer.
    pub replicas: Vec<SocketAddr>,
    /// Whether they speak HTTP/2; otherwise HTTP/1.1.
    pub replicas_speak_2: bool,
    /// Which replicas are trusted; none: they do not use TLS.
    pub replica_tls: Option<Trust>,
    /// Extra requests for each request: 0.01 for 1 %.
    pub budget: f64,
    /// At which quantile a request to a replica without signals is sent once more: 0.95 for p95.
    pub quantile: f64,
    /// Which path says whether a replica is well; none: nobody asks.
    pub health: Option<String>,
    /// Requests that one replica gets at a time; 0: no limit. The others wait in guard.
    pub concurrency: usize,
    /// How long all attempts of one request may take together, up to its answer's head.
    pub timeout: Duration,
    /// Only count what would have been done.
    pub dry_run: bool,
    /// Whether a replica that has started again gets copies of requests at first.
    pub warm_up: bool,
    /// Where metrics and the status are served.
    pub admin: Option<SocketAddr>,
    /// Threads that serve clients, each with connections of its own.
    pub threads: usize,
    /// How long requests may go on once guard was asked to end.
    pub grace: Duration,
}

impl Options {
    /// Whether the files can be used.
    ///
    /// # Errors
    /// Why one can't be.
    pub fn check_files(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map(towards_clients).transpose()?;
        self.to_replicas().map(drop)
    }

    pub(crate) fn to_replicas(&self) -> Result<Option<ToReplicas>, TlsError> {
        let trust = self.replica_tls.as_ref();
        trust
            .map(|trust| ToReplicas::new(trust, self.replicas_speak_2))
            .transpose()
    }
}

/// How long a connection to a replica may take to be made.
pub(crate) const CONNECT: Duration = Duration::from_secs(1);
/// A client that has not sent a complete head after so long is closed, and so is an idle one.
pub(crate) const HEAD: Duration = Duration::from_secs(60);
