//! The files of a checkpoint directory: configuration, and weights in one or several shards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::config::{Quantisation, text_name};
use crate::files::{FileBytes, FileSet};
use crate::mlx::{self, RawTensor};
use crate::safetensors;
use crate::tensor::{Span, TensorInfo, TensorStorage};
use crate::{Error, GenerationConfig, ModelConfig};

const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The weights of a directory.
pub(crate) struct DirectoryWeights {
    pub files: Vec<FileBytes>,
    pub labels: Vec<String>,
    /// Sorted by name.
    pub tensors: Vec<(TensorInfo, TensorStorage)>,
}

/// What the files beside the weights say.
pub(super) struct Configuration {
    pub config: ModelConfig,
    pub generation: GenerationConfig,
    /// Whether the model is the text model of one that also takes images.
    pub wrapped: bool,
}

/// Read `config.json` and, if it is there, `generation_config.json`.
pub(super) fn configuration(set: &FileSet) -> Result<Configuration, Error> {
    let Some(object) = set.json("config.json")? else {
        return Err(Error::NotACheckpoint {
            path: PathBuf::from(set.name()),
            reason: "there is no config.json; a model has config.json, *.safetensors and tokenizer.json, or is a \
                     .gguf file"
                .to_owned(),
        });
    };
    let (config, wrapped) = ModelConfig::from_json(&object, &set.label("config.json"))?;
    let mut generation = match set.json("generation_config.json")? {
        Some(object) => GenerationConfig::from_json(&object, &set.label("generation_config.json"))?,
        None => GenerationConfig::default(),
    };
    if generation.eos_ids.is_empty() {
        generation.eos_ids = config.eos_ids.clone();
    }
    Ok(Configuration {
        config,
        generation,
        wrapped,
    })
}

/// Open and check all weight files. Of a `wrapped` text model, its tensors alone, under their own names.
pub(crate) fn weights(
    set: &FileSet,
    quantisation: Option<&Quantisation>,
    wrapped: bool,
) -> Result<DirectoryWeights, Error> {
    // Where there are both one whole file and an index, transformers reads the whole file.
    let index = match set.has(INDEX) && !set.has(WHOLE) {
        true => Some(read_index(set)?),
        false => None,
    };
    let names: BTreeSet<String> = match &index {
        Some(index) => index.values().cloned().collect(),
        None if set.has(WHOLE) => BTreeSet::from([WHOLE.to_owned()]),
        None => set.ending_in(".safetensors")?.into_iter().collect(),
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
            return Err(Error::file(
                label,
                format!("is missing: {INDEX} says that it holds a part of the weights"),
            ));
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
    if wrapped {
        raw = raw.into_values().filter_map(of_text_model).collect();
    }
    let mut tensors = match quantisation {
        Some(quantisation) => mlx::assemble(raw, quantisation, &labels)?,
        None => raw.into_values().map(RawTensor::plain).collect(),
    };
    tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    Ok(DirectoryWeights { files, labels, tensors })
}

fn of_text_model(mut tensor: RawTensor) -> Option<(String, RawTensor)> {
    tensor.info.name = text_name(&tensor.info.name)?;
    Some((tensor.info.name.clone(), tensor))
}

/// Read the index of a sharded checkpoint: which file holds which tensor.
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
                    format!("places tensor {tensor} in {file}, which is no file beside it"),
                ));
            }
        }
    }
    Ok(index)
}

/// Check that each shard holds what the index says.
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
                format!("is missing, though {INDEX} places it there"),
            ));
        }
    }
    Ok(())
}
