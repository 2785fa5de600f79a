use insta::assert_snapshot;
use refrain::graph::Graph;
use refrain::{Array, DType, Device, QuantFormat, Quantised, fast, passes};
use refrain_lm::{AttentionParams, BatchTokens, RopeParams, paged_attention, slots};

use crate::{array, fused};

fn joined(outputs: &[&Array]) -> Graph {
    passes::regions(fused(outputs), outputs[0].device())
}

fn matrix(device: &Device, format: QuantFormat, rows: usize, columns: usize) -> Quantised {
    let weight = |dtype, n: usize| Array::weight(device, dtype, &[rows, n], &mut |_, piece| piece.fill(0)).unwrap();
    let parameters = DType::of_scales(format, DType::F16);
    Quantised {
        format,
        quants: weight(DType::U32, format.words(columns)),
        scales: weight(parameters, format.scales(columns)),
        biases: format.has_biases().then(|| weight(parameters, format.scales(columns))),
    }
}

fn norm(x: &Array) -> Array {
    fast::rms_norm(x, Some(&array(x.device(), &[x.dim(-1)])), 1e-6)
}

/// The graph without leaves and outputs.
fn steps(graph: &Graph) -> String {
    let lines = graph.to_string();
    let kept = lines
        .lines()
        .filter(|l| !l.contains(" = weight") && !l.contains(" = input"));
    kept.map(|l| format!("{l}\n")).collect()
}

#[test]
fn a_norm_and_the_products_that_read_it_become_one_node() {
    let device = Device::cpu();
    let h = norm(&Array::input(&device, "x", DType::F32, &[1, 64]));
    let [q, k, v] = [32, 16, 16].map(|rows| matrix(&device, QuantFormat::Q4_0, rows, 64).matmul(&h));
    let heads = q.reshape(&[1, 2, 16]).softmax();
    assert_snapshot!(steps(&joined(&[&heads, &k.softmax(), &v.softmax()])), @r"
    %8 = projection of rms_norm eps 1e-6: q4_0 | q4_0 | q4_0 f32[1, 64] (%0, %1, %2, %3, %4, %5, %6, %7)
    %9 = softmax f32[1, 2, 16] (%8)
    %10 = softmax f32[1, 16] (%8[1, 16]+32)
    %11 = softmax f32[1, 16] (%8[1, 16]+48)
    return %9, %10, %11
    ");
}

#[test]
fn biases_and_different_formats_do_not_prevent_joining() {
    let device = Device::cpu();
    let h = norm(&Array::input(&device, "x", DType::F32, &[3, 256]));
    let formats = [QuantFormat::Q4_K, QuantFormat::Q4_K, QuantFormat::Q6_K];
    let [q, k, v] = formats.map(|f| (matrix(&device, f, 32, 256).matmul(&h) + array(&device, &[32])).softmax());
    assert_snapshot!(steps(&joined(&[&q, &k, &v])), @r"
    %11 = projection of rms_norm eps 1e-6: q4_k {x0 + x1} | q4_k {x0 + x1} | q6_k {x0 + x1} f32[3, 96] (%0, %1, %2, %3, %5, %6, %8, %9, %4[3, 32]/[0, 1], %7[3, 32]/[0, 1], %10[3, 32]/[0, 1])
    %12 = softmax f32[3, 32] (%11[3, 32]/[96, 1])
    %13 = softmax f32[3, 32] (%11[3, 32]/[96, 1]+32)
    %14 = softmax f32[3, 32] (%11[3, 32]/[96, 1]+64)
    return %12, %13, %14
    ");
}

#[test]
fn gate_and_up_become_one_node_and_down_adds_the_residual() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[1, 64]);
    let h = norm(&x);
    let [gate, up] = [0, 1].map(|_| matrix(&device, QuantFormat::mlx(4, 64), 128, 64).matmul(&h));
    let down = array(&device, &[64, 128]);
    let y = &x + (gate.silu() * up).matmul(&down.transpose());
    assert_snapshot!(steps(&joined(&[&y])), @r"
    %9 = projection of rms_norm eps 1e-6: mlx4g64, mlx4g64 {(x1 * sigmoid(x1)) * x0} f32[1, 128] (%0, %1, %5, %6, %7, %2, %3, %4)
    %10 = projection dense {x1 + x0} f32[1, 64] (%9, %8, %0)
    return %10
    ");
}

#[test]
fn both_halves_of_one_matrix_are_joined() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[2, 64]);
    let [gate, up] = x.matmul(&array(&device, &[96, 64]).transpose()).split(-1);
    assert_snapshot!(steps(&joined(&[&(gate.silu() * up)])), @r"
    %2 = projection dense, dense {(x1 * sigmoid(x1)) * x0} f32[2, 48] (%0, %1[48, 64]+3072, %1)
    return %2
    ");
}

#[test]
fn norms_after_products_and_parallel_blocks_are_joined_in_part() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[1, 64]);
    let w = || array(&device, &[64, 64]).transpose();
    let behind = &x + norm(&x.matmul(&w()));
    assert_snapshot!(steps(&joined(&[&behind])), @r"
    %3 = matmul f32[1, 64] (%0, %1[64, 64]/[1, 64])
    %4 = rms_norm eps 1e-6 f32[1, 64] (%3, %2)
    %5 = elementwise {x0 + x1} f32[1, 64] (%0, %4)
    return %5
    ");
    let h = norm(&x);
    let parallel = &x + h.softmax().matmul(&w()) + h.matmul(&w()).silu().matmul(&w());
    assert_snapshot!(steps(&joined(&[&parallel])), @r"
    %5 = rms_norm eps 1e-6 f32[1, 64] (%0, %1)
    %6 = softmax f32[1, 64] (%5)
    %7 = matmul f32[1, 64] (%6, %2[64, 64]/[1, 64])
    %8 = projection dense {x0 * sigmoid(x0)} f32[1, 64] (%5, %3)
    %9 = projection dense {(x1 + x2) + x0} f32[1, 64] (%8, %4, %0, %7)
    return %9
    ");
}

#[test]
fn results_with_other_users_and_outputs_are_not_joined() {
    let device = Device::cpu();
    let x = Array::input(&device, "x", DType::F32, &[1, 64]);
    let h = norm(&x);
    let y = h.matmul(&array(&device, &[64, 64]).transpose());
    assert_snapshot!(steps(&joined(&[&(&y + &h), &y.silu()])), @r"
    %3 = rms_norm eps 1e-6 f32[1, 64] (%0, %1)
    %4 = matmul f32[1, 64] (%3, %2[64, 64]/[1, 64])
    %5 = elementwise {x0 + x1} f32[1, 64] (%4, %3)
    %6 = elementwise {x0 * sigmoid(x0)} f32[1, 64] (%4)
    return %5, %6
    ");
}

#[test]
fn products_of_many_tokens_and_of_states_are_not_joined() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F32, &[1, 64]).unwrap();
    let many = Array::input(&device, "x", DType::F32, &[40, 64]);
    for x in [state, many] {
        let y = norm(&x).matmul(&array(&device, &[64, 64]).transpose()).silu();
        let graph = joined(&[&y]);
        assert!(!steps(&graph).contains("of rms_norm"), "{graph}");
    }
}

/// Attention of one token, with optional norms and rotations of queries and keys: (result, keys, values).
fn attention(decode: bool, [normed, rotated]: [bool; 2]) -> [Array; 3] {
    let device = Device::cpu();
    let input = |name: &str, dtype| Array::input(&device, name, dtype, &[1]);
    let (positions, sequences) = (input("positions", DType::I32), input("sequences", DType::U32));
    let pages = Array::input(&device, "pages", DType::U32, &[1, 4]);
    let batch = BatchTokens {
        positions: &positions,
        sequences: &sequences,
        pages: &pages,
    };
    let [keys, values] = [0, 1].map(|_| Array::state(&device, DType::F16, &[64, 2, 8]).unwrap());
    let x = Array::input(&device, "x", DType::F32, &[1, 64]);
    let [q, k, v] = [32, 16, 16].map(|n| x.matmul(&array(&device, &[n, 64]).transpose()).reshape(&[1, -1, 8]));
    let rope = RopeParams {
        dims: 8,
        interleaved: false,
        scale: 1.0,
    };
    let frequencies = array(&device, &[4]);
    let turned = |x: Array| {
        let x = if normed { norm(&x) } else { x };
        if rotated {
            refrain_lm::rope(&x, &positions, &frequencies, rope)
        } else {
            x
        }
    };
    let slots = slots(batch, 16);
    let (keys, values) = (keys.write_rows(&turned(k), &slots), values.write_rows(&v, &slots));
    let params = AttentionParams {
        scale: 1.0,
        page_size: 16,
        window: None,
        decode,
        blocks: [None; 2],
    };
    [paged_attention(&turned(q), &keys, &values, batch, params), keys, values]
}

#[test]
fn attention_of_single_tokens_becomes_one_node() {
    let [attn_out, keys, values] = attention(true, [true, true]);
    assert_snapshot!(steps(&joined(&[&attn_out, &keys, &values])), @r"
    %3 = state f16[64, 2, 8] ()
    %4 = state f16[64, 2, 8] ()
    %12 = projection dense | dense | dense f32[1, 64] (%5, %6, %7, %8)
    %13 = decode_attention of rope of q rms_norm eps 1e-6 of k rms_norm eps 1e-6 f32[1, 4, 8] (%3, %4, %12, %12[1, 2, 8]+32, %12[1, 2, 8]+48, %0, %1, %2, %9, %11, %10)
    return %13, %13.1, %13.2
    ");
    let [attn_out, ..] = attention(true, [false, true]);
    assert_snapshot!(steps(&joined(&[&attn_out])), @r"
    %3 = state f16[64, 2, 8] ()
    %4 = state f16[64, 2, 8] ()
    %10 = projection dense | dense | dense f32[1, 64] (%5, %6, %7, %8)
    %11 = decode_attention of rope f32[1, 4, 8] (%3, %4, %10, %10[1, 2, 8]+32, %10[1, 2, 8]+48, %0, %1, %2, %9)
    return %11
    ");
}

#[test]
fn preparation_of_queries_keys_and_values_of_many_tokens_becomes_one_node() {
    let [attn_out, keys, values] = attention(false, [true, true]);
    assert_snapshot!(steps(&joined(&[&attn_out, &keys, &values])), @r"
    %3 = state f16[64, 2, 8] ()
    %4 = state f16[64, 2, 8] ()
    %12 = projection dense | dense | dense f32[1, 64] (%5, %6, %7, %8)
    %13 = slots i32[1] (%0, %1, %2)
    %14 = prepare_attention of rope of q rms_norm eps 1e-6 of k rms_norm eps 1e-6 f32[1, 4, 8] (%3, %4, %12, %12[1, 2, 8]+32, %12[1, 2, 8]+48, %13, %0, %9, %11, %10)
    %15 = paged_attention f32[1, 4, 8] (%14, %14.1, %14.2, %0, %1, %2)
    return %15, %14.1, %14.2
    ");
    let [attn_out, ..] = attention(false, [false, true]);
    assert_snapshot!(steps(&joined(&[&attn_out])), @r"
    %3 = state f16[64, 2, 8] ()
    %4 = state f16[64, 2, 8] ()
    %10 = projection dense | dense | dense f32[1, 64] (%5, %6, %7, %8)
    %11 = slots i32[1] (%0, %1, %2)
    %12 = prepare_attention of rope f32[1, 4, 8] (%3, %4, %10, %10[1, 2, 8]+32, %10[1, 2, 8]+48, %11, %0, %9)
    %13 = paged_attention f32[1, 4, 8] (%12, %12.1, %12.2, %0, %1, %2)
    return %13
    ");
    let [attn_out, ..] = attention(false, [true, false]);
    assert_snapshot!(steps(&joined(&[&attn_out])), @r"
    %3 = state f16[64, 2, 8] ()
    %4 = state f16[64, 2, 8] ()
    %11 = projection dense | dense | dense f32[1, 64] (%5, %6, %7, %8)
    %12 = slots i32[1] (%0, %1, %2)
    %13 = prepare_attention of q rms_norm eps 1e-6 of k rms_norm eps 1e-6 f32[1, 4, 8] (%3, %4, %11, %11[1, 2, 8]+32, %11[1, 2, 8]+48, %12, %0, %10, %9)
    %14 = paged_attention f32[1, 4, 8] (%13, %13.1, %13.2, %0, %1, %2)
    return %14
    ");
}

#[test]
fn queries_that_attention_reads_unchanged_are_not_moved() {
    let graph = joined(&[&attention(false, [false, false])[0]]).to_string();
    assert!(
        graph.contains("paged_attention") && graph.matches("write_rows").count() == 2,
        "{graph}"
    );
}
