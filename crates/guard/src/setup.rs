//! What a reload replaces as a whole: the settings, and what was made from them.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;

use crate::options::Options;
use crate::replica::Fleet;
use crate::target::Target;
use crate::tls::ToReplicas;

/// The settings that hold now.
#[derive(Debug)]
pub struct Setup {
    pub(crate) options: Options,
    pub(crate) fleet: Arc<Fleet>,
    /// Towards clients.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) to_replicas: Option<ToReplicas>,
    /// For each address, the sockets that listen there: one for each thread.
    pub(crate) listeners: Vec<Listeners>,
}

/// The sockets that listen on one address.
pub(crate) type Listeners = (SocketAddr, Vec<Arc<TcpListener>>);

impl Setup {
    /// Its replicas, each in its slot.
    pub(crate) fn targets(&self) -> Vec<(u32, Target)> {
        let replicas = self.fleet.replicas().iter();
        replicas
            .map(|one| (one.slot as u32, Target::Address(one.address)))
            .collect()
    }
}
