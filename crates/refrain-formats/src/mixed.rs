//! Mixed quantisation as in llama.cpp: the encoding of each tensor in a Q3_K_M, Q4_K_M or Q5_K_M file.

use crate::Encoding;

/// The properties of a model that the choice of an encoding depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantContext {
    /// Number of transformer blocks.
    pub layers: usize,
    /// Whether the token embedding is also the output head.
    pub tied: bool,
}

/// A mix of encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantMix {
    /// Q3_K, with Q4_K or Q5_K for sensitive tensors.
    Q3KM,
    /// Q4_K, with Q6_K for sensitive tensors.
    Q4KM,
    /// Q5_K, with Q6_K for sensitive tensors.
    Q5KM,
}

impl QuantMix {
    /// The recommended mix.
    pub const DEFAULT: QuantMix = QuantMix::Q4KM;

    /// All mixes, from the largest files to the smallest.
    pub const ALL: [QuantMix; 3] = [QuantMix::Q5KM, QuantMix::Q4KM, QuantMix::Q3KM];

    /// Name for users.
    pub fn name(self) -> &'static str {
        match self {
            QuantMix::Q3KM => "q3_k_m",
            QuantMix::Q4KM => "q4_k_m",
            QuantMix::Q5KM => "q5_k_m",
        }
    }

    /// GGUF's file type number (`general.file_type`).
    pub fn file_type(self) -> u32 {
        match self {
            QuantMix::Q3KM => 12,
            QuantMix::Q4KM => 15,
            QuantMix::Q5KM => 17,
        }
    }

    /// Encoding of the matrix `name` (a Hugging Face name). The output head, value and down projections, and fused
    /// query-key-value projections get more bits.
    pub fn encoding(self, context: QuantContext, name: &str) -> Encoding {
        if is_output(context, name) {
            return output_head();
        }
        let number = |rest: &str| rest.split('.').next()?.parse().ok();
        let Some(layer) = name.strip_prefix("model.layers.").and_then(number) else {
            return self.base();
        };
        let is = |part: &str| name.ends_with(&format!(".{part}.weight"));
        let (values, down) = (is("v_proj"), is("down_proj"));
        let fused = is("qkv_proj") || is("in_proj_qkv");
        match self {
            QuantMix::Q3KM if values => {
                if layer < 2 {
                    Encoding::named("q5_k")
                } else {
                    Encoding::named("q4_k")
                }
            }
            QuantMix::Q3KM if down && layer < context.layers / 16 => Encoding::named("q5_k"),
            QuantMix::Q3KM if down || fused || is("o_proj") => Encoding::named("q4_k"),
            QuantMix::Q4KM | QuantMix::Q5KM if (values || down) && gets_more_bits(layer, context.layers) => {
                Encoding::named("q6_k")
            }
            QuantMix::Q4KM if fused => Encoding::named("q5_k"),
            QuantMix::Q5KM if fused => Encoding::named("q6_k"),
            _ => self.base(),
        }
    }

    /// Encoding of most matrices.
    fn base(self) -> Encoding {
        match self {
            QuantMix::Q3KM => Encoding::named("q3_k"),
            QuantMix::Q4KM => Encoding::named("q4_k"),
            QuantMix::Q5KM => Encoding::named("q5_k"),
        }
    }
}

/// Encoding of the output head in files with fewer bits.
pub fn output_head() -> Encoding {
    Encoding::named("q6_k")
}

/// Whether the matrix is the output head.
pub fn is_output(context: QuantContext, name: &str) -> bool {
    name == "lm_head.weight" || (context.tied && name == "model.embed_tokens.weight")
}

/// Returns `encoding`, or its fallback if rows are not a multiple of its block size.
pub fn for_columns(encoding: Encoding, columns: usize) -> Encoding {
    let Some(block) = encoding.block().filter(|block| !columns.is_multiple_of(block.values)) else {
        return encoding;
    };
    block.fallback.map_or(encoding, Encoding::named)
}

/// Whether a layer gets more bits: the first and last eighth, and every third between.
fn gets_more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_last_and_every_third_layer_get_more_bits() {
        let layers: Vec<usize> = (0..36).filter(|&layer| gets_more_bits(layer, 36)).collect();
        assert_eq!(
            layers,
            [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35]
        );
    }

    #[test]
    fn partial_blocks_use_the_fallback_encoding() {
        for (wanted, columns, found) in [
            ("q4_k", 512, "q4_k"),
            ("q4_k", 320, "q5_0"),
            ("q6_k", 96, "q8_0"),
            ("q4_0", 96, "q4_0"),
        ] {
            assert_eq!(for_columns(Encoding::named(wanted), columns), Encoding::named(found));
        }
    }
}
