//! Invariants of every record.

use refrain_quant::{ScaleType, Scales, records};

fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| byte()).collect()
}

#[test]
fn repacked_blocks_restore_bit_for_bit() {
    for record in records() {
        let Some(format) = record.block else { continue };
        let block = random_bytes(format.bytes);
        let mut quants = vec![0; record.block_quants()];
        let mut scale = vec![0; record.format.scale_bytes(record.format.scale_type())];
        (format.repack)(&block, &mut quants);
        (format.scale)(&block, &mut scale);
        let mut again = vec![0xa5; format.bytes];
        (format.store_scale)(&scale, &mut again);
        if let Some(at) = format.bias_at {
            again[at..at + 2].copy_from_slice(&block[at..at + 2]);
        }
        (format.restore)(&quants, &mut again);
        assert!(again == block, "{}", record.name);
    }
}

#[test]
fn encoding_error_is_bounded() {
    let values: Vec<f32> = random_bytes(256)
        .iter()
        .map(|&byte| f32::from(byte) / 128.0 - 1.0)
        .collect();
    for record in records() {
        let Some((format, encode)) = record.block.and_then(|block| Some((block, block.encode?))) else {
            continue;
        };
        let mut block = vec![0xa5; format.bytes];
        let mut now = vec![f32::NAN; format.values];
        encode(&values[..format.values], &mut block).expect("small numbers");
        record.dequantise_block(&block, &mut now);
        // With power-of-two scales the largest values saturate.
        let is_coarse = record.format.bits == 3 || record.format.scales == Scales::E8M0;
        let bound = if is_coarse { 0.3 } else { 0.17 };
        for (value, now) in values.iter().zip(&now) {
            assert!(
                (value - now).abs() < bound,
                "{}: got {now}, expected {value}",
                record.name
            );
        }
    }
}

#[test]
fn names_kinds_and_spellings_are_unique() {
    let kinds = records().filter_map(|r| r.block.map(|block| format!("type {}", block.kind)));
    let names = records().map(|r| format!("name {}", r.name));
    let spellings = records().flat_map(|r| r.spellings.iter().map(|word| format!("spelling {word}")));
    let mut all: Vec<String> = kinds.chain(names).chain(spellings).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn sizes_are_consistent() {
    for record in records() {
        assert_eq!(record.format.check(256), Ok(()), "{}", record.name);
        let Some(block) = record.block else { continue };
        assert_eq!(block.values, record.format.unit(), "{}", record.name);
        assert_eq!(record.format.has_biases(), block.bias_at.is_some(), "{}", record.name);
        let fallback = block.fallback.map(refrain_quant::by_name);
        assert!(fallback.is_none_or(|found| found.is_some()), "{}", record.name);
        assert!(
            record.format.takes_scales(record.format.scale_type()),
            "{}",
            record.name
        );
    }
}

#[test]
fn non_finite_scales_are_found() {
    for record in records() {
        let stored = record.format.scale_type();
        let unit = vec![0xff; record.format.scale_bytes(stored)];
        assert!(record.non_finite_scale(stored, &unit).is_some(), "{}", record.name);
        assert!(
            record.non_finite_scale(stored, &vec![0; unit.len()]).is_none(),
            "{}",
            record.name
        );
    }
    assert!(ScaleType::U8.read(&[255]).is_nan());
    assert_eq!(ScaleType::U8.read(&[128]), 1.0);
    assert_eq!(ScaleType::U8.read(&[0]), 2f32.powi(-128));
}
