//! TLS: the server's certificate, and a client that trusts one certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

/// A server's certificate with its private key.
#[derive(Debug, Clone)]
pub struct Certificate(Arc<ServerConfig>);

impl Certificate {
    /// Reads PEM files: the certificate with its chain, and its private key.
    ///
    /// # Errors
    /// A file that cannot be read or is not PEM, or a key of another certificate.
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

    /// Performs the TLS handshake with a client.
    pub(crate) async fn accept<I>(&self, stream: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.0.clone()).accept(stream).await
    }
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read, or is damaged.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: pem::Error,
    },
    /// A file holds no certificate or key.
    #[error("{path} holds no {what} in PEM's form")]
    Missing {
        /// The file.
        path: String,
        /// What was looked for.
        what: &'static str,
    },
    /// The certificate is invalid, or does not match its key.
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

/// Connects to the server at `host` over `stream`. The server must have the first certificate of the file
/// `certificate`, whoever signed it.
///
/// # Errors
/// A file without a certificate, or a server with another one.
pub(crate) async fn connect(
    stream: TcpStream,
    host: &str,
    certificate: &Path,
) -> io::Result<client::TlsStream<TcpStream>> {
    let expected = CertificateDer::from_pem_file(certificate)
        .map_err(|why| io::Error::other(CertificateError::of(certificate, "certificate", why)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let known = KnownCertificate {
        expected,
        algorithms: provider.signature_verification_algorithms,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(known))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Trusts one certificate and no other.
#[derive(Debug)]
struct KnownCertificate {
    expected: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for KnownCertificate {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *shown == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("it shows another certificate".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
