//! GLSL by which decode attention reads and writes the cache.

use super::super::blocks::{self, BlockFormat};
use crate::DType;
use crate::kit::glsl;
use crate::kit::text::unpack;

/// Returns GLSL that reads and writes the cache unit by unit.
pub(super) fn text(format: Option<BlockFormat>, keys: DType, unit: usize) -> String {
    let text = match format {
        Some(format) => format!(
            "{}#define CACHE_BITS {}u\n#define CACHE_WORDS {}\n#define CACHE_BYTE_STEP {}.0\n\
             #define UNIT {}u\n#define UNIT_TYPE cache_unit\n\
             #define unit_pair cache_pair\n#define unit_quants(unit, i) cache_unit_quants(unit, i)\n\
             #define UNIT_SCALE(unit) cache_scale((unit).scales, (unit).shift)\n#define ROW_UNITS(units) 1u\n\
             #define LOAD_UNIT(state, dim, row, unit) load_unit_cache(uvec2(state), dim, row, unit)\n",
            format.text("cache"),
            format.bits,
            format.bits / 4,
            1 << (8 - format.bits),
            blocks::UNIT,
        ),
        None => float_text(keys, unit),
    };
    text + "layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer pairs_ref { vec2 at[]; };\n"
}

fn float_text(keys: DType, unit: usize) -> String {
    let (words, pair) = match (keys, unit) {
        (DType::F32, 2) => ("uvec2", "uintBitsToFloat(unit)".to_string()),
        (DType::F32, _) => (
            "uvec4",
            "uintBitsToFloat(uvec2(unit[2u * i], unit[2u * i + 1u]))".into(),
        ),
        (_, 2) => ("uint", unpack(keys, "unit")),
        _ => ("uvec4", unpack(keys, "unit[i]")),
    };
    let align = keys.size() * unit;
    let stored = |at: &str| glsl::conversions(keys).1.replace("VALUE", &format!("vectors[{at}]"));
    let (word_values, word, word_as_values) = match keys {
        DType::F32 => (
            1,
            "floatBitsToUint(vectors[at])".into(),
            "vec2(uintBitsToFloat(word))".into(),
        ),
        _ => (
            2,
            format!("{} | {} << 16", stored("at"), stored("(at) + 1u")),
            unpack(keys, "word"),
        ),
    };
    format!(
        "#define UNIT {unit}u\n#define UNIT_TYPE {words}\n\
         layout(buffer_reference, scalar, buffer_reference_align = {align}) readonly buffer key_units_ref {{ {words} at[]; }};\n\
         vec2 unit_pair({words} unit, uint i) {{ return {pair}; }}\n\
         #define unit_quants unit_pair\n#define UNIT_SCALE(unit) 1.0\n\
         #define ROW_UNITS(units) (units)\n\
         #define LOAD_UNIT(state, dim, at, unit) key_units_ref(state).at[at + unit]\n\
         layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer stored_words_ref {{ uint at[]; }};\n\
         #define WORD_VALUES {word_values}u\n\
         #define WORD_AT(at) ({word})\n\
         #define VALUES_OF(word) ({word_as_values})\n"
    )
}
