//! The files of a checkpoint, opened: what they hold under their own names, whatever the model is.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::blocks::{RowOrder, TensorOrder};
use crate::config::Quantisation;
use crate::directory;
use crate::files::{FileBytes, FileSet, JsonObject};
use crate::gguf::{self, Gguf, GgufFiles, GgufKeys};
use crate::synthetic::RandomTensor;
use crate::tensor::TensorStorage;
use crate::write::contents::{CONFIG, SIDE_FILES};
use crate::{Error, GenerationConfig, Metadata, Tensor, TensorInfo};

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
    /// In which order files have the columns of some tensors.
    columns: HashMap<String, RowOrder>,
    side: SideFiles,
}

/// Small files with their names.
pub type NamedFiles = Vec<(String, Vec<u8>)>;

/// Where tokenizer and chat template are, for those that read them.
#[derive(Debug, Clone, Copy)]
pub enum TextSource<'a> {
    /// In files of a directory.
    Directory(&'a FileSet),
    /// In the metadata of a GGUF file.
    Gguf(GgufKeys<'a>),
    /// Nowhere: these weights are random, and have only a name.
    Synthetic(&'a str),
}

/// Where settings, tokenizer and chat template come from.
#[derive(Debug)]
enum SideFiles {
    Directory {
        files: FileSet,
        config: JsonObject,
        label: String,
    },
    Gguf(Gguf),
    /// There are none.
    Synthetic,
}

impl CheckpointFiles {
    /// Open a checkpoint: a directory with `config.json` and `*.safetensors` files (plain, or quantised by MLX), a
    /// `.gguf` file (of a split model any part), or a directory that holds one GGUF model. The files are mapped, not
    /// read; a GGUF file's header is checked. The tensors of a directory come by [`CheckpointFiles::read_weights`].
    ///
    /// # Errors
    /// If there is no checkpoint at `path`, or a file is missing or damaged.
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

    /// Open a checkpoint that is embedded in the program: the files that a checkpoint directory
    /// would hold, by name.
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

    /// Open a GGUF file that is held in memory.
    ///
    /// # Errors
    /// As [`CheckpointFiles::open`].
    pub fn from_gguf_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, Error> {
        let file = FileBytes::Held(bytes.into());
        Self::from_gguf(GgufFiles::held(file, "embedded model".to_owned())?)
    }

    /// Files that are nowhere: random tensors, made when they are read.
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
                reason: "there is no config.json; a model has config.json, *.safetensors and tokenizer.json, or is a \
                         .gguf file"
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

    /// Opens and checks the weights of a directory. `own` gives each tensor's name, and `None` for one that is not
    /// wanted; `quantisation` is by these names.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub fn read_weights(
        &mut self,
        quantisation: Option<&Quantisation>,
        own: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let SideFiles::Directory { files, .. } = &self.side else {
            return Ok(());
        };
        let weights = directory::weights(files, quantisation, own)?;
        if quantisation.is_some() {
            self.format = Format::Mlx;
        }
        (self.files, self.labels, self.tensors) = (weights.files, weights.labels, weights.tensors);
        self.index();
        Ok(())
    }

    /// Gives each tensor its place in the model: `place` changes name and shape, and says in which order the file
    /// has it; tensors without an order are left out.
    ///
    /// # Errors
    /// Those of `place`; if two get one name, or rows or columns are not whole heads.
    pub fn arrange(
        &mut self,
        mut place: impl FnMut(&mut TensorInfo) -> Result<Option<TensorOrder>, Error>,
    ) -> Result<(), Error> {
        self.columns.clear();
        let mut placed = Vec::with_capacity(self.tensors.len());
        for (mut info, mut storage) in std::mem::take(&mut self.tensors) {
            let name = info.name.clone();
            let Some(order) = place(&mut info)? else {
                continue;
            };
            if let Some(reason) = order.fault(info.ordered_rows(), info.columns()) {
                return Err(Error::tensor(&self.name, name, reason));
            }
            if order.columns != RowOrder::AsStored {
                self.columns.insert(info.name.clone(), order.columns);
            }
            if let TensorStorage::Plain { rows, .. }
            | TensorStorage::Blocks { rows, .. }
            | TensorStorage::Planes { rows, .. } = &mut storage
            {
                *rows = order.rows;
            }
            placed.push((info, storage));
        }
        self.tensors = placed;
        self.index();
        match self.tensors.windows(2).find(|pair| pair[0].0.name == pair[1].0.name) {
            Some(pair) => Err(Error::tensor(&self.name, &pair[0].0.name, "is there twice")),
            None => Ok(()),
        }
    }

    fn index(&mut self) {
        self.tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let names = self.tensors.iter().enumerate();
        self.by_name = names.map(|(index, (info, _))| (info.name.clone(), index)).collect();
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of checkpoint.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The settings of the model; `None` where there are no files.
    pub fn metadata(&self) -> Option<Metadata<'_>> {
        match &self.side {
            SideFiles::Directory { config, label, .. } => Some(Metadata::of_json(config, label)),
            SideFiles::Gguf(gguf) => Some(Metadata::of_gguf(gguf, self.files[0].bytes())),
            SideFiles::Synthetic => None,
        }
    }

    /// What the file calls the model.
    pub fn model_name(&self) -> Option<&str> {
        match &self.side {
            SideFiles::Gguf(gguf) => gguf.model_name(),
            _ => None,
        }
    }

    /// What `generation_config.json` suggests, nothing where there is none.
    ///
    /// # Errors
    /// If the file is damaged.
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

    /// The files beside configuration and weights of a directory, by name: those of tokenizer, chat template and
    /// suggestions for sampling. `None` where it is no directory.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn side_files(&self) -> Result<Option<NamedFiles>, Error> {
        let SideFiles::Directory { files, .. } = &self.side else {
            return Ok(None);
        };
        let mut found = Vec::new();
        for name in SIDE_FILES {
            if let Some(bytes) = files.whole(name)? {
                found.push((name.to_owned(), bytes));
            }
        }
        Ok(Some(found))
    }

    /// All metadata of a GGUF file's tokenizer, as they lie in the file. `None` where it is none.
    pub fn tokenizer_metadata(&self) -> Option<impl Iterator<Item = (&str, &[u8])>> {
        match &self.side {
            SideFiles::Gguf(gguf) => Some(gguf.tokenizer_metadata(self.files[0].bytes())),
            _ => None,
        }
    }

    /// Where tokenizer and chat template are.
    pub fn text_source(&self) -> TextSource<'_> {
        match &self.side {
            SideFiles::Directory { files, .. } => TextSource::Directory(files),
            SideFiles::Gguf(gguf) => TextSource::Gguf(GgufKeys::new(gguf, self.files[0].bytes())),
            SideFiles::Synthetic => TextSource::Synthetic(&self.name),
        }
    }

    /// Whether there are tokens: in a GGUF file's metadata, or in a `tokenizer.json`.
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
}
