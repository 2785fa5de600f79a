//! Resolves the MODEL argument and opens the checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use refrain_formats::Description;
use refrain_hub::Outline;
use refrain_models::{Checkpoint, demo};
use refrain_text::{ChatTemplate, Tokenizer, TokenizerFiles};

use crate::hub::MissingFiles;
use crate::{Global, hub};

/// Description of the MODEL argument for error messages.
pub(crate) const MODEL_SYNTAX: &str = "a MODEL is a directory with config.json and safetensors files, a .gguf file (any part of a split one), \
                                a Hugging Face repository (ORG/NAME or ORG/NAME:QUANT), `demo`, or `synthetic:ARCH:FORMAT`";

/// Opens a local checkpoint.
///
/// # Errors
/// If it is not found, damaged or not supported.
pub(crate) fn open(model: &str) -> anyhow::Result<Checkpoint> {
    Checkpoint::named(model, hub::cached)
}

/// Opens a checkpoint, downloading it from the hub if needed.
///
/// # Errors
/// As [`open`], or if the download fails.
pub(crate) fn open_or_pull(global: &Global, model: &str) -> anyhow::Result<Checkpoint> {
    Checkpoint::named(model, |name| hub::cached_or_pulled(global, name))
}

/// Opens a checkpoint for its metadata only. For a hub model that is not downloaded, only the files that describe it
/// are fetched. Its tensors must not be read.
///
/// # Errors
/// As [`open`], or if the hub cannot be reached.
pub(crate) fn describe(global: &Global, model: &str) -> anyhow::Result<DescribedModel> {
    let is_local = model == demo::NAME || model.starts_with("synthetic:") || Path::new(model).exists();
    let outline = if is_local { None } else { hub::outline(global, model)? };
    let (outline, download) = outline.unzip();
    Ok(DescribedModel {
        checkpoint: match &outline {
            Some(outline) => Checkpoint::open(&outline.path)?,
            None => open(model)?,
        },
        download,
        _outline: outline,
    })
}

/// A checkpoint whose weights may not be downloaded.
pub(crate) struct DescribedModel {
    pub checkpoint: Checkpoint,
    /// What is still to download, if anything.
    pub download: Option<MissingFiles>,
    /// The downloaded files. They must outlive the checkpoint, so this field is last.
    _outline: Option<Outline>,
}

/// Metadata of a model that cannot be run, if its files can be read at all.
pub(crate) fn read_description(model: &str) -> Option<Description> {
    let path = match Path::new(model) {
        path if path.exists() => path.to_owned(),
        _ => hub::cached(model).ok()?,
    };
    Description::read(&path).ok()
}

/// Source of a tokenizer and a chat template: a checkpoint, or tokenizer files alone.
pub(crate) enum TokenizerSource {
    Files(TokenizerFiles),
    Checkpoint(Box<Checkpoint>),
}

impl TokenizerSource {
    /// Opens the source.
    ///
    /// # Errors
    /// If there are no such files.
    pub fn open(model: &str) -> anyhow::Result<Self> {
        let is_built_in = model == demo::NAME || model.starts_with("synthetic:");
        let path = match Path::new(model) {
            _ if is_built_in => return Ok(Self::Checkpoint(Box::new(open(model)?))),
            path if path.exists() => path.to_owned(),
            _ => hub::cached(model)?,
        };
        let gguf = path.extension().is_some_and(|extension| extension == "gguf");
        Ok(if path.is_dir() || gguf {
            Self::Files(TokenizerFiles::open(&path)?)
        } else {
            Self::Checkpoint(Box::new(Checkpoint::open(&path)?))
        })
    }

    /// Returns the tokenizer.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn tokenizer(&self) -> anyhow::Result<Tokenizer> {
        Ok(match self {
            Self::Files(files) => files.tokenizer()?,
            Self::Checkpoint(checkpoint) => checkpoint.tokenizer()?,
        })
    }

    /// Returns the model's own chat template.
    ///
    /// # Errors
    /// If there is none, or its file is damaged.
    pub fn chat_template(&self) -> anyhow::Result<ChatTemplate> {
        let template = match self {
            Self::Files(files) => files.chat_template()?,
            Self::Checkpoint(checkpoint) => checkpoint.chat_template()?,
        };
        template.ok_or_else(|| anyhow!("the model has no chat template; give one with --template FILE.jinja"))
    }

    /// Returns the special tokens that templates refer to, such as `bos_token`.
    ///
    /// # Errors
    /// If the tokenizer is damaged.
    pub fn special_tokens(&self) -> anyhow::Result<BTreeMap<String, String>> {
        if let Self::Files(files) = self {
            return Ok(files.special_tokens()?);
        }
        let tokenizer = self.tokenizer()?;
        let ids = [
            ("bos_token", tokenizer.bos_id()),
            ("eos_token", tokenizer.eos_ids().first().copied()),
        ];
        let named = ids
            .into_iter()
            .filter_map(|(role, id)| Some((role.to_owned(), tokenizer.token(id?)?)));
        Ok(named.collect())
    }
}
