//! What `ARCH:FORMAT` stands for: a configuration and a list of tensors.

use std::collections::BTreeMap;

use super::format::SyntheticFormat;
use super::shapes::shapes;
use super::{RandomTensor, architectures};
use crate::config::Quantisation;
use crate::tensor::{TensorInfo, TensorStorage};
use crate::{Error, Format, ModelConfig};

/// A synthetic checkpoint by its name.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// `ARCH:FORMAT`.
    name: String,
    config: architectures::Config,
    weights: SyntheticFormat,
}

impl Spec {
    /// Reads `ARCH:FORMAT`.
    pub(crate) fn parse(spec: &str) -> Result<Spec, Error> {
        let error = |reason: String| Error::Synthetic {
            spec: spec.to_owned(),
            reason,
        };
        let formats = || {
            let names = super::formats().join(", ");
            format!("{names}; those of MLX also with -g32, -g64 or -g128")
        };
        let Some((architecture, format)) = spec.split_once(':') else {
            return Err(error(format!(
                "must be ARCH:FORMAT, such as qwen3-0.6b:q4_0 (architectures: {}; formats: {})",
                super::architectures().join(", "),
                formats()
            )));
        };
        let mut known = architectures::ALL.iter();
        let Some((_, config)) = known.find(|(name, _)| *name == architecture) else {
            return Err(error(format!(
                "architecture {architecture:?} is not known (known: {})",
                super::architectures().join(", ")
            )));
        };
        let Some(weights) = SyntheticFormat::by_name(format) else {
            return Err(error(format!("format {format:?} is not known (known: {})", formats())));
        };
        Ok(Spec {
            name: spec.to_owned(),
            config: *config,
            weights,
        })
    }

    /// Its name in messages, which is also what the command line calls it.
    pub(crate) fn label(&self) -> String {
        format!("synthetic:{}", self.name)
    }

    /// Its name as that of a model.
    pub(super) fn name(&self) -> String {
        let architecture = self.name.split(':').next().unwrap_or_default();
        format!("{architecture} (random weights)")
    }

    /// How its weights are stored.
    pub(super) fn weights(&self) -> SyntheticFormat {
        self.weights
    }

    /// The kind of checkpoint that its format belongs to.
    pub(crate) fn format(&self) -> Format {
        self.weights.format()
    }

    /// The model's hyperparameters.
    pub(crate) fn config(&self) -> ModelConfig {
        let quantisation = self.weights.affine().map(|(bits, group_size)| Quantisation {
            bits,
            group_size,
            overrides: BTreeMap::new(),
        });
        let config = (self.config)();
        ModelConfig {
            // mlx-lm adds it to the gains that it stores.
            norm_offset: if quantisation.is_some() {
                0.0
            } else {
                config.norm_offset
            },
            quantisation,
            ..config
        }
    }

    /// All tensors, sorted by name.
    pub(crate) fn tensors(&self, config: &ModelConfig) -> Vec<(TensorInfo, TensorStorage)> {
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let encoding = match shape[..] {
                [.., columns] if shape.len() > 1 && !name.ends_with("conv1d.weight") => {
                    self.weights.of_matrix(config, &name, columns)
                }
                _ => self.weights.of_vectors(),
            };
            let random = RandomTensor::new(&name, &shape, encoding, config.norm_offset);
            let info = TensorInfo {
                name,
                shape,
                encoding,
                bytes: random.bytes(),
            };
            (info, TensorStorage::Synthetic(random))
        };
        let mut tensors: Vec<_> = shapes(config).into_iter().map(tensor).collect();
        tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        tensors
    }
}
