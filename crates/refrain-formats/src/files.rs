//! The files of a checkpoint: in a directory, or embedded in the program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::Error;
use crate::mmap::MappedFile;

/// The most bytes of a file that is read as a whole: as many as a header of safetensors may have.
const MAX_TEXT: usize = crate::safetensors::MAX_HEADER;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(MappedFile),
    Held(Cow<'static, [u8]>),
}

impl FileBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map.bytes(),
            FileBytes::Held(bytes) => bytes,
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
    /// Those of a directory.
    Directory(PathBuf),
    /// Those that the program has in itself.
    Embedded(BTreeMap<String, Cow<'static, [u8]>>),
}

impl FileSet {
    /// The set's name in messages.
    pub fn name(&self) -> String {
        match self {
            FileSet::Directory(path) => path.display().to_string(),
            FileSet::Embedded(_) => "embedded model".to_owned(),
        }
    }

    /// The name of a file of this set in messages.
    pub fn label(&self, file: &str) -> String {
        match self {
            FileSet::Directory(path) => path.join(file).display().to_string(),
            FileSet::Embedded(_) => format!("embedded {file}"),
        }
    }

    /// Names of the files that end in `suffix`, sorted.
    pub(crate) fn ending_in(&self, suffix: &str) -> Result<Vec<String>, Error> {
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
        // Dot files are what file managers and interrupted downloads leave behind.
        names.retain(|name| name.ends_with(suffix) && !name.starts_with('.'));
        names.sort();
        Ok(names)
    }

    /// Whether there is a file of that name.
    pub fn has(&self, file: &str) -> bool {
        match self {
            FileSet::Directory(path) => path.join(file).exists(),
            FileSet::Embedded(files) => files.contains_key(file),
        }
    }

    /// Open a file without reading it; `None` if there is none of that name.
    pub(crate) fn open(&self, file: &str) -> Result<Option<FileBytes>, Error> {
        if !self.has(file) {
            return Ok(None);
        }
        Ok(Some(match self {
            FileSet::Directory(path) => FileBytes::Mapped(MappedFile::open(&path.join(file))?),
            FileSet::Embedded(files) => FileBytes::Held(files[file].clone()),
        }))
    }

    /// Open a file that is to be read as a whole, and may not be larger than is good for that; `None` if there is
    /// none of that name.
    fn open_whole(&self, file: &str) -> Result<Option<FileBytes>, Error> {
        let opened = self.open(file)?;
        match opened.as_ref().map(|opened| opened.bytes().len()) {
            Some(length) if length > MAX_TEXT => Err(Error::file(
                self.label(file),
                format!("is {length} bytes long, more than the {MAX_TEXT} that are read of such a file"),
            )),
            _ => Ok(opened),
        }
    }

    /// Read a file as a whole; `None` if there is none of that name.
    ///
    /// # Errors
    /// If it cannot be read, or is larger than is good for that.
    pub fn whole(&self, file: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.open_whole(file)?.map(|opened| opened.bytes().to_owned()))
    }

    /// Read a text file; `None` if there is none of that name.
    ///
    /// # Errors
    /// If it cannot be read, or is no text.
    pub fn text(&self, file: &str) -> Result<Option<String>, Error> {
        let Some(bytes) = self.open_whole(file)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(bytes.bytes())
            .map_err(|error| Error::file(self.label(file), format!("not UTF-8 text: {error}")))?;
        Ok(Some(text.to_owned()))
    }

    /// Read a file holding one JSON object; `None` if there is none of that name.
    ///
    /// # Errors
    /// If it cannot be read, or holds something else.
    pub fn json(&self, file: &str) -> Result<Option<JsonObject>, Error> {
        match self.text(file)? {
            None => Ok(None),
            Some(text) => parse_object(&self.label(file), &text).map(Some),
        }
    }
}

/// A JSON object in the order of the file.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// Parse a text that must hold one JSON object. Python writes the non-numbers `NaN` and
/// `Infinity` into JSON, which no standard allows: those are refused.
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
            format!("holds a JSON {} where an object is needed", json_kind(&other)),
        )),
    }
}

/// What a JSON value is, in words.
pub fn json_kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "truth value",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "list",
        serde_json::Value::Object(_) => "object",
    }
}
