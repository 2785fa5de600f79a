//! Where clients connect: TCP addresses, and Unix sockets on the systems that have them.

use std::fmt::{self, Display, Formatter};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(unix)]
use std::os::unix::{
    fs::{FileTypeExt, PermissionsExt},
    net::{UnixListener, UnixStream},
};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::connections::Connections;
use crate::http_client::ByteStream;

/// A socket that clients connect to. Dropping it removes a Unix socket's file.
#[derive(Debug)]
pub struct ServerListener(ListeningSocket);

#[derive(Debug)]
enum ListeningSocket {
    Tcp(std::net::TcpListener, SocketAddr),
    #[cfg(unix)]
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; dropping it removes the file.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl ServerListener {
    /// Listens at an address; port 0 picks a free port.
    ///
    /// # Errors
    /// If the address is in use or not available.
    pub fn at(address: impl Into<SocketAddr>) -> io::Result<ServerListener> {
        let listener = std::net::TcpListener::bind(address.into())?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok(ServerListener(ListeningSocket::Tcp(listener, bound)))
    }

    /// Listens at a Unix socket, which only this user may connect to. Replaces a socket that nobody listens at.
    ///
    /// # Errors
    /// If another server listens there, the file cannot be made, or the system has no Unix sockets.
    #[cfg(unix)]
    pub fn at_socket(path: &Path) -> io::Result<ServerListener> {
        let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        if is_socket && UnixStream::connect(path).is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused) {
            std::fs::remove_file(path)?;
        }
        let listener = bind_private(path)?;
        listener.set_nonblocking(true)?;
        Ok(ServerListener(ListeningSocket::Unix(
            listener,
            SocketFile(path.to_owned()),
        )))
    }

    /// Fails: this system has no Unix sockets.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(unix))]
    pub fn at_socket(_: &Path) -> io::Result<ServerListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether it listens at a loopback address, which only programs of this computer reach.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(&self.0, ListeningSocket::Tcp(_, bound) if bound.ip().is_loopback())
    }

    /// Serves clients until `stop` is ready. From then on, new connections are refused.
    pub(crate) async fn serve(self, connections: &Connections, stop: impl Future<Output = ()>) -> io::Result<()> {
        match self.0 {
            ListeningSocket::Tcp(listener, _) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                connections.serve(listener, (), of_tcp, stop).await;
            }
            #[cfg(unix)]
            ListeningSocket::Unix(listener, file) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                connections.serve(listener, file, |_, _| None, stop).await;
            }
        }
        Ok(())
    }
}

/// Binds a socket that nobody else may connect to, not even before its mode is set: it is made in a directory of
/// its own and moved into place.
#[cfg(unix)]
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent
        .unwrap_or(Path::new("."))
        .join(format!(".{:x}", std::process::id()));
    let bound = std::fs::DirBuilder::new().create(&folder).and_then(|()| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        let socket = folder.join("s");
        let listener = UnixListener::bind(&socket)?;
        let placed = std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))
            .and_then(|()| std::fs::rename(&socket, path));
        if placed.is_err() {
            let _ = std::fs::remove_file(&socket);
        }
        placed.map(|()| listener)
    });
    let _ = std::fs::remove_dir(&folder);
    bound
}

/// Connects to a Unix socket.
///
/// # Errors
/// If nobody listens there, or the system has no Unix sockets.
#[cfg(unix)]
pub(crate) async fn connect(path: &Path) -> io::Result<Box<dyn ByteStream>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

/// Fails: this system has no Unix sockets.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub(crate) async fn connect(_: &Path) -> io::Result<Box<dyn ByteStream>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `HOST:PORT`, or `unix:PATH`.
impl Display for ServerListener {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ListeningSocket::Tcp(_, bound) => bound.fmt(f),
            #[cfg(unix)]
            ListeningSocket::Unix(_, file) => write!(f, "unix:{}", file.0.display()),
        }
    }
}

/// A client's connection.
pub(crate) trait ClientSocket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether the system reported an error, such as a reset by the client, since the last call.
    fn has_error(&self) -> bool;
}

impl ClientSocket for TcpStream {
    fn has_error(&self) -> bool {
        self.take_error().is_ok_and(|error| error.is_some())
    }
}

#[cfg(unix)]
impl ClientSocket for tokio::net::UnixStream {
    fn has_error(&self) -> bool {
        self.take_error().is_ok_and(|error| error.is_some())
    }
}

impl<I: ClientSocket> ClientSocket for tokio_rustls::server::TlsStream<I> {
    fn has_error(&self) -> bool {
        self.get_ref().0.has_error()
    }
}

/// Returns the address behind a connection, and makes the socket send without delay.
fn of_tcp(stream: &TcpStream, address: SocketAddr) -> Option<IpAddr> {
    // Each token is a small packet. None may wait until the previous one is confirmed.
    let _ = stream.set_nodelay(true);
    Some(address.ip())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_is_private_and_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("refrain-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("refrain.sock");
        let listener = ServerListener::at_socket(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        assert!(ServerListener::at_socket(&path).is_err(), "it is in use");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        drop(listener);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }
}
