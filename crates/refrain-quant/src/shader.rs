//! GLSL that reads the planes: the macros that select a format, and the functions that unpack values.

use crate::{Code, QuantFormat, Scales};

/// `#define name value`.
pub struct Define {
    /// Name of the macro.
    pub name: &'static str,
    /// Its replacement text.
    pub value: String,
}

fn define(name: &'static str, value: impl ToString) -> Define {
    Define {
        name,
        value: value.to_string(),
    }
}

/// Returns the macros that a shader must define before [`unpacking`]: those of the code, then those of the scales
/// (except `BIASES`). Together with the element types of scales and biases they identify the format.
pub fn declarations(format: QuantFormat) -> [Vec<Define>; 2] {
    let code = match format.code {
        Code::Centred => define("ZERO_MIDDLE", 1),
        Code::Signed => define("ZERO_SIGNED", 1),
        Code::Bias => define("ZERO_BIAS", 1),
        Code::Book(book) => define("BOOK", format!("{:08x}", hash(&book))),
    };
    let scales = match format.scales {
        Scales::Float => vec![],
        Scales::E8M0 => vec![define("E8M0", 1)],
        Scales::Records(records) if records.words == 5 => vec![define("NESTED", 1)],
        Scales::Records(records) => vec![
            define("NESTED", 1),
            define("RECORD_WORDS", format!("{}u", records.words)),
        ],
    };
    [vec![define("BITS", format.bits), code], scales]
}

/// Returns the unpacking functions: `load_quants`, `quants`, `four_quants`, `dequantise` and `PARAMETERS`.
///
/// The accessors of `words_ref`, `scales_ref` and `biases_ref` must precede them. Float planes also need
/// `stored_scales`, which loads the raw bits, and `scales_of`, which converts them to a float.
pub fn unpacking(format: QuantFormat) -> String {
    let book = match format.code {
        Code::Book(book) => book_bytes(&book),
        _ => String::new(),
    };
    book + include_str!("unpacking.glsl")
}

/// Returns `book_bytes`, which looks up four one-byte indices at once and adds 128 to each result. Each bit of an index
/// selects one half of the remaining entries, so that no load from a table delays the result.
fn book_bytes(book: &[i8; 16]) -> String {
    let splat = |number: i8| u32::from(number as u8 ^ 0x80) * 0x0101_0101;
    let mut text = String::from(
        "uint pick(uint no, uint yes, uint mask) { return no ^ ((no ^ yes) & mask); }\n\
         uint book_bytes(uint indices) {\n",
    );
    for bit in 0..4 {
        text.push_str(&format!(
            "    uint m{bit} = (indices >> {bit} & 0x01010101u) * 0xffu;\n"
        ));
    }
    let mut level: Vec<String> = book.iter().map(|&number| format!("0x{:08x}u", splat(number))).collect();
    for bit in 0..4 {
        let pairs = level.chunks(2);
        level = pairs
            .map(|pair| format!("pick({}, {}, m{bit})", pair[0], pair[1]))
            .collect();
    }
    text + &format!("    return {};\n}}\n", level[0])
}

/// FNV-1a hash.
fn hash(book: &[i8; 16]) -> u32 {
    book.iter().fold(0x811c_9dc5, |hash, &number| {
        (hash ^ u32::from(number as u8)).wrapping_mul(0x0100_0193)
    })
}
