//! A small HTTP client for questions to a running server: one GET, one short answer.
//!
//! It speaks HTTP/1.1 over TCP, TLS and Unix sockets, and blocks its caller. It never follows redirects.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{platform, tls};

/// The largest response body that is read, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;

/// A byte stream that HTTP is spoken over.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// How to reach a server, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct HttpClient {
    /// The API key that is sent, if the server wants one.
    pub key: Option<String>,
    /// A PEM file with the server's certificate; HTTPS needs it.
    pub certificate: Option<PathBuf>,
    /// The limit of each step: connecting, waiting for the response, reading it.
    pub timeout: Duration,
}

impl HttpClient {
    /// Returns status and body of the response to `GET path`.
    ///
    /// `address` is `http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT` or `unix:PATH`. Blocks the calling thread.
    ///
    /// # Errors
    /// If the server cannot be reached, exceeds the timeout, does not speak HTTP, or shows another certificate.
    pub fn get(&self, address: &str, path: &str) -> io::Result<(u16, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let server = ServerAddress::parse(address)?;
            let stream = self.within_timeout(self.connect(&server)).await?;
            self.exchange(stream, server.host(), path).await
        })
    }

    async fn connect(&self, server: &ServerAddress) -> io::Result<Box<dyn ByteStream>> {
        let ServerAddress::Tcp { host, port, is_secure } = server else {
            let ServerAddress::Unix(path) = server else {
                unreachable!("the other variant")
            };
            return platform::connect(path).await;
        };
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), *port)).await?;
        if !is_secure {
            return Ok(Box::new(stream));
        }
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "its certificate is not known");
        let certificate = self.certificate.as_ref().ok_or_else(unknown)?;
        let stream = tls::connect(stream, host.trim_matches(['[', ']']), certificate).await?;
        Ok(Box::new(stream))
    }

    async fn exchange(&self, stream: Box<dyn ByteStream>, host: &str, path: &str) -> io::Result<(u16, String)> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http_error)?;
        // Ends when the sender is dropped; its errors reach the sender too.
        tokio::spawn(connection);
        let mut request = Request::get(path).header(header::HOST, host);
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request.body(Body::empty()).map_err(io::Error::other)?;
        let response = self
            .within_timeout(async { sender.send_request(request).await.map_err(http_error) })
            .await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect();
        let body = self
            .within_timeout(async { body.await.map_err(io::Error::other) })
            .await?;
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    }

    async fn within_timeout<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        timeout(self.timeout, step)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Names the common fault in plain words: what answers is no HTTP server.
fn http_error(error: hyper::Error) -> io::Error {
    if error.is_parse() || error.is_incomplete_message() {
        io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP")
    } else {
        io::Error::other(error)
    }
}

/// Where a server listens.
#[derive(Debug, PartialEq, Eq)]
enum ServerAddress {
    Unix(PathBuf),
    Tcp { host: String, port: u16, is_secure: bool },
}

impl ServerAddress {
    fn parse(address: &str) -> io::Result<ServerAddress> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(ServerAddress::Unix(path.into()));
        }
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let uri: Uri = address.parse().map_err(|why| invalid(format!("{address}: {why}")))?;
        let is_secure = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(|| invalid(format!("{address}: no host")))?;
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Ok(ServerAddress::Tcp {
            host: host.to_owned(),
            port,
            is_secure,
        })
    }

    /// The value of the `host` header.
    fn host(&self) -> &str {
        match self {
            ServerAddress::Unix(_) => "localhost",
            ServerAddress::Tcp { host, .. } => host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, is_secure: bool) -> ServerAddress {
        ServerAddress::Tcp {
            host: host.to_owned(),
            port,
            is_secure,
        }
    }

    #[test]
    fn parses_the_addresses_that_servers_print() {
        let parse = |address| ServerAddress::parse(address).unwrap();
        assert_eq!(parse("http://127.0.0.1:80/metrics"), tcp("127.0.0.1", 80, false));
        assert_eq!(parse("[::1]:8080"), tcp("[::1]", 8080, false));
        assert_eq!(parse("https://localhost"), tcp("localhost", 443, true));
        assert_eq!(parse("localhost"), tcp("localhost", 80, false));
        assert_eq!(
            parse("unix:/run/refrain.sock"),
            ServerAddress::Unix("/run/refrain.sock".into())
        );
        assert!(ServerAddress::parse("http://").is_err());
    }
}
