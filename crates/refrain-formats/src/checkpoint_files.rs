//! The open files of a checkpoint, with tensors under the files' own names, independent of the model.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::blocks::{RowOrder, TensorOrder};
use crate::config::Quantisation;
use crate::directory;
use crate::files::{FileBytes, FileSet, JsonObject};
use crate::gguf::{self, Gguf, GgufFiles, GgufKeys};
use crate::storage::TensorStorage;
use crate::synthetic::RandomTensor;
use crate::write::contents::{CONFIG, SIDE_FILES};
use crate::{Encoding, Error, GenerationConfig, Metadata, Tensor, TensorInfo};

/// Kind of checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A directory in the layout of Hugging Face transformers.
    Safetensors,
    /// The same with weights quantised by MLX.
    Mlx,
    /// A GGUF file, or the parts of a split one.
    Gguf,
}

/// The files of a checkpoint. Weights stay in the mapped files until they are read.
#[derive(Debug)]
pub struct CheckpointFiles {
    name: String,
    format: Format,
    files: Vec<FileBytes>,
    labels: Vec<String>,
    /// Sorted by name.
    tensors: Vec<(TensorInfo, TensorStorage)>,
    by_name: HashMap<String, usize>,
    /// Column order of the tensors whose columns are permuted.
    columns: HashMap<String, RowOrder>,
    side: SideFiles,
}

/// Small files with their names.
pub type NamedFiles = Vec<(String, Vec<u8>)>;

/// Source of tokenizer and chat template.
#[derive(Debug, Clone, Copy)]
pub enum TextSource<'a> {
    /// Files of a directory.
    Directory(&'a FileSet),
    /// The metadata of a GGUF file.
    Gguf(GgufKeys<'a>),
    /// None: the weights are random. Holds the model's name.
    Synthetic(&'a str),
}

/// Source of configuration, tokenizer and chat template.
#[derive(Debug)]
enum SideFiles {
    Directory {
        files: FileSet,
        config: JsonObject,
        label: String,
    },
    Gguf(Gguf),
    /// None.
    Synthetic,
}

impl CheckpointFiles {
    /// Opens a checkpoint: a directory with `config.json` and `*.safetensors` files (plain, or quantised by MLX), a
    /// `.gguf` file (any part of a split model), or a directory with one GGUF model.
    ///
    /// Maps the files without reading the weights, and checks the header of a GGUF file.
    /// [`CheckpointFiles::read_weights`] loads the tensors of a directory.
    ///
    /// # Errors
    /// If there is no checkpoint at `path`, or a file is missing or corrupt.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let metadata = std::fs::metadata(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        if metadata.is_dir() {
            let set = FileSet::Directory(path.to_owned());
            if !set.has(CONFIG)
                && let Some(path) = gguf::gguf_in_directory(&set)?
            {
                return Self::from_gguf(GgufFiles::open(&path)?);
            }
            return Self::from_set(set);
        }
        Self::from_gguf(GgufFiles::open(path)?)
    }

    /// Opens a checkpoint that is embedded in the program: the files of a checkpoint directory, by name.
    ///
    /// # Errors
    /// As [`CheckpointFiles::open`].
    pub fn from_files(
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Cow<'static, [u8]>>)>,
    ) -> Result<Self, Error> {
        let files: BTreeMap<String, Cow<'static, [u8]>> = files
            .into_iter()
            .map(|(name, bytes)| (name.into(), bytes.into()))
            .collect();
        Self::from_set(FileSet::Embedded(files))
    }

    /// Opens a GGUF file in memory.
    ///
    /// # Errors
    /// As [`CheckpointFiles::open`].
    pub fn from_gguf_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, Error> {
        let file = FileBytes::InMemory(bytes.into());
        Self::from_gguf(GgufFiles::from_memory(file, "embedded model".to_owned())?)
    }

    /// Creates a checkpoint of random tensors without files. The values are generated on each read.
    pub fn synthetic(name: String, format: Format, tensors: Vec<(TensorInfo, RandomTensor)>) -> Self {
        let tensors = tensors.into_iter();
        let mut made = CheckpointFiles {
            labels: vec![name.clone()],
            name,
            format,
            files: Vec::new(),
            tensors: tensors
                .map(|(info, random)| (info, TensorStorage::Synthetic(random)))
                .collect(),
            by_name: HashMap::new(),
            columns: HashMap::new(),
            side: SideFiles::Synthetic,
        };
        made.index();
        made
    }

    fn from_gguf(opened: GgufFiles) -> Result<Self, Error> {
        let GgufFiles { gguf, files, labels } = opened;
        let mut opened = CheckpointFiles {
            name: labels[0].clone(),
            format: Format::Gguf,
            files,
            labels,
            tensors: gguf.tensors(),
            by_name: HashMap::new(),
            columns: HashMap::new(),
            side: SideFiles::Gguf(gguf),
        };
        opened.index();
        Ok(opened)
    }

    fn from_set(set: FileSet) -> Result<Self, Error> {
        let Some(config) = set.json(CONFIG)? else {
            return Err(Error::NotACheckpoint {
                path: PathBuf::from(set.name()),
                reason: "there is no config.json; a model is a directory with config.json, *.safetensors and \
                         tokenizer.json, or a .gguf file"
                    .to_owned(),
            });
        };
        Ok(CheckpointFiles {
            name: set.name(),
            format: Format::Safetensors,
            files: Vec::new(),
            labels: Vec::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
            columns: HashMap::new(),
            side: SideFiles::Directory {
                label: set.label(CONFIG),
                files: set,
                config,
            },
        })
    }

    /// Opens and checks the weights of a directory. `rename` maps a tensor's name in the file to its model name; `None`
    /// skips the tensor. `quantisation` uses the model names.
    ///
    /// # Errors
    /// If a file is missing or corrupt.
    pub fn read_weights(
        &mut self,
        quantisation: Option<&Quantisation>,
        rename: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let SideFiles::Directory { files, .. } = &self.side else {
            return Ok(());
        };
        let weights = directory::weights(files, quantisation, rename)?;
        if quantisation.is_some() {
            self.format = Format::Mlx;
        }
        (self.files, self.labels, self.tensors) = (weights.files, weights.labels, weights.tensors);
        self.index();
        Ok(())
    }

    /// Maps each tensor of the file to a tensor of the model. `map` changes name and shape, and returns the tensor's order in
    /// the file; `None` removes the tensor.
    ///
    /// # Errors
    /// Errors of `map`; if two tensors get the same name, or rows or columns are not whole heads.
    pub fn map_tensors(
        &mut self,
        mut map: impl FnMut(&mut TensorInfo) -> Result<Option<TensorOrder>, Error>,
    ) -> Result<(), Error> {
        self.columns.clear();
        let mut mapped = Vec::with_capacity(self.tensors.len());
        for (mut info, mut storage) in std::mem::take(&mut self.tensors) {
            let name = info.name.clone();
            let Some(order) = map(&mut info)? else {
                continue;
            };
            if let Some(reason) = order.mismatch(info.ordered_rows(), info.columns()) {
                return Err(Error::tensor(&self.name, name, reason));
            }
            if order.columns != RowOrder::AsStored {
                self.columns.insert(info.name.clone(), order.columns);
            }
            if let TensorStorage::Plain { rows, .. }
            | TensorStorage::Doubles { rows, .. }
            | TensorStorage::Blocks { rows, .. }
            | TensorStorage::Planes { rows, .. } = &mut storage
            {
                *rows = order.rows;
            }
            mapped.push((info, storage));
        }
        self.tensors = mapped;
        self.index();
        match self.tensors.windows(2).find(|pair| pair[0].0.name == pair[1].0.name) {
            Some(pair) => Err(Error::tensor(&self.name, &pair[0].0.name, "is duplicated")),
            None => Ok(()),
        }
    }

    /// Replaces the tensors `names` by one that is made of them.
    pub(crate) fn replace(&mut self, names: [&str; 2], info: TensorInfo, storage: TensorStorage) {
        self.tensors.retain(|(info, _)| !names.contains(&&info.name[..]));
        self.tensors.push((info, storage));
        self.index();
    }

    /// A tensor's description and storage, by its name.
    pub(crate) fn stored(&self, name: &str) -> Option<&(TensorInfo, TensorStorage)> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    fn index(&mut self) {
        self.tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let names = self.tensors.iter().enumerate();
        self.by_name = names.map(|(index, (info, _))| (info.name.clone(), index)).collect();
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kind of checkpoint.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The configuration of the model; `None` for random weights.
    pub fn metadata(&self) -> Option<Metadata<'_>> {
        match &self.side {
            SideFiles::Directory { config, label, .. } => Some(Metadata::from_json(config, label)),
            SideFiles::Gguf(gguf) => Some(Metadata::from_gguf(gguf, self.files[0].bytes())),
            SideFiles::Synthetic => None,
        }
    }

    /// The model's name in the file (`general.name` of GGUF).
    pub fn model_name(&self) -> Option<&str> {
        match &self.side {
            SideFiles::Gguf(gguf) => gguf.model_name(),
            _ => None,
        }
    }

    /// Reads `generation_config.json`; defaults if there is none.
    ///
    /// # Errors
    /// If the file is corrupt.
    pub fn generation(&self) -> Result<GenerationConfig, Error> {
        const FILE: &str = "generation_config.json";
        let SideFiles::Directory { files, .. } = &self.side else {
            return Ok(GenerationConfig::default());
        };
        match files.json(FILE)? {
            Some(object) => GenerationConfig::from_json(&object, &files.label(FILE)),
            None => Ok(GenerationConfig::default()),
        }
    }

    /// Reads the files of a directory other than configuration and weights: tokenizer, chat template and generation
    /// configuration. `None` if the checkpoint is not a directory.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn side_files(&self) -> Result<Option<NamedFiles>, Error> {
        let SideFiles::Directory { files, .. } = &self.side else {
            return Ok(None);
        };
        let mut found = Vec::new();
        for name in SIDE_FILES {
            if let Some(bytes) = files.read(name)? {
                found.push((name.to_owned(), bytes));
            }
        }
        Ok(Some(found))
    }

    /// Raw metadata of a GGUF file's tokenizer; `None` for other checkpoints.
    pub fn tokenizer_metadata(&self) -> Option<impl Iterator<Item = (&str, &[u8])>> {
        match &self.side {
            SideFiles::Gguf(gguf) => Some(gguf.tokenizer_metadata(self.files[0].bytes())),
            _ => None,
        }
    }

    /// Source of tokenizer and chat template.
    pub fn text_source(&self) -> TextSource<'_> {
        match &self.side {
            SideFiles::Directory { files, .. } => TextSource::Directory(files),
            SideFiles::Gguf(gguf) => TextSource::Gguf(GgufKeys::new(gguf, self.files[0].bytes())),
            SideFiles::Synthetic => TextSource::Synthetic(&self.name),
        }
    }

    /// Whether there is a tokenizer: in a GGUF file's metadata, or in a `tokenizer.json`.
    pub fn has_tokenizer(&self) -> bool {
        match &self.side {
            SideFiles::Directory { files, .. } => files.has("tokenizer.json"),
            SideFiles::Gguf(gguf) => gguf.has_tokenizer(),
            SideFiles::Synthetic => false,
        }
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter().map(|(info, _)| info)
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let (info, storage) = &self.tensors[*self.by_name.get(name)?];
        Some(Tensor {
            info,
            storage,
            columns: self.columns.get(name).copied().unwrap_or(RowOrder::AsStored),
            files: &self.files,
            labels: &self.labels,
        })
    }

    /// Returns a required tensor of this shape.
    ///
    /// # Errors
    /// If there is no such tensor, its shape differs, or no model supports its encoding.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<Tensor<'_>, Error> {
        let Some(tensor) = self.tensor(name) else {
            if self.tensors().next().is_none() {
                let reason = "has no weights: it can only tokenize text and render chat templates";
                return Err(Error::file(self.name(), reason));
            }
            return Err(Error::MissingTensor {
                checkpoint: self.name().to_owned(),
                tensor: name.to_owned(),
            });
        };
        if tensor.info.shape != shape {
            return Err(Error::Shape {
                checkpoint: self.name().to_owned(),
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
}
