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

mod reference;

pub use reference::{DeltaNetInputs, reference};

use std::hash::{Hash, Hasher};

use crate::kit::arguments::PushArguments;
use crate::kit::iterations::joined_lanes;
use crate::kit::text::{Text, address, require_float, require_shape};
use crate::kit::tickets;
use crate::rms_norm::Norm;
use crate::{Architecture, Call, OperandSpec, Push, Traits, Unsupported, recurrence, tuning};

const OP: &str = "delta_net";
/// Taps are kept in registers.
const MOST_TAPS: usize = 16;
/// Values of the memory that an invocation keeps in registers.
const MOST_KEPT: usize = 128;
/// Values of the memory's rows that are summed together.
const TOGETHER: usize = 4;

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

impl Hash for DeltaNetParams {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.eps.to_bits(), self.scales.map(f32::to_bits), self.norm).hash(state);
    }
}

/// Operands, numbered in this order; the states are updated.
#[derive(Clone, Copy)]
pub struct DeltaNetOperands<'a> {
    /// 0: `[T, C]`.
    pub x: &'a OperandSpec,
    /// 1: `[C, W]`.
    pub weights: &'a OperandSpec,
    /// 2: `[T, H]`.
    pub decay: &'a OperandSpec,
    /// 3: `[T, H]`.
    pub beta: &'a OperandSpec,
    /// 4: `[T, H·E]`.
    pub z: &'a OperandSpec,
    /// 5: `[T]`.
    pub positions: &'a OperandSpec,
    /// 6: `[T]`.
    pub sequences: &'a OperandSpec,
    /// 7: `[S, W−1, C]`.
    pub window: &'a OperandSpec,
    /// 8: `[S, H, E, D]`.
    pub memory: &'a OperandSpec,
    /// 9, if there is one: the norm's weight `[E]`.
    pub norm_weight: Option<&'a OperandSpec>,
    /// The last: `[T, H·E]`.
    pub out: &'a OperandSpec,
}

/// Extents of checked operands.
struct DeltaNetSizes {
    tokens: usize,
    taps: usize,
    key_heads: usize,
    key_dim: usize,
    heads: usize,
    value_dim: usize,
    states: usize,
}

impl DeltaNetSizes {
    /// Value heads that share a key head.
    fn ratio(&self) -> usize {
        self.heads / self.key_heads
    }
}

impl DeltaNetOperands<'_> {
    /// What stands in `operands`, in order.
    ///
    /// # Panics
    /// When there are fewer than ten.
    pub fn of<'a>(operands: &[&'a OperandSpec]) -> DeltaNetOperands<'a> {
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
        DeltaNetOperands {
            x,
            weights,
            decay,
            beta,
            z,
            positions,
            sequences,
            window,
            memory,
            norm_weight: rest.first().copied(),
            out,
        }
    }

    fn sizes(&self, params: &DeltaNetParams) -> Result<DeltaNetSizes, Unsupported> {
        let size = |what: String| Unsupported::Size { op: OP, what };
        let floats = [self.x, self.weights, self.decay, self.beta, self.z, self.out];
        for operand in floats.into_iter().chain(self.norm_weight) {
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
        if !whole
            || values == 0
            || !(1..=MOST_TAPS).contains(&taps)
            || self.norm_weight.is_some() != params.norm.weighted
        {
            return Err(size(format!(
                "{channels} channels, {taps} taps, {heads} heads of {value_dim} by {key_dim} values"
            )));
        }
        require_shape(OP, "the weights", self.weights, &[channels, taps])?;
        require_shape(OP, "the decay", self.decay, &[tokens, heads])?;
        require_shape(OP, "beta", self.beta, &[tokens, heads])?;
        require_shape(OP, "z", self.z, &[tokens, values])?;
        require_shape(OP, "the result", self.out, &[tokens, values])?;
        if let Some(norm_weight) = self.norm_weight {
            require_shape(OP, "the norm's weight", norm_weight, &[value_dim])?;
        }
        Ok(DeltaNetSizes {
            tokens,
            taps,
            key_heads,
            key_dim,
            heads,
            value_dim,
            states,
        })
    }

    /// Their names in the shader.
    fn names(&self) -> Vec<&'static str> {
        let first = [
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
        first
            .into_iter()
            .chain(self.norm_weight.map(|_| "norm_weight"))
            .chain(["y"])
            .collect()
    }

    fn all(&self) -> Vec<&OperandSpec> {
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
        first.into_iter().chain(self.norm_weight).chain([self.out]).collect()
    }
}

/// How a workgroup is divided.
struct DeltaDivision {
    lanes: u32,
    rows: u32,
    /// Values of a key to an invocation.
    each: usize,
    /// Quads of the memory's rows that a row of invocations has.
    runs: usize,
}

impl DeltaDivision {
    fn of(traits: &Traits, sizes: &DeltaNetSizes) -> Result<DeltaDivision, Unsupported> {
        let (key_dim, value_dim) = (sizes.key_dim, sizes.value_dim);
        let lanes = tuning::lanes(traits);
        let each = key_dim.div_ceil(lanes as usize);
        let runs = |rows: u32| value_dim.div_ceil(rows as usize * TOGETHER);
        let most = (traits.workgroup(u32::MAX) / lanes).max(1);
        let threads = tuning::choose(traits).delta.head_threads;
        let mut rows = (traits.workgroup(threads) / lanes).max(1);
        // Registers want more of them, and more than there are values for would wait for the others.
        while rows < most && runs(rows) * each * TOGETHER > MOST_KEPT {
            rows *= 2;
        }
        while rows > 1 && runs(rows / 2) == 1 {
            rows /= 2;
        }
        let division = DeltaDivision {
            lanes,
            rows,
            each,
            runs: runs(rows),
        };
        let shared = 4 * (2 * key_dim + value_dim + (1 + TOGETHER) * (lanes * rows) as usize) + 64;
        if division.runs * division.each * TOGETHER > MOST_KEPT || shared > traits.shared_bytes as usize {
            let what = format!("heads of {value_dim} by {key_dim} values");
            return Err(Unsupported::Size { op: OP, what });
        }
        Ok(division)
    }

    /// How often a token makes an invocation loop.
    fn work(&self, traits: &Traits, taps: usize) -> usize {
        taps.max(2 * self.each * self.runs) + 4 * joined_lanes(traits) + self.rows as usize
    }
}

/// The call, and how many counters (u32, zero before and after it) it needs, as the operand behind the others.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first ([`Unsupported::NeedsContiguous`]), heads are
/// larger than registers hold, or value heads share key heads on a device without [`Traits::tickets`].
pub fn call(
    traits: &Traits,
    operands: &DeltaNetOperands<'_>,
    params: &DeltaNetParams,
) -> Result<(Call, usize), Unsupported> {
    let (sizes, division, arguments) = checked(traits, operands, params)?;
    let mut text = Text::new(traits, OP)
        .define("LANE_VALUE", "vec4")
        .flag("NORM_WEIGHT", params.norm.weighted)
        .define("RATIO", sizes.ratio())
        // Sixteen subgroups of 64 leave 64 registers a lane, of which each address takes two.
        .flag("SCARCE_REGISTERS", traits.architecture == Architecture::Gcn);
    for (name, operand) in operands.names().into_iter().zip(operands.all()) {
        text = match name {
            "window" | "state" | "y" => text.output(name, operand.dtype),
            _ => text.input(name, operand.dtype),
        };
    }
    let [counters, last] = match sizes.ratio() {
        1 => [""; 2],
        _ => [tickets::COUNTERS, tickets::TEXT],
    };
    let kernel = text
        .body(counters)
        .body(&arguments.declaration())
        .body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("delta_net.comp"))
        .body(last)
        .kernel(vec![
            (0, division.lanes * division.rows),
            (3, division.lanes),
            (4, division.rows),
            (5, division.each as u32),
            (6, division.runs as u32),
            (7, sizes.taps as u32),
            (8, sizes.key_dim as u32),
            (9, sizes.value_dim as u32),
        ]);
    let call = Call {
        kernel,
        groups: [sizes.heads.max(1) as u32, sizes.states.max(1) as u32, 1],
        push: arguments.push(),
    };
    Ok((
        call,
        if sizes.ratio() > 1 {
            sizes.states * sizes.key_heads
        } else {
            0
        },
    ))
}

/// Fails as [`call`] would, without building the call.
///
/// # Errors
/// Those of [`call`].
pub fn check(traits: &Traits, operands: &DeltaNetOperands<'_>, params: &DeltaNetParams) -> Result<(), Unsupported> {
    checked(traits, operands, params).map(|_| ())
}

fn checked(
    traits: &Traits,
    operands: &DeltaNetOperands<'_>,
    params: &DeltaNetParams,
) -> Result<(DeltaNetSizes, DeltaDivision, PushArguments), Unsupported> {
    let sizes = operands.sizes(params)?;
    let division = DeltaDivision::of(traits, &sizes)?;
    check_sizes(traits, operands, &sizes, &division)?;
    let arguments = arguments(traits, operands, params, &sizes)?;
    Ok((sizes, division, arguments))
}

fn check_sizes(
    traits: &Traits,
    operands: &DeltaNetOperands<'_>,
    sizes: &DeltaNetSizes,
    division: &DeltaDivision,
) -> Result<(), Unsupported> {
    let size = |what: String| Unsupported::Size { op: OP, what };
    if sizes.ratio() > 1 && !traits.tickets {
        return Err(size("workgroups do not see what others have stored".into()));
    }
    let (heads, states) = (sizes.heads, sizes.states);
    if [heads, states].iter().any(|&groups| groups > 65_535) {
        return Err(size(format!("{heads} heads of {states} sequences")));
    }
    let channels = operands.x.layout.shape[1];
    let window: &[usize] = &[sizes.taps - 1, channels];
    let memory: &[usize] = &[heads, sizes.value_dim, sizes.key_dim];
    let tokens = [sizes.tokens, division.work(traits, sizes.taps)];
    for (state, part) in [(operands.window, window), (operands.memory, memory)] {
        let places = [operands.positions, operands.sequences, state];
        recurrence::check(OP, traits, places, 5, tokens, part)?;
    }
    for (number, operand) in [(1, Some(operands.weights)), (9, operands.norm_weight)] {
        if operand.is_some_and(|operand| !operand.layout.is_contiguous()) {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    Ok(())
}

fn arguments(
    traits: &Traits,
    operands: &DeltaNetOperands<'_>,
    params: &DeltaNetParams,
    sizes: &DeltaNetSizes,
) -> Result<PushArguments, Unsupported> {
    let all = operands.all();
    let mut arguments = PushArguments::new(traits);
    for (number, (name, operand)) in operands.names().into_iter().zip(&all).enumerate() {
        arguments.address(format!("{name}_ref {name}"), address(OP, number, operand)?);
    }
    if sizes.ratio() > 1 {
        let operand = all.len();
        arguments.address("counters_ref tickets", Push::Address { operand, bytes: 0 });
    }
    arguments.number("TOKENS", sizes.tokens);
    arguments.number("KEY_HEADS", sizes.key_heads);
    let floats = [params.eps, params.scales[0], params.scales[1], params.norm.eps];
    for (name, value) in ["EPS", "Q_SCALE", "K_SCALE", "NORM_EPS"].iter().zip(floats) {
        arguments.number(name, value.to_bits() as usize);
    }
    for (name, number) in [("X", 0), ("DECAY", 2), ("BETA", 3), ("Z", 4), ("Y", all.len() - 1)] {
        let layout = &all[number].layout;
        if layout.strides[1] != 1 && layout.shape[1] > 1 {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
        arguments.stride(&format!("{name}_STRIDE"), layout.strides[0]);
    }
    arguments.check(OP)?;
    Ok(arguments)
}
