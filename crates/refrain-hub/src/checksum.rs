//! The hashes that the hub names file contents by.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// Expected hash of a file's content, in hexadecimal. Also the blob's name in the cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Checksum {
    /// SHA-256 of the content, for large files.
    Sha256(String),
    /// SHA-1 of git's header and the content, for small files.
    GitBlob(String),
}

impl Checksum {
    /// Parses a SHA-256; `None` if the digits are invalid.
    pub fn sha256(digits: &str) -> Option<Self> {
        is_hash(digits, 64).then(|| Self::Sha256(digits.to_owned()))
    }

    /// Parses a git object id; `None` if the digits are invalid.
    pub fn git_blob(digits: &str) -> Option<Self> {
        is_hash(digits, 40).then(|| Self::GitBlob(digits.to_owned()))
    }

    /// The digits.
    pub fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::GitBlob(digits) => digits,
        }
    }

    /// Starts hashing a content of `size` bytes.
    pub fn hasher(&self, size: u64) -> Hasher {
        Hasher(match self {
            Self::Sha256(_) => Context::new(&SHA256),
            Self::GitBlob(_) => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {size}\0").as_bytes());
                context
            }
        })
    }
}

fn is_hash(digits: &str, length: usize) -> bool {
    digits.len() == length && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A hash in progress.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digits of the hash.
    pub fn finish(self) -> String {
        let digest = self.0.finish();
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are from `printf 'hello\n' | git hash-object --stdin` and `printf 'hello\n' | sha256sum`.
    #[test]
    fn hashes_match_git_and_sha256sum() {
        let hash = |kind: Checksum| {
            let mut hasher = kind.hasher(6);
            hasher.update(b"hel");
            hasher.update(b"lo\n");
            hasher.finish() == kind.digits()
        };
        assert!(hash(
            Checksum::git_blob("ce013625030ba8dba906f756967f9e9ca394464a").unwrap()
        ));
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert!(hash(Checksum::sha256(sha256).unwrap()));
    }

    #[test]
    fn rejects_digits_that_are_not_a_hash() {
        assert_eq!(Checksum::sha256("../../etc/passwd"), None);
        assert_eq!(Checksum::git_blob(&"g".repeat(40)), None);
        assert_eq!(Checksum::sha256(&"a".repeat(40)), None);
    }
}
