//! The kernel calls that compute an operation.

use refrain_kernels::projection::ProjectionCalls;
use refrain_kernels::{Call, CallOrder, OperandSpec, Push};

/// The kernel calls of one node. There are none on the CPU executor, for leaves and for empty results.
#[derive(Clone, Debug, Default)]
pub struct Kernels {
    /// The calls in order. Operands are numbered inputs, new results, workspace, tickets.
    pub calls: Vec<Call>,
    /// How the calls depend on each other.
    pub order: CallOrder,
    /// Memory for the calls only.
    pub workspace: Option<OperandSpec>,
    /// Number of u32 counters that are zero before and after the calls: the operand after the workspace.
    pub tickets: usize,
}

impl Kernels {
    /// A single dispatch.
    pub fn one(call: Call) -> Kernels {
        Kernels {
            calls: vec![call],
            ..Kernels::default()
        }
    }

    /// Dispatches each of which depends on the one before it.
    pub fn chained(calls: Vec<Call>) -> Kernels {
        Kernels {
            order: CallOrder::Sequential,
            calls,
            ..Kernels::default()
        }
    }

    /// [`Kernels::chained`] with a workspace.
    pub fn with_workspace((calls, workspace): (Vec<Call>, Option<OperandSpec>)) -> Kernels {
        Kernels {
            workspace,
            ..Kernels::chained(calls)
        }
    }
}

impl From<ProjectionCalls> for Kernels {
    fn from(made: ProjectionCalls) -> Kernels {
        Kernels {
            calls: made.calls,
            order: made.order,
            workspace: made.workspace,
            tickets: made.tickets,
        }
    }
}

/// Renumbers the operands of a call: operand `i` becomes `numbers[i]`.
pub fn renumber(call: &mut Call, numbers: &[usize]) {
    for push in &mut call.push {
        if let Push::Address { operand, .. } = push {
            *operand = numbers[*operand];
        }
    }
}
