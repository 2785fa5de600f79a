//! Which encoding a tensor has in a file of a named kind, as llama.cpp's quantiser chooses.

use crate::{Architecture, Encoding, ModelConfig};

/// The encoding of the matrix `name` (in Hugging Face's naming, of `columns` columns) in a `Q4_K_M` file:
/// Q6_K for the output head and for half of the value and down projections, Q5_K for fused projections to
/// queries, keys and values, else Q4_K.
pub(crate) fn q4_k_m(config: &ModelConfig, name: &str, columns: usize) -> Encoding {
    let head = match config.tie_word_embeddings {
        true => "model.embed_tokens.weight",
        false => "lm_head.weight",
    };
    let layer = name
        .strip_prefix("model.layers.")
        .and_then(|rest| rest.split('.').next()?.parse().ok());
    let sensitive = name.ends_with(".v_proj.weight") || name.ends_with(".down_proj.weight");
    let encoding = match layer {
        _ if name == head => Encoding::Q6_K,
        Some(layer) if sensitive && gets_more_bits(layer, config.layers) => Encoding::Q6_K,
        Some(_) if config.architecture == Architecture::Phi3 && name.ends_with(".qkv_proj.weight") => Encoding::Q5_K,
        _ => Encoding::Q4_K,
    };
    for_columns(encoding, columns)
}

/// `encoding`, or what stands in for it where rows are not whole blocks of 256 values.
pub(crate) fn for_columns(encoding: Encoding, columns: usize) -> Encoding {
    if columns.is_multiple_of(encoding.block_values()) {
        return encoding;
    }
    match encoding {
        Encoding::Q2_K | Encoding::Q3_K => Encoding::Q4_0,
        Encoding::Q4_K => Encoding::Q5_0,
        Encoding::Q5_K => Encoding::Q5_1,
        Encoding::Q6_K => Encoding::Q8_0,
        other => other,
    }
}

/// The first and last eighth of the layers, and every third between.
fn gets_more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensitive_layers_are_the_ends_and_every_third_between() {
        let layers: Vec<usize> = (0..36).filter(|&layer| gets_more_bits(layer, 36)).collect();
        assert_eq!(
            layers,
            [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35]
        );
    }

    #[test]
    fn rows_that_are_not_whole_blocks_get_another_encoding() {
        assert_eq!(for_columns(Encoding::Q4_K, 512), Encoding::Q4_K);
        assert_eq!(for_columns(Encoding::Q4_K, 320), Encoding::Q5_0);
        assert_eq!(for_columns(Encoding::Q6_K, 96), Encoding::Q8_0);
        assert_eq!(for_columns(Encoding::Q4_0, 96), Encoding::Q4_0);
    }
}
