//! The tensors of a GGUF file as Hugging Face has them.

use super::rope::holds_factors;
use super::{Gguf, names};
use crate::Error;
use crate::blocks::RowOrder;
use crate::config::{Architecture, ModelConfig};
use crate::tensor::{Span, TensorInfo, TensorStorage};

/// Translate names, and undo the reordering of rows that files of Llama models have.
pub(super) fn assemble(gguf: &Gguf, config: &ModelConfig) -> Result<Vec<(TensorInfo, TensorStorage)>, Error> {
    let mut tensors = Vec::with_capacity(gguf.tensors.len());
    for entry in gguf.tensors.iter().filter(|entry| !holds_factors(&entry.name)) {
        let name = names::hugging_face(config.architecture, &entry.name);
        let rows = row_order(config, &name);
        if let RowOrder::Interleaved { head_dim } = rows {
            let rows = entry.shape.first().copied().unwrap_or(0);
            if rows == 0 || !rows.is_multiple_of(head_dim) {
                return Err(Error::tensor(
                    &gguf.file,
                    &entry.name,
                    format!("its {rows} rows are not whole heads of {head_dim}"),
                ));
            }
        }
        let info = TensorInfo {
            name,
            shape: entry.shape.clone(),
            encoding: entry.encoding,
            bytes: entry.range.len() as u64,
        };
        let data = Span {
            file: entry.file,
            range: entry.range.clone(),
        };
        let storage = match entry.encoding {
            encoding if encoding.block_bytes().is_some() => TensorStorage::Blocks { data, rows },
            _ => TensorStorage::Plain { data, rows },
        };
        tensors.push((info, storage));
    }
    tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    for pair in tensors.windows(2) {
        if pair[0].0.name == pair[1].0.name {
            return Err(Error::tensor(&gguf.file, &pair[0].0.name, "is there twice"));
        }
    }
    Ok(tensors)
}

/// Converters to GGUF reorder the query and key rows of Llama and SmolLM3 models (and of no other) for
/// interleaved rotary embeddings.
pub(crate) fn row_order(config: &ModelConfig, name: &str) -> RowOrder {
    let reordered = [".q_proj.weight", ".k_proj.weight", ".q_proj.bias", ".k_proj.bias"];
    let interleaved = matches!(config.architecture, Architecture::Llama | Architecture::SmolLm3);
    if interleaved && reordered.iter().any(|suffix| name.ends_with(suffix)) {
        RowOrder::Interleaved {
            head_dim: config.head_dim,
        }
    } else {
        RowOrder::AsStored
    }
}
