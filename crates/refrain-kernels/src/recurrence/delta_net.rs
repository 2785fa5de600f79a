//! Gated DeltaNet between its input and output projections, in one kernel: short convolution with SiLU, L2-like norms
//! of queries and keys, the gated delta rule, the output norm and the output gate.
//!
//! `x` `[T, C]` holds for each token queries and keys of HK heads of D values and values of H heads of E,
//! C = 2·HK·D + H·E. They go through [`crate::causal_conv`] with `weights` `[C, W]` and `conv_state`
//! `[S, W−1, C]`, then through silu(x) = x · sigmoid(x). Queries and keys are divided by √(mean(x²) + ε) over each
//! head and multiplied by a factor. [`crate::gated_delta`] with `decay` and `beta` `[T, H]` and `state`
//! `[S, H, E, D]` gives `[T, H, E]`, which is normalised over each head ([`crate::rms_norm`]) and multiplied by
//! silu(z), z `[T, H·E]` → `out` `[T, H·E]`. All in f32 (Yang et al. 2024, arXiv:2412.06464, section 3.4).
//!
//! The states are updated, or given with memory for the next ones ([`DeltaNetOperands::next_states`]). Results may be
//! computed without updates, and updates without results ([`DeltaNetOperands::form`]).
//!
//! Tokens belong to sequences as in [`crate::gated_delta`]. The kernel is meant for few tokens: a workgroup for each
//! value head of a sequence takes them one after another, with the state in its registers; all else is computed for some
//! of them at once. If no sequence has several tokens ([`DeltaNetOperands::one_token`]), the state passes through the
//! registers in parts.

mod operands;
mod reference;

pub use operands::DeltaNetOperands;
pub use reference::{DeltaNetInputs, reference};

use std::hash::{Hash, Hasher};

use operands::DeltaNetSizes;

use crate::kit::arguments::PushArguments;
use crate::kit::iterations::lane_reduction;
use crate::kit::text::{SourceBuilder, address};
use crate::kit::tickets;
use crate::recurrence::RecurrenceForm;
use crate::rms_norm::Norm;
use crate::{Architecture, Call, Push, Traits, Unsupported, recurrence, tuning};

const OP: &str = "delta_net";
/// Maximum number of values of the state that an invocation keeps in registers.
const MAX_STATE_REGISTERS: usize = 128;
/// Maximum number of tokens whose work is shared, but for that on the state.
const MAX_GROUP: usize = 8;
/// Rows of the state that one vec4 reduction covers.
const ROWS_PER_RUN: usize = 4;

/// Scalar parameters of the kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeltaNetParams {
    /// ε added to the mean square of queries and of keys.
    pub eps: f32,
    /// Factors of the normalised queries, then keys.
    pub scales: [f32; 2],
    /// The norm of the delta rule's output.
    pub norm: Norm,
}

impl Hash for DeltaNetParams {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.eps.to_bits(), self.scales.map(f32::to_bits), self.norm).hash(state);
    }
}

/// Division of a workgroup: rows of `lanes` invocations.
struct DeltaNetVariant {
    lanes: u32,
    rows: u32,
    /// Values of a key per invocation.
    each: usize,
    /// Runs of [`ROWS_PER_RUN`] rows of the state per row of invocations.
    runs: usize,
    /// Tokens of a sequence whose work is shared, but for that on the state.
    group: usize,
}

impl DeltaNetVariant {
    fn of(traits: &Traits, sizes: &DeltaNetSizes, in_parts: bool) -> Result<DeltaNetVariant, Unsupported> {
        let (key_dim, value_dim) = (sizes.key_dim, sizes.value_dim);
        let lanes = tuning::lanes(traits);
        if (lanes as usize) < ROWS_PER_RUN {
            let what = format!("rows of {lanes} invocations are too short for {ROWS_PER_RUN} sums");
            return Err(Unsupported::Size { op: OP, what });
        }
        let each = key_dim.div_ceil(lanes as usize);
        let runs = |rows: u32| value_dim.div_ceil(rows as usize * ROWS_PER_RUN);
        let max_rows = (traits.workgroup(u32::MAX) / lanes).max(1);
        let tuning = &tuning::choose(traits).delta;
        let few = |units: u32| sizes.tokens * sizes.heads <= units as usize;
        let threads = match (in_parts, traits.compute_units) {
            (false, _) => tuning.head_threads,
            // With a compute unit for each workgroup, larger ones take less time.
            (true, Some(units)) if few(units) => 2 * tuning.head_threads_in_parts,
            (true, _) => tuning.head_threads_in_parts,
        };
        let mut rows = (traits.workgroup(threads) / lanes).max(1);
        // Adds rows while an invocation's values exceed its registers, and drops rows that would have no values.
        while rows < max_rows && runs(rows) * each * ROWS_PER_RUN > MAX_STATE_REGISTERS {
            rows *= 2;
        }
        while rows > 1 && runs(rows / 2) == 1 {
            rows /= 2;
        }
        let group = if in_parts || has_scarce_registers(traits) {
            1
        } else {
            // Powers of two keep the number of different kernels small.
            (sizes.tokens.next_power_of_two()).min(MAX_GROUP).min(rows as usize)
        };
        let variant = DeltaNetVariant {
            lanes,
            rows,
            each,
            runs: runs(rows),
            group,
        };
        let of_tokens = group * (2 * key_dim + 2 * value_dim + 2);
        let shared = 4 * (of_tokens + (1 + ROWS_PER_RUN) * (lanes * rows) as usize) + 64;
        if variant.runs * variant.each * ROWS_PER_RUN > MAX_STATE_REGISTERS || shared > traits.shared_bytes as usize {
            let what = format!("heads of {value_dim} × {key_dim} values are unsupported");
            return Err(Unsupported::Size { op: OP, what });
        }
        Ok(variant)
    }

    /// Loop iterations of an invocation per token.
    fn iterations_per_token(&self, traits: &Traits, taps: usize) -> usize {
        taps.max(2 * self.each * self.runs) + 4 * lane_reduction(traits) + self.rows as usize
    }
}

/// Whether the sixteen subgroups of a head leave few registers to each lane: on GCN 64, and each address takes two.
fn has_scarce_registers(traits: &Traits) -> bool {
    traits.architecture == Architecture::Gcn
}

/// Returns the call and the number of counters it needs (u32, zero before and after it): the operand after the others.
///
/// # Errors
/// When dtypes or shapes do not match, an operand must be copied first ([`Unsupported::NeedsContiguous`]), heads exceed
/// the registers, or value heads share key heads on a device without [`Traits::tickets`].
pub fn call(
    traits: &Traits,
    operands: &DeltaNetOperands<'_>,
    params: &DeltaNetParams,
) -> Result<(Call, usize), Unsupported> {
    let (sizes, variant, arguments) = checked(traits, operands, params)?;
    let in_parts = operands.goes_in_parts(&sizes);
    let exchanges_lanes = traits.exchanges_lanes() && variant.lanes == traits.subgroup_size;
    let text = if exchanges_lanes {
        SourceBuilder::with_shuffles(traits, OP)
    } else {
        SourceBuilder::new(traits, OP)
    };
    let mut text = text
        .define("LANE_VALUE", "vec4")
        .flag("EXCHANGES_LANES", exchanges_lanes)
        .flag("IN_PARTS", in_parts)
        .flag("NORM_WEIGHT", params.norm.weighted)
        .flag("NEXT_STATES", operands.next_states.is_some())
        .flag("RESULTS_ONLY", operands.form == RecurrenceForm::ResultsOnly)
        .flag("STATE_ONLY", !operands.has_results())
        .define("NEXT_FROM_TAP", usize::from(!operands.is_joined(&sizes)))
        .define("RATIO", sizes.ratio())
        .flag("SCARCE_REGISTERS", has_scarce_registers(traits));
    for (name, operand) in operands.names().into_iter().zip(operands.all()) {
        text = match name {
            "conv_state" | "state" if operands.updates_states() => text.output(name, operand.dtype),
            "y" | "next_conv_state" | "next_state" => text.output(name, operand.dtype),
            _ => text.input(name, operand.dtype),
        };
    }
    let count = operands.tickets(&sizes);
    let [counters, arrives_last] = match count {
        0 => [""; 2],
        _ => [tickets::COUNTERS, tickets::TEXT],
    };
    let kernel = text
        .body(counters)
        .body(&arguments.declaration())
        .body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("delta_net/common.glsl"))
        .body(if in_parts {
            include_str!("delta_net/one_token.comp")
        } else {
            include_str!("delta_net/tokens.comp")
        })
        .body(arrives_last)
        .kernel(vec![
            (0, variant.lanes * variant.rows),
            (3, variant.lanes),
            (4, variant.rows),
            (5, variant.each as u32),
            (6, variant.runs as u32),
            (7, sizes.taps as u32),
            (8, sizes.key_dim as u32),
            (9, sizes.value_dim as u32),
            (10, variant.group as u32),
        ]);
    let call = Call {
        kernel,
        groups: [sizes.heads.max(1) as u32, sizes.states.max(1) as u32, 1],
        push: arguments.push(),
    };
    Ok((call, count))
}

/// Returns the error of [`call`], without building the call.
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
) -> Result<(DeltaNetSizes, DeltaNetVariant, PushArguments), Unsupported> {
    let sizes = operands.sizes(params)?;
    let variant = DeltaNetVariant::of(traits, &sizes, operands.goes_in_parts(&sizes))?;
    check_sizes(traits, operands, &sizes, &variant)?;
    let arguments = arguments(traits, operands, params, &sizes)?;
    Ok((sizes, variant, arguments))
}

fn check_sizes(
    traits: &Traits,
    operands: &DeltaNetOperands<'_>,
    sizes: &DeltaNetSizes,
    variant: &DeltaNetVariant,
) -> Result<(), Unsupported> {
    let size = |what: String| Unsupported::Size { op: OP, what };
    if operands.tickets(sizes) > 0 && !traits.tickets {
        return Err(size(
            "value heads that share key heads need writes that are visible across workgroups".into(),
        ));
    }
    let (heads, states) = (sizes.heads, sizes.states);
    if [heads, states].iter().any(|&groups| groups > 65_535) {
        return Err(size(format!(
            "{heads} heads of {states} sequences exceed the limits of a dispatch"
        )));
    }
    let channels = operands.x.layout.shape[1];
    let conv_state: &[usize] = &[sizes.taps - 1, channels];
    let delta_state: &[usize] = &[heads, sizes.value_dim, sizes.key_dim];
    let tokens = [sizes.tokens, variant.iterations_per_token(traits, sizes.taps)];
    let window = operands.window()?;
    for (number, state, slice) in [(7, &window, conv_state), (8, operands.state, delta_state)] {
        let indices = [operands.positions, operands.sequences, state];
        recurrence::check(OP, traits, indices, [5, 6, number], tokens, slice)?;
    }
    operands.check_next_states(sizes)?;
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
    if operands.tickets(sizes) > 0 {
        let operand = all.len();
        arguments.address("counters_ref tickets", Push::Address { operand, bytes: 0 });
    }
    arguments.number("TOKENS", sizes.tokens);
    arguments.number("KEY_HEADS", sizes.key_heads);
    if operands.next_states.is_some() {
        arguments.stride("CONV_STATE_STRIDE", operands.conv_state.layout.strides[0]);
    }
    let floats = [params.eps, params.scales[0], params.scales[1], params.norm.eps];
    for (name, value) in ["EPS", "Q_SCALE", "K_SCALE", "NORM_EPS"].iter().zip(floats) {
        arguments.number(name, value.to_bits() as usize);
    }
    let inputs = [("X", 0), ("DECAY", 2), ("BETA", 3), ("Z", 4)];
    let results = operands.has_results().then(|| ("Y", operands.out_number()));
    for (name, number) in inputs.into_iter().chain(results) {
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
