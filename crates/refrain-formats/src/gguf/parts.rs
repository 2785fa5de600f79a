//! The files of a GGUF model: a single file, or the parts of a split one (`NAME-00001-of-00003.gguf`).

use std::path::{Path, PathBuf};

use super::Gguf;
use super::reader::{self, TensorEntry};
use super::value::GgufMetadata;
use crate::Error;
use crate::files::{FileBytes, FileSet};
use crate::mmap::MappedFile;

const SPLIT_COUNT: &str = "split.count";
const SPLIT_NUMBER: &str = "split.no";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// A GGUF model with its files.
#[derive(Debug)]
pub(crate) struct GgufFiles {
    pub gguf: Gguf,
    /// The first holds the metadata.
    pub files: Vec<FileBytes>,
    /// The files' names for messages.
    pub labels: Vec<String>,
}

impl GgufFiles {
    /// Opens the file at `path`, and the other parts if the model is split.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let label = path.display().to_string();
        let file = FileBytes::Mapped(MappedFile::open(path)?);
        if file.bytes().is_empty() {
            return Err(Error::file(label, "is empty"));
        }
        let named = path.extension().is_some_and(|extension| extension == "gguf");
        if !named && !file.bytes().starts_with(b"GGUF") {
            return Err(Error::NotACheckpoint {
                path: path.to_owned(),
                reason: match path.parent().filter(|folder| folder.join("config.json").is_file()) {
                    Some(folder) => format!("is a part of the model in {}: open that directory", folder.display()),
                    None => "is neither a directory with config.json and safetensors files nor a GGUF file".to_owned(),
                },
            });
        }
        let part = GgufPart::read(file, label)?;
        match part.count {
            1 => Self::join(vec![part]),
            count => Self::join(open_parts(path, part.number, count, &part.label)?),
        }
    }

    /// Reads a model in one file that is in memory.
    pub(crate) fn from_memory(file: FileBytes, label: String) -> Result<Self, Error> {
        let part = GgufPart::read(file, label)?;
        match part.count {
            1 => Self::join(vec![part]),
            count => Err(Error::file(
                part.label,
                format!("is one part of {count}: the others are missing"),
            )),
        }
    }

    /// Joins the parts, which are in order.
    fn join(parts: Vec<GgufPart>) -> Result<Self, Error> {
        let (mut files, mut labels, mut tensors) = (Vec::new(), Vec::new(), Vec::<TensorEntry>::new());
        let mut metadata = None;
        for (index, part) in parts.into_iter().enumerate() {
            for mut tensor in part.tensors {
                tensor.file = index;
                tensors.push(tensor);
            }
            metadata.get_or_insert(part.metadata);
            files.push(part.file);
            labels.push(part.label);
        }
        // There is always a first part.
        let metadata = metadata.unwrap_or_default();
        if let Some(expected) = metadata
            .unsigned(SPLIT_TENSORS)?
            .filter(|expected| *expected != tensors.len())
        {
            return Err(metadata.error(format!(
                "metadata {SPLIT_TENSORS} is {expected}, but all parts together have {} tensors",
                tensors.len()
            )));
        }
        let gguf = Gguf::new(metadata, tensors)?;
        Ok(GgufFiles { gguf, files, labels })
    }
}

/// One part.
struct GgufPart {
    file: FileBytes,
    label: String,
    metadata: GgufMetadata,
    tensors: Vec<TensorEntry>,
    /// Zero-based number of the part, and the count of parts.
    number: usize,
    count: usize,
}

impl GgufPart {
    fn read(file: FileBytes, label: String) -> Result<Self, Error> {
        let (metadata, tensors) = reader::read(file.bytes(), &label)?;
        let count = metadata.unsigned(SPLIT_COUNT)?.unwrap_or(1).max(1);
        let number = metadata.unsigned(SPLIT_NUMBER)?.unwrap_or(0);
        if number >= count {
            return Err(metadata.error(format!("claims to be part {} of {count}", number.saturating_add(1))));
        }
        Ok(GgufPart {
            file,
            label,
            metadata,
            tensors,
            number,
            count,
        })
    }
}

/// Opens all parts of a model. The file at `path` is part `number` (from 0) of `count`.
fn open_parts(path: &Path, number: usize, count: usize, label: &str) -> Result<Vec<GgufPart>, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = match PartName::parse(&name) {
        Some(parsed) if (parsed.number, parsed.count) == (number + 1, count) => parsed.prefix,
        _ => {
            return Err(Error::file(
                label,
                format!(
                    "is part {} of {count}, but its name does not end in {:?}, which is needed to find the other \
                     parts: restore the original file names",
                    number + 1,
                    suffix(number, count)
                ),
            ));
        }
    };
    let mut parts = Vec::new();
    for index in 0..count {
        let path = path.with_file_name(format!("{prefix}{}", suffix(index, count)));
        let label = path.display().to_string();
        if !path.exists() {
            return Err(Error::file(
                label,
                format!("is missing: it is part {} of {count}", index + 1),
            ));
        }
        let part = GgufPart::read(FileBytes::Mapped(MappedFile::open(&path)?), label)?;
        if (part.number, part.count) != (index, count) {
            return Err(Error::file(
                part.label,
                format!(
                    "is part {} of {} by its metadata, but part {} of {count} by its name: parts of different \
                     models are mixed",
                    part.number + 1,
                    part.count,
                    index + 1
                ),
            ));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The components of a part's file name.
struct PartName<'a> {
    prefix: &'a str,
    /// Counted from 1.
    number: usize,
    count: usize,
}

impl<'a> PartName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let parse = |digits: &str| match digits.len() {
            5 => digits.parse().ok(),
            _ => None,
        };
        Some(PartName {
            prefix,
            number: parse(number)?,
            count: parse(count)?,
        })
    }
}

/// Suffix of the file name of part `number` (from 0) of `count`.
fn suffix(number: usize, count: usize) -> String {
    format!("-{:05}-of-{count:05}.gguf", number + 1)
}

/// Returns the GGUF model of a directory (the first part of a split one); `None` if there is none. Ignores vision
/// projectors.
///
/// # Errors
/// If the directory cannot be read, or has several models.
pub fn in_directory(set: &FileSet) -> Result<Option<PathBuf>, Error> {
    let FileSet::Directory(directory) = set else {
        return Ok(None);
    };
    let mut models: Vec<String> = Vec::new();
    for name in set.with_suffix(".gguf")? {
        let first = match PartName::parse(&name) {
            Some(part) => format!("{}{}", part.prefix, suffix(0, part.count)),
            None => name,
        };
        if !first.starts_with("mmproj") && !models.contains(&first) {
            models.push(first);
        }
    }
    match models.as_slice() {
        [] => Ok(None),
        [model] => Ok(Some(directory.join(model))),
        several => Err(Error::NotACheckpoint {
            path: directory.clone(),
            reason: format!(
                "holds {} GGUF models: name one of {}",
                several.len(),
                several.join(", ")
            ),
        }),
    }
}
