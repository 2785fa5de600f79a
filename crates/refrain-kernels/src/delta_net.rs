//! A gated delta net between its projections: convolution with its activation, norms of queries and keys, the
//! gated delta rule, the norm of what it recalls and the gate.
//!
//! `x` `[T, C]` holds for each token queries and keys of HK heads of D values and values of H heads of E,
//! C = 2·HK·D + H·E. They go through [`crate::causal_conv`] with `weights` `[C, W]` and the state `window`
//! `[S, W−1, C]`, then through silu(x) = x · sigmoid(x). Queries and keys are divided by √(mean(x²) + ε) over each
//! head and multiplied by a number; [`crate::gated_delta`] with `decay` and `beta` `[T, H]` and the state `memory`
//! `[S, H, E, D]` recalls `[T, H, E]`, which is normalised over each head ([`crate::rms_norm`]) and multiplied by
//! silu(z), z `[T, H·E]` → `out` `[T, H·E]`. All in f32 (Yang et al. 2024, arXiv:2412.06464, section 3.4).
//!
//! Tokens belong to sequences as in [`crate::gated_delta`]. Meant for few tokens: they are taken one after the
//! other, by a workgroup for each value head.

use crate::arguments::Arguments;
use crate::iterations::joined_lanes;
use crate::rms_norm::Norm;
use crate::text::{Text, address, require_float, require_shape};
use crate::{Call, Operand, Push, Traits, Unsupported, causal_conv, gated_delta, recurrence, rms_norm, tuning};

const OP: &str = "delta_net";
/// Taps are kept in registers.
const MOST_TAPS: usize = 16;
/// Values of the memory that an invocation keeps in registers.
const MOST_KEPT: usize = 128;
/// Values of the memory's rows that are summed together.
const TOGETHER: usize = 4;
/// The counters by which workgroups see which comes last.
const COUNTERS: &str =
    "layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer counters_ref { uint at[]; };\n";
/// Invocations that a head is worth.
const THREADS: u32 = 1024;

/// The numbers in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeltaNetParams {
    /// Added to the mean square of queries and of keys.
    pub eps: f32,
    /// What queries, then keys, are multiplied by.
    pub scales: [f32; 2],
    /// Of what is recalled.
    pub norm: Norm,
}

/// Operands, numbered in this order; the states are updated.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    /// 0: `[T, C]`.
    pub x: &'a Operand,
    /// 1: `[C, W]`.
    pub weights: &'a Operand,
    /// 2: `[T, H]`.
    pub decay: &'a Operand,
    /// 3: `[T, H]`.
    pub beta: &'a Operand,
    /// 4: `[T, H·E]`.
    pub z: &'a Operand,
    /// 5: `[T]`.
    pub positions: &'a Operand,
    /// 6: `[T]`.
    pub sequences: &'a Operand,
    /// 7: `[S, W−1, C]`.
    pub window: &'a Operand,
    /// 8: `[S, H, E, D]`.
    pub memory: &'a Operand,
    /// 9, if there is one: the norm's weight `[E]`.
    pub gain: Option<&'a Operand>,
    /// The last: `[T, H·E]`.
    pub out: &'a Operand,
}

/// Extents of checked operands.
struct Sizes {
    tokens: usize,
    taps: usize,
    key_heads: usize,
    key_dim: usize,
    heads: usize,
    value_dim: usize,
    states: usize,
}

impl Operands<'_> {
    /// What stands in `operands`, in order.
    ///
    /// # Panics
    /// When there are fewer than ten.
    pub fn of<'a>(operands: &[&'a Operand]) -> Operands<'a> {
        let [
            x,
            weights,
            decay,
            beta,
            z,
            positions,
            sequences,
            window,
            memory,
            rest @ ..,
            out,
        ] = operands
        else {
            panic!("{} operands", operands.len())
        };
        Operands {
            x,
            weights,
            decay,
            beta,
            z,
            positions,
            sequences,
            window,
            memory,
            gain: rest.first().copied(),
            out,
        }
    }

    fn sizes(&self, params: &DeltaNetParams) -> Result<Sizes, Unsupported> {
        let size = |what: String| Unsupported::Size { op: OP, what };
        let floats = [self.x, self.weights, self.decay, self.beta, self.z, self.out];
        for operand in floats.into_iter().chain(self.gain) {
            require_float(OP, operand)?;
        }
        let (&[tokens, channels], &[_, taps], &[states, heads, value_dim, key_dim]) = (
            &self.x.layout.shape[..],
            &self.weights.layout.shape[..],
            &self.memory.layout.shape[..],
        ) else {
            return Err(size(format!(
                "x {:?}, weights {:?} and memory {:?}",
                self.x.layout.shape, self.weights.layout.shape, self.memory.layout.shape
            )));
        };
        let values = heads * value_dim;
        let keys = channels.saturating_sub(values) / 2;
        let key_heads = keys / key_dim.max(1);
        let whole = 2 * key_heads * key_dim + values == channels && key_heads > 0 && heads.is_multiple_of(key_heads);
        if !whole || values == 0 || !(1..=MOST_TAPS).contains(&taps) || self.gain.is_some() != params.norm.weighted {
            return Err(size(format!(
                "{channels} channels, {taps} taps, {heads} heads of {value_dim} by {key_dim} values"
            )));
        }
        require_shape(OP, "the weights", self.weights, &[channels, taps])?;
        require_shape(OP, "the decay", self.decay, &[tokens, heads])?;
        require_shape(OP, "beta", self.beta, &[tokens, heads])?;
        require_shape(OP, "z", self.z, &[tokens, values])?;
        require_shape(OP, "the result", self.out, &[tokens, values])?;
        if let Some(gain) = self.gain {
            require_shape(OP, "the norm's weight", gain, &[value_dim])?;
        }
        Ok(Sizes {
            tokens,
            taps,
            key_heads,
            key_dim,
            heads,
            value_dim,
            states,
        })
    }

    fn all(&self) -> Vec<&Operand> {
        let first = [
            self.x,
            self.weights,
            self.decay,
            self.beta,
            self.z,
            self.positions,
            self.sequences,
            self.window,
            self.memory,
        ];
        first.into_iter().chain(self.gain).chain([self.out]).collect()
    }
}

/// The call, and how many counters (u32, zero before and after it) it needs, as the operand behind the others.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first ([`Unsupported::NeedsContiguous`]), heads are
/// larger than registers hold, or value heads share key heads on a device without [`Traits::tickets`].
pub fn call(traits: &Traits, operands: &Operands<'_>, params: &DeltaNetParams) -> Result<(Call, usize), Unsupported> {
    let size = |what: String| Unsupported::Size { op: OP, what };
    let sizes = operands.sizes(params)?;
    let Sizes {
        tokens,
        taps,
        key_dim,
        value_dim,
        ..
    } = sizes;
    let lanes = tuning::lanes(traits);
    let rows = (traits.workgroup(THREADS) / lanes).max(1);
    let each = key_dim.div_ceil(lanes as usize);
    let runs = value_dim.div_ceil(rows as usize * TOGETHER);
    let channels = 2 * key_dim + value_dim;
    let shared = 4 * (channels + (1 + TOGETHER) * (lanes * rows) as usize) + 64;
    if runs * each * TOGETHER > MOST_KEPT || shared > traits.shared_bytes as usize {
        return Err(size(format!("heads of {value_dim} by {key_dim} values")));
    }
    let ratio = sizes.heads / sizes.key_heads;
    if ratio > 1 && !traits.tickets {
        return Err(size("workgroups do not see what others have stored".into()));
    }
    // How often a token makes an invocation loop.
    let work = taps.max(2 * each * runs) + 4 * joined_lanes(traits) + rows as usize;
    let places = [operands.positions, operands.sequences];
    let [states, heads] = [sizes.states, sizes.heads];
    let window = [taps - 1, 2 * sizes.key_heads * key_dim + heads * value_dim];
    recurrence::check(
        OP,
        traits,
        [places[0], places[1], operands.window],
        5,
        [tokens, work],
        &window,
    )?;
    recurrence::check(
        OP,
        traits,
        [places[0], places[1], operands.memory],
        5,
        [tokens, work],
        &[heads, value_dim, key_dim],
    )?;
    let all = operands.all();
    for (number, operand) in [Some(operands.weights), operands.gain]
        .into_iter()
        .flatten()
        .zip([1, 9])
        .map(|(o, n)| (n, o))
    {
        if !operand.layout.is_contiguous() {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    if [heads, states].iter().any(|&groups| groups > 65_535) {
        return Err(size(format!("{heads} heads of {states} sequences")));
    }
    let mut arguments = Arguments::default();
    let mut names = vec![
        "x",
        "weights",
        "decay",
        "beta",
        "z",
        "positions",
        "sequences",
        "window",
        "state",
    ];
    names.extend(operands.gain.map(|_| "gain"));
    names.push("y");
    for (number, (name, operand)) in names.iter().zip(&all).enumerate() {
        arguments.address(format!("{name}_ref {name}"), address(OP, number, operand)?);
    }
    if ratio > 1 {
        let operand = all.len();
        arguments.address("counters_ref tickets", Push::Address { operand, bytes: 0 });
    }
    arguments.number("TOKENS", tokens);
    arguments.number("KEY_HEADS", sizes.key_heads);
    let floats = [params.eps, params.scales[0], params.scales[1], params.norm.eps];
    for (name, value) in ["EPS", "Q_SCALE", "K_SCALE", "NORM_EPS"].iter().zip(floats) {
        arguments.number(name, value.to_bits() as usize);
    }
    for (name, number) in [("X", 0), ("DECAY", 2), ("BETA", 3), ("Z", 4), ("Y", all.len() - 1)] {
        let strides = &all[number].layout.strides;
        if strides[1] != 1 && all[number].layout.shape[1] > 1 {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
        arguments.stride(&format!("{name}_STRIDE"), strides[0]);
    }
    arguments.check(OP)?;
    let mut text = Text::new(traits, OP)
        .define("LANE_VALUE", "vec4")
        .flag("GAIN", params.norm.weighted)
        .define("RATIO", ratio);
    for (name, operand) in names.into_iter().zip(&all) {
        text = match name {
            "window" | "state" | "y" => text.output(name, operand.dtype),
            _ => text.input(name, operand.dtype),
        };
    }
    let kernel = text
        .body(if ratio > 1 { COUNTERS } else { "" })
        .body(&arguments.declaration())
        .body(include_str!("shaders/lanes.glsl"))
        .body(include_str!("shaders/delta_net.comp"))
        .kernel(vec![
            (0, lanes * rows),
            (3, lanes),
            (4, rows),
            (5, each as u32),
            (6, runs as u32),
            (7, taps as u32),
            (8, key_dim as u32),
            (9, value_dim as u32),
        ]);
    let call = Call {
        kernel,
        groups: [heads.max(1) as u32, states.max(1) as u32, 1],
        push: arguments.push(),
    };
    Ok((call, if ratio > 1 { states * sizes.key_heads } else { 0 }))
}

/// What [`reference()`] reads, gapless.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[T, C]`.
    pub x: &'a [f32],
    /// `[C, W]`.
    pub weights: &'a [f32],
    /// `[T, H]`.
    pub decay: &'a [f32],
    /// `[T, H]`.
    pub beta: &'a [f32],
    /// `[T, H·E]`.
    pub z: &'a [f32],
    /// `[T]`.
    pub positions: &'a [i32],
    /// `[T]`.
    pub sequences: &'a [u32],
    /// `[E]`, if the norm has a weight.
    pub gain: Option<&'a [f32]>,
    /// HK, D, H and E.
    pub sizes: [usize; 4],
}

/// The same in plain Rust; `window` and `memory` are updated.
///
/// # Panics
/// When a slice is not as long as the others ask for.
pub fn reference(inputs: &Inputs<'_>, params: &DeltaNetParams, window: &mut [f32], memory: &mut [f32]) -> Vec<f32> {
    let [key_heads, key_dim, heads, value_dim] = inputs.sizes;
    let keys = key_heads * key_dim;
    let channels = 2 * keys + heads * value_dim;
    let silu = |x: f32| x / (1.0 + (-x).exp());
    let convolved = causal_conv::reference(
        &causal_conv::Inputs {
            x: inputs.x,
            weights: inputs.weights,
            positions: inputs.positions,
            sequences: inputs.sequences,
            channels,
        },
        window,
    );
    let mixed: Vec<f32> = convolved.into_iter().map(silu).collect();
    let columns = |from: usize, to: usize| -> Vec<f32> {
        mixed.chunks(channels).flat_map(|row| &row[from..to]).copied().collect()
    };
    let [q, k] = [0, 1].map(|part| {
        let rows = columns(part * keys, (part + 1) * keys);
        let rows = rms_norm::reference(&rows, None, params.eps, key_dim);
        rows.into_iter().map(|x| x * params.scales[part]).collect::<Vec<f32>>()
    });
    let recalled = gated_delta::reference(
        &gated_delta::Inputs {
            q: &q,
            k: &k,
            v: &columns(2 * keys, channels),
            decay: inputs.decay,
            beta: inputs.beta,
            positions: inputs.positions,
            sequences: inputs.sequences,
            sizes: inputs.sizes,
        },
        memory,
    );
    let normed = rms_norm::reference(&recalled, inputs.gain, params.norm.eps, value_dim);
    normed.iter().zip(inputs.z).map(|(x, &z)| x * silu(z)).collect()
}
