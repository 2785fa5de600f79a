//! Names of models: `ORG/NAME[:QUANT][@REVISION]`.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::select::DEFAULT_QUANTS;

/// The branch that a name without revision means.
pub(crate) const DEFAULT_REVISION: &str = "main";

/// A model of the hub: its repository, and which of its files at which revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// `ORG/NAME`, or `NAME` alone for a model that is in the cache.
    pub repo: String,
    /// Which GGUF file: its quantisation, such as `Q4_K_M`, or its file name. In any case of letters.
    pub quant: Option<String>,
    /// Branch, tag or commit; `None` means `main`.
    pub revision: Option<String>,
}

impl ModelName {
    /// Whether the organisation is named too, as the hub needs it.
    pub fn is_full(&self) -> bool {
        self.repo.contains('/')
    }

    /// The branch, tag or commit.
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

    /// Reads a name. The hub's address may stand before it, as it is copied from a browser.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Name {
            name: text.to_owned(),
            reason: reason.to_owned(),
        };
        let without_scheme = text.strip_prefix("https://").unwrap_or(text);
        let name = ["huggingface.co/", "hf.co/"]
            .iter()
            .find_map(|host| without_scheme.strip_prefix(host))
            .unwrap_or(text);
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
            return Err(refuse("it has more than one slash"));
        }
        if !parts.iter().all(|part| is_part(part)) {
            return Err(refuse(
                "organisation and name consist of letters, digits, and single - . _ between them",
            ));
        }
        if quant.is_some_and(|quant| quant.is_empty() || !quant.chars().all(is_plain)) {
            return Err(refuse(&format!(
                "after the colon stands a quantisation such as {}, or the name of a .gguf file",
                DEFAULT_QUANTS[0]
            )));
        }
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return Err(refuse("after the @ stands a branch, a tag or a commit"));
        }
        Ok(Self {
            repo: repo.to_owned(),
            quant: quant.map(str::to_owned),
            revision: revision.map(str::to_owned),
        })
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// The hub's rule for the two parts of a repository's name; `--` separates them in the cache.
fn is_part(part: &str) -> bool {
    let ends_well = |part: &str| !part.ends_with(['-', '.']) && !part.starts_with(['-', '.']);
    !part.is_empty()
        && part.len() <= 96
        && part.chars().all(is_plain)
        && ends_well(part)
        && !part.contains("--")
        && !part.contains("..")
}

/// What may be a path below `refs`, too.
fn is_revision(revision: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain);
    revision.split('/').all(part)
}

/// Whether it is the full hash of a commit.
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
    fn names_have_a_repository_and_may_have_quantisation_and_revision() {
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
    fn a_name_is_written_as_it_is_read() {
        for text in ["a/b", "a/b:Q4_0", "a/b@v1", "a/b:Q4_0@v1"] {
            assert_eq!(text.parse::<ModelName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_could_leave_the_cache_is_no_name() {
        for text in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
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
