//! Opening what the command line calls MODEL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use refrain_formats::Description;
use refrain_hub::Outline;
use refrain_models::Checkpoint;
use refrain_text::{ChatTemplate, Tokenizer, TokenizerFiles};

use crate::hub::MissingFiles;
use crate::{Global, demo, hub};

/// What MODEL may be, for messages.
pub(crate) const KINDS: &str = "a MODEL is a directory with config.json and safetensors files, a .gguf file (any part of a split one), \
                                a name on the Hugging Face hub (ORG/NAME or ORG/NAME:QUANT), `demo`, or `synthetic:ARCH:FORMAT`";

/// Opens a checkpoint that is on this computer.
///
/// # Errors
/// If there is none, or it is damaged or not supported.
pub(crate) fn open(model: &str) -> anyhow::Result<Checkpoint> {
    open_from(model, hub::cached)
}

/// Opens a checkpoint; one of the hub is downloaded if it is not here yet.
///
/// # Errors
/// As [`open`], or if the download fails.
pub(crate) fn open_or_pull(global: &Global, model: &str) -> anyhow::Result<Checkpoint> {
    open_from(model, |name| hub::cached_or_pulled(global, name))
}

/// Opens a checkpoint to look at its description alone: of a model of the hub that is not here, no more is
/// fetched. Its tensors must not be read.
///
/// # Errors
/// As [`open`], or if the hub cannot be asked.
pub(crate) fn describe(global: &Global, model: &str) -> anyhow::Result<Described> {
    let is_here = model == demo::NAME || model.starts_with("synthetic:") || Path::new(model).exists();
    let outline = if is_here { None } else { hub::outline(global, model)? };
    let (outline, download) = outline.unzip();
    Ok(Described {
        checkpoint: match &outline {
            Some(outline) => Checkpoint::open(&outline.path)?,
            None => open(model)?,
        },
        download,
        _outline: outline,
    })
}

/// A checkpoint of which perhaps no more than the description is here.
pub(crate) struct Described {
    pub checkpoint: Checkpoint,
    /// What is missing of it here, if anything.
    pub download: Option<MissingFiles>,
    /// Its files. They must outlive it, so this stands last.
    _outline: Option<Outline>,
}

/// What the files of a model say that cannot be opened, if they can be read at all.
pub(crate) fn described(model: &str) -> Option<Description> {
    let path = match Path::new(model) {
        path if path.exists() => path.to_owned(),
        _ => hub::cached(model).ok()?,
    };
    Description::read(&path).ok()
}

/// Opens a checkpoint; what is neither ours nor a path, `locate` looks for.
fn open_from(model: &str, locate: impl FnOnce(&str) -> anyhow::Result<PathBuf>) -> anyhow::Result<Checkpoint> {
    if model == demo::NAME {
        return Ok(demo::checkpoint()?);
    }
    if let Some(spec) = model.strip_prefix("synthetic:") {
        return Ok(Checkpoint::synthetic(spec)?);
    }
    let path = Path::new(model);
    if path.exists() {
        Ok(Checkpoint::open(path)?)
    } else {
        Ok(Checkpoint::open(&locate(model)?)?)
    }
}

/// Tokenizer and chat template, from a checkpoint or from files that need hold nothing else.
pub(crate) enum TextSide {
    Files(TokenizerFiles),
    Checkpoint(Box<Checkpoint>),
}

impl TextSide {
    /// Opens them.
    ///
    /// # Errors
    /// If there is nothing of that kind.
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

    /// The tokenizer.
    ///
    /// # Errors
    /// If there is none, or it is broken.
    pub fn tokenizer(&self) -> anyhow::Result<Tokenizer> {
        Ok(match self {
            Self::Files(files) => files.tokenizer()?,
            Self::Checkpoint(checkpoint) => checkpoint.tokenizer()?,
        })
    }

    /// The model's own chat template.
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

    /// The special tokens that templates refer to, such as `bos_token`.
    ///
    /// # Errors
    /// If the tokenizer that knows them is damaged.
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
