//! A checkpoint: its configuration, its tensors, its tokenizer and its chat template.

pub(crate) mod directory;
mod hybrid;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::files::{FileBytes, FileSet};
use crate::gguf::{self, Gguf, GgufFiles};
use crate::synthetic::Spec;
use crate::tensor::TensorStorage;
use crate::tokenizer::DirectoryFiles;
use crate::{ChatTemplate, Encoding, Error, GenerationConfig, ModelConfig, Tensor, TensorInfo, Tokenizer};

/// The kinds of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A directory as Hugging Face transformers has it.
    Safetensors,
    /// Such a directory with weights quantised by MLX.
    Mlx,
    /// One GGUF file, or the parts of a split one.
    Gguf,
}

/// A checkpoint, opened and checked. Its weights stay in the mapped files until they are read.
#[derive(Debug)]
pub struct Checkpoint {
    name: String,
    format: Format,
    config: ModelConfig,
    generation: GenerationConfig,
    text_part: bool,
    files: Vec<FileBytes>,
    labels: Vec<String>,
    tensors: Vec<(TensorInfo, TensorStorage)>,
    by_name: HashMap<String, usize>,
    side: Side,
}

/// Where tokenizer and chat template come from.
#[derive(Debug)]
enum Side {
    Files(DirectoryFiles),
    Gguf(Gguf),
    /// There are none.
    Synthetic,
}

impl Checkpoint {
    /// Open a checkpoint: a directory with `config.json` and `*.safetensors` files (plain, or
    /// quantised by MLX), a `.gguf` file (of a split model any part), or a directory that holds one
    /// GGUF model. The files are mapped, not read; headers, configuration, and every tensor's byte
    /// range and shape are checked.
    ///
    /// # Errors
    /// If there is no checkpoint at `path`, a file is missing or damaged, or the model is of a kind
    /// that is not supported.
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        let metadata = std::fs::metadata(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        if metadata.is_dir() {
            let set = FileSet::Directory(path.to_owned());
            if !set.has("config.json")
                && let Some(path) = gguf::in_directory(&set)?
            {
                return Self::from_gguf(GgufFiles::open(&path)?);
            }
            return Self::from_set(set);
        }
        Self::from_gguf(GgufFiles::open(path)?)
    }

    /// Open a checkpoint that is embedded in the program: the files that a checkpoint directory
    /// would hold, by name.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_files(
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Cow<'static, [u8]>>)>,
    ) -> Result<Checkpoint, Error> {
        let files: BTreeMap<String, Cow<'static, [u8]>> = files
            .into_iter()
            .map(|(name, bytes)| (name.into(), bytes.into()))
            .collect();
        Self::from_set(FileSet::Embedded(files))
    }

    /// Open a GGUF file that is held in memory.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_gguf_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Checkpoint, Error> {
        let file = FileBytes::Held(bytes.into());
        Self::from_gguf(GgufFiles::held(file, "embedded model".to_owned())?)
    }

    /// A checkpoint of random weights in the shape of a real model: `ARCH:FORMAT`, such as
    /// `qwen3-8b:q4_0` ([`crate::synthetic::architectures`] and [`crate::synthetic::formats`] list both). It takes
    /// no memory: weights are made when they are read, always the same. It has no tokenizer.
    ///
    /// # Errors
    /// If architecture or format are not known.
    pub fn synthetic(spec: &str) -> Result<Checkpoint, Error> {
        let spec = Spec::parse(spec)?;
        let config = spec.config();
        let tensors = spec.tensors(&config);
        Ok(Self {
            name: spec.label(),
            format: spec.format(),
            generation: GenerationConfig {
                eos_ids: config.eos_ids.clone(),
                ..GenerationConfig::default()
            },
            config,
            text_part: false,
            files: Vec::new(),
            labels: vec![spec.label()],
            by_name: index(&tensors),
            tensors,
            side: Side::Synthetic,
        })
    }

    fn from_gguf(opened: GgufFiles) -> Result<Checkpoint, Error> {
        let GgufFiles { gguf, files, labels } = opened;
        let config = gguf.config(files[0].bytes())?;
        let generation = GenerationConfig {
            eos_ids: config.eos_ids.clone(),
            ..GenerationConfig::default()
        };
        let tensors = gguf.tensors(&config)?;
        Ok(Self {
            name: labels[0].clone(),
            format: Format::Gguf,
            config,
            generation,
            text_part: false,
            files,
            labels,
            by_name: index(&tensors),
            tensors,
            side: Side::Gguf(gguf),
        })
    }

    fn from_set(set: FileSet) -> Result<Checkpoint, Error> {
        let directory::Configuration {
            mut config,
            generation,
            wrapped,
        } = directory::configuration(&set)?;
        let mut weights = directory::weights(&set, config.quantisation.as_ref(), wrapped)?;
        hybrid::canonicalise(&mut config, &mut weights.tensors);
        if wrapped {
            // The configurations of the whole and of the text model contradict each other here.
            config.tie_word_embeddings = !weights.tensors.iter().any(|(info, _)| info.name == "lm_head.weight");
        }
        let mut opened = Self {
            name: set.name(),
            format: match config.quantisation {
                Some(_) => Format::Mlx,
                None => Format::Safetensors,
            },
            config,
            generation,
            text_part: wrapped,
            files: weights.files,
            labels: weights.labels,
            by_name: index(&weights.tensors),
            tensors: weights.tensors,
            side: Side::Files(DirectoryFiles::new(set)),
        };
        opened.config.tie_word_embeddings &= !opened.has_head_of_its_own();
        Ok(opened)
    }

    /// Whether there is an output head of other values than the token embedding. Where the configuration says that they
    /// are one, transformers (from version 5 on) and llama.cpp believe the weights; mlx-lm, the configuration.
    fn has_head_of_its_own(&self) -> bool {
        let named = |name: &str| self.tensor(name).filter(|tensor| !tensor.is_quantised());
        let (Some(embedding), Some(head)) = (named("model.embed_tokens.weight"), named("lm_head.weight")) else {
            return false;
        };
        let (Ok(one), Ok(other)) = (embedding.data(), head.data()) else {
            return false;
        };
        if self.format == Format::Mlx || embedding.info.shape != head.info.shape {
            return false;
        }
        if embedding.info.encoding != head.info.encoding {
            return true;
        }
        let (rows, width) = (embedding.info.rows(), one.len() / embedding.info.rows().max(1));
        let row = |number: usize| number * width..(number + 1) * width;
        // Published heads are often copies of the embedding, which to read as a whole would take as long as to load it.
        // Those that were trained differ in nearly every row, or in the last, which tokens were added as.
        let mut compared = (0..rows).step_by((rows / 1024).max(1)).chain(rows.checked_sub(1));
        compared.any(|number| one.get(row(number)) != other.get(row(number)))
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The files of tokenizer and chat template, if it has its own.
    pub(crate) fn tokenizer_files(&self) -> Option<&DirectoryFiles> {
        match &self.side {
            Side::Files(files) => Some(files),
            _ => None,
        }
    }

    /// The metadata of a GGUF file, and the bytes of the file that has them.
    pub(crate) fn gguf(&self) -> Option<(&Gguf, &[u8])> {
        match &self.side {
            Side::Gguf(gguf) => Some((gguf, self.files[0].bytes())),
            _ => None,
        }
    }

    /// The kind of checkpoint; of a synthetic one, the kind that [`crate::synthetic::write`] makes of it.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// How the model's makers suggest to sample from it, and the tokens that end a text.
    pub fn generation(&self) -> &GenerationConfig {
        &self.generation
    }

    /// Whether this is the text model of a checkpoint that also takes images, which are not supported.
    pub fn is_text_part(&self) -> bool {
        self.text_part
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter().map(|(info, _)| info)
    }

    /// A tensor by its name in Hugging Face's naming.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let (info, storage) = &self.tensors[*self.by_name.get(name)?];
        Some(Tensor {
            info,
            storage,
            files: &self.files,
            labels: &self.labels,
        })
    }

    /// A tensor that the model needs, in the shape that it needs.
    ///
    /// # Errors
    /// If there is no such tensor, its shape is another, or its encoding is one that no model
    /// reads.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<Tensor<'_>, Error> {
        let Some(tensor) = self.tensor(name) else {
            if self.tensors.is_empty() {
                let reason =
                    "holds no weights, only what goes with them: it can tokenize texts and render chat templates";
                return Err(Error::file(&self.name, reason));
            }
            return Err(Error::MissingTensor {
                checkpoint: self.name.clone(),
                tensor: name.to_owned(),
            });
        };
        if tensor.info.shape != shape {
            return Err(Error::Shape {
                checkpoint: self.name.clone(),
                tensor: name.to_owned(),
                found: tensor.info.shape.clone(),
                expected: shape.to_owned(),
            });
        }
        if let Encoding::Other(kind) = tensor.info.encoding {
            return Err(tensor.error(format!("weights stored as {kind} are not supported")));
        }
        Ok(tensor)
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of a kind that is not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        let tokenizer = match &self.side {
            Side::Files(files) => files.tokenizer()?,
            Side::Gguf(gguf) => gguf.tokenizer(self.files[0].bytes())?,
            Side::Synthetic => {
                let reason = "a synthetic checkpoint has random weights and no tokenizer; what takes \
                              tokens works without (bench, logits, inspect)";
                return Err(Error::file(&self.name, reason));
            }
        };
        Ok(tokenizer.with_eos_ids(&self.generation.eos_ids))
    }

    /// The special tokens that have a role (`bos_token`, `eos_token` …), as templates see them.
    ///
    /// # Errors
    /// If a file that names them is damaged.
    pub fn special_tokens(&self) -> Result<BTreeMap<String, String>, Error> {
        match &self.side {
            Side::Files(files) => files.special_tokens(),
            Side::Gguf(gguf) => gguf.special_tokens(self.files[0].bytes()),
            Side::Synthetic => Ok(BTreeMap::new()),
        }
    }

    /// The model's chat template, `None` if it has none.
    ///
    /// # Errors
    /// If the file that holds it is damaged. Whether it parses is seen when it is rendered.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        match &self.side {
            Side::Files(files) => files.chat_template(),
            Side::Gguf(gguf) => gguf.chat_template(self.files[0].bytes()),
            Side::Synthetic => Ok(None),
        }
    }
}

fn index(tensors: &[(TensorInfo, TensorStorage)]) -> HashMap<String, usize> {
    tensors
        .iter()
        .enumerate()
        .map(|(index, (info, _))| (info.name.clone(), index))
        .collect()
}
