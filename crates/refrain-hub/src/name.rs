//! Model names: `ORG/NAME[:QUANT][@REVISION]`.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::select::DEFAULT_QUANTS;

/// The default branch.
pub(crate) const DEFAULT_REVISION: &str = "main";

/// A model on the hub: repository, quantisation and revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// `ORG/NAME`, or `NAME` alone for a cached model.
    pub repo: String,
    /// Quantisation of a GGUF file, such as `Q4_K_M`, or its file name. Case-insensitive.
    pub quant: Option<String>,
    /// Branch, tag or commit; `None` means `main`.
    pub revision: Option<String>,
}

impl ModelName {
    /// Whether the name includes the organisation, which the hub requires.
    pub fn is_full(&self) -> bool {
        self.repo.contains('/')
    }

    /// Branch, tag or commit; `main` by default.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(DEFAULT_REVISION)
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(quant) = &self.quant {
            write!(f, ":{quant}")?;
        }
        match &self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ModelName {
    type Err = Error;

    /// Parses a name. Accepts addresses of the hub's pages, as copied from a browser: of a repository, of its files at
    /// a revision (`/tree/REVISION`), and of one file (`/blob/REVISION/FILE` and `/resolve/REVISION/FILE`).
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Name {
            name: text.to_owned(),
            reason: reason.to_owned(),
        };
        let name = page(text).unwrap_or(text);
        if let Some(parsed) = from_page(name) {
            return parsed
                .to_string()
                .parse()
                .map_err(|_| refuse("not the address of a model's page"));
        }
        let (name, revision) = match name.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (name, None),
        };
        let (repo, quant) = match name.split_once(':') {
            Some((repo, quant)) => (repo, Some(quant)),
            None => (name, None),
        };
        let parts: Vec<&str> = repo.split('/').collect();
        if parts.len() > 2 {
            return Err(refuse("more than one slash"));
        }
        if !parts.iter().all(|part| is_part(part)) {
            return Err(refuse(
                "organisation and name may have letters and digits, with single - . _ between them",
            ));
        }
        if quant.is_some_and(|quant| quant.is_empty() || !quant.chars().all(is_plain)) {
            return Err(refuse(&format!(
                "the colon must be followed by a quantisation such as {}, or the name of a .gguf file",
                DEFAULT_QUANTS[0]
            )));
        }
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return Err(refuse("the @ must be followed by a branch, a tag or a commit"));
        }
        Ok(Self {
            repo: repo.to_owned(),
            quant: quant.map(str::to_owned),
            revision: revision.map(str::to_owned),
        })
    }
}

/// Returns the path of an address of the hub, without query and fragment.
fn page(text: &str) -> Option<&str> {
    let without_scheme = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let path = ["huggingface.co/", "www.huggingface.co/", "hf.co/"]
        .iter()
        .find_map(|host| without_scheme.unwrap_or(text).strip_prefix(host))?;
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some(path.trim_end_matches('/'))
}

/// Whether the text is the address of a page of the hub.
pub fn is_hub_address(text: &str) -> bool {
    page(text).is_some() || from_page(text).is_some()
}

/// Reads the path of a page about a repository's files. A GGUF file selects that quantisation; other files stand for
/// the repository.
fn from_page(path: &str) -> Option<ModelName> {
    let path = path.split(['?', '#']).next()?.trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    let [organisation, name, kind, revision, rest @ ..] = &parts[..] else {
        return None;
    };
    // Of a name such as `a/b@feature/tree/x`, all behind the @ is the revision.
    if name.contains(['@', ':']) {
        return None;
    }
    let file = match *kind {
        "tree" | "commit" => None,
        "blob" | "resolve" | "raw" => Some(rest.last()?),
        _ => return None,
    };
    let is_gguf = |file: &&&str| file.to_ascii_lowercase().ends_with(".gguf");
    let revision = revision.replace("%2F", "/").replace("%2f", "/");
    Some(ModelName {
        repo: format!("{organisation}/{name}"),
        quant: file.filter(is_gguf).map(|file| (*file).to_owned()),
        revision: Some(revision).filter(|revision| revision != DEFAULT_REVISION),
    })
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// Checks the hub's rule for the two parts of a repository's name. `--` is excluded because it separates them in the
/// cache.
fn is_part(part: &str) -> bool {
    let ends_well = |part: &str| !part.ends_with(['-', '.']) && !part.starts_with(['-', '.']);
    !part.is_empty()
        && part.len() <= 96
        && part.chars().all(is_plain)
        && ends_well(part)
        && !part.contains("--")
        && !part.contains("..")
}

/// Checks a revision, which becomes a path below `refs`.
fn is_revision(revision: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain);
    revision.split('/').all(part)
}

/// Whether the text is a full commit hash.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<String>, Option<String>) {
        let name: ModelName = text.parse().unwrap();
        (name.repo, name.quant, name.revision)
    }

    #[test]
    fn parses_repository_quantisation_and_revision() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("Qwen/Qwen3-0.6B"), ("Qwen/Qwen3-0.6B".into(), None, None));
        assert_eq!(parts("a/b:q8_0"), ("a/b".into(), some("q8_0"), None));
        assert_eq!(parts("a/b@refs/pr/1"), ("a/b".into(), None, some("refs/pr/1")));
        assert_eq!(
            parts("b:x-Q5_K_M.gguf@v1.0"),
            ("b".into(), some("x-Q5_K_M.gguf"), some("v1.0"))
        );
        assert_eq!(parts("hf.co/a/b:Q4_0").0, "a/b");
        assert_eq!(parts("https://huggingface.co/a/b").0, "a/b");
    }

    #[test]
    fn parses_addresses_of_pages() {
        for (address, name) in [
            ("https://huggingface.co/a/b/", "a/b"),
            ("http://huggingface.co/a/b?library=transformers#files", "a/b"),
            ("https://huggingface.co/a/b/tree/main", "a/b"),
            ("a/b/tree/main", "a/b"),
            ("hf.co/a/b/tree/main/", "a/b"),
            ("https://huggingface.co/a/b/tree/v1.0/sub/folder", "a/b@v1.0"),
            ("https://huggingface.co/a/b/tree/refs%2Fpr%2F1", "a/b@refs/pr/1"),
            ("https://huggingface.co/a/b/commit/0123abc", "a/b@0123abc"),
            (
                "https://huggingface.co/a/b/blob/main/x-Q4_K_M.gguf",
                "a/b:x-Q4_K_M.gguf",
            ),
            ("a/b/blob/main/x-Q4_K_M.gguf", "a/b:x-Q4_K_M.gguf"),
            ("https://hf.co/a/b/resolve/v2/Q8/x.GGUF?download=true", "a/b:x.GGUF@v2"),
            ("https://huggingface.co/a/b/blob/main/config.json", "a/b"),
        ] {
            assert!(is_hub_address(address), "{address}");
            assert_eq!(address.parse::<ModelName>().unwrap().to_string(), name, "{address}");
        }
        for other in ["a/b", "models/tree/x", "./a/b/tree/main", "/a/b/blob/main/x.gguf"] {
            assert!(!is_hub_address(other) || other.parse::<ModelName>().is_err(), "{other}");
        }
        assert_eq!(parts("a/b@feature/tree/x").2.unwrap(), "feature/tree/x");
    }

    #[test]
    fn display_round_trips() {
        for text in ["a/b", "a/b:Q4_0", "a/b@v1", "a/b:Q4_0@v1"] {
            assert_eq!(text.parse::<ModelName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rejects_names_that_could_leave_the_cache() {
        for text in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a/b/tree",
            "a/b/tree/../x",
            "a/b/blob/main",
            "../b/tree/main",
            "https://huggingface.co/datasets/a/b",
            "https://huggingface.co/a/b/discussions/1",
            "../b",
            "a/..",
            "a--b/c",
            "a/b--c",
            "a b/c",
            "a/b:",
            "a/b:x/y",
            "a/b@",
            "a/b@../x",
            "a/b@x//y",
            "a\\b",
            "a/b@.x",
            "https://example.org/a/b",
            "-a/b",
        ] {
            assert!(text.parse::<ModelName>().is_err(), "{text}");
        }
    }
}
