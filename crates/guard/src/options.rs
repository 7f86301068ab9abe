//! What a guard is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::tls::{TlsError, acceptor};

/// The choices of a running guard.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// Whether each client's connection begins with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// What clients of TLS are shown; none: clients do not use TLS.
    pub tls: Option<Certificate>,
    /// The servers that answer.
    pub replicas: Vec<SocketAddr>,
    /// Whether they speak HTTP/2 without TLS; otherwise HTTP/1.1.
    pub replicas_speak_2: bool,
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
    /// Where metrics and the status are served.
    pub admin: Option<SocketAddr>,
    /// Threads that serve clients, each with connections of its own.
    pub threads: usize,
}

/// Files in PEM format.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate, and those that lead to one that clients trust.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Certificate {
    /// Whether it can be used.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn check(&self) -> Result<(), TlsError> {
        acceptor(self).map(drop)
    }
}

/// How long a connection to a replica may take to be made.
pub(crate) const CONNECT: Duration = Duration::from_secs(1);
/// A client that has not sent a complete head after so long is closed, and so is an idle one.
pub(crate) const HEAD: Duration = Duration::from_secs(60);
/// How long requests may go on once guard was asked to end.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
