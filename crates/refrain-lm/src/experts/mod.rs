//! Mixture of experts: products with the matrices of the experts that tokens are routed to.

mod projection;
mod rewrite;
mod router;
mod sum;

use std::hash::{Hash, Hasher};

use refrain_kernels::expert_matmul::{self, Matrices};
use refrain_kernels::projection::WeightStorage;

use refrain::nn::Weight;
use refrain::operation::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, check_planes,
};
use refrain::rewrite::{Rewrite, RewriteStage};
use refrain::{Array, DType, QuantFormat};

/// (x `[T, U, K]`, experts `[T, U]`, W `[E·N, K]` or quants, scales, {biases}) → `[T, U, N]`: products of each token
/// with the matrices of its experts.
#[derive(Hash, Debug)]
struct ExpertMatmul {
    /// The format of W, if it is quantised.
    format: Option<QuantFormat>,
    /// N: rows per expert.
    rows: usize,
}

impl Operation for ExpertMatmul {
    fn name(&self) -> &'static str {
        "expert_matmul"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, experts, planes @ ..] = inputs else {
            return Err(format!("{} inputs, expected at least 3", inputs.len()));
        };
        let matrices = match (&self.format, planes) {
            (Some(format), [quants, ..]) => check_planes(format, planes).map(|()| quants)?,
            (None, [weights]) if weights.rank() == 2 && weights.dtype.is_float() => weights,
            _ => {
                let given: Vec<String> = planes.iter().map(|x| x.to_string()).collect();
                let given = given.join(", ");
                return Err(format!(
                    "expert weights must be a matrix of floats or quantised planes, not {given}"
                ));
            }
        };
        let (all, stored, rows) = (matrices.dim(0), matrices.dim(1), self.rows);
        let columns = self.format.map_or(stored, |format| format.columns(stored));
        let fits = x.rank() == 3
            && experts.rank() == 2
            && experts.dtype == DType::U32
            && x.dtype.is_float()
            && x.shape[..2] == experts.shape[..]
            && x.dim(2) == columns
            && rows > 0
            && all.is_multiple_of(rows);
        if !fits {
            return Err(format!(
                "x {x} and experts {experts} do not match {rows} of {all} rows of {columns} values"
            ));
        }
        Ok(vec![ArraySpec::new(&[x.dim(0), x.dim(1), rows], DType::F32)])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let (out, x) = operands.split_last().expect("there is a result");
        let matrices = match self.format {
            Some(format) => Matrices::Quantised(format, [&x[2], &x[3]], x.get(4)),
            None => Matrices::Dense(&x[2]),
        };
        Ok(Kernels::with_workspace(expert_matmul::calls(
            traits, &x[0], &x[1], matrices, out,
        )?))
    }

    fn rewrites(&self) -> &'static [Rewrite] {
        const {
            &[Rewrite {
                stage: RewriteStage::BeforeProducts,
                run: rewrite::fuse,
            }]
        }
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let matrices = x.matrix(self.format.map_or(WeightStorage::Dense, WeightStorage::Quantised), 2);
        let product = expert_matmul::reference(&x.f32(0), &x.u32(1), &matrices.rows(), [self.rows; 2]);
        drop(matrices);
        drop(x);
        step.store(0, &Values::F32(product));
    }

    fn detail(&self) -> String {
        self.format.map_or(String::new(), |format| format!(" {format}"))
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let columns = operands[0].layout.shape[2] as u64;
        let out = operands.last().map_or(0, |out| out.layout.count() as u64);
        out.saturating_mul(columns)
    }

    fn rows_read(&self, operands: &[OperandSpec]) -> Option<[usize; 2]> {
        Some([operands.last()?.layout.count(), operands[2].layout.shape[0]])
    }
}

/// Multiplies x by the matrices of each token's experts.
///
/// x floats `[T, U, K]`, or `[T, 1, K]` if all experts of a token get the same input; experts u32 `[T, U]` → f32 `[T,
/// U, N]`. `weights` `[E·N, K]`, floats or quantised, are the matrices `[N, K]` of all experts, `rows` (N) rows each,
/// one after the other. An expert that does not exist gives zeros. Weights of experts without tokens are not read. The
/// result is invalid if shapes do not match.
#[track_caller]
pub fn expert_matmul(x: &Array, experts: &Array, weights: impl Into<Weight>, rows: usize) -> Array {
    let weights = weights.into();
    // All experts of a token get the same input.
    let shared = x.rank() == 3 && experts.rank() == 2 && x.dim(1) == 1;
    let x = if shared {
        x.broadcast_to(&[x.dim(0), experts.dim(1), x.dim(2)])
    } else {
        x.clone()
    };
    let (format, planes) = match &weights {
        Weight::Dense(weights) => (None, vec![weights]),
        Weight::Quantised(weights) => (Some(weights.format), weights.planes()),
    };
    let inputs: Vec<&Array> = [&x, experts].into_iter().chain(planes).collect();
    let [product] = Array::apply(ExpertMatmul { format, rows }, &inputs);
    product
}
