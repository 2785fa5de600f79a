//! Arrays in safetensors files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use ::safetensors::tensor::{Metadata, TensorInfo};
use ::safetensors::{Dtype, View};

use crate::{Array, DType, Device, Error};

/// The longest header that is read: the format's own limit.
const LONGEST_HEADER: u64 = 100_000_000;

/// The arrays of a safetensors file by their names, on `device`. They are read piece by piece: the file is never whole
/// in host memory.
///
/// # Errors
/// Naming the file, if it cannot be read, is none or damaged, or has a tensor of a dtype that arrays do not have; too
/// little memory.
pub fn load_safetensors(device: &Device, path: &Path) -> Result<BTreeMap<String, Array>, Error> {
    let mut file = SafetensorsFile::open(path)?;
    let header = file.header()?;
    let mut arrays = BTreeMap::new();
    for (name, info) in header.tensors() {
        arrays.insert(name.clone(), file.array(device, &name, info)?);
    }
    Ok(arrays)
}

/// Writes arrays to a safetensors file, which is there whole or not at all; one that is there is replaced. The elements
/// go through host memory.
///
/// # Errors
/// Those of evaluating the arrays; naming the file, if it cannot be written, or two arrays have one name.
pub fn save_safetensors<'a, N: AsRef<str>>(
    path: &Path,
    arrays: impl IntoIterator<Item = (N, &'a Array)>,
) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    let mut tensors = vec![];
    for (name, array) in arrays {
        let name = name.as_ref().to_owned();
        if !names.insert(name.clone()) {
            return Err(wrong(path, format!("there are two arrays {name:?}")));
        }
        let bytes = array.to_bytes()?;
        tensors.push((name, Elements { array, bytes }));
    }
    ::safetensors::serialize_to_file(tensors, None, path).map_err(|error| wrong(path, error))
}

fn wrong(path: &Path, what: impl ToString) -> Error {
    Error::File {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

/// A file that is read.
struct SafetensorsFile<'a> {
    path: &'a Path,
    file: File,
    bytes: u64,
    /// Where the elements begin.
    data: u64,
}

impl SafetensorsFile<'_> {
    fn open(path: &Path) -> Result<SafetensorsFile<'_>, Error> {
        let file = File::open(path).map_err(|error| wrong(path, error))?;
        let bytes = file.metadata().map_err(|error| wrong(path, error))?.len();
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
        read.map_err(|_| self.wrong("it is too short for a safetensors file"))?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER.min(self.bytes.saturating_sub(8)) {
            return Err(self.wrong("it is no safetensors file, or cut short: its header does not end in it"));
        }
        let mut header = vec![0; length as usize];
        let read = self.file.read_exact(&mut header);
        read.map_err(|error| self.wrong(error))?;
        self.data = 8 + length;
        serde_json::from_slice(&header)
            .map_err(|error| self.wrong(format!("it is damaged, its header cannot be followed: {error}")))
    }

    fn array(&mut self, device: &Device, name: &str, info: &TensorInfo) -> Result<Array, Error> {
        let Some(dtype) = dtype_of(info.dtype) else {
            return Err(self.wrong(format!("tensor {name:?} is of {:?}, which no array is", info.dtype)));
        };
        // That these are as many bytes as the shape needs, the header was checked for.
        let (start, end) = info.data_offsets;
        if end as u64 > self.bytes - self.data {
            return Err(self.wrong(format!("it is cut short: it ends before tensor {name:?} does")));
        }
        let mut read = self.file.seek(SeekFrom::Start(self.data + start as u64)).map(|_| ());
        let array = Array::weight(device, dtype, &info.shape, &mut |_, piece| {
            if read.is_ok() {
                read = self.file.read_exact(piece);
            }
            if dtype == DType::Bool {
                piece.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
        })?;
        read.map_err(|error| self.wrong(error))?;
        Ok(array)
    }

    fn wrong(&self, what: impl ToString) -> Error {
        wrong(self.path, what)
    }
}

/// What arrays have of a file's dtypes.
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

/// An array that is written.
struct Elements<'a> {
    array: &'a Array,
    bytes: Vec<u8>,
}

impl View for Elements<'_> {
    fn dtype(&self) -> Dtype {
        stored_as(self.array.dtype())
    }

    fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
