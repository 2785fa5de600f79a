//! Asking a server what it says of itself.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::{platform, tls};

/// Bytes of an answer at most: what a server says of itself is short.
const MOST: u64 = 8 << 20;

/// A connection on which a question is asked.
pub(crate) trait ByteStream: Read + Write {
    fn set_patience(&self, patience: Duration) -> io::Result<()>;
}

impl ByteStream for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// Who asks a server.
#[derive(Debug, Clone)]
pub struct Visitor {
    /// A key of the server.
    pub key: Option<String>,
    /// The file with the certificate by which it is known, over HTTPS.
    pub certificate: Option<PathBuf>,
    /// How long each step may take.
    pub patience: Duration,
}

impl Visitor {
    /// Status and body of what the server at `address` (`http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT` or `unix:PATH`)
    /// answers to a GET of `path`.
    ///
    /// # Errors
    /// If it does not answer, not in time or not by HTTP, or shows another certificate.
    pub fn ask(&self, address: &str, path: &str) -> io::Result<(u16, String)> {
        let line = self.connect(address)?;
        line.set_patience(self.patience)?;
        let key = self.key.as_ref();
        let key = key.map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
        let host = if address.starts_with("unix:") {
            "localhost"
        } else {
            authority(address)
        };
        // The older version has no pieces to be put together.
        exchange(line, &format!("GET {path} HTTP/1.0\r\nhost: {host}\r\n{key}\r\n"))
    }

    fn connect(&self, address: &str) -> io::Result<Box<dyn ByteStream>> {
        if let Some(socket) = address.strip_prefix("unix:") {
            return platform::connect(socket.as_ref());
        }
        let is_secure = address.starts_with("https://");
        let line = connect(authority(address), if is_secure { 443 } else { 80 }, self.patience)?;
        if !is_secure {
            return Ok(Box::new(line));
        }
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "its certificate is not known");
        let certificate = self.certificate.as_ref().ok_or_else(unknown)?;
        // The handshake too.
        line.set_patience(self.patience)?;
        Ok(Box::new(tls::connect(
            line,
            host_name(authority(address)),
            certificate,
        )?))
    }
}

/// Sends a request; status and body of the answer.
fn exchange(mut line: Box<dyn ByteStream>, request: &str) -> io::Result<(u16, String)> {
    line.write_all(request.as_bytes())?;
    let mut answer = vec![];
    match line.take(MOST).read_to_end(&mut answer) {
        // Some end a secured connection without a word.
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
        read => drop(read?),
    }
    let answer = String::from_utf8_lossy(&answer);
    let not_http = || io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(not_http)?;
    let status = head.starts_with("HTTP/").then(|| head.split(' ').nth(1)).flatten();
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(not_http)?;
    Ok((status, body.to_owned()))
}

/// `HOST:PORT` of an address.
fn authority(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// The host alone, of an address in six groups without its brackets.
fn host_name(authority: &str) -> &str {
    if let Some((host, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}

fn connect(authority: &str, usual_port: u16, patience: Duration) -> io::Result<TcpStream> {
    let has_port = authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    let found = if has_port {
        authority.to_socket_addrs()?
    } else {
        (host_name(authority), usual_port).to_socket_addrs()?
    };
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for address in found {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(line) => return Ok(line),
            Err(error) => why = error,
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_servers_say() {
        assert_eq!(authority("http://127.0.0.1:80/metrics"), "127.0.0.1:80");
        assert_eq!(authority("[::1]:8080"), "[::1]:8080");
        let names = ["[::1]:8080", "[::1]", "localhost:1", "localhost"].map(host_name);
        assert_eq!(names, ["::1", "::1", "localhost", "localhost"]);
    }
}
