//! The servers that a user runs on this computer: each has a file with what is to be known of it, locked as long as it runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fs4::{FileExt, TryLockError};
use serde_json::{Value, json};

use crate::host;

/// The file of this process as a server; it goes with this.
pub(crate) struct ServerNote {
    path: PathBuf,
    _locked: File,
}

impl ServerNote {
    /// Notes that models are served at an address; several are named with commas between. Over HTTPS it is known by a
    /// certificate.
    ///
    /// # Errors
    /// If there is no place for such files.
    pub fn leave(model: &str, address: &str, certificate: Option<&Path>) -> io::Result<ServerNote> {
        let folder = host::runtime_dir().ok_or(io::ErrorKind::NotFound)?;
        fs::create_dir_all(&folder)?;
        let process = std::process::id();
        let path = folder.join(format!("{process}.server"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        FileExt::try_lock(&file).map_err(io::Error::other)?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let certificate = certificate.and_then(|path| path.canonicalize().ok());
        let said = json!({
            "process": process,
            "model": model,
            "address": address,
            "certificate": certificate,
            "since_unix_s": since,
        });
        file.write_all(said.to_string().as_bytes())?;
        Ok(ServerNote { path, _locked: file })
    }
}

impl Drop for ServerNote {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A server that runs.
#[derive(Debug, Clone)]
pub(crate) struct RunningServer {
    pub process: u32,
    pub model: String,
    pub address: String,
    /// The file with the certificate that it shows.
    pub certificate: Option<PathBuf>,
    pub since_unix_s: u64,
    path: PathBuf,
}

impl RunningServer {
    /// All of the user's on this computer, the first started first. Files of those that were killed are removed.
    pub fn all() -> Vec<RunningServer> {
        let files = host::runtime_dir().and_then(|folder| fs::read_dir(folder).ok());
        let paths = files.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut found: Vec<RunningServer> = paths.filter_map(RunningServer::of).collect();
        found.sort_by_key(|server| (server.since_unix_s, server.process));
        found
    }

    fn of(path: PathBuf) -> Option<RunningServer> {
        if path.extension()? != "server" {
            return None;
        }
        let said: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        let server = RunningServer {
            process: said["process"].as_u64()?.try_into().ok()?,
            model: text("model")?,
            address: text("address")?,
            certificate: text("certificate").map(PathBuf::from),
            since_unix_s: said["since_unix_s"].as_u64()?,
            path,
        };
        if server.is_running() {
            return Some(server);
        }
        let _ = fs::remove_file(&server.path);
        None
    }

    /// Whether its process still has its file.
    pub fn is_running(&self) -> bool {
        let locked = File::open(&self.path).map(|file| FileExt::try_lock(&file));
        matches!(locked, Ok(Err(TryLockError::WouldBlock)))
    }

    /// Whether `name` is one of its models, its process, address or port.
    pub fn is_called(&self, name: &str) -> bool {
        let port = self.address.rsplit(':').next();
        self.model.split(", ").any(|model| model == name)
            || self.model == name
            || self.process.to_string() == name
            || self.address == name
            || port == Some(name)
    }
}
