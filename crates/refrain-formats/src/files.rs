//! The files of a checkpoint: in a directory, or embedded in the program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::Error;
use crate::mmap::MappedFile;

/// Maximum size in bytes of a file that is read whole: the maximum header of safetensors.
const MAX_FILE_BYTES: usize = crate::safetensors::MAX_HEADER;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(MappedFile),
    InMemory(Cow<'static, [u8]>),
}

impl FileBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map.bytes(),
            FileBytes::InMemory(bytes) => bytes,
        }
    }

    pub(crate) fn discard(&self, range: Range<usize>) {
        if let FileBytes::Mapped(map) = self {
            map.discard(range);
        }
    }
}

/// A flat set of named files.
#[derive(Debug, Clone)]
pub enum FileSet {
    /// Files of a directory.
    Directory(PathBuf),
    /// Files that are embedded in the program.
    Embedded(BTreeMap<String, Cow<'static, [u8]>>),
}

impl FileSet {
    /// Name of the set for messages.
    pub fn name(&self) -> String {
        match self {
            FileSet::Directory(path) => path.display().to_string(),
            FileSet::Embedded(_) => "embedded model".to_owned(),
        }
    }

    /// Name of one file for messages.
    pub fn label(&self, file: &str) -> String {
        match self {
            FileSet::Directory(path) => path.join(file).display().to_string(),
            FileSet::Embedded(_) => format!("embedded {file}"),
        }
    }

    /// Names of the files that end in `suffix`, sorted.
    pub(crate) fn with_suffix(&self, suffix: &str) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = match self {
            FileSet::Directory(path) => {
                let read = |source| Error::Read {
                    path: path.clone(),
                    source,
                };
                let mut names = Vec::new();
                for entry in std::fs::read_dir(path).map_err(read)? {
                    names.push(entry.map_err(read)?.file_name().to_string_lossy().into_owned());
                }
                names
            }
            FileSet::Embedded(files) => files.keys().cloned().collect(),
        };
        // File managers and interrupted downloads leave dot files.
        names.retain(|name| name.ends_with(suffix) && !name.starts_with('.'));
        names.sort();
        Ok(names)
    }

    /// Whether the set has this file.
    pub fn has(&self, file: &str) -> bool {
        match self {
            FileSet::Directory(path) => path.join(file).exists(),
            FileSet::Embedded(files) => files.contains_key(file),
        }
    }

    /// Opens a file without reading it; `None` if there is no such file.
    pub(crate) fn open(&self, file: &str) -> Result<Option<FileBytes>, Error> {
        if !self.has(file) {
            return Ok(None);
        }
        Ok(Some(match self {
            FileSet::Directory(path) => FileBytes::Mapped(MappedFile::open(&path.join(file))?),
            FileSet::Embedded(files) => FileBytes::InMemory(files[file].clone()),
        }))
    }

    /// Opens a file that will be read whole, and checks its size; `None` if there is no such file.
    fn open_limited(&self, file: &str) -> Result<Option<FileBytes>, Error> {
        let opened = self.open(file)?;
        match opened.as_ref().map(|opened| opened.bytes().len()) {
            Some(length) if length > MAX_FILE_BYTES => Err(Error::file(
                self.label(file),
                format!("is {length} bytes long, more than the limit of {MAX_FILE_BYTES}"),
            )),
            _ => Ok(opened),
        }
    }

    /// Reads a whole file; `None` if there is no such file.
    ///
    /// # Errors
    /// If it cannot be read, or is too large.
    pub fn read(&self, file: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.open_limited(file)?.map(|opened| opened.bytes().to_owned()))
    }

    /// Reads a text file; `None` if there is no such file.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn text(&self, file: &str) -> Result<Option<String>, Error> {
        let Some(bytes) = self.open_limited(file)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(bytes.bytes())
            .map_err(|error| Error::file(self.label(file), format!("not UTF-8 text: {error}")))?;
        Ok(Some(text.to_owned()))
    }

    /// Reads a file with one JSON object; `None` if there is no such file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a JSON object.
    pub fn json(&self, file: &str) -> Result<Option<JsonObject>, Error> {
        match self.text(file)? {
            None => Ok(None),
            Some(text) => parse_object(&self.label(file), &text).map(Some),
        }
    }
}

/// A JSON object that keeps the order of the file.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// Parses one JSON object. Python writes `NaN` and `Infinity`, which are not valid JSON; those are errors.
pub(crate) fn parse_object(label: &str, text: &str) -> Result<JsonObject, Error> {
    if text.trim().is_empty() {
        return Err(Error::file(label, "is empty"));
    }
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| Error::file(label, format!("is not valid JSON: {error}")))?;
    match value {
        serde_json::Value::Object(object) => Ok(object),
        other => Err(Error::file(
            label,
            format!("is a JSON {}, not an object", json_kind(&other)),
        )),
    }
}

/// Name of a JSON value's type, for messages.
pub fn json_kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "boolean",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "list",
        serde_json::Value::Object(_) => "object",
    }
}

/// Formats a JSON value for a message, truncated so that it fits a line.
pub fn json_excerpt(value: &serde_json::Value) -> String {
    const MAX_CHARS: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
