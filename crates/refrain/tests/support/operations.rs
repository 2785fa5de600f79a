//! Programs of a single operation, for each operation and dtype, over placeholders. Nothing is computed.

use refrain::fast::{self, Mask};
use refrain::{Array, Combine, DType, Device, QuantFormat, Quantised, concatenate};
use refrain_lm::sample::Settings;
use refrain_lm::{AttentionParams, BatchTokens, RopeParams, Sequences, expert_matmul, paged_attention_with_sinks};

/// Extents that suit every kernel.
const ROWS: usize = 4;
const COLUMNS: usize = 256;

/// Builds an array on a device from operands of a dtype.
type Program = Box<dyn Fn(&Device, DType) -> Array>;
type Unary = fn(&Array) -> Array;
type Binary = fn(&Array, &Array) -> Array;
type Reduction = fn(&Array, &[isize]) -> Array;

/// An operation: its name and the program that consists of it, for operands of a dtype.
pub struct Operation {
    /// Name in the tables.
    pub name: String,
    /// The program, on a device.
    pub program: Program,
}

fn operation(name: impl Into<String>, program: impl Fn(&Device, DType) -> Array + 'static) -> Operation {
    Operation {
        name: name.into(),
        program: Box::new(program),
    }
}

/// An operand.
fn x(device: &Device, dtype: DType) -> Array {
    Array::input(device, "x", dtype, &[ROWS, COLUMNS])
}

/// Another operand of the same shape.
fn y(device: &Device, dtype: DType) -> Array {
    Array::input(device, "y", dtype, &[ROWS, COLUMNS])
}

/// A row number for each row.
fn slots(device: &Device) -> Array {
    Array::input(device, "slots", DType::I32, &[ROWS])
}

/// Elementwise operations, each computed by one generated kernel, alone or in a chain.
fn elementwise() -> Vec<Operation> {
    let unary: [(&str, Unary); 18] = [
        ("abs", Array::abs),
        ("ceil", Array::ceil),
        ("cos", Array::cos),
        ("erf", Array::erf),
        ("exp", Array::exp),
        ("floor", Array::floor),
        ("log", Array::log),
        ("logical_not", Array::logical_not),
        ("neg", |x| -x),
        ("round", Array::round),
        ("rsqrt", Array::rsqrt),
        ("sigmoid", Array::sigmoid),
        ("sign", Array::sign),
        ("silu", Array::silu),
        ("sin", Array::sin),
        ("sqrt", Array::sqrt),
        ("tanh", Array::tanh),
        ("contiguous", Array::contiguous),
    ];
    let binary: [(&str, Binary); 19] = [
        ("add", |x, y| x + y),
        ("bit_and", |x, y| x.bit_and(y)),
        ("bit_or", |x, y| x.bit_or(y)),
        ("bit_xor", |x, y| x.bit_xor(y)),
        ("div", |x, y| x / y),
        ("eq", |x, y| x.eq(y)),
        ("ge", |x, y| x.ge(y)),
        ("gt", |x, y| x.gt(y)),
        ("le", |x, y| x.le(y)),
        ("lt", |x, y| x.lt(y)),
        ("maximum", |x, y| x.maximum(y)),
        ("minimum", |x, y| x.minimum(y)),
        ("mul", |x, y| x * y),
        ("ne", |x, y| x.ne(y)),
        ("pow", |x, y| x.pow(y)),
        ("rem", |x, y| x % y),
        ("shift_left", |x, y| x.shift_left(y)),
        ("shift_right", |x, y| x.shift_right(y)),
        ("sub", |x, y| x - y),
    ];
    let unary = unary.map(|(name, apply)| operation(name, move |d, t| apply(&x(d, t))));
    let binary = binary.map(|(name, apply)| operation(name, move |d, t| apply(&x(d, t), &y(d, t))));
    let select = operation("select", |d, t| x(d, DType::Bool).select(x(d, t), y(d, t)));
    let sources = [
        operation("full, zeros, ones", |d, t| Array::full(d, t, &[ROWS, COLUMNS], 1.0)),
        operation("arange", |d, t| Array::arange(d, t, COLUMNS)),
    ];
    let conversions = DType::ALL.map(|to| operation(format!("astype {to}"), move |d, t| x(d, t).astype(to)));
    unary
        .into_iter()
        .chain(binary)
        .chain([select])
        .chain(sources)
        .chain(conversions)
        .collect()
}

/// Reductions, products, indexing and operations of transformers.
fn others() -> Vec<Operation> {
    let reductions: [(&str, Reduction); 7] = [
        ("all", |x, axes| x.all(axes)),
        ("any", |x, axes| x.any(axes)),
        ("max", |x, axes| x.max(axes)),
        ("mean", |x, axes| x.mean(axes)),
        ("min", |x, axes| x.min(axes)),
        ("prod", |x, axes| x.prod(axes)),
        ("sum", |x, axes| x.sum(axes)),
    ];
    let reductions = reductions.map(|(name, apply)| operation(name, move |d, t| apply(&x(d, t), &[-1])));
    let indices = |d: &Device, shape: &[usize]| Array::input(d, "indices", DType::U32, shape);
    let rest = [
        operation("argmax", |d, t| x(d, t).argmax()),
        operation("top_k", |d, t| x(d, t).top_k(8)),
        operation("top_k_with_values", |d, t| x(d, t).top_k_with_values(8).0),
        operation("softmax", |d, t| x(d, t).softmax()),
        operation("sort", |d, t| x(d, t).sort(-1)),
        operation("matmul of 1 row", |d, t| product(d, 1, t, t)),
        operation("matmul of 256 rows", |d, t| product(d, 256, t, t)),
        operation("matmul of 1 row of f32", |d, t| product(d, 1, DType::F32, t)),
        operation("matmul of 256 rows of f32", |d, t| product(d, 256, DType::F32, t)),
        operation("take", move |d, t| x(d, t).take(&indices(d, &[3]), 0)),
        operation("take_along", move |d, t| x(d, t).take_along(&indices(d, &[ROWS, 3]))),
        operation("concatenate", |d, t| concatenate(&[&x(d, t), &y(d, t)], 0)),
        operation("slice_update", |d, t| {
            let part = Array::input(d, "part", t, &[ROWS, 1]);
            x(d, t).slice_update(&part, &[0, 3], &[ROWS, 4], &[1, 1])
        }),
        operation("scatter_rows", move |d, t| x(d, t).scatter_rows(&y(d, t), &slots(d))),
        operation("combine_rows", move |d, t| {
            x(d, t).combine_rows(&y(d, t), &slots(d), Combine::Add)
        }),
        operation("write_rows", |d, t| update(d, t, t)),
        operation("write_rows of f32", |d, t| update(d, DType::F32, t)),
        operation("rms_norm", |d, t| {
            fast::rms_norm(&x(d, t), Some(&Array::input(d, "weight", t, &[COLUMNS])), 1e-6)
        }),
        operation("rope", rope),
        operation("paged_attention of f32 over a cache", |d, t| {
            paged_attention(d, t, false)
        }),
        operation("paged_attention_with_sinks of f32 over a cache", |d, t| {
            paged_attention(d, t, true)
        }),
        operation("sample from logits", sample),
        operation("causal_conv", causal_conv),
        operation("gated_delta", gated_delta),
        operation("expert_matmul", |d, t| {
            let weights = Array::input(d, "weights", t, &[16, COLUMNS]);
            expert_matmul(&expert_inputs(d, t), &chosen_experts(d), &weights, 4)
        }),
        operation("scaled_dot_product_attention", |d, t| {
            let [q, k, v] = ["q", "k", "v"].map(|name| Array::input(d, name, t, &[1, 4, 16, 64]));
            fast::scaled_dot_product_attention(&q, &k, &v, 0.125, Mask::Causal)
        }),
    ];
    reductions.into_iter().chain(rest).collect()
}

/// Products of quantised matrices with x `[rows, K]`, by format; the dtype is that of x and of the scales.
fn quantised_matmul(rows: usize) -> Vec<Operation> {
    let product = |format: QuantFormat| {
        operation(format.to_string(), move |d, t| {
            planes(d, format, t).matmul(&Array::input(d, "x", t, &[rows, COLUMNS]))
        })
    };
    QuantFormat::ALL.map(product).into()
}

/// Row lookups in quantised matrices, by format; the dtype is that of the scales.
fn quantised_take() -> Vec<Operation> {
    let rows = |format: QuantFormat| {
        operation(format.to_string(), move |d, t| {
            planes(d, format, t).take(&Array::input(d, "indices", DType::U32, &[3]))
        })
    };
    QuantFormat::ALL.map(rows).into()
}

/// x · Wᵀ with a weight `[N, K]`.
fn product(device: &Device, rows: usize, x: DType, weight: DType) -> Array {
    let weight = Array::input(device, "weight", weight, &[512, COLUMNS]);
    Array::input(device, "x", x, &[rows, COLUMNS]).matmul(&weight.transpose())
}

fn planes(device: &Device, format: QuantFormat, dtype: DType) -> Quantised {
    let dtype = DType::of_scales(format, dtype);
    let groups = [512, format.scales(COLUMNS)];
    Quantised {
        format,
        quants: Array::input(device, "quants", DType::U32, &[512, format.words(COLUMNS)]),
        scales: Array::input(device, "scales", dtype, &groups),
        biases: format
            .has_biases()
            .then(|| Array::input(device, "biases", dtype, &groups)),
    }
}

fn update(device: &Device, rows: DType, state: DType) -> Array {
    let state = Array::state(device, state, &[16, COLUMNS]).expect("a small state");
    state.write_rows(&x(device, rows), &Array::input(device, "slots", DType::I32, &[ROWS]))
}

fn rope(device: &Device, dtype: DType) -> Array {
    let params = RopeParams {
        dims: 64,
        interleaved: false,
        scale: 1.0,
    };
    let positions = Array::input(device, "positions", DType::I32, &[ROWS]);
    let frequencies = Array::input(device, "frequencies", DType::F32, &[32]);
    refrain_lm::rope(
        &Array::input(device, "x", dtype, &[ROWS, 4, 64]),
        &positions,
        &frequencies,
        params,
    )
}

/// Queries in f32; the dtype is that of the cache.
fn paged_attention(device: &Device, dtype: DType, with_sinks: bool) -> Array {
    let [keys, values] = ["keys", "values"].map(|name| Array::input(device, name, dtype, &[32, 2, 64]));
    let tokens = BatchTokens {
        positions: &Array::input(device, "positions", DType::I32, &[ROWS]),
        sequences: &Array::input(device, "sequences", DType::U32, &[ROWS]),
        pages: &Array::input(device, "pages", DType::U32, &[1, 2]),
    };
    let params = AttentionParams {
        scale: 0.125,
        page_size: 16,
        window: None,
        decode: false,
        blocks: [None; 2],
    };
    let q = Array::input(device, "q", DType::F32, &[ROWS, 4, 64]);
    if with_sinks {
        let sinks = Array::input(device, "sinks", dtype, &[4]);
        return paged_attention_with_sinks(&q, &keys, &values, tokens, &sinks, params);
    }
    refrain_lm::paged_attention(&q, &keys, &values, tokens, params)
}

fn sample(device: &Device, dtype: DType) -> Array {
    let sequences = Sequences::new(device, 2, COLUMNS, 8, 8).expect("small states");
    let settings = Array::input(device, "settings", DType::U32, &[2, Settings::WORDS]);
    let logits = Array::input(device, "logits", dtype, &[2, COLUMNS]);
    refrain_lm::sample(&logits, &settings, &sequences, None).0
}

fn batch_inputs(device: &Device) -> [Array; 3] {
    [
        Array::input(device, "positions", DType::I32, &[ROWS]),
        Array::input(device, "sequences", DType::U32, &[ROWS]),
        Array::input(device, "pages", DType::U32, &[1, 2]),
    ]
}

fn tokens([positions, sequences, pages]: &[Array; 3]) -> BatchTokens<'_> {
    BatchTokens {
        positions,
        sequences,
        pages,
    }
}

/// The dtype is that of x and the weights.
fn causal_conv(device: &Device, dtype: DType) -> Array {
    let state = Array::state(device, DType::F32, &[1, 3, COLUMNS]).expect("a small state");
    let weights = Array::input(device, "weights", dtype, &[COLUMNS, 4]);
    refrain_lm::causal_conv(&x(device, dtype), &weights, tokens(&batch_inputs(device)), &state).0
}

/// The dtype is that of all inputs.
fn gated_delta(device: &Device, dtype: DType) -> Array {
    let state = Array::state(device, DType::F32, &[1, 4, 32, 64]).expect("a small state");
    let input = |name: &str, shape: &[usize]| Array::input(device, name, dtype, shape);
    let [q, k] = ["q", "k"].map(|name| input(name, &[ROWS, 2, 64]));
    let [decay, beta] = ["decay", "beta"].map(|name| input(name, &[ROWS, 4]));
    let v = input("v", &[ROWS, 4, 32]);
    refrain_lm::gated_delta([&q, &k, &v], [&decay, &beta], tokens(&batch_inputs(device)), &state).0
}

fn expert_inputs(device: &Device, dtype: DType) -> Array {
    x(device, dtype).expand_dims(1)
}

fn chosen_experts(device: &Device) -> Array {
    Array::input(device, "experts", DType::U32, &[ROWS, 2])
}

/// Products with the matrices of experts, by format; the dtype is that of x and of the scales.
fn quantised_experts() -> Vec<Operation> {
    let product = |format: QuantFormat| {
        operation(format.to_string(), move |d, t| {
            expert_matmul(&expert_inputs(d, t), &chosen_experts(d), planes(d, format, t), 128)
        })
    };
    QuantFormat::ALL.map(product).into()
}

/// The sections of the document: titles and operations.
pub fn sections() -> Vec<(&'static str, Vec<Operation>)> {
    vec![
        ("Elementwise", elementwise()),
        ("Reductions, products, indices, transformers", others()),
        ("Quantised matmul of 1 row", quantised_matmul(1)),
        ("Quantised matmul of 256 rows", quantised_matmul(256)),
        ("Quantised experts", quantised_experts()),
        ("Quantised take", quantised_take()),
    ]
}
