//! TLS towards clients and replicas. Files are read at the start, and again with each reload.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Files in PEM format.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate, and those that lead to one that clients trust.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Which certificates of replicas are right.
#[derive(Debug, Clone)]
pub struct Trust {
    /// File with certificates in PEM format. One of them signed that of each replica, or is it.
    pub roots: PathBuf,
    /// For which name the replicas' certificates are; none: each for its own address.
    pub name: Option<String>,
}

/// Why a certificate can't be used, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

fn bad(path: &Path, what: &str, why: Error) -> TlsError {
    match why {
        Error::Io(e) => TlsError(format!("can't read {}: {e}", path.display())),
        Error::NoItemsFound => TlsError(format!("there is no {what} in {}", path.display())),
        other => TlsError(format!("{} is not in PEM format: {other}", path.display())),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| bad(path, "certificate", e))?;
    if all.is_empty() {
        return Err(bad(path, "certificate", Error::NoItemsFound));
    }
    Ok(all)
}

/// What accepts clients of TLS 1.2 and 1.3.
///
/// # Errors
/// If a file can't be read, or has no certificate or key, or the two do not belong together.
pub fn towards_clients(files: &Certificate) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.chain)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|e| bad(&files.key, "private key", e))?;
    let refused = |e: tokio_rustls::rustls::Error| {
        TlsError(format!(
            "can't use {} with {}: {e}",
            files.chain.display(),
            files.key.display()
        ))
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// How connections to replicas begin.
#[derive(Debug, Clone)]
pub struct ToReplicas {
    /// Whom it trusts.
    pub config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl ToReplicas {
    /// `speak_2`: the protocol that is offered is HTTP/2, else HTTP/1.1.
    ///
    /// # Errors
    /// If the file can't be read or has no certificate, or the name can't be one of a server.
    pub fn new(trust: &Trust, speak_2: bool) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&trust.roots)? {
            roots
                .add(certificate)
                .map_err(|e| TlsError(format!("can't use {}: {e}", trust.roots.display())))?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let protocol: &[u8] = if speak_2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = trust.name.as_ref().map(|name| {
            ServerName::try_from(name.clone())
                .map_err(|_| TlsError(format!("'{name}' is not the name of a server")))
        });
        Ok(Self {
            config: Arc::new(config),
            name: name.transpose()?,
        })
    }

    /// What the certificate of the replica at this address must be for.
    #[must_use]
    pub fn name(&self, address: SocketAddr) -> ServerName<'static> {
        let name = self.name.clone();
        name.unwrap_or_else(|| ServerName::IpAddress(address.ip().into()))
    }
}
