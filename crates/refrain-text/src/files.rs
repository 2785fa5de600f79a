//! Opens tokenizers and chat templates, from an opened checkpoint or from a directory or GGUF file without weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use refrain_formats::{CheckpointFiles, FileSet, TextSource, gguf_in_directory};

use crate::tokenizer::DirectoryFiles;
use crate::{ChatTemplate, Error, Tokenizer, gguf};

impl Tokenizer {
    /// Reads the tokenizer of a checkpoint.
    ///
    /// # Errors
    /// If there is none, if it is damaged or of an unsupported kind, or if its added tokens do not get the ids that
    /// the file states.
    pub fn of(files: &CheckpointFiles) -> Result<Self, Error> {
        tokenizer(files.text_source())
    }
}

impl ChatTemplate {
    /// Reads the chat template of a checkpoint; `None` if it has none.
    ///
    /// # Errors
    /// If the file that holds it is damaged. Syntax errors surface only when the template is rendered.
    pub fn of(files: &CheckpointFiles) -> Result<Option<Self>, Error> {
        chat_template(files.text_source())
    }
}

/// Returns the special tokens of a checkpoint by role (`bos_token`, `eos_token` …), as templates see them.
///
/// # Errors
/// If a file that names them is damaged.
pub fn special_tokens(files: &CheckpointFiles) -> Result<BTreeMap<String, String>, Error> {
    roles(files.text_source())
}

/// Tokenizer and chat template of a directory or GGUF file, of any architecture, with or without weights.
#[derive(Debug, Clone)]
pub struct TokenizerFiles(TokenizerSource);

#[derive(Debug, Clone)]
enum TokenizerSource {
    Directory(FileSet),
    Gguf(Arc<CheckpointFiles>),
}

impl TokenizerFiles {
    /// Opens the directory or GGUF file at `path`. Its contents are read lazily.
    ///
    /// # Errors
    /// If nothing is at `path`, if it is a file but not GGUF, or if the directory holds neither tokenizer nor
    /// template nor GGUF file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let gguf = |path: &Path| Ok(Self(TokenizerSource::Gguf(Arc::new(CheckpointFiles::open(path)?))));
        let metadata = std::fs::metadata(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        if !metadata.is_dir() {
            return gguf(path);
        }
        let set = FileSet::Directory(path.to_owned());
        let known = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
        if known.iter().any(|file| set.has(file)) {
            return Ok(Self(TokenizerSource::Directory(set)));
        }
        match gguf_in_directory(&set)? {
            Some(path) => gguf(&path),
            None => Err(Error::NotACheckpoint {
                path: path.to_owned(),
                reason: format!("holds none of {}", known.join(", ")),
            }),
        }
    }

    /// Reads the tokenizer.
    ///
    /// # Errors
    /// As [`Tokenizer::of`].
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        tokenizer(self.source())
    }

    /// Reads the chat template; `None` if there is none.
    ///
    /// # Errors
    /// If a file that may hold it is damaged.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        chat_template(self.source())
    }

    /// Returns the special tokens by role (`bos_token`, `eos_token` …), as templates see them.
    ///
    /// # Errors
    /// If a file that names them is damaged.
    pub fn special_tokens(&self) -> Result<BTreeMap<String, String>, Error> {
        roles(self.source())
    }

    fn source(&self) -> TextSource<'_> {
        match &self.0 {
            TokenizerSource::Directory(set) => TextSource::Directory(set),
            TokenizerSource::Gguf(files) => files.text_source(),
        }
    }
}

fn tokenizer(source: TextSource<'_>) -> Result<Tokenizer, Error> {
    match source {
        TextSource::Directory(set) => DirectoryFiles { set }.tokenizer(),
        TextSource::Gguf(keys) => gguf::tokenizer(&keys),
        TextSource::Synthetic(name) => {
            let reason = "a synthetic checkpoint has random weights and no tokenizer; what takes \
                          tokens works without (bench, logits, inspect)";
            Err(Error::file(name, reason))
        }
    }
}

fn chat_template(source: TextSource<'_>) -> Result<Option<ChatTemplate>, Error> {
    match source {
        TextSource::Directory(set) => DirectoryFiles { set }.chat_template(),
        TextSource::Gguf(keys) => gguf::chat_template(&keys),
        TextSource::Synthetic(_) => Ok(None),
    }
}

fn roles(source: TextSource<'_>) -> Result<BTreeMap<String, String>, Error> {
    match source {
        TextSource::Directory(set) => DirectoryFiles { set }.special_tokens(),
        TextSource::Gguf(keys) => gguf::special_tokens(&keys),
        TextSource::Synthetic(_) => Ok(BTreeMap::new()),
    }
}
