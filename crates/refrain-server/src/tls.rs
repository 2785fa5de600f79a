//! Connections over TLS, by a certificate from a file.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections whose handshake is under way at most, and how long one may take.
const HANDSHAKES: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);

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

/// Gives connections whose handshakes are over, so that none waits for another's.
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    pub fn new(listener: TcpListener, certificate: Certificate) -> TlsListener {
        let (done, ready) = mpsc::channel(1);
        TlsListener {
            ready,
            address: listener.local_addr(),
            accepting: tokio::spawn(accept(listener, certificate, done)),
        }
    }
}

async fn accept(
    mut listener: TcpListener,
    certificate: Certificate,
    done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let acceptor = TlsAcceptor::from(certificate.0);
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let (stream, address) = Listener::accept(&mut listener).await;
        let (handshake, done) = (acceptor.accept(stream), done.clone());
        tokio::spawn(async move {
            let _until_it_is_over = place;
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, handshake).await {
                let _ = done.send((stream, address)).await;
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(why) => Err(why.kind().into()),
        }
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
