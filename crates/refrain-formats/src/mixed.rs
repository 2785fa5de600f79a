//! Which encoding a tensor has in a file of a named kind, as llama.cpp's quantiser chooses.

use crate::Encoding;

/// What of a model's structure the choice of an encoding depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixPlace {
    /// Number of transformer blocks.
    pub layers: usize,
    /// Whether the token embedding is also the output head.
    pub tied: bool,
}

/// The files whose matrices have several encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixedFile {
    /// Q3_K; Q4_K or Q5_K where it matters most.
    Q3KM,
    /// Q4_K; Q6_K where it matters most.
    Q4KM,
    /// Q5_K; Q6_K where it matters most.
    Q5KM,
}

impl MixedFile {
    /// What most people take.
    pub const USUAL: MixedFile = MixedFile::Q4KM;

    /// All of them, from the largest files to the smallest.
    pub const ALL: [MixedFile; 3] = [MixedFile::Q5KM, MixedFile::Q4KM, MixedFile::Q3KM];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            MixedFile::Q3KM => "q3_k_m",
            MixedFile::Q4KM => "q4_k_m",
            MixedFile::Q5KM => "q5_k_m",
        }
    }

    /// GGUF's number of the kind of file (`general.file_type`).
    pub fn file_type(self) -> u32 {
        match self {
            MixedFile::Q3KM => 12,
            MixedFile::Q4KM => 15,
            MixedFile::Q5KM => 17,
        }
    }

    /// The encoding of the matrix `name` (in Hugging Face's naming): more bits for the output head, for value and
    /// down projections, and for projections to queries, keys and values that are one.
    pub fn encoding(self, place: MatrixPlace, name: &str) -> Encoding {
        if is_output(place, name) {
            return output_head();
        }
        let number = |rest: &str| rest.split('.').next()?.parse().ok();
        let Some(layer) = name.strip_prefix("model.layers.").and_then(number) else {
            return self.usual();
        };
        let is = |part: &str| name.ends_with(&format!(".{part}.weight"));
        let (values, down) = (is("v_proj"), is("down_proj"));
        let fused = is("qkv_proj") || is("in_proj_qkv");
        match self {
            MixedFile::Q3KM if values => {
                if layer < 2 {
                    Encoding::named("q5_k")
                } else {
                    Encoding::named("q4_k")
                }
            }
            MixedFile::Q3KM if down && layer < place.layers / 16 => Encoding::named("q5_k"),
            MixedFile::Q3KM if down || fused || is("o_proj") => Encoding::named("q4_k"),
            MixedFile::Q4KM | MixedFile::Q5KM if (values || down) && gets_more_bits(layer, place.layers) => {
                Encoding::named("q6_k")
            }
            MixedFile::Q4KM if fused => Encoding::named("q5_k"),
            MixedFile::Q5KM if fused => Encoding::named("q6_k"),
            _ => self.usual(),
        }
    }

    /// That of most matrices.
    fn usual(self) -> Encoding {
        match self {
            MixedFile::Q3KM => Encoding::named("q3_k"),
            MixedFile::Q4KM => Encoding::named("q4_k"),
            MixedFile::Q5KM => Encoding::named("q5_k"),
        }
    }
}

/// The encoding of the output head where other matrices have fewer bits.
pub fn output_head() -> Encoding {
    Encoding::named("q6_k")
}

/// Whether the matrix is the output head.
pub fn is_output(place: MatrixPlace, name: &str) -> bool {
    name == "lm_head.weight" || (place.tied && name == "model.embed_tokens.weight")
}

/// `encoding`, or what stands in for it where rows are not whole blocks of 256 values.
pub fn for_columns(encoding: Encoding, columns: usize) -> Encoding {
    let Some(block) = encoding.block().filter(|block| !columns.is_multiple_of(block.values)) else {
        return encoding;
    };
    block.stand_in.map_or(encoding, Encoding::named)
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
