//! Checks that `docs/formats.md` matches the records. `UPDATE=1 cargo test -p refrain-quant --test table` regenerates
//! it.

use std::path::Path;

use refrain_quant::{Code, QuantFormat, QuantRecord, RecordIntegers, Scales, records};

const INTRODUCTION: &str = "\
# Quantised formats

Weight formats that Refrain supports besides f32, f16 and bf16. Every format has kernels for decoding, prompts, experts
and embeddings, with and without matrix cores, and a CPU implementation. The table is generated from the records in
`crates/refrain-quant/src/formats`. `UPDATE=1 cargo test -p refrain-quant --test table` regenerates it; without `UPDATE=1`
the test fails if the table is out of date.

`q` is a stored value, `s` a scale, `b` a bias. Bits per value include 16-bit scales in the resident layout. The GGUF
column holds the tensor type and its number, the MLX column the value of `mode`. The last column says whether Refrain can
quantise to the format; `refrain convert --help` lists the recipes.

| format | value | group | scales | bits per value | GGUF | MLX | can quantise to |
|---|---|---|---|---|---|---|---|
";

fn value(format: QuantFormat) -> String {
    match format.code {
        Code::Centred => format!("`s · (q − {})`", 1 << (format.bits - 1)),
        Code::Signed => "`s · q`".into(),
        Code::Bias => "`s · q + b`".into(),
        Code::Book(_) => "`s · book[q]`".into(),
    }
}

fn scales(format: QuantFormat) -> String {
    match format.scales {
        Scales::Float => "floats".into(),
        Scales::E8M0 => "powers of two, a byte each".into(),
        Scales::Records(records) => {
            let integers = match records.integers {
                RecordIntegers::Signed => "signed bytes",
                RecordIntegers::Bytes => "bytes",
                RecordIntegers::Nibbles => "4 bits",
            };
            format!("two levels: f16, {integers}")
        }
    }
}

fn bits(format: QuantFormat) -> String {
    let scales = format.scale_bytes(format.scale_type()) * if format.has_biases() { 2 } else { 1 };
    let bits = f64::from(format.bits) + 8.0 * scales as f64 / format.unit() as f64;
    format!("{bits:.3}")
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

fn row(record: &QuantRecord) -> String {
    let format = record.format;
    let cells = [
        record
            .spellings
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", "),
        value(format),
        format.group.to_string(),
        scales(format),
        bits(format),
        record
            .block
            .map_or(String::new(), |block| format!("{} ({})", record.label, block.kind)),
        record.mode.unwrap_or_default().to_owned(),
        if record
            .block
            .map_or(record.is_mlx_affine(), |block| block.encode.is_some())
        {
            "yes".to_owned()
        } else {
            "no".to_owned()
        },
    ];
    format!("| {} |\n", cells.join(" | "))
}

#[test]
fn the_format_table_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let rows: String = records().map(row).collect();
    let table = INTRODUCTION.to_owned() + &rows;
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &table).expect("docs/formats.md is writable");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == table,
        "docs/formats.md is out of date: UPDATE=1 cargo test -p refrain-quant --test table"
    );
}
