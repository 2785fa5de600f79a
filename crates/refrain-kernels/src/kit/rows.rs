//! What kernels that work row by row (reduce, softmax, argmax) share: `rows.glsl` with
//! `lanes.glsl`.

use crate::kit::glsl;
use crate::kit::iterations::{self, looped};
use crate::kit::text::{self, Text};
use crate::kit::walk::Walk;
use crate::{Call, Dimensions, Layout, OperandSpec, Push, Traits, Unsupported, tuning};

/// Columns that an invocation loads together, as in the shader.
const TOGETHER: usize = 4;

/// Fewer columns are not worth a workgroup of a row's own.
const FEWEST_COLUMNS: usize = 1 << 16;

/// Rows of strided operands: where each row starts, and where its columns lie.
pub(crate) struct RowLayout {
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

impl RowLayout {
    /// Operands of which the last `columns` dimensions are a row's columns.
    pub(crate) fn new(op: &'static str, layouts: [&Layout; 2], columns: usize) -> Result<RowLayout, Unsupported> {
        let [x, y] = layouts;
        if columns > x.rank() || columns > y.rank() {
            let what = format!("{columns} dimensions of an operand of shape {:?}", x.shape);
            return Err(Unsupported::Size { op, what });
        }
        let parts = [split(x, columns), split(y, columns)];
        Ok(RowLayout {
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
        [x, y]: [&OperandSpec; 2],
        definitions: &str,
        body: &str,
        lanes: Lanes,
    ) -> Result<Call, Unsupported> {
        self.call_with(text, [(x, 0), (y, 1)], definitions, body, lanes, [1, 0])
    }

    /// As [`RowLayout::call`] of operands with these numbers, where `parts` workgroups share a row: the text says
    /// `SHARED_ROWS` if it is more than one. `elements`, if they are not as many as the columns: the text
    /// says `JOINED`.
    pub(crate) fn call_with(
        &self,
        text: Text,
        [x, y]: [(&OperandSpec, usize); 2],
        definitions: &str,
        body: &str,
        lanes: Lanes,
        [parts, elements]: [usize; 2],
    ) -> Result<Call, Unsupported> {
        let mut words = self.outer.words();
        let inner = words.len() as u32;
        words.extend(self.inner.words());
        let value = glsl::compute_type(x.0.dtype);
        let kernel = text
            .flag("SHARED_ROWS", parts > 1)
            .flag("JOINED", elements > 0)
            .input("x", x.0.dtype)
            .output("y", y.0.dtype)
            .body(&format!("#define WALKED 2u\n#define X_VALUE {value}\n"))
            .body(definitions)
            .body(include_str!("walk.glsl"))
            .body(include_str!("lanes.glsl"))
            .body(include_str!("rows.glsl"))
            .body(body)
            .kernel(vec![
                (0, lanes.lanes * lanes.rows),
                (3, lanes.lanes),
                (4, lanes.rows),
                (5, self.outer.rank()),
                (6, self.inner.rank()),
            ]);
        let mut push = vec![
            x.0.address(x.1),
            y.0.address(y.1),
            Push::Record(words),
            Push::U32(self.rows as u32),
            Push::U32(self.columns as u32),
            Push::U32(inner),
        ];
        if parts > 1 {
            let columns = self.columns.div_ceil(parts);
            push.extend([parts, columns].map(|n| Push::U32(n as u32)));
        }
        if elements > 0 {
            push.push(Push::U32(elements as u32));
        }
        Ok(Call {
            kernel,
            groups: text::grid(self.op, self.rows.div_ceil(lanes.rows as usize) * parts)?,
            push,
        })
    }

    /// How to share out a workgroup.
    pub(crate) fn lanes(&self, traits: &Traits) -> Lanes {
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
        Lanes {
            lanes,
            rows: workgroup / lanes,
        }
    }

    /// The same where each row is one workgroup's, which reads it `passes` times.
    ///
    /// # Errors
    /// When a row is longer than one workgroup can read on this device.
    pub(crate) fn whole(&self, traits: &Traits, passes: usize) -> Result<Lanes, Unsupported> {
        let lanes = self.lanes(traits);
        let iterations = passes * self.iterations(lanes, 1);
        iterations::check(self.op, traits, iterations, || {
            format!("rows of {} elements", self.columns)
        })?;
        Ok(lanes)
    }

    /// How many workgroups share a row that each element is read once of: as many as keep the device busy,
    /// if each has enough to do, and as its driver's loops need.
    pub(crate) fn parts(&self, traits: &Traits, lanes: Lanes) -> usize {
        let groups = self.rows.div_ceil(lanes.rows as usize).max(1);
        let busy = tuning::choose(traits).decode.enough_groups.on(traits) / groups;
        let parts = busy.min(self.columns / FEWEST_COLUMNS).max(1);
        let fits = |parts: &usize| match iterations::most(traits) {
            Some(most) => self.iterations(lanes, *parts) <= most || *parts >= self.columns,
            None => true,
        };
        (parts..).find(fits).unwrap_or(parts)
    }

    /// Iterations of an invocation that reads its share of a row once.
    fn iterations(&self, lanes: Lanes, parts: usize) -> usize {
        let turns = self.columns.div_ceil(parts).div_ceil(TOGETHER * lanes.lanes as usize);
        let walks = match self.inner.rank() {
            0 | 1 => 0,
            rank => TOGETHER * looped(rank as usize - 1, 0),
        };
        looped(turns, walks)
    }
}

/// The leading dimensions, and the last `columns` ones.
fn split(layout: &Layout, columns: usize) -> (Layout, Layout) {
    let at = layout.rank() - columns;
    let part = |range: std::ops::Range<usize>| Layout {
        shape: Dimensions::from_slice(&layout.shape[range.clone()]),
        strides: Dimensions::from_slice(&layout.strides[range]),
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
        RowLayout::new("test", [x, x], columns).expect("fits").lanes(&traits)
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
    fn rows_are_shared_where_they_are_few_and_long() {
        let parts = |vendor, shape: &[usize], columns| {
            let x = Layout::contiguous(shape);
            let traits = Traits {
                vendor,
                max_invocations: 1024,
                ..Traits::minimal()
            };
            let rows = RowLayout::new("test", [&x, &x], columns).expect("fits");
            rows.parts(&traits, rows.lanes(&traits))
        };
        assert_eq!(parts(0, &[1 << 26], 1), 64);
        assert_eq!(parts(0, &[32, 1 << 21], 1), 2);
        assert_eq!(parts(0, &[64, 1 << 20], 1), 1);
        assert_eq!(parts(0, &[100_000], 1), 1);
        assert_eq!(parts(tuning::MESA_SOFTWARE, &[1 << 26], 1), 64);
    }

    #[test]
    fn only_the_drivers_that_end_loops_refuse_long_rows() {
        let x = Layout::contiguous(&[1 << 30]);
        let rows = RowLayout::new("test", [&x, &x], 1).expect("fits");
        let whole = |vendor| {
            rows.whole(
                &Traits {
                    vendor,
                    ..Traits::minimal()
                },
                3,
            )
        };
        assert!(whole(0).is_ok() && whole(0x8086).is_ok());
        let error = whole(tuning::MESA_SOFTWARE).expect_err("too long").to_string();
        assert!(error.contains("rows of 1073741824 elements"), "{error}");
    }

    #[test]
    fn columns_that_lie_apart_are_read_by_one_invocation_each() {
        let across = Layout::contiguous(&[100, 300]).permute(&[1, 0]);
        assert_eq!(lanes(&across, 1), Lanes { lanes: 1, rows: 256 });
    }
}
