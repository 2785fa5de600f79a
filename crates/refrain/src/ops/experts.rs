//! Products with the matrices of the experts that tokens are routed to.

use super::Caller;
use super::quantised::Quantised;
use crate::{Array, DType, Primitive};

/// Products of x (floats `[T, U, K]`, or `[T, 1, K]` where a token's experts are given the same) with the
/// matrices `[N, K]` of the experts (u32 `[T, U]`) of each token → f32 `[T, U, N]`. `weights` are the
/// matrices of all experts, `rows` (N) rows each, one after the other: floats `[E·N, K]`. An expert that
/// there is not gives zeros. Nothing is read of experts that no token is routed to. Invalid where shapes do
/// not fit.
#[track_caller]
pub fn expert_matmul(x: &Array, experts: &Array, weights: &Array, rows: usize) -> Array {
    let operation = Caller::new("expert_matmul");
    if weights.rank() != 2 || !weights.dtype().is_float() {
        let what = format!("{}{:?} are no matrices of experts", weights.dtype(), weights.shape());
        return operation.invalid(&[x, experts, weights], what);
    }
    let primitive = Primitive::ExpertMatmul { format: None };
    product(
        operation,
        primitive,
        [x, experts],
        &[weights],
        [weights.dim(0), rows, weights.dim(1)],
    )
}

impl Quantised {
    /// As [`expert_matmul`], of quantised matrices.
    #[track_caller]
    pub fn expert_matmul(&self, x: &Array, experts: &Array, rows: usize) -> Array {
        let operation = Caller::new("expert_matmul");
        let planes = self.planes();
        if let Some(what) = self.fault() {
            return operation.invalid(&planes, what);
        }
        let primitive = Primitive::ExpertMatmul {
            format: Some(self.format),
        };
        product(
            operation,
            primitive,
            [x, experts],
            &planes,
            [self.rows(), rows, self.columns()],
        )
    }
}

fn product(
    operation: Caller,
    primitive: Primitive,
    [x, experts]: [&Array; 2],
    weights: &[&Array],
    [all, rows, columns]: [usize; 3],
) -> Array {
    let inputs: Vec<&Array> = [x, experts].into_iter().chain(weights.iter().copied()).collect();
    let (tokens, used) = (experts.dim(0), experts.dim(1));
    let fits = x.rank() == 3
        && experts.rank() == 2
        && experts.dtype() == DType::U32
        && x.dtype().is_float()
        && x.dim(0) == tokens
        && (x.dim(1) == used || x.dim(1) == 1)
        && x.dim(2) == columns
        && rows > 0
        && all.is_multiple_of(rows);
    if !fits {
        let [x, experts] = [x, experts].map(|a| format!("{}{:?}", a.dtype(), a.shape()));
        let what = format!("x {x} does not meet, for experts {experts}, {rows} of {all} rows of {columns} values");
        return operation.invalid(&inputs, what);
    }
    let x = operation.broadcast(x, &[tokens, used, columns]);
    let inputs: Vec<&Array> = [&x, experts].into_iter().chain(weights.iter().copied()).collect();
    operation.node(primitive, &inputs, &[tokens, used, rows], DType::F32)
}
