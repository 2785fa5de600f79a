//! Lists the files of a repository through the hub's model API.

use std::io::Read;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::checksum::Checksum;
use crate::http::{Client, Request, body_error};
use crate::name::{self, ModelName};
use crate::retry::{Backoff, Failure};
use crate::select::File;
use crate::{Error, HubSettings, Watcher};

/// Maximum size of a listing in bytes.
const MAX_LISTING: u64 = 64 << 20;

/// Characters of a path component that are not escaped in a URL.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A repository at one commit.
pub(crate) struct Listing {
    pub commit: String,
    pub files: Vec<File>,
    /// Checksum of each file; `None` if the hub gives no checksum or no size.
    pub checksums: Vec<Option<Checksum>>,
}

#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

/// A file in Git LFS.
#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

/// Requests the listing.
///
/// # Errors
/// If the hub does not respond, has no such model or revision, or denies access.
pub(crate) fn fetch(
    settings: &HubSettings,
    client: &Client,
    name: &ModelName,
    watcher: &dyn Watcher,
) -> Result<Listing, Error> {
    let revision = utf8_percent_encode(name.revision(), PLAIN);
    let url = format!(
        "{}/api/models/{}/revision/{revision}?blobs=true",
        settings.endpoint, name.repo
    );
    let what = match &name.revision {
        Some(revision) => format!("{}@{revision}", name.repo),
        None => name.repo.clone(),
    };
    let request = Request {
        url: &url,
        what: &what,
        repo: &name.repo,
        from: 0,
        to: None,
    };
    let mut backoff = Backoff::new(&what, settings.initial_backoff, watcher);
    loop {
        match attempt(client, &request) {
            Ok(body) => return parse(&what, &body),
            Err(failure) => backoff.wait_after(failure)?,
        }
    }
}

fn attempt(client: &Client, request: &Request<'_>) -> Result<Vec<u8>, Failure> {
    let response = client.get(request)?;
    let mut body = Vec::new();
    let read = response.body.take(MAX_LISTING).read_to_end(&mut body);
    read.map_err(|error| body_error(&error))?;
    Ok(body)
}

fn parse(what: &str, body: &[u8]) -> Result<Listing, Error> {
    let refuse = |reason: String| Error::Response {
        what: what.to_owned(),
        reason,
    };
    let info: Info = serde_json::from_slice(body)
        .map_err(|error| refuse(format!("cannot parse the hub's list of files: {error}")))?;
    if !name::is_commit(&info.sha) {
        return Err(refuse(format!("the hub's commit {:?} is invalid", info.sha)));
    }
    if let Some(sibling) = info.siblings.iter().find(|sibling| !is_safe(&sibling.rfilename)) {
        let path = &sibling.rfilename;
        return Err(refuse(format!(
            "its file {path:?} has a path outside of the repository"
        )));
    }
    let checksums = info
        .siblings
        .iter()
        .map(|sibling| match (&sibling.lfs, &sibling.blob_id, sibling.size) {
            (Some(lfs), _, _) => Checksum::sha256(&lfs.sha256),
            (None, Some(id), Some(_)) => Checksum::git_blob(id),
            _ => None,
        });
    let checksums = checksums.collect();
    let file = |sibling: Sibling| File {
        size: sibling.lfs.map(|lfs| lfs.size).or(sibling.size).unwrap_or(0),
        path: sibling.rfilename,
    };
    Ok(Listing {
        commit: info.sha,
        files: info.siblings.into_iter().map(file).collect(),
        checksums,
    })
}

/// Whether a path stays below its root directory, on every system.
fn is_safe(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(part) && !path.contains(['\\', ':', '\0'])
}

/// URL of a file's content.
pub(crate) fn file_url(endpoint: &str, repo: &str, commit: &str, path: &str) -> String {
    let parts: Vec<String> = path
        .split('/')
        .map(|part| utf8_percent_encode(part, PLAIN).to_string())
        .collect();
    format!("{endpoint}/{repo}/resolve/{commit}/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn listing_has_sizes_and_checksums() {
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let body = format!(
            r#"{{"id": "a/b", "sha": "{COMMIT}", "gated": false, "siblings": [
                {{"rfilename": "config.json", "size": 6, "blobId": "ce013625030ba8dba906f756967f9e9ca394464a"}},
                {{"rfilename": "m.gguf", "size": 9, "blobId": "ce013625030ba8dba906f756967f9e9ca394464a",
                  "lfs": {{"sha256": "{sha256}", "size": 9, "pointerSize": 134}}}},
                {{"rfilename": "README.md"}}]}}"#
        );
        let listing = parse("a/b", body.as_bytes()).unwrap();
        assert_eq!(listing.commit, COMMIT);
        let sizes: Vec<u64> = listing.files.iter().map(|file| file.size).collect();
        assert_eq!(sizes, [6, 9, 0]);
        assert_eq!(
            listing.checksums[0],
            Checksum::git_blob("ce013625030ba8dba906f756967f9e9ca394464a")
        );
        assert_eq!(listing.checksums[1], Checksum::sha256(sha256));
        assert_eq!(listing.checksums[2], None);
    }

    #[test]
    fn rejects_paths_outside_the_cache() {
        for path in ["../x", "/etc/passwd", "a/../b", "a//b", "C:x", "a\\\\b", ""] {
            let body = format!(r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "{path}"}}]}}"#);
            let error = parse("a/b", body.as_bytes()).err().expect(path).to_string();
            assert!(error.contains("path"), "{error}");
        }
        assert!(parse("a/b", br#"{"sha": "../..", "siblings": []}"#).is_err());
        assert!(parse("a/b", b"<html>").is_err());
    }

    #[test]
    fn file_urls_are_escaped() {
        assert_eq!(
            file_url("https://h", "a/b", "c", "d e/f#.gguf"),
            "https://h/a/b/resolve/c/d%20e/f%23.gguf"
        );
    }
}
