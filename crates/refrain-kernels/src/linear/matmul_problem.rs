use crate::kit::text::outer_dimensions;
use crate::{OperandSpec, Unsupported};

const OP: &str = "matmul";

/// Extents and strides of a batched product with merged batch dimensions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MatmulProblem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Extents of the outer and the inner batch dimension.
    pub batch: [u32; 2],
    /// `a`'s strides along m and k.
    pub a: [usize; 2],
    /// `b`'s strides along k and n.
    pub b: [usize; 2],
    /// `out`'s strides along m and n.
    pub c: [usize; 2],
    /// Strides of `a`, `b` and `out` along the two batch dimensions.
    pub batch_strides: [[usize; 2]; 3],
    /// Whether `a` and `b` are swapped, so that the transposed product is computed.
    pub swapped: bool,
}

impl MatmulProblem {
    pub(crate) fn new(a: &OperandSpec, b: &OperandSpec, out: &OperandSpec) -> Result<MatmulProblem, Unsupported> {
        let rank = out.layout.rank();
        let (x, y, z) = (&a.layout, &b.layout, &out.layout);
        let shapes = || format!("{:?} times {:?} into {:?}", x.shape, y.shape, z.shape);
        let mismatch = |what: &str| Unsupported::Size {
            op: OP,
            what: format!("{}: {what}", shapes()),
        };
        if rank < 2 || x.rank() != rank || y.rank() != rank {
            return Err(mismatch("all ranks must be equal and at least 2"));
        }
        let b0 = rank - 2;
        if x.shape[..b0] != z.shape[..b0] || y.shape[..b0] != z.shape[..b0] {
            return Err(mismatch("batch dimensions differ"));
        }
        let (m, n, k) = (z.shape[b0], z.shape[b0 + 1], x.shape[b0 + 1]);
        if x.shape[b0] != m || y.shape[b0 + 1] != n || y.shape[b0] != k {
            return Err(mismatch("M, N or K differ"));
        }
        let outer = outer_dimensions(OP, &[a, b, out], 2, 2)?;
        let batch = [outer[0].0, outer[1].0];
        let batch_strides = [0, 1, 2].map(|i| [outer[0].1[i] as usize, outer[1].1[i] as usize]);
        let pair = |strides: &[usize]| [strides[b0], strides[b0 + 1]];
        let problem = MatmulProblem {
            m,
            n,
            k,
            batch,
            a: pair(&x.strides),
            b: pair(&y.strides),
            c: pair(&z.strides),
            batch_strides,
            swapped: false,
        };
        Ok(problem)
    }

    /// The transposed product, with `a` and `b` swapped.
    pub(crate) fn transposed(self) -> MatmulProblem {
        let swap = |[x, y]: [usize; 2]| [y, x];
        let [a, b, c] = self.batch_strides;
        MatmulProblem {
            m: self.n,
            n: self.m,
            a: swap(self.b),
            b: swap(self.a),
            c: swap(self.c),
            batch_strides: [b, a, c],
            swapped: !self.swapped,
            ..self
        }
    }
}
