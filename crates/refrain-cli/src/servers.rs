//! The user's running servers. Each server holds a lock on a record file in the runtime directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fs4::{FileExt, TryLockError};
use serde_json::{Value, json};

use crate::host;

/// The record file of this process; dropping it removes the file.
pub(crate) struct ServerRecord {
    path: PathBuf,
    _locked: File,
}

impl ServerRecord {
    /// Registers this process as a server. `model` lists the served models, separated by commas. `certificate`
    /// identifies an HTTPS server.
    ///
    /// # Errors
    /// If there is no runtime directory, or it cannot be written.
    pub fn register(model: &str, address: &str, certificate: Option<&Path>) -> io::Result<ServerRecord> {
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
        let record = json!({
            "process": process,
            "model": model,
            "address": address,
            "certificate": certificate,
            "since_unix_s": since,
        });
        file.write_all(record.to_string().as_bytes())?;
        Ok(ServerRecord { path, _locked: file })
    }
}

impl Drop for ServerRecord {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A running server.
#[derive(Debug, Clone)]
pub(crate) struct RunningServer {
    pub process: u32,
    pub model: String,
    pub address: String,
    /// The file with its TLS certificate.
    pub certificate: Option<PathBuf>,
    pub since_unix_s: u64,
    path: PathBuf,
}

impl RunningServer {
    /// All running servers of this user, oldest first. Removes the records of processes that died.
    pub fn all() -> Vec<RunningServer> {
        let files = host::runtime_dir().and_then(|folder| fs::read_dir(folder).ok());
        let paths = files.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut found: Vec<RunningServer> = paths.filter_map(RunningServer::read).collect();
        found.sort_by_key(|server| (server.since_unix_s, server.process));
        found
    }

    fn read(path: PathBuf) -> Option<RunningServer> {
        if path.extension()? != "server" {
            return None;
        }
        let record: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let text = |key: &str| record[key].as_str().map(str::to_owned);
        let server = RunningServer {
            process: record["process"].as_u64()?.try_into().ok()?,
            model: text("model")?,
            address: text("address")?,
            certificate: text("certificate").map(PathBuf::from),
            since_unix_s: record["since_unix_s"].as_u64()?,
            path,
        };
        if server.is_running() {
            return Some(server);
        }
        let _ = fs::remove_file(&server.path);
        None
    }

    /// Whether its process still holds the lock on its record.
    pub fn is_running(&self) -> bool {
        let locked = File::open(&self.path).map(|file| FileExt::try_lock(&file));
        matches!(locked, Ok(Err(TryLockError::WouldBlock)))
    }

    /// Whether `name` is one of its models, its process id, address or port.
    pub fn matches_name(&self, name: &str) -> bool {
        let port = self.address.rsplit(':').next();
        self.model.split(", ").any(|model| model == name)
            || self.model == name
            || self.process.to_string() == name
            || self.address == name
            || port == Some(name)
    }
}
