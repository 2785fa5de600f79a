//! The weights of a checkpoint directory, in one safetensors file or several shards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::Error;
use crate::config::Quantisation;
use crate::files::{FileBytes, FileSet};
use crate::microscaling;
use crate::mlx::{self, RawTensor};
use crate::safetensors;
use crate::storage::{Span, TensorStorage};
use crate::tensor::TensorInfo;

const SINGLE_FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The weights of a directory.
pub(crate) struct DirectoryWeights {
    pub files: Vec<FileBytes>,
    pub labels: Vec<String>,
    /// Sorted by name.
    pub tensors: Vec<(TensorInfo, TensorStorage)>,
}

/// Opens and checks all weight files. `rename` maps a tensor's name in the file to its model name; `None` skips the
/// tensor.
pub(crate) fn weights(
    set: &FileSet,
    quantisation: Option<&Quantisation>,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<DirectoryWeights, Error> {
    // If there is both a single file and an index, transformers reads the single file.
    let index = if set.has(INDEX) && !set.has(SINGLE_FILE) {
        Some(read_index(set)?)
    } else {
        None
    };
    let names: BTreeSet<String> = match &index {
        Some(index) => index.values().cloned().collect(),
        None if set.has(SINGLE_FILE) => BTreeSet::from([SINGLE_FILE.to_owned()]),
        None => set.with_suffix(".safetensors")?.into_iter().collect(),
    };
    if names.is_empty() {
        return Err(Error::NotACheckpoint {
            path: PathBuf::from(set.name()),
            reason: "there is no .safetensors file".to_owned(),
        });
    }
    let mut files = Vec::new();
    let mut labels = Vec::new();
    let mut raw: BTreeMap<String, RawTensor> = BTreeMap::new();
    for name in names {
        let label = set.label(&name);
        let Some(file) = set.open(&name)? else {
            return Err(Error::file(label, format!("is missing, but {INDEX} lists it")));
        };
        for entry in safetensors::read(file.bytes(), &label)? {
            let tensor = RawTensor {
                info: TensorInfo {
                    name: entry.name.clone(),
                    shape: entry.shape,
                    encoding: entry.encoding,
                    bytes: entry.range.len() as u64,
                },
                span: Span {
                    file: files.len(),
                    range: entry.range,
                },
            };
            if let Some(other) = raw.insert(entry.name.clone(), tensor) {
                return Err(Error::tensor(
                    label,
                    entry.name,
                    format!("is also in {}", labels[other.span.file]),
                ));
            }
        }
        files.push(file);
        labels.push(label);
    }
    check_index(set, index.as_ref(), &raw)?;
    let named = raw.into_values().filter_map(|mut tensor| {
        tensor.info.name = rename(&tensor.info.name)?;
        Some((tensor.info.name.clone(), tensor))
    });
    let mut raw: BTreeMap<String, RawTensor> = named.collect();
    let mut tensors = microscaling::join(&mut raw, &labels)?;
    match quantisation {
        Some(quantisation) => tensors.extend(mlx::assemble(raw, quantisation, &labels)?),
        None => tensors.extend(raw.into_values().map(RawTensor::plain)),
    }
    tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    Ok(DirectoryWeights { files, labels, tensors })
}

/// Reads the index of a sharded checkpoint: the file of each tensor.
fn read_index(set: &FileSet) -> Result<BTreeMap<String, String>, Error> {
    let label = set.label(INDEX);
    let object = set.json(INDEX)?.unwrap_or_default();
    let Some(Value::Object(map)) = object.get("weight_map") else {
        return Err(Error::file(label, "has no object named weight_map"));
    };
    let mut index = BTreeMap::new();
    for (tensor, file) in map {
        match file.as_str() {
            Some(file) if !file.is_empty() && !file.contains(['/', '\\']) => {
                index.insert(tensor.clone(), file.to_owned());
            }
            _ => {
                return Err(Error::file(
                    label,
                    format!("places tensor {tensor} in {file}, which is not a file in the same directory"),
                ));
            }
        }
    }
    Ok(index)
}

/// Checks that each shard has the tensors that the index lists for it.
fn check_index(
    set: &FileSet,
    index: Option<&BTreeMap<String, String>>,
    raw: &BTreeMap<String, RawTensor>,
) -> Result<(), Error> {
    for (tensor, file) in index.into_iter().flatten() {
        if !raw.contains_key(tensor) {
            return Err(Error::tensor(
                set.label(file),
                tensor,
                format!("is missing, but {INDEX} places it there"),
            ));
        }
    }
    Ok(())
}
