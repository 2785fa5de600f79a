//! Where clients connect: addresses, and the sockets in the file system that only some systems have.

use std::fmt::{self, Display, Formatter};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(unix)]
use std::os::unix::{
    fs::FileTypeExt,
    net::{UnixListener, UnixStream},
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::connections::Connections;
use crate::visit::ByteStream;

/// A place where clients connect. A socket in the file system goes with it.
#[derive(Debug)]
pub struct Entrance(Listening);

#[derive(Debug)]
enum Listening {
    Address(std::net::TcpListener, SocketAddr),
    #[cfg(unix)]
    Socket(UnixListener, PathBuf),
}

impl Entrance {
    /// At an address; port 0 is any that is free.
    ///
    /// # Errors
    /// If the system does not give it.
    pub fn at(address: impl Into<SocketAddr>) -> io::Result<Entrance> {
        let listener = std::net::TcpListener::bind(address.into())?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok(Entrance(Listening::Address(listener, bound)))
    }

    /// At a socket in the file system, for those who may write to it. One that nobody listens at is replaced.
    ///
    /// # Errors
    /// If somebody listens there, or the system has no such thing.
    #[cfg(unix)]
    pub fn at_socket(path: &Path) -> io::Result<Entrance> {
        let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        if is_socket && UnixStream::connect(path).is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Entrance(Listening::Socket(listener, path.to_owned())))
    }

    /// At a socket in the file system, which this system does not have.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(unix))]
    pub fn at_socket(_: &Path) -> io::Result<Entrance> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Answers whoever connects until it is over.
    pub(crate) async fn answer(&self, connections: &Connections, over: impl Future<Output = ()>) -> io::Result<()> {
        match &self.0 {
            Listening::Address(listener, _) => {
                let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
                connections.answer(listener, of_tcp, over).await;
            }
            #[cfg(unix)]
            Listening::Socket(listener, _) => {
                let listener = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
                connections.answer(listener, |_, _| None, over).await;
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
impl ByteStream for UnixStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// A connection to a socket in the file system.
///
/// # Errors
/// If nobody listens there, or the system has no such thing.
#[cfg(unix)]
pub(crate) fn connect(path: &Path) -> io::Result<Box<dyn ByteStream>> {
    Ok(Box::new(UnixStream::connect(path)?))
}

/// A connection to a socket in the file system, which this system does not have.
#[cfg(not(unix))]
pub(crate) fn connect(_: &Path) -> io::Result<Box<dyn ByteStream>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `HOST:PORT`, or `unix:PATH`.
impl Display for Entrance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Listening::Address(_, bound) => bound.fmt(f),
            #[cfg(unix)]
            Listening::Socket(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(unix)]
impl Drop for Entrance {
    fn drop(&mut self) {
        if let Listening::Socket(_, path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The address behind a connection; what is written to it goes at once.
fn of_tcp(stream: &TcpStream, address: SocketAddr) -> Option<IpAddr> {
    // Each token is a small packet: none shall wait for the one before to be confirmed.
    let _ = stream.set_nodelay(true);
    Some(address.ip())
}
