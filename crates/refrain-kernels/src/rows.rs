//! What kernels that work row by row (reduce, softmax, argmax) share: `shaders/rows.glsl` with
//! `shaders/lanes.glsl`.

use crate::iterations::MOST_ITERATIONS;
use crate::text::{self, Text};
use crate::walk::Walk;
use crate::{Call, Layout, Operand, Push, Traits, Unsupported, glsl};

/// Rows of strided operands: where each row starts, and where its columns lie.
pub(crate) struct Rows {
    op: &'static str,
    outer: Walk,
    inner: Walk,
    rows: usize,
    columns: usize,
}

/// Invocations per row, and rows per workgroup: both powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lanes {
    pub(crate) lanes: u32,
    pub(crate) rows: u32,
}

impl Rows {
    /// Operands of which the last `columns` dimensions are a row's columns.
    pub(crate) fn new(op: &'static str, layouts: [&Layout; 2], columns: usize) -> Result<Rows, Unsupported> {
        let [x, y] = layouts;
        if columns > x.rank() || columns > y.rank() {
            let what = format!("{columns} dimensions of an operand of shape {:?}", x.shape);
            return Err(Unsupported::Size { op, what });
        }
        let parts = [split(x, columns), split(y, columns)];
        Ok(Rows {
            op,
            rows: parts[0].0.count(),
            columns: parts[0].1.count(),
            outer: Walk::new(op, &[&parts[0].0, &parts[1].0])?,
            inner: Walk::new(op, &[&parts[0].1, &parts[1].1])?,
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The dimensions of which each row is one element.
    pub(crate) fn outer(&self) -> &Walk {
        &self.outer
    }

    /// The call of a kernel from `x` to `y`, its text `definitions`, the shared text, and `body`.
    pub(crate) fn call(
        &self,
        text: Text,
        [x, y]: [&Operand; 2],
        definitions: &str,
        body: &str,
        lanes: Lanes,
    ) -> Result<Call, Unsupported> {
        let mut words = self.outer.words();
        let inner = words.len() as u32;
        words.extend(self.inner.words());
        let value = glsl::compute_type(x.dtype);
        let kernel = text
            .input("x", x.dtype)
            .output("y", y.dtype)
            .body(&format!("#define WALKED 2u\n#define X_VALUE {value}\n"))
            .body(definitions)
            .body(include_str!("shaders/walk.glsl"))
            .body(include_str!("shaders/lanes.glsl"))
            .body(include_str!("shaders/rows.glsl"))
            .body(body)
            .kernel(vec![
                (0, lanes.lanes * lanes.rows),
                (3, lanes.lanes),
                (4, lanes.rows),
                (5, self.outer.rank()),
                (6, self.inner.rank()),
            ]);
        Ok(Call {
            kernel,
            groups: text::grid(self.op, self.rows.div_ceil(lanes.rows as usize))?,
            push: vec![
                x.address(0),
                y.address(1),
                Push::Record(words),
                Push::U32(self.rows as u32),
                Push::U32(self.columns as u32),
                Push::U32(inner),
            ],
        })
    }

    /// How to share out a workgroup when each row is read `passes` times.
    ///
    /// # Errors
    /// When a row is longer than one workgroup can read.
    pub(crate) fn lanes(&self, traits: &Traits, passes: usize) -> Result<Lanes, Unsupported> {
        let workgroup = traits.workgroup(if self.columns >= 16_384 { 1024 } else { 256 });
        // Neighbouring invocations should read neighbouring elements.
        let columns_apart = self.inner.inner_stride(0) > 1 && self.outer.inner_stride(0) == 1;
        let wanted = if columns_apart {
            self.columns.div_ceil(4096)
        } else if self.columns > 4 * traits.subgroup_size as usize {
            workgroup as usize
        } else {
            self.columns.min(traits.subgroup_size as usize)
        };
        let lanes = wanted.next_power_of_two().min(workgroup as usize) as u32;
        let lanes = Lanes {
            lanes,
            rows: workgroup / lanes,
        };
        let iterations = self.columns.div_ceil(lanes.lanes as usize) * passes * self.inner.rank().max(1) as usize;
        if iterations > MOST_ITERATIONS {
            let what = format!(
                "rows of {} elements are too long for one workgroup of {workgroup}; reduce parts first",
                self.columns
            );
            return Err(Unsupported::Size { op: self.op, what });
        }
        Ok(lanes)
    }
}

/// The leading dimensions, and the last `columns` ones.
fn split(layout: &Layout, columns: usize) -> (Layout, Layout) {
    let at = layout.rank() - columns;
    let part = |range: std::ops::Range<usize>| Layout {
        shape: layout.shape[range.clone()].to_vec(),
        strides: layout.strides[range].to_vec(),
        offset: layout.offset,
    };
    (part(0..at), part(at..layout.rank()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(x: &Layout, columns: usize) -> Lanes {
        let traits = Traits {
            subgroup_size: 32,
            max_invocations: 1024,
            ..Traits::minimal()
        };
        Rows::new("test", [x, x], columns)
            .and_then(|rows| rows.lanes(&traits, 1))
            .expect("fits")
    }

    #[test]
    fn long_rows_take_workgroups_and_short_ones_share_them() {
        let long = Layout::contiguous(&[4, 5000]);
        assert_eq!(lanes(&long, 1), Lanes { lanes: 256, rows: 1 });
        let head = Layout::contiguous(&[4, 64]);
        assert_eq!(lanes(&head, 1), Lanes { lanes: 32, rows: 8 });
        let short = Layout::contiguous(&[4, 3]);
        assert_eq!(lanes(&short, 1), Lanes { lanes: 4, rows: 64 });
    }

    #[test]
    fn columns_that_lie_apart_are_read_by_one_invocation_each() {
        let across = Layout::contiguous(&[100, 300]).permute(&[1, 0]);
        assert_eq!(lanes(&across, 1), Lanes { lanes: 1, rows: 256 });
    }
}
