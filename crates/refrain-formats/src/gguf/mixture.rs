//! Which encoding a tensor has in a file of a named kind, as llama.cpp's quantiser chooses.

use crate::{Architecture, Encoding, ModelConfig};

/// The files whose matrices have several encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MixedFile {
    /// Q3_K; Q4_K or Q5_K where it matters most.
    Q3KM,
    /// Q4_K; Q6_K where it matters most.
    Q4KM,
    /// Q5_K; Q6_K where it matters most.
    Q5KM,
}

impl MixedFile {
    /// The encoding of the matrix `name` (in Hugging Face's naming): more bits for the output head, for value and
    /// down projections, and for projections to queries, keys and values that are one.
    pub(crate) fn encoding(self, config: &ModelConfig, name: &str) -> Encoding {
        if is_output(config, name) {
            return Encoding::Q6_K;
        }
        let number = |rest: &str| rest.split('.').next()?.parse().ok();
        let Some(layer) = name.strip_prefix("model.layers.").and_then(number) else {
            return self.usual();
        };
        let is = |part: &str| name.ends_with(&format!(".{part}.weight"));
        let (values, down) = (is("v_proj"), is("down_proj"));
        let fused = config.architecture == Architecture::Phi3 && is("qkv_proj");
        match self {
            MixedFile::Q3KM if values => {
                if layer < 2 {
                    Encoding::Q5_K
                } else {
                    Encoding::Q4_K
                }
            }
            MixedFile::Q3KM if down && layer < config.layers / 16 => Encoding::Q5_K,
            MixedFile::Q3KM if down || fused || is("o_proj") => Encoding::Q4_K,
            MixedFile::Q4KM | MixedFile::Q5KM if (values || down) && gets_more_bits(layer, config.layers) => {
                Encoding::Q6_K
            }
            MixedFile::Q4KM if fused => Encoding::Q5_K,
            MixedFile::Q5KM if fused => Encoding::Q6_K,
            _ => self.usual(),
        }
    }

    /// That of most matrices.
    fn usual(self) -> Encoding {
        match self {
            MixedFile::Q3KM => Encoding::Q3_K,
            MixedFile::Q4KM => Encoding::Q4_K,
            MixedFile::Q5KM => Encoding::Q5_K,
        }
    }
}

/// Whether the matrix is the output head.
pub(crate) fn is_output(config: &ModelConfig, name: &str) -> bool {
    name == "lm_head.weight" || (config.tie_word_embeddings && name == "model.embed_tokens.weight")
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
