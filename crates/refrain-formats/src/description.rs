//! Describes a checkpoint from its files alone, also for models that cannot run.

use std::path::Path;

use serde_json::Value;

use crate::directory;
use crate::files::FileSet;
use crate::gguf::{self, GgufFiles};
use crate::write::contents::CONFIG;
use crate::{Error, Format, TensorInfo};

/// Configuration and tensors of a checkpoint, whether or not its architecture is supported.
#[derive(Debug, Clone)]
pub struct Description {
    /// Kind of checkpoint.
    pub format: Format,
    /// Name of the architecture in the files.
    pub architecture: Option<String>,
    /// Scalar configuration values, under the files' own keys.
    pub settings: Vec<(String, Value)>,
    /// All tensors, with the files' own names and shapes.
    pub tensors: Vec<TensorInfo>,
}

impl Description {
    /// Reads the checkpoint at `path`: a directory or a GGUF file.
    ///
    /// # Errors
    /// If neither configuration nor tensors can be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let set = FileSet::Directory(path.to_owned());
        if !path.is_dir() {
            return Ok(gguf::describe(GgufFiles::open(path)?));
        }
        if !set.has(CONFIG)
            && let Some(path) = gguf::gguf_in_directory(&set)?
        {
            return Ok(gguf::describe(GgufFiles::open(&path)?));
        }
        let config = set.json(CONFIG);
        let tensors = directory::weights(&set, None, &|name| Some(name.to_owned()));
        let (config, tensors) = match (config, tensors) {
            (Err(error), Err(_)) | (Ok(None), Err(error)) => return Err(error),
            (config, tensors) => (config.ok().flatten().unwrap_or_default(), tensors.ok()),
        };
        let name = config.get("model_type").and_then(Value::as_str);
        Ok(Description {
            format: if config.contains_key("quantization") {
                Format::Mlx
            } else {
                Format::Safetensors
            },
            architecture: name.map(str::to_owned),
            settings: config
                .into_iter()
                .filter(|(_, value)| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_)))
                .collect(),
            tensors: tensors.map_or_else(Vec::new, |weights| {
                weights.tensors.into_iter().map(|(info, _)| info).collect()
            }),
        })
    }
}
