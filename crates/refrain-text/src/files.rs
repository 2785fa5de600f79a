//! Where tokenizer and chat template come from: an opened checkpoint, or a directory or GGUF file without the model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use refrain_formats::{CheckpointFiles, FileSet, TextSource, gguf_in_directory};

use crate::tokenizer::DirectoryFiles;
use crate::{ChatTemplate, Error, Tokenizer, gguf};

impl Tokenizer {
    /// The tokenizer of a checkpoint.
    ///
    /// # Errors
    /// If there is none, it is damaged or of a kind that is not supported, or its added tokens do not have the ids that
    /// the file says.
    pub fn of(files: &CheckpointFiles) -> Result<Self, Error> {
        tokenizer(files.text_source())
    }
}

impl ChatTemplate {
    /// The chat template of a checkpoint, `None` if there is none.
    ///
    /// # Errors
    /// If the file that holds it is damaged. Whether it parses is seen when it is rendered.
    pub fn of(files: &CheckpointFiles) -> Result<Option<Self>, Error> {
        chat_template(files.text_source())
    }
}

/// The special tokens of a checkpoint that have a role (`bos_token`, `eos_token` …), as templates see them.
///
/// # Errors
/// If a file that names them is damaged.
pub fn special_tokens(files: &CheckpointFiles) -> Result<BTreeMap<String, String>, Error> {
    roles(files.text_source())
}

/// Tokenizer and chat template of a directory or of a GGUF file, of whatever architecture, with or without weights.
#[derive(Debug, Clone)]
pub struct TokenizerFiles(TokenizerSource);

#[derive(Debug, Clone)]
enum TokenizerSource {
    Directory(FileSet),
    Gguf(Arc<CheckpointFiles>),
}

impl TokenizerFiles {
    /// Those of the directory or GGUF file at `path`. They are read when asked for.
    ///
    /// # Errors
    /// If there is nothing at `path`, it is a directory with neither tokenizer nor template nor GGUF file, or no GGUF
    /// file.
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

    /// The tokenizer.
    ///
    /// # Errors
    /// As [`Tokenizer::of`].
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        tokenizer(self.source())
    }

    /// The chat template, `None` if there is none.
    ///
    /// # Errors
    /// If a file that may hold it is damaged.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        chat_template(self.source())
    }

    /// The special tokens that have a role (`bos_token`, `eos_token` …), as templates see them.
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
