//! Hybrids' tensors under the names and shapes of transformers, whichever tool wrote them.

use crate::tensor::{TensorInfo, TensorStorage};
use crate::{Architecture, ModelConfig};

/// Gives a hybrid's tensors one naming: experts in one tensor are `mlp.experts.PART` `[E, N, K]`; the weights
/// of short convolutions are `[C, W]`.
pub(super) fn canonicalise(config: &mut ModelConfig, tensors: &mut [(TensorInfo, TensorStorage)]) {
    if config.architecture != Architecture::Qwen3_5Moe {
        return;
    }
    for (info, _) in tensors.iter_mut() {
        if let Some(name) = of_experts(&info.name) {
            info.name = name;
            // mlx-lm, which alone names them so, has added their one to the gains.
            config.norm_offset = 0.0;
        }
        // Taps and the one channel of each filter, in either order.
        if info.name.ends_with("conv1d.weight")
            && let [channels, first, last] = info.shape[..]
        {
            info.shape = vec![channels, first * last];
        }
    }
    tensors.sort_by(|a, b| a.0.name.cmp(&b.0.name));
}

/// Transformers' name of a tensor of all experts that mlx-lm named.
fn of_experts(name: &str) -> Option<String> {
    let (layer, part) = name.split_once(".switch_mlp.")?;
    Some(format!(
        "{layer}.experts.{}",
        part.strip_suffix(".weight").unwrap_or(part)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_of_mlx_are_named_as_those_of_transformers() {
        let name = "model.layers.3.mlp.switch_mlp.up_proj.weight";
        assert_eq!(of_experts(name).as_deref(), Some("model.layers.3.mlp.experts.up_proj"));
        assert_eq!(of_experts("model.layers.3.mlp.experts.up_proj"), None);
    }
}
