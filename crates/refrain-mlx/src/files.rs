//! Safetensors files.

use std::collections::BTreeMap;
use std::path::Path;

use refrain::StoredTensor;
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::device::compute_device;
use crate::{DType, Error, ErrorKind, Result, Value};

/// Maximum length in bytes of the header: the format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Values by name, and texts by name.
pub type Contents = (Vec<(String, Value)>, Vec<(String, String)>);

/// Loads the values of a safetensors file, and its metadata. Floats of 8 bits are loaded as their bytes.
///
/// # Errors
/// Fails if the file cannot be read or is damaged, if a dtype is not supported, or if memory runs out.
pub fn load_safetensors(path: &Path) -> Result<Contents> {
    let mut others = vec![];
    let arrays = refrain::load_safetensors_with(&compute_device(), path, |name, stored, shape, bytes| {
        let dtype = dtype_of(stored);
        others.extend(dtype.map(|dtype| (name.to_owned(), Value::from_bytes(bytes, dtype, shape))));
        dtype.is_some()
    })?;
    let natives = arrays.into_iter().map(|(name, array)| (name, Value::of(array)));
    let named = |(name, value): (String, Result<Value>)| {
        let in_file = |error: Error| Error::new(error.kind, format!("tensor {name:?}: {}", error.message));
        value.map_err(in_file).map(|value| (name.clone(), value))
    };
    let values: BTreeMap<String, Value> = natives.chain(others).map(named).collect::<Result<_>>()?;
    Ok((values.into_iter().collect(), metadata(path)?))
}

/// The dtypes that are not stored as the core stores arrays.
const OTHERS: [(Dtype, DType); 5] = [
    (Dtype::I8, DType::I8),
    (Dtype::I16, DType::I16),
    (Dtype::U16, DType::U16),
    (Dtype::I64, DType::I64),
    (Dtype::U64, DType::U64),
];

/// The dtype of a tensor that is not stored as the core stores arrays, if there is one.
fn dtype_of(stored: Dtype) -> Option<DType> {
    match stored {
        Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::F8_E8M0 => Some(DType::U8),
        _ => OTHERS
            .iter()
            .find(|(other, _)| *other == stored)
            .map(|(_, dtype)| *dtype),
    }
}

/// A value as files store it.
fn stored(value: &Value) -> Result<StoredTensor> {
    match OTHERS.iter().find(|(_, dtype)| *dtype == value.dtype()) {
        None => Ok(StoredTensor::of(value.array())?),
        Some(&(dtype, _)) => Ok(StoredTensor {
            dtype,
            shape: value.shape().to_vec(),
            bytes: value.to_bytes()?,
        }),
    }
}

/// The texts in a file's header.
fn metadata(path: &Path) -> Result<Vec<(String, String)>> {
    use std::io::Read;
    let failed = |error: &dyn std::fmt::Display| Error::new(ErrorKind::File, format!("{}: {error}", path.display()));
    let mut file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|error| failed(&error))?;
    let length = u64::from_le_bytes(length).min(MAX_HEADER_BYTES);
    let mut bytes = Vec::new();
    file.take(length)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    let header: Metadata = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
    let texts: BTreeMap<_, _> = header.metadata().clone().unwrap_or_default().into_iter().collect();
    Ok(texts.into_iter().collect())
}

/// Writes values and metadata to a safetensors file, computing them if needed. An existing file is replaced only by a
/// complete one.
///
/// # Errors
/// Fails as [`crate::eval`], or if the file cannot be written.
pub fn save_safetensors(path: &Path, values: &[(&str, &Value)], metadata: &[(String, String)]) -> Result<()> {
    let all: Vec<Value> = values.iter().map(|(_, value)| (*value).clone()).collect();
    crate::evaluation::evaluate(&all)?;
    let tensors = values
        .iter()
        .map(|(name, value)| Ok(((*name).to_owned(), stored(value)?)));
    Ok(refrain::save_safetensors_with(
        path,
        tensors.collect::<Result<_>>()?,
        metadata,
    )?)
}
