//! Reads and writes arrays in safetensors files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use ::safetensors::tensor::{Metadata, TensorInfo};
use ::safetensors::{Dtype, View};

use crate::{Array, DType, Device, Error};

/// Maximum length in bytes of the header: the format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Loads the arrays of a safetensors file, by name, to `device`. The file is read piece by piece and is never whole in
/// host memory.
///
/// # Errors
/// Fails if memory runs out. Other errors name the file: it cannot be read, is not a safetensors file, is damaged, or
/// has a tensor of an unsupported dtype.
pub fn load_safetensors(device: &Device, path: &Path) -> Result<BTreeMap<String, Array>, Error> {
    load_safetensors_with(device, path, |_, _, _, _| false)
}

/// [`load_safetensors`] with `take`, which gets name, dtype, shape and bytes of tensors whose dtype is no [`DType`], and
/// returns whether it takes them.
///
/// # Errors
/// As [`load_safetensors`]; tensors that `take` takes are supported.
pub fn load_safetensors_with(
    device: &Device,
    path: &Path,
    mut take: impl FnMut(&str, Dtype, &[usize], &[u8]) -> bool,
) -> Result<BTreeMap<String, Array>, Error> {
    let mut file = SafetensorsFile::open(path)?;
    let header = file.header()?;
    let mut arrays = BTreeMap::new();
    for (name, info) in header.tensors() {
        if let Some(dtype) = dtype_of(info.dtype) {
            arrays.insert(name.clone(), file.array(device, &name, info, dtype)?);
        } else if !take(&name, info.dtype, &info.shape, &file.bytes(&name, info)?) {
            let what = format!("tensor {name:?} has dtype {:?}, which is not supported", info.dtype);
            return Err(file.error(what));
        }
    }
    Ok(arrays)
}

/// Writes arrays to a safetensors file, atomically: an existing file is replaced only by a complete one. The elements
/// pass through host memory.
///
/// # Errors
/// Returns errors of evaluating the arrays. Other errors name the file: it cannot be written, or two arrays have the
/// same name.
pub fn save_safetensors<'a, N: AsRef<str>>(
    path: &Path,
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> Result<(), Error> {
    let stored = |(name, array): (N, &Array)| Ok((name.as_ref().to_owned(), StoredTensor::of(array)?));
    let tensors: Vec<(String, StoredTensor)> = arrays.into_iter().map(stored).collect::<Result<_, Error>>()?;
    save_safetensors_with(path, tensors, &[])
}

/// [`save_safetensors`] of tensors of any dtype, with texts by name, which are stored in the header.
///
/// # Errors
/// As [`save_safetensors`].
pub fn save_safetensors_with(
    path: &Path,
    tensors: Vec<(String, StoredTensor)>,
    metadata: &[(String, String)],
) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    if let Some((name, _)) = tensors.iter().find(|(name, _)| !names.insert(name)) {
        return Err(file_error(path, format!("two arrays have the name {name:?}")));
    }
    let texts = (!metadata.is_empty()).then(|| metadata.iter().cloned().collect());
    // What is written under another name replaces the file that a link leads to, and not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = permissions_of(&target).map_err(|error| file_error(path, error))?;
    ::safetensors::serialize_to_file(tensors, texts, &target).map_err(|error| file_error(path, error))?;
    fs::set_permissions(&target, permissions).map_err(|error| file_error(path, error))
}

/// The permissions of a file, or those that the system gives to a new one in its place.
fn permissions_of(target: &Path) -> std::io::Result<Permissions> {
    if let Ok(found) = fs::metadata(target) {
        return Ok(found.permissions());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let create = |path: &Path| File::options().write(true).create_new(true).open(path);
    let made = tempfile::Builder::new().make_in(folder.unwrap_or(Path::new(".")), create)?;
    Ok(made.as_file().metadata()?.permissions())
}

fn file_error(path: &Path, what: impl ToString) -> Error {
    Error::File {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

/// An open safetensors file.
struct SafetensorsFile<'a> {
    path: &'a Path,
    file: File,
    bytes: u64,
    /// Byte offset of the elements in the file.
    data: u64,
}

impl SafetensorsFile<'_> {
    fn open(path: &Path) -> Result<SafetensorsFile<'_>, Error> {
        let file = File::open(path).map_err(|error| file_error(path, error))?;
        let bytes = file.metadata().map_err(|error| file_error(path, error))?.len();
        Ok(SafetensorsFile {
            path,
            file,
            bytes,
            data: 0,
        })
    }

    fn header(&mut self) -> Result<Metadata, Error> {
        let mut length = [0; 8];
        let read = self.file.read_exact(&mut length);
        read.map_err(|_| self.error("it is too short for a safetensors file"))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES.min(self.bytes.saturating_sub(8)) {
            return Err(self.error("it is not a safetensors file, or is truncated: the header exceeds the file"));
        }
        let mut header = vec![0; length as usize];
        let read = self.file.read_exact(&mut header);
        read.map_err(|error| self.error(error))?;
        self.data = 8 + length;
        serde_json::from_slice(&header).map_err(|error| self.error(format!("it is damaged: invalid header: {error}")))
    }

    /// Goes to where a tensor's elements are.
    fn seek(&mut self, name: &str, info: &TensorInfo) -> Result<(), Error> {
        // The header's parser has checked that the number of bytes matches the shape.
        let (start, end) = info.data_offsets;
        if end as u64 > self.bytes - self.data {
            return Err(self.error(format!("it is truncated: it ends before tensor {name:?} does")));
        }
        let found = self.file.seek(SeekFrom::Start(self.data + start as u64));
        found.map(drop).map_err(|error| self.error(error))
    }

    /// A tensor's elements as they are stored.
    fn bytes(&mut self, name: &str, info: &TensorInfo) -> Result<Vec<u8>, Error> {
        self.seek(name, info)?;
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let read = self.file.read_exact(&mut bytes);
        read.map_err(|error| self.error(error))?;
        Ok(bytes)
    }

    fn array(&mut self, device: &Device, name: &str, info: &TensorInfo, dtype: DType) -> Result<Array, Error> {
        self.seek(name, info)?;
        let mut read = Ok(());
        let array = Array::weight(device, dtype, &info.shape, &mut |_, piece| {
            if read.is_ok() {
                read = self.file.read_exact(piece);
            }
            if dtype == DType::Bool {
                piece.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
        })?;
        read.map_err(|error| self.error(error))?;
        Ok(array)
    }

    fn error(&self, what: impl ToString) -> Error {
        file_error(self.path, what)
    }
}

/// The dtype of arrays for a dtype of the file, if it is supported.
fn dtype_of(stored: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&dtype| stored_as(dtype) == stored)
}

fn stored_as(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// A tensor as a safetensors file stores it.
pub struct StoredTensor {
    /// The dtype in the file.
    pub dtype: Dtype,
    /// The extents.
    pub shape: Vec<usize>,
    /// The elements in row-major order, as many as dtype and shape say.
    pub bytes: Vec<u8>,
}

impl StoredTensor {
    /// Copies an array, computing it if needed.
    ///
    /// # Errors
    /// Those of evaluating the array.
    pub fn of(array: &Array) -> Result<StoredTensor, Error> {
        Ok(StoredTensor {
            dtype: stored_as(array.dtype()),
            shape: array.shape().to_vec(),
            bytes: array.to_bytes()?,
        })
    }
}

impl View for StoredTensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
