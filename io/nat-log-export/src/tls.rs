//! TLS to a collector of syslog (RFC 5425).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// The trusted authorities and this node's certificate. The files are read for each connection, so
/// a renewed certificate is used from the next one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Authorities for the collector's certificate, PEM.
    pub ca: PathBuf,
    /// This node's certificate and its key, PEM; `None`: no client certificate is sent.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Name in the collector's certificate; `None`: the host of its address.
    pub server_name: Option<String>,
}

/// Reasons why the files of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {} {}: {source}: give a PEM file", .what, path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} has no certificate: give a PEM file with one", .0.display())]
    NoCertificate(PathBuf),
    #[error("`{0}` can be no name in a certificate: give a host name or an IP address")]
    Name(String),
    #[error("certificate and key do not fit TLS: {0}")]
    Refused(#[from] rustls::Error),
}

/// Reads the files and makes the client's configuration.
///
/// # Errors
/// Names the faulty file.
pub(crate) fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the authorities", &options.ca)? {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match &options.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("our certificate", certificate)?;
            let failed = |source| file_error("the key", key, source);
            let key = PrivateKeyDer::from_pem_file(key).map_err(failed)?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    Ok(Arc::new(config))
}

/// Returns the name that the collector's certificate must have.
///
/// # Errors
/// If the name cannot be in a certificate.
pub(crate) fn server_name(
    options: &TlsOptions,
    address: &str,
) -> Result<ServerName<'static>, TlsError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = options.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| file_error(what, path, source);
    let certificates = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(certificates)
}

fn file_error(what: &'static str, path: &Path, error: pem::Error) -> TlsError {
    let source = match error {
        pem::Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    };
    TlsError::File { what, path: path.to_owned(), source }
}
