//! Connections over TLS, by a certificate from a file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a server shows to those who connect.
#[derive(Debug, Clone)]
pub struct Certificate(Arc<ServerConfig>);

impl Certificate {
    /// From files in PEM's form: the certificate with those that vouch for it, and its private key.
    ///
    /// # Errors
    /// A file that cannot be read or is of another form; a key that is not the certificate's.
    pub fn open(chain: &Path, key: &Path) -> Result<Certificate, CertificateError> {
        let read = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = read.map_err(|why| CertificateError::of(chain, "certificate", why))?;
        if certificates.is_empty() {
            return Err(CertificateError::of(chain, "certificate", pem::Error::NoItemsFound));
        }
        let private = PrivateKeyDer::from_pem_file(key);
        let private = private.map_err(|why| CertificateError::of(key, "private key", why))?;
        let provider = rustls::crypto::ring::default_provider();
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, private)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Certificate(Arc::new(config)))
    }

    /// What comes over `stream` once both know each other.
    pub(crate) async fn shake_hands<I>(&self, stream: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.0.clone()).accept(stream).await
    }
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file that cannot be read, or is damaged.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: pem::Error,
    },
    /// A file of something else.
    #[error("{path} holds no {what} in PEM's form")]
    Missing {
        /// The file.
        path: String,
        /// What was looked for.
        what: &'static str,
    },
    /// A certificate that does not fit its key, or is none.
    #[error("the certificate cannot be used with this key: {0}")]
    Unfit(#[from] rustls::Error),
}

impl CertificateError {
    fn of(path: &Path, what: &'static str, why: pem::Error) -> CertificateError {
        let path = path.display().to_string();
        match why {
            pem::Error::NoItemsFound => CertificateError::Missing { path, what },
            why => CertificateError::Unreadable { path, why },
        }
    }
}
