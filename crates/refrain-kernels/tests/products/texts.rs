use crate::common::{all_features, both_traits, check_texts};
use crate::recurrences::FORMS;
use crate::support::{FLOATS, swapped};
use refrain_kernels::attention::BlockFormat;
use refrain_kernels::attention::heads::HeadParams;
use refrain_kernels::expert_matmul::{self, Matrices};
use refrain_kernels::fragments::{FragmentOrder, MatrixCores};
use refrain_kernels::projection::{self, Projection, Section, WeightStorage};
use refrain_kernels::quantised::{self, QuantFormat};
use refrain_kernels::tuning::{ExpertTuning, GroupCount, MatrixTile, SubgroupSplit, Tuning};
use refrain_kernels::{
    Call, CallOrder, DType, OperandSpec, RecurrenceForm, Traits, attention, causal_conv, gated_delta, matmul, rms_norm,
    rope, tuning,
};

#[test]
fn matrix_products_compile() {
    let mut calls = Vec::new();
    for traits in both_traits() {
        for a in FLOATS {
            for b in FLOATS {
                for c in FLOATS {
                    for (m, k) in [(1, 16), (1, 15), (100, 16)] {
                        let (x, w) = (OperandSpec::contiguous(a, &[m, k]), swapped(b, &[k, 20], 0, 1));
                        let out = OperandSpec::contiguous(c, &[m, 20]);
                        calls.extend(matmul::call(&traits, &x, &w, &out).expect("supported").calls);
                    }
                }
            }
        }
    }
    check_texts(calls);
}

#[test]
fn quantised_products_and_rows_compile() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut calls = Vec::new();
    for traits in both_traits() {
        for format in QuantFormat::ALL {
            let (n, k) = (40, 256);
            let quants = OperandSpec::contiguous(DType::U32, &[n, format.words(k)]);
            for parameters in FLOATS {
                let parameters = DType::of_scales(format, parameters);
                let scales = OperandSpec::contiguous(parameters, &[n, format.scales(k)]);
                let biases = format.has_biases().then_some(&scales);
                for dtype in FLOATS {
                    for (t, stride) in [(1, k), (3, k + 1), (100, k)] {
                        let mut x = OperandSpec::contiguous(dtype, &[t, k]);
                        x.layout.strides[0] = stride;
                        let out = OperandSpec::contiguous(dtype, &[t, n]);
                        let product = quantised::matmul(&traits, &format, &x, &quants, &scales, biases, &out);
                        calls.extend(product.expect("supported").calls);
                    }
                    let indices = OperandSpec::contiguous(DType::U32, &[5]);
                    let out = OperandSpec::contiguous(dtype, &[5, k]);
                    let rows = quantised::take_rows(&traits, &format, &quants, &scales, biases, &indices, &out);
                    calls.push(rows.expect("supported"));
                }
            }
        }
    }
    check_texts(calls);
}

#[test]
fn norms_and_rotations_compile() {
    let mut calls = Vec::new();
    for traits in both_traits() {
        for x in FLOATS {
            for y in FLOATS {
                let (input, output) = (
                    OperandSpec::contiguous(x, &[3, 4, 64]),
                    OperandSpec::contiguous(y, &[3, 4, 64]),
                );
                let weight = OperandSpec::contiguous(y, &[64]);
                for weight in [None, Some(&weight)] {
                    let norm = rms_norm::call(&traits, &input, weight, &output, 1e-6);
                    calls.push(norm.expect("supported"));
                }
                for interleaved in [false, true] {
                    let params = rope::RopeParams {
                        dims: 32,
                        interleaved,
                        scale: 1.0,
                    };
                    let positions = OperandSpec::contiguous(DType::I32, &[3]);
                    let frequencies = OperandSpec::contiguous(DType::F32, &[16]);
                    let rotation = rope::call(&traits, &input, &positions, &frequencies, &output, &params);
                    calls.push(rotation.expect("supported"));
                }
            }
        }
    }
    check_texts(calls);
}

#[test]
fn recurrences_compile() {
    let mut calls = Vec::new();
    let operand = |dtype, shape: &[usize]| OperandSpec::contiguous(dtype, shape);
    let (positions, sequences) = (operand(DType::I32, &[3]), operand(DType::U32, &[3]));
    for traits in both_traits() {
        for x in FLOATS {
            for y in FLOATS {
                let (input, weights) = (operand(x, &[3, 40]), operand(y, &[40, 4]));
                let window = operand(DType::F32, &[2, 3, 40]);
                for max_serial_conv_tokens in [0, usize::MAX] {
                    let tuning = Tuning {
                        max_serial_conv_tokens,
                        ..*tuning::choose(&traits)
                    };
                    let out = operand(y, &[3, 40]);
                    let places = [&positions, &sequences, &window];
                    for form in FORMS {
                        let conv = causal_conv::calls_tuned(&tuning, &traits, form, [&input, &weights, &out], places);
                        calls.extend(conv.expect("supported"));
                    }
                }
                for form in FORMS {
                    calls.extend(delta_rule(&traits, form, 3, [x, y], [2, 24, 4, 20]));
                }
            }
        }
    }
    check_texts(calls);
}

/// Matrix cores with known layouts, and with opaque layouts and the shapes of AMD, Intel, NVIDIA and software drivers.
fn any_matrix_cores() -> impl Iterator<Item = Traits> {
    let quads = MatrixCores::with_order(16, FragmentOrder::Quads);
    let known = [
        (MatrixCores { narrow: true, ..quads }, 32, 0x10de),
        (quads, 32, 0x10de),
        (MatrixCores::with_order(8, FragmentOrder::Columns), 8, 0x10005),
    ];
    let hidden = [
        ([16, 16, 16], 32, 0x1002),
        ([16, 16, 16], 64, 0x1002),
        ([8, 16, 16], 16, 0x8086),
        ([8, 8, 16], 8, 0x8086),
        ([16, 8, 16], 32, 0x10de),
        ([8, 8, 8], 8, 0x10005),
        ([8, 8, 8], 16, 0x10005),
    ];
    let hidden = hidden.map(|(shape, lanes, vendor)| {
        let cores = MatrixCores::opaque(shape, lanes).expect("such fragments");
        (cores, lanes, vendor)
    });
    known.into_iter().chain(hidden).map(|(cores, lanes, vendor)| Traits {
        vendor,
        subgroup_size: lanes,
        matrix_cores: Some(cores),
        ..all_features()
    })
}

/// Calls of the gated delta rule for some tokens of two sequences. Keys and gates have one type, values and results
/// another; `sizes` is HK, D, H and E.
fn delta_rule(
    traits: &Traits,
    form: RecurrenceForm,
    tokens: usize,
    [x, y]: [DType; 2],
    sizes: [usize; 4],
) -> Vec<Call> {
    let operand = |dtype, shape: &[usize]| OperandSpec::contiguous(dtype, shape);
    let [key_heads, key_dim, heads, value_dim] = sizes;
    let (keys, gate) = (operand(x, &[tokens, key_heads, key_dim]), operand(x, &[tokens, heads]));
    let values = operand(y, &[tokens, heads, value_dim]);
    let operands = gated_delta::GatedDeltaOperands {
        q: &keys,
        k: &keys,
        v: &values,
        decay: &gate,
        beta: &gate,
        positions: &operand(DType::I32, &[tokens]),
        sequences: &operand(DType::U32, &[tokens]),
        state: &operand(DType::F32, &[2, heads, value_dim, key_dim]),
        out: &values,
    };
    let calls = gated_delta::calls_tuned(tuning::choose(traits), traits, form, &operands);
    calls.expect("supported").0
}

#[test]
fn delta_rules_in_chunks_compile() {
    let mut calls = Vec::new();
    for traits in any_matrix_cores() {
        for (i, x) in FLOATS.into_iter().enumerate() {
            let dtypes = [x, FLOATS[(i + 1) % 3]];
            let chunked = delta_rule(&traits, RecurrenceForm::Full, 130, dtypes, [2, 32, 4, 48]);
            assert_eq!(chunked.len(), 2, "{:?}", traits.matrix_cores);
            calls.extend(chunked);
        }
    }
    check_texts(calls);
}

#[test]
fn products_with_experts_compile() {
    let mut calls = Vec::new();
    let experts = OperandSpec::contiguous(DType::U32, &[3, 2]);
    let cores = any_matrix_cores();
    for traits in both_traits().into_iter().chain(cores) {
        let row = *tuning::choose(&traits);
        // Includes the tile for the maximum number of tokens.
        let many = Tuning {
            experts: ExpertTuning {
                tiles: &row.experts.tiles[row.experts.tiles.len() - 1..],
                skip_empty: true,
                ..row.experts
            },
            ..row
        };
        for (dtype, row) in FLOATS.into_iter().flat_map(|dtype| [(dtype, row), (dtype, many)]) {
            let operands = |k: usize| {
                (
                    OperandSpec::contiguous(dtype, &[3, 2, k]),
                    OperandSpec::contiguous(dtype, &[3, 2, 10]),
                )
            };
            for (w, k) in FLOATS.into_iter().flat_map(|w| [(w, 64), (w, 63)]) {
                let (x, out) = operands(k);
                let w = OperandSpec::contiguous(w, &[40, k]);
                let made = expert_matmul::calls_tuned(&row, &traits, [&x, &experts, &out], Matrices::Dense(&w));
                calls.extend(made.expect("supported").0);
            }
            let (x, out) = operands(256);
            for format in QuantFormat::ALL {
                let quants = OperandSpec::contiguous(DType::U32, &[40, format.words(256)]);
                let parameters = DType::of_scales(format, dtype);
                let scales = OperandSpec::contiguous(parameters, &[40, format.scales(256)]);
                let biases = format.has_biases().then_some(&scales);
                let matrices = Matrices::Quantised(format, [&quants, &scales], biases);
                let made = expert_matmul::calls_tuned(&row, &traits, [&x, &experts, &out], matrices);
                calls.extend(made.expect("supported").0);
            }
        }
    }
    check_texts(calls);
}

#[test]
fn products_of_one_packing_are_independent_without_split_k() {
    let traits = Traits {
        vendor: 0x10de,
        subgroup_size: 32,
        matrix_cores: Some(MatrixCores::with_order(16, FragmentOrder::Quads)),
        ..all_features()
    };
    let formats = [QuantFormat::Q4_K, QuantFormat::Q6_K];
    let [x, out] = [1024, 512].map(|columns| OperandSpec::contiguous(DType::F32, &[512, columns]));
    let planes = formats.map(|format| {
        let quants = OperandSpec::contiguous(DType::U32, &[256, format.words(1024)]);
        [quants, OperandSpec::contiguous(DType::U32, &[256, format.scales(1024)])]
    });
    let operands: Vec<&OperandSpec> = [&x].into_iter().chain(planes.iter().flatten()).chain([&out]).collect();
    let projection = Projection {
        norm: None,
        sections: formats
            .map(|format| Section::plain(WeightStorage::Quantised(format), DType::F32))
            .to_vec(),
    };
    let row = *tuning::choose(&traits);
    for (splits, order) in [(1, CallOrder::AfterFirst), (2, CallOrder::Sequential)] {
        let tile = MatrixTile {
            splits,
            split: SubgroupSplit::Rows,
            ..row.matrix[row.matrix.len() - 1]
        };
        let row = Tuning {
            matrix: Box::leak(Box::new([tile])),
            ..row
        };
        let made = projection::calls_tuned(&row, &traits, &projection, &operands).expect("supported");
        assert_eq!((made.calls.len(), made.order), (3, order));
    }
}

#[test]
fn narrow_fragments_are_used_if_the_last_would_be_half_empty() {
    let weights = WeightStorage::Quantised(QuantFormat::Q4_0);
    let plain = Projection {
        norm: None,
        sections: vec![Section::plain(weights, DType::F32)],
    };
    let is_narrow = |narrow, tokens| {
        let cores = MatrixCores::with_order(16, FragmentOrder::Quads);
        let traits = Traits {
            vendor: 0x10de,
            subgroup_size: 32,
            matrix_cores: Some(MatrixCores { narrow, ..cores }),
            ..all_features()
        };
        let [x, out] = [4096, 2048].map(|columns| OperandSpec::contiguous(DType::F32, &[tokens, columns]));
        let quants = OperandSpec::contiguous(DType::U32, &[2048, QuantFormat::Q4_0.words(4096)]);
        let scales = OperandSpec::contiguous(DType::F16, &[2048, QuantFormat::Q4_0.scales(4096)]);
        let made = projection::calls(&traits, &plain, &[&x, &quants, &scales, &out]).expect("supported");
        made.calls
            .iter()
            .all(|call| call.kernel.name.contains("token_columns=8u"))
    };
    for (tokens, expected) in [
        (6, true),
        (8, true),
        (9, false),
        (24, true),
        (32, false),
        (33, true),
        (41, false),
        (64, false),
    ] {
        assert_eq!(is_narrow(true, tokens), expected, "{tokens} tokens");
        assert!(!is_narrow(false, tokens), "{tokens} tokens");
    }
}

#[test]
fn preparations_compile() {
    let mut calls = Vec::new();
    let norm = |weighted| Some(rms_norm::Norm { eps: 1e-6, weighted });
    let indices = OperandSpec::contiguous(DType::I32, &[3]);
    for traits in both_traits() {
        for (x, state, y) in FLOATS.into_iter().flat_map(|x| FLOATS.map(|state| (x, state, state))) {
            // With vec4 and with scalar accesses.
            for (head_dim, interleaved) in [(64, false), (64, true), (6, false), (6, true)] {
                let operand = |dtype, heads: usize| OperandSpec::contiguous(dtype, &[3, heads, head_dim]);
                let rotation = rope::RopeParams {
                    interleaved,
                    ..rope::RopeParams::new(head_dim)
                };
                let heads = attention::HeadPreparation {
                    rope: Some(rotation),
                    q_norm: norm(true),
                    k_norm: norm(false),
                };
                let (cache, q, k, out) = (operand(state, 2), operand(x, 4), operand(x, 2), operand(y, 4));
                let frequencies = OperandSpec::contiguous(DType::F32, &[head_dim / 2]);
                let weight = OperandSpec::contiguous(y, &[head_dim]);
                let operands = [
                    &cache,
                    &cache,
                    &q,
                    &k,
                    &k,
                    &indices,
                    &indices,
                    &frequencies,
                    &weight,
                    &out,
                ];
                calls.push(attention::prepare::call(&traits, &operands, &heads).expect("supported"));
                let params = HeadParams {
                    norm: norm(true),
                    rope: Some(rotation),
                    twice: true,
                    bounded: true,
                };
                let halves = OperandSpec::contiguous(DType::F16, &out.layout.shape);
                let operands = [&q, &indices, &frequencies, &weight, &out, &halves];
                calls.push(attention::heads::call(&traits, &operands, &params).expect("supported"));
            }
        }
    }
    check_texts(calls);
}

#[test]
fn attentions_compile() {
    let mut calls = Vec::new();
    for traits in both_traits() {
        for x in FLOATS {
            for state in FLOATS {
                for tokens in [1, 200] {
                    let q = OperandSpec::contiguous(x, &[tokens, 8, 64]);
                    let cache = OperandSpec::contiguous(state, &[128, 2, 64]);
                    let positions = OperandSpec::contiguous(DType::I32, &[tokens]);
                    let sequences = OperandSpec::contiguous(DType::U32, &[tokens]);
                    let pages = OperandSpec::contiguous(DType::U32, &[2, 8]);
                    let params = attention::AttentionParams {
                        scale: 0.125,
                        page_size: 16,
                        window: None,
                        decode: false,
                        blocks: [None; 2],
                    };
                    let operands = [&q, &cache, &cache, &positions, &sequences, &pages, &q];
                    let sinks = OperandSpec::contiguous(x, &[8]);
                    // One workgroup for all positions, or several splits.
                    for target_groups in [1, 1 << 20] {
                        let mut tuning = *tuning::choose(&traits);
                        tuning.attention.target_groups = GroupCount::fixed(target_groups);
                        for sinks in [None, Some(&sinks)] {
                            let made = attention::calls_tuned(&tuning, &traits, operands, sinks, &params);
                            calls.extend(made.expect("supported").0);
                        }
                    }
                }
            }
        }
    }
    check_texts(calls);
}

#[test]
fn attentions_on_matrix_cores_compile() {
    let mut calls = Vec::new();
    for traits in any_matrix_cores() {
        // The last has six subgroups with unequal parts of a block.
        for (heads, [key, value]) in [
            (8, [64, 64]),
            (8, [128, 128]),
            (8, [256, 256]),
            (8, [192, 128]),
            (8, [64, 160]),
            (6, [128, 128]),
        ] {
            let operand = |shape: &[usize]| OperandSpec::contiguous(DType::F16, shape);
            let (q, out) = (operand(&[200, heads, key]), operand(&[200, heads, value]));
            let (keys, values) = (operand(&[1024, 2, key]), operand(&[1024, 2, value]));
            let positions = OperandSpec::contiguous(DType::I32, &[200]);
            let sequences = OperandSpec::contiguous(DType::U32, &[200]);
            let pages = OperandSpec::contiguous(DType::U32, &[2, 4]);
            let operands = [&q, &keys, &values, &positions, &sequences, &pages, &out];
            let params = attention::AttentionParams::new(key, 128);
            let made = attention::calls(&traits, operands, None, &params).expect("supported").0;
            for format in BlockFormat::ALL {
                let state = |dim| OperandSpec::contiguous(DType::U32, &[1024, 2, format.words(dim)]);
                let (keys, values) = (state(key), state(value));
                let operands = [&q, &keys, &values, &positions, &sequences, &pages, &out];
                let params = attention::AttentionParams {
                    blocks: [Some(format); 2],
                    ..params
                };
                calls.extend(attention::calls(&traits, operands, None, &params).expect("supported").0);
            }
            // With few lanes, registers cannot hold long values of fragments with an opaque layout.
            let on_matrix_cores = made[0].kernel.name.starts_with("attention.matrix");
            assert!(on_matrix_cores || (value > 64 && traits.matrix_cores.expect("some").is_opaque()));
            calls.extend(made);
        }
    }
    check_texts(calls);
}
