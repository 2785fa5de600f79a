//! What `ARCH:FORMAT` stands for: a configuration and a list of tensors.

use std::collections::{BTreeMap, HashMap};

use refrain_formats::synthetic::{self, RandomTensor, SyntheticFormat};
use refrain_formats::{CheckpointFiles, Error, Format, Quantisation, RowOrder, TensorInfo, TensorOrder};

use crate::config::{ModelConfig, is_norm, is_router};
use crate::families::FAMILIES;
use crate::family::Family;

/// The known architectures, as `ARCH` of `ARCH:FORMAT` names them: those for tests first.
pub fn architectures() -> Vec<&'static str> {
    names(FAMILIES)
}

fn names(families: &[&'static Family]) -> Vec<&'static str> {
    let sizes = families.iter().flat_map(|family| family.sizes);
    let mut names: Vec<&str> = sizes.map(|(name, _)| *name).collect();
    names.sort_by_key(|name| !name.starts_with("tiny"));
    names
}

/// A synthetic checkpoint by its name.
#[derive(Debug, Clone)]
pub struct SyntheticSpec {
    /// `ARCH:FORMAT`.
    name: String,
    config: fn() -> ModelConfig,
    weights: SyntheticFormat,
}

impl SyntheticSpec {
    /// Reads `ARCH:FORMAT`, of the sizes that `families` list.
    ///
    /// # Errors
    /// If architecture or format are not known: with those that are.
    pub fn parse(spec: &str, families: &[&'static Family]) -> Result<SyntheticSpec, Error> {
        let error = |reason: String| Error::Synthetic {
            spec: spec.to_owned(),
            reason,
        };
        let formats = || {
            let names = synthetic::formats().join(", ");
            format!("{names}; those of MLX also with -g32, -g64 or -g128")
        };
        let Some((architecture, format)) = spec.split_once(':') else {
            return Err(error(format!(
                "must be ARCH:FORMAT, such as qwen3-0.6b:q4_0 (architectures: {}; formats: {})",
                names(families).join(", "),
                formats()
            )));
        };
        let mut known = families.iter().flat_map(|family| family.sizes);
        let Some((_, config)) = known.find(|(name, _)| *name == architecture) else {
            return Err(error(format!(
                "architecture {architecture:?} is not known (known: {})",
                names(families).join(", ")
            )));
        };
        let Some(weights) = SyntheticFormat::by_name(format) else {
            return Err(error(format!("format {format:?} is not known (known: {})", formats())));
        };
        Ok(SyntheticSpec {
            name: spec.to_owned(),
            config: *config,
            weights,
        })
    }

    /// Its name in messages, which is also what the command line calls it.
    pub fn label(&self) -> String {
        format!("synthetic:{}", self.name)
    }

    /// Its name as that of a model.
    pub fn name(&self) -> String {
        let architecture = self.name.split(':').next().unwrap_or_default();
        format!("{architecture} (random weights)")
    }

    /// How its weights are stored.
    pub fn weights(&self) -> SyntheticFormat {
        self.weights
    }

    /// The kind of checkpoint that its format belongs to.
    pub fn format(&self) -> Format {
        self.weights.format()
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> ModelConfig {
        let quantisation = self.weights.affine().map(|format| Quantisation {
            format,
            overrides: BTreeMap::new(),
        });
        let mut config = (self.config)();
        let gguf = self.is_written_as_gguf(&config);
        // llama.cpp's converter and mlx-lm add it to the norms' weights that they store.
        if gguf || quantisation.is_some() {
            config.norm.offset = 0.0;
        }
        if let Some(nets) = &mut config.delta_nets {
            nets.rates = gguf;
        }
        config.quantisation = quantisation;
        config
    }

    fn is_written_as_gguf(&self, config: &ModelConfig) -> bool {
        self.format() == Format::Gguf && config.family.gguf.is_some()
    }

    /// What stands in for its files.
    pub(crate) fn files(&self, config: &ModelConfig) -> CheckpointFiles {
        let mut files = CheckpointFiles::synthetic(self.label(), self.format(), self.tensors(config));
        if self.is_written_as_gguf(config) {
            let rows = (config.family.tensors)(config);
            let columns: HashMap<&str, RowOrder> = rows.iter().map(|row| (&row.name[..], row.columns)).collect();
            let order = |name: &str| TensorOrder {
                rows: RowOrder::AsStored,
                columns: columns.get(name).copied().unwrap_or(RowOrder::AsStored),
            };
            // The tables of families list each tensor once, so that nothing here can fail.
            let _ = files.arrange(|info| Ok(Some(order(&info.name))));
        }
        files
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self, config: &ModelConfig) -> Vec<(TensorInfo, RandomTensor)> {
        let place = config.matrix_place();
        let written = self.is_written_as_gguf(config);
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let encoding = match shape[..] {
                // Which experts are chosen is told with all bits in GGUF files.
                _ if (written && is_router(&name)) || name.ends_with("_bias") => self.weights.of_vectors(),
                [.., columns] if shape.len() > 1 && !name.ends_with("conv1d.weight") && !is_norm(&name) => {
                    self.weights.of_matrix(place, &name, columns)
                }
                _ => self.weights.of_vectors(),
            };
            let random = RandomTensor::new(&name, &shape, encoding, config.norm.offset);
            let rates = name.ends_with("A_log") && config.delta_nets.as_ref().is_some_and(|nets| nets.rates);
            let random = if rates { random.of_rates() } else { random };
            let info = TensorInfo {
                name,
                shape,
                encoding,
                bytes: random.bytes(),
            };
            (info, random)
        };
        // GGUF files have gate and up of all experts apart.
        let needed = (config.family.tensors)(config).into_iter().filter(|row| {
            let fused = row.name.contains(".experts.gate_up_proj");
            let apart = row.name.contains(".experts.gate_proj") || row.name.contains(".experts.up_proj");
            if written && (fused || apart) { apart } else { row.needed }
        });
        let mut tensors: Vec<_> = needed.map(|row| tensor((row.name, row.shape))).collect();
        tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        tensors
    }
}
