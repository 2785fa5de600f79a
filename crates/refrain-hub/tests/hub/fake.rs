//! A local hub with injectable faults.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ring::digest;
use serde_json::{Value, json};

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Repository name that matches every name.
pub const ANY: &str = "*";
/// Minimum size in bytes of files listed with SHA-256; smaller ones are listed with git's hash.
const LFS_MIN_BYTES: usize = 1000;

/// A fault of one matching request.
#[derive(Debug, Clone)]
pub enum HubFault {
    /// Respond with this status and these headers only.
    Status(u16, &'static str),
    /// Stop sending after this many bytes of the content.
    Stall(usize),
    /// Close the connection after this many bytes of the content.
    Cut(usize),
    /// Change the first byte.
    WrongByte,
    /// Send this many bytes more than listed.
    Longer(usize),
    /// Ignore ranges: send the whole file with status 200.
    NoRanges,
    /// Redirect to this address.
    Elsewhere(String),
    /// Send the content in pieces of this many bytes, one per millisecond.
    Slow(usize),
}

/// A request that the hub has received.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

#[derive(Debug, Default)]
struct HubState {
    repo: String,
    commit: String,
    files: Vec<(String, Vec<u8>)>,
    faults: VecDeque<(String, HubFault)>,
    seen: Vec<SeenRequest>,
    /// Bytes of all response bodies.
    sent_bytes: usize,
}

/// The hub. Serves one repository until the test ends.
pub struct FakeHub {
    pub address: String,
    state: Arc<Mutex<HubState>>,
}

impl FakeHub {
    pub fn new(repo: &str, files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let owned = files
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.to_vec()));
        let state = Arc::new(Mutex::new(HubState {
            repo: repo.to_owned(),
            commit: COMMIT.to_owned(),
            files: owned.collect(),
            ..HubState::default()
        }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                // Some tests close the connection early.
                thread::spawn(move || drop(respond(stream, &state)));
            }
        });
        Self { address, state }
    }

    /// Applies `fault` to the next request whose path contains `part`.
    pub fn fail(&self, part: &str, fault: HubFault) {
        self.state.lock().unwrap().faults.push_back((part.to_owned(), fault));
    }

    /// Replaces the repository's content with another commit's.
    pub fn commit(&self, commit: &str, files: &[(&str, &[u8])]) {
        let mut state = self.state.lock().unwrap();
        state.commit = commit.to_owned();
        state.files = files
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.to_vec()))
            .collect();
    }

    /// Returns the bytes of response bodies since the last call.
    pub fn sent_bytes(&self) -> usize {
        std::mem::take(&mut self.state.lock().unwrap().sent_bytes)
    }

    /// Returns the requests since the last call.
    pub fn take_requests(&self) -> Vec<SeenRequest> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Blob name of a content in the cache.
pub fn etag(content: &[u8]) -> String {
    if content.len() < LFS_MIN_BYTES {
        let text = [format!("blob {}\0", content.len()).as_bytes(), content].concat();
        hex(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref())
    } else {
        hex(digest::digest(&digest::SHA256, content).as_ref())
    }
}

fn listing(state: &HubState) -> Value {
    let file = |(name, content): &(String, Vec<u8>)| {
        let size = content.len();
        if size < LFS_MIN_BYTES {
            json!({"rfilename": name, "size": size, "blobId": etag(content)})
        } else {
            json!({"rfilename": name, "size": size, "blobId": "0".repeat(40),
                            "lfs": {"sha256": etag(content), "size": size, "pointerSize": 134}})
        }
    };
    json!({"id": state.repo, "sha": state.commit, "siblings": state.files.iter().map(file).collect::<Vec<_>>()})
}

fn respond(stream: TcpStream, state: &Mutex<HubState>) -> std::io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let path = request.split(' ').nth(1).unwrap_or("").to_owned();
    let mut seen = SeenRequest {
        path: path.clone(),
        range: None,
        authorization: None,
    };
    for line in lines {
        match line?.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => seen.range = Some(value.to_owned()),
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                seen.authorization = Some(value.to_owned());
            }
            Some(_) => {}
            None => break,
        }
    }
    let range = seen.range.as_deref().and_then(range);
    let (fault, found) = {
        let mut state = state.lock().unwrap();
        state.seen.push(seen);
        let position = state.faults.iter().position(|(part, _)| path.contains(part.as_str()));
        let fault = position
            .and_then(|position| state.faults.remove(position))
            .map(|(_, fault)| fault);
        (fault, content(&state, &path))
    };
    reply(&stream, fault, found, range, state)
}

/// Parses first byte and, if present, last byte.
fn range(text: &str) -> Option<(usize, Option<usize>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()))
}

/// Returns the content at a path.
fn content(state: &HubState, path: &str) -> Option<Vec<u8>> {
    let api = path.strip_prefix("/api/models/");
    let parts: Vec<&str> = api.or(path.strip_prefix('/'))?.splitn(5, '/').collect();
    let (org, name, rest) = (parts.first()?, parts.get(1)?, &parts[2..]);
    if state.repo != ANY && state.repo != format!("{org}/{name}") {
        return None;
    }
    match (api, rest) {
        (Some(_), ["revision", ..]) => Some(listing(state).to_string().into_bytes()),
        (None, ["resolve", commit, file]) if *commit == state.commit => {
            let found = state.files.iter().find(|(known, _)| known == file);
            found.map(|(_, content)| content.clone())
        }
        _ => None,
    }
}

fn reply(
    mut stream: &TcpStream,
    fault: Option<HubFault>,
    found: Option<Vec<u8>>,
    range: Option<(usize, Option<usize>)>,
    state: &Mutex<HubState>,
) -> std::io::Result<()> {
    let head = |status: u16, headers: &str| format!("HTTP/1.1 {status} X\r\nConnection: close\r\n{headers}\r\n");
    let Some(mut content) = found else {
        let missing = head(404, "X-Error-Code: RepoNotFound\r\nContent-Length: 0\r\n");
        return stream.write_all(missing.as_bytes());
    };
    match &fault {
        Some(HubFault::Status(status, headers)) => {
            let headers = format!("Content-Length: 0\r\n{headers}");
            return stream.write_all(head(*status, &headers).as_bytes());
        }
        Some(HubFault::Elsewhere(address)) => {
            let headers = format!("Location: {address}\r\nContent-Length: 0\r\n");
            return stream.write_all(head(302, &headers).as_bytes());
        }
        Some(HubFault::WrongByte) => content[0] ^= 1,
        Some(HubFault::Longer(bytes)) => content.extend(vec![0; *bytes]),
        _ => {}
    }
    let whole = content.len();
    let range = range.filter(|_| !matches!(fault, Some(HubFault::NoRanges)));
    let (from, last) = range.unwrap_or((0, None));
    let to = last.map_or(whole, |last| (last + 1).min(whole));
    let body = &content[from.min(to)..to];
    let headers = match range {
        Some(_) => format!("Content-Range: bytes {from}-{}/{whole}\r\n", to - 1),
        None => String::new(),
    };
    let headers = format!("{headers}Content-Length: {}\r\n", body.len());
    state.lock().unwrap().sent_bytes += body.len();
    stream.write_all(head(if range.is_some() { 206 } else { 200 }, &headers).as_bytes())?;
    match fault {
        Some(HubFault::Cut(bytes)) => stream.write_all(&body[..bytes.min(body.len())]),
        Some(HubFault::Stall(bytes)) => {
            stream.write_all(&body[..bytes.min(body.len())])?;
            thread::sleep(Duration::from_secs(20));
            Ok(())
        }
        Some(HubFault::Slow(piece)) => body.chunks(piece).try_for_each(|piece| {
            thread::sleep(Duration::from_millis(1));
            stream.write_all(piece)
        }),
        _ => stream.write_all(body),
    }
}
