//! Synthetic checkpoints `ARCH:FORMAT`: a published configuration with random weights.

use std::collections::{BTreeMap, HashMap};

use refrain_formats::synthetic::{self, RandomTensor, SyntheticFormat};
use refrain_formats::{CheckpointFiles, Error, Format, LayerFormat, Quantisation, RowOrder, TensorInfo, TensorOrder};

use crate::config::{ModelConfig, is_norm, is_router};
use crate::families::FAMILIES;
use crate::family::Family;

/// Names of the architectures, used as `ARCH` in `ARCH:FORMAT`; test models come first.
pub fn architectures() -> Vec<&'static str> {
    names(FAMILIES)
}

fn names(families: &[&'static Family]) -> Vec<&'static str> {
    let sizes = families.iter().flat_map(|family| family.presets);
    let mut names: Vec<&str> = sizes.map(|(name, _)| *name).collect();
    names.sort_by_key(|name| !name.starts_with("tiny"));
    names
}

/// A parsed name of a synthetic checkpoint.
#[derive(Debug, Clone)]
pub struct SyntheticSpec {
    /// `ARCH:FORMAT`.
    name: String,
    config: fn() -> ModelConfig,
    weights: SyntheticFormat,
}

impl SyntheticSpec {
    /// Parses `ARCH:FORMAT` with the published models of `families`.
    ///
    /// # Errors
    /// If the architecture or format is unknown; the error lists the known ones.
    pub fn parse(spec: &str, families: &[&'static Family]) -> Result<SyntheticSpec, Error> {
        let error = |reason: String| Error::Synthetic {
            spec: spec.to_owned(),
            reason,
        };
        let formats = || {
            let names = synthetic::formats().join(", ");
            format!("{names}; MLX formats also with -g32, -g64 or -g128")
        };
        let Some((architecture, format)) = spec.split_once(':') else {
            return Err(error(format!(
                "must be ARCH:FORMAT, such as qwen3-0.6b:q4_0 (architectures: {}; formats: {})",
                names(families).join(", "),
                formats()
            )));
        };
        let mut known = families.iter().flat_map(|family| family.presets);
        let Some((_, config)) = known.find(|(name, _)| *name == architecture) else {
            return Err(error(format!(
                "unknown architecture {architecture:?} (known: {})",
                names(families).join(", ")
            )));
        };
        let Some(weights) = SyntheticFormat::by_name(format) else {
            return Err(error(format!("unknown format {format:?} (known: {})", formats())));
        };
        Ok(SyntheticSpec {
            name: spec.to_owned(),
            config: *config,
            weights,
        })
    }

    /// Name for messages and for the command line.
    pub fn label(&self) -> String {
        format!("synthetic:{}", self.name)
    }

    /// Name of the model.
    pub fn name(&self) -> String {
        let architecture = self.name.split(':').next().unwrap_or_default();
        format!("{architecture} (random weights)")
    }

    /// Format of the weights.
    pub fn weights(&self) -> SyntheticFormat {
        self.weights
    }

    /// Kind of checkpoint.
    pub fn format(&self) -> Format {
        self.weights.format()
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> ModelConfig {
        let quantisation = self.weights.affine().map(|format| Quantisation {
            format: LayerFormat::Quantised(format),
            overrides: BTreeMap::new(),
        });
        let mut config = (self.config)();
        let gguf = self.is_written_as_gguf(&config);
        // llama.cpp's converter and mlx-lm add it to the norms' weights.
        if gguf || quantisation.is_some() {
            config.norm.offset = 0.0;
        }
        if let Some(nets) = &mut config.delta_net {
            nets.holds_decay_rates = gguf;
        }
        config.quantisation = quantisation;
        config
    }

    fn is_written_as_gguf(&self, config: &ModelConfig) -> bool {
        self.format() == Format::Gguf && config.family.gguf.is_some()
    }

    /// Returns the checkpoint's files, which exist only in memory.
    pub(crate) fn files(&self, config: &ModelConfig) -> CheckpointFiles {
        let mut files = CheckpointFiles::synthetic(self.label(), self.format(), self.tensors(config));
        if self.is_written_as_gguf(config) {
            let rows = (config.family.tensors)(config);
            let columns: HashMap<&str, RowOrder> = rows.iter().map(|row| (&row.name[..], row.gguf_columns)).collect();
            let order = |name: &str| TensorOrder {
                rows: RowOrder::AsStored,
                columns: columns.get(name).copied().unwrap_or(RowOrder::AsStored),
            };
            // Families list each tensor once, so this cannot fail.
            let _ = files.map_tensors(|info| Ok(Some(order(&info.name))));
        }
        files
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self, config: &ModelConfig) -> Vec<(TensorInfo, RandomTensor)> {
        let place = config.quant_context();
        let written = self.is_written_as_gguf(config);
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let encoding = match shape[..] {
                // GGUF files keep routers in full precision.
                _ if (written && is_router(&name)) || name.ends_with("_bias") => self.weights.vector_encoding(),
                [.., columns] if shape.len() > 1 && !name.ends_with("conv1d.weight") && !is_norm(&name) => {
                    self.weights.matrix_encoding(place, &name, columns)
                }
                _ => self.weights.vector_encoding(),
            };
            let random = RandomTensor::new(&name, &shape, encoding, config.norm.offset);
            let rates = name.ends_with("A_log") && config.delta_net.as_ref().is_some_and(|nets| nets.holds_decay_rates);
            let random = if rates { random.with_decay_range() } else { random };
            let info = TensorInfo {
                name,
                shape,
                encoding,
                bytes: random.bytes(),
            };
            (info, random)
        };
        // GGUF files have separate gate and up projections of all experts.
        let needed = (config.family.tensors)(config).into_iter().filter(|row| {
            let fused = row.name.contains(".experts.gate_up_proj");
            let apart = row.name.contains(".experts.gate_proj") || row.name.contains(".experts.up_proj");
            if written && (fused || apart) {
                apart
            } else {
                row.required
            }
        });
        let mut tensors: Vec<_> = needed.map(|row| tensor((row.name, row.shape))).collect();
        tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        tensors
    }
}
