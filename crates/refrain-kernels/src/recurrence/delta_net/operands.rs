//! Operands of the kernel and their extents.

use super::{DeltaNetParams, OP};
use crate::kit::text::{require_dtype, require_float, require_shape};
use crate::recurrence::RecurrenceForm;
use crate::{DType, Layout, OperandSpec, Unsupported};

/// Maximum number of taps of the convolution: an invocation keeps them in registers.
const MAX_TAPS: usize = 16;

/// Operands, numbered in this order. `conv_state` and `state` are updated, unless there are `next_states`, or the form
/// is without that.
#[derive(Clone, Copy)]
pub struct DeltaNetOperands<'a> {
    /// Full if there are `next_states`.
    pub form: RecurrenceForm,
    /// Whether each sequence has at most one token with a position.
    pub one_token: bool,
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
    pub conv_state: &'a OperandSpec,
    /// 8: `[S, H, E, D]`.
    pub state: &'a OperandSpec,
    /// 9, if there is one: the norm's weight `[E]`.
    pub norm_weight: Option<&'a OperandSpec>,
    /// The next: `[T, H·E]`. [`RecurrenceForm::StateOnly`] has no such operand: this gives the shape of results only.
    pub out: &'a OperandSpec,
    /// The last two, if there are any: memory for the next conv state, in the dtype of the given one, and for the next
    /// state. If each sequence has one token and none starts, the next conv state may also hold the whole input of the
    /// convolution, `[S, W, C]`.
    pub next_states: Option<[&'a OperandSpec; 2]>,
}

/// Extents of checked operands.
pub(super) struct DeltaNetSizes {
    pub tokens: usize,
    pub taps: usize,
    pub key_heads: usize,
    pub key_dim: usize,
    pub heads: usize,
    pub value_dim: usize,
    pub states: usize,
}

impl DeltaNetSizes {
    /// Value heads per key head.
    pub fn ratio(&self) -> usize {
        self.heads / self.key_heads
    }
}

impl DeltaNetOperands<'_> {
    /// Names `operands`, given in order.
    ///
    /// # Panics
    /// Panics if there are fewer than ten.
    pub fn of<'a>(operands: &[&'a OperandSpec]) -> DeltaNetOperands<'a> {
        DeltaNetOperands::of_form(RecurrenceForm::Full, operands)
    }

    /// Names `operands` of a form, given in order.
    ///
    /// # Panics
    /// Panics if there are fewer than ten, or nine without results.
    pub fn of_form<'a>(form: RecurrenceForm, operands: &[&'a OperandSpec]) -> DeltaNetOperands<'a> {
        let [
            x,
            weights,
            decay,
            beta,
            z,
            positions,
            sequences,
            conv_state,
            state,
            rest @ ..,
        ] = operands
        else {
            panic!("{} operands", operands.len())
        };
        let (norm_weight, out) = match (form, rest) {
            (RecurrenceForm::StateOnly, _) => (rest.first().copied(), z),
            (_, [norm_weight @ .., out]) => (norm_weight.first().copied(), out),
            (_, []) => panic!("no operand for results"),
        };
        DeltaNetOperands {
            form,
            one_token: false,
            x,
            weights,
            decay,
            beta,
            z,
            positions,
            sequences,
            conv_state,
            state,
            norm_weight,
            out,
            next_states: None,
        }
    }

    /// Names `operands`, given in order, the last two of which are the next states.
    ///
    /// # Panics
    /// Panics if there are fewer than twelve.
    pub fn with_next_states<'a>(operands: &[&'a OperandSpec]) -> DeltaNetOperands<'a> {
        let [updated @ .., conv_state, state] = operands else {
            panic!("{} operands", operands.len())
        };
        DeltaNetOperands {
            next_states: Some([conv_state, state]),
            ..DeltaNetOperands::of(updated)
        }
    }

    /// Whether there are results.
    pub(super) fn has_results(&self) -> bool {
        self.form != RecurrenceForm::StateOnly
    }

    /// Whether the states are updated.
    pub(super) fn updates_states(&self) -> bool {
        self.form != RecurrenceForm::ResultsOnly && self.next_states.is_none()
    }

    /// The number of `out`.
    pub(super) fn out_number(&self) -> usize {
        9 + usize::from(self.norm_weight.is_some())
    }

    /// Whether states pass through registers in parts. A single sequence takes less time with its state in registers.
    pub(super) fn goes_in_parts(&self, sizes: &DeltaNetSizes) -> bool {
        self.one_token && sizes.states > 1 && self.form == RecurrenceForm::Full && self.next_states.is_none()
    }

    /// Number of counters: value heads that share a key head also share its conv state, which the last of them writes
    /// when all have read it. A state that stays as it is needs no such care.
    pub(super) fn tickets(&self, sizes: &DeltaNetSizes) -> usize {
        if sizes.ratio() > 1 && self.updates_states() {
            sizes.states * sizes.key_heads
        } else {
            0
        }
    }

    pub(super) fn sizes(&self, params: &DeltaNetParams) -> Result<DeltaNetSizes, Unsupported> {
        let size = |what: String| Unsupported::Size { op: OP, what };
        let floats = [
            self.x,
            self.weights,
            self.decay,
            self.beta,
            self.z,
            self.conv_state,
            self.out,
        ];
        for operand in floats.into_iter().chain(self.norm_weight) {
            require_float(OP, operand)?;
        }
        let (&[tokens, channels], &[_, taps], &[states, heads, value_dim, key_dim]) = (
            &self.x.layout.shape[..],
            &self.weights.layout.shape[..],
            &self.state.layout.shape[..],
        ) else {
            return Err(size(format!(
                "x {:?}, weights {:?} and state {:?} must have 2, 2 and 4 dimensions",
                self.x.layout.shape, self.weights.layout.shape, self.state.layout.shape
            )));
        };
        let values = heads * value_dim;
        let keys = channels.saturating_sub(values) / 2;
        let key_heads = keys / key_dim.max(1);
        let divides = 2 * key_heads * key_dim + values == channels && key_heads > 0 && heads.is_multiple_of(key_heads);
        if !divides
            || values == 0
            || !(1..=MAX_TAPS).contains(&taps)
            || self.norm_weight.is_some() != params.norm.weighted
        {
            return Err(size(format!(
                "{channels} channels, {taps} taps, {heads} heads of {value_dim} × {key_dim} values are unsupported"
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

    /// Whether the next conv state also holds the oldest input.
    pub(super) fn is_joined(&self, sizes: &DeltaNetSizes) -> bool {
        let joined = |next: &OperandSpec| next.layout.shape.get(1) == Some(&sizes.taps);
        self.next_states.is_some_and(|[conv_state, _]| joined(conv_state))
    }

    /// The conv state as [`recurrence::check`](crate::recurrence::check) wants it. One that is not updated may have the
    /// dtype of the inputs that it holds, and lie in those of a longer sequence.
    pub(super) fn window(&self) -> Result<OperandSpec, Unsupported> {
        let given = self.conv_state;
        if self.next_states.is_none() {
            return Ok(given.clone());
        }
        let Layout { shape, strides, .. } = &given.layout;
        let channels = self.x.layout.shape[1];
        let is_dense =
            shape.len() == 3 && (shape[1] <= 1 || strides[1] == channels) && (shape[2] <= 1 || strides[2] == 1);
        if !is_dense {
            return Err(Unsupported::NeedsContiguous { op: OP, operand: 7 });
        }
        Ok(OperandSpec::contiguous(DType::F32, shape))
    }

    pub(super) fn check_next_states(&self, sizes: &DeltaNetSizes) -> Result<(), Unsupported> {
        let Some(next_states) = self.next_states else {
            return Ok(());
        };
        let mut shapes = [self.conv_state, self.state].map(|state| state.layout.shape.to_vec());
        if self.is_joined(sizes) && sizes.tokens == sizes.states {
            shapes[0][1] = sizes.taps;
        }
        let dtypes = [self.conv_state.dtype, DType::F32];
        for ((next, shape), dtype) in next_states.into_iter().zip(shapes).zip(dtypes) {
            require_dtype(OP, next, dtype)?;
            require_shape(OP, "the next state", next, &shape)?;
            if !next.layout.is_contiguous() {
                let what = "the next states must be contiguous".into();
                return Err(Unsupported::Size { op: OP, what });
            }
        }
        Ok(())
    }

    /// Names of the operands in the shader.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let first = [
            "x",
            "weights",
            "decay",
            "beta",
            "z",
            "positions",
            "sequences",
            "conv_state",
            "state",
        ];
        first
            .into_iter()
            .chain(self.norm_weight.map(|_| "norm_weight"))
            .chain(self.has_results().then_some("y"))
            .chain(self.next_states.iter().flat_map(|_| ["next_conv_state", "next_state"]))
            .collect()
    }

    pub(super) fn all(&self) -> Vec<&OperandSpec> {
        let first = [
            self.x,
            self.weights,
            self.decay,
            self.beta,
            self.z,
            self.positions,
            self.sequences,
            self.conv_state,
            self.state,
        ];
        let results = self.has_results().then_some(self.out);
        let optional = first.into_iter().chain(self.norm_weight).chain(results);
        optional.chain(self.next_states.into_iter().flatten()).collect()
    }
}
