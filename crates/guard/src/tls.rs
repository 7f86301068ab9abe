//! TLS towards clients: the certificate is read once, at the start.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::options::Certificate;

/// Why a certificate can't be used, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// What accepts clients of TLS 1.2 and 1.3.
///
/// # Errors
/// If a file can't be read, or has no certificate or key, or the two do not belong together.
pub fn acceptor(files: &Certificate) -> Result<TlsAcceptor, TlsError> {
    let bad = |path: &Path, what: &str, why: Error| match why {
        Error::Io(e) => TlsError(format!("can't read {}: {e}", path.display())),
        Error::NoItemsFound => TlsError(format!("there is no {what} in {}", path.display())),
        other => TlsError(format!("{} is not in PEM format: {other}", path.display())),
    };
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| bad(&files.chain, "certificate", e))?;
    if chain.is_empty() {
        return Err(bad(&files.chain, "certificate", Error::NoItemsFound));
    }
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
    Ok(TlsAcceptor::from(Arc::new(config)))
}
