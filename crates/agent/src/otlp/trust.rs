//! Whom a collector's certificate must be signed by, and what to say when it is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{CertificateError, RootCertStore};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// There is nobody to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// `ca_file` is not to be had.
    #[error("can't read {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// `ca_file` is no such file.
    #[error("{path} has {what}: it must be PEM, with -----BEGIN CERTIFICATE-----")]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system has none.
    #[error(
        "can't check the collector's certificate: the system has no certificates; \
         apt-get install ca-certificates, or set ca_file under [otlp]{0}"
    )]
    System(String),
}

/// How connections are made. A certificate must be signed by somebody in `ca_file`; without one, by
/// somebody whom the system trusts.
pub(super) fn tls(is_encrypted: bool, ca_file: Option<&Path>) -> Result<TlsConfig, TrustError> {
    let roots = match ca_file {
        _ if !is_encrypted => Vec::new(),
        Some(path) => of_file(path)?,
        None => of_system()?,
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

/// The certificates in a file, each of which can be used.
pub(crate) fn of_file(path: &Path) -> Result<Vec<Certificate<'static>>, TrustError> {
    let text = fs::read(path).map_err(|source| TrustError::File {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |what: String| TrustError::Content {
        path: path.to_owned(),
        what,
    };
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(one) =
            item.map_err(|e| wrong(format!("a broken part ({e})")))?
        {
            RootCertStore::empty()
                .add(one.der().to_vec().into())
                .map_err(|e| wrong(format!("a certificate that can't be used ({e})")))?;
            found.push(one);
        }
    }
    if found.is_empty() {
        return Err(wrong("no certificate".into()));
    }
    Ok(found)
}

/// Those that the system trusts. One that is broken is left out, as everybody does.
fn of_system() -> Result<Vec<Certificate<'static>>, TrustError> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        let why = loaded.errors.first().map(|e| format!(" ({e})"));
        return Err(TrustError::System(why.unwrap_or_default()));
    }
    let certificates = loaded.certs.iter();
    Ok(certificates
        .map(|one| Certificate::from_der(one).to_owned())
        .collect())
}

/// Why a request did not come through, for people.
pub(super) fn why(error: &ureq::Error) -> String {
    let of_tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    match of_tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its certificate has an unknown issuer; \
             set ca_file under [otlp] to the issuer's certificate"
                .into()
        }
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("its certificate is not valid: {why}")
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "it does not use TLS; check whether the endpoint is http://".into()
        }
        Some(why) => format!("TLS failed: {why}"),
        None => error.to_string(),
    }
}
