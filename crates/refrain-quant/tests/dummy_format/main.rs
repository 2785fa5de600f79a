//! A format outside the table, as CONTRIBUTING describes: its record is all that the crate needs.

mod record;

use record::RECORD;
use refrain_quant::{QuantPlanes, ScaleType};

#[test]
fn blocks_repack_and_dequantise() {
    let values: Vec<f32> = (0..128).map(|k| (k as f32 * 0.7).sin() * 0.05).collect();
    let format = RECORD.block.expect("the format has blocks");
    assert_eq!(RECORD.format.check(128), Ok(()));
    let (mut quants, mut scales) = (vec![0; 64], vec![0; 4]);
    let mut expected = vec![0.0; 128];
    for (b, values) in values.chunks(64).enumerate() {
        let mut block = [0xaa; 34];
        (format.encode.expect("the format has an encoder"))(values, &mut block).expect("small numbers");
        (format.repack)(&block, &mut quants[32 * b..][..32]);
        (format.scale)(&block, &mut scales[2 * b..][..2]);
        RECORD.dequantise_block(&block, &mut expected[64 * b..][..64]);
    }
    let planes = QuantPlanes {
        format: RECORD.format,
        stored: ScaleType::F16,
        quants: &quants,
        scales: &scales,
        biases: &[],
    };
    let mut read = vec![f32::NAN; 128];
    planes.read(0, &mut read);
    assert_eq!(read, expected);
    assert!(
        values
            .iter()
            .zip(&read)
            .all(|(value, read)| (value - read).abs() < 0.01),
        "{read:?}"
    );
}

#[test]
fn unpacking_defines_all_functions() {
    let text = refrain_quant::unpacking(RECORD.format);
    for name in ["book_bytes", "load_quants", "four_quants", "dequantise", "PARAMETERS"] {
        assert!(text.contains(name), "{name}");
    }
}
