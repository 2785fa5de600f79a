//! Shared code of row-wise kernels (reduce, softmax, argmax): `rows.glsl` with `lanes.glsl`.

use crate::kit::glsl;
use crate::kit::iterations::{self, looped};
use crate::kit::text::{self, SourceBuilder};
use crate::kit::walk::Walk;
use crate::{Call, Dimensions, Layout, OperandSpec, Push, Traits, Unsupported, tuning};

/// Columns that an invocation loads at once, as in the shader.
const COLUMNS_PER_LOAD: usize = 4;

/// Minimum number of columns of rows that several workgroups share, for which the second call pays off.
const MIN_SHARED_COLUMNS: usize = 1 << 16;

/// Minimum number of columns of each of them.
const MIN_COLUMNS_PER_GROUP: usize = 1 << 13;

/// Rows of strided operands: where each row starts, and where its columns are.
pub(crate) struct RowLayout {
    op: &'static str,
    outer: Walk,
    inner: Walk,
    rows: usize,
    columns: usize,
}

/// Invocations per row and rows per workgroup, both powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lanes {
    pub(crate) lanes: u32,
    pub(crate) rows: u32,
}

impl RowLayout {
    /// Creates a row layout; the last `columns` dimensions of the operands are a row's columns.
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

    /// The dimensions that number the rows.
    pub(crate) fn outer(&self) -> &Walk {
        &self.outer
    }

    /// Returns the call of a kernel from `x` to `y`. Its source is `definitions`, the shared source, and `body`.
    pub(crate) fn call(
        &self,
        text: SourceBuilder,
        [x, y]: [&OperandSpec; 2],
        definitions: &str,
        body: &str,
        lanes: Lanes,
    ) -> Result<Call, Unsupported> {
        self.call_with(text, [(x, 0), (y, 1)], definitions, body, lanes, [1, 0])
    }

    /// As [`RowLayout::call`], with operand numbers. `splits` is the number of workgroups per row; the source defines
    /// `SHARED_ROWS` if it is more than one. `elements` is the number of elements behind the columns if it differs (0
    /// otherwise); the source then defines `JOINED`.
    pub(crate) fn call_with(
        &self,
        text: SourceBuilder,
        [x, y]: [(&OperandSpec, usize); 2],
        definitions: &str,
        body: &str,
        lanes: Lanes,
        [splits, elements]: [usize; 2],
    ) -> Result<Call, Unsupported> {
        let mut words = self.outer.words();
        let inner = words.len() as u32;
        words.extend(self.inner.words());
        let value = glsl::compute_type(x.0.dtype);
        let kernel = text
            .flag("SHARED_ROWS", splits > 1)
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
        if splits > 1 {
            let columns = self.columns.div_ceil(splits);
            push.extend([splits, columns].map(|n| Push::U32(n as u32)));
        }
        if elements > 0 {
            push.push(Push::U32(elements as u32));
        }
        Ok(Call {
            kernel,
            groups: text::grid(self.op, self.rows.div_ceil(lanes.rows as usize) * splits)?,
            push,
        })
    }

    /// Returns the division of a workgroup.
    pub(crate) fn lanes(&self, traits: &Traits) -> Lanes {
        let workgroup = traits.workgroup(if self.columns >= 16_384 { 1024 } else { 256 });
        // Consecutive invocations should read consecutive elements.
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

    /// As [`RowLayout::lanes`], for kernels with one workgroup per row that read it `passes` times.
    ///
    /// # Errors
    /// Fails if a row is longer than one workgroup can read on this device.
    pub(crate) fn whole(&self, traits: &Traits, passes: usize) -> Result<Lanes, Unsupported> {
        let lanes = self.lanes(traits);
        let iterations = passes * self.iterations(lanes, 1);
        iterations::check(self.op, traits, iterations, || {
            format!("rows of {} elements", self.columns)
        })?;
        Ok(lanes)
    }

    /// Returns the number of workgroups per row for kernels that read each element once. It fills the device if each
    /// workgroup has enough work, and respects the driver's iteration limit.
    pub(crate) fn splits(&self, traits: &Traits, lanes: Lanes) -> usize {
        let groups = self.rows.div_ceil(lanes.rows as usize).max(1);
        let target = tuning::choose(traits).decode.target_groups.on(traits) / groups;
        let most = if self.columns < MIN_SHARED_COLUMNS {
            1
        } else {
            self.columns / MIN_COLUMNS_PER_GROUP
        };
        let splits = target.min(most).max(1);
        let fits = |splits: &usize| match iterations::max_iterations(traits) {
            Some(max) => self.iterations(lanes, *splits) <= max || *splits >= self.columns,
            None => true,
        };
        (splits..).find(fits).unwrap_or(splits)
    }

    /// Iterations of an invocation that reads its share of a row once.
    fn iterations(&self, lanes: Lanes, splits: usize) -> usize {
        let turns = self
            .columns
            .div_ceil(splits)
            .div_ceil(COLUMNS_PER_LOAD * lanes.lanes as usize);
        let walks = match self.inner.rank() {
            0 | 1 => 0,
            rank => COLUMNS_PER_LOAD * looped(rank as usize - 1, 0),
        };
        looped(turns, walks)
    }
}

/// Splits off the last `columns` dimensions.
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
    fn long_rows_get_a_workgroup_and_short_rows_share_one() {
        let long = Layout::contiguous(&[4, 5000]);
        assert_eq!(lanes(&long, 1), Lanes { lanes: 256, rows: 1 });
        let head = Layout::contiguous(&[4, 64]);
        assert_eq!(lanes(&head, 1), Lanes { lanes: 32, rows: 8 });
        let short = Layout::contiguous(&[4, 3]);
        assert_eq!(lanes(&short, 1), Lanes { lanes: 4, rows: 64 });
    }

    #[test]
    fn few_long_rows_are_split_among_workgroups() {
        let splits = |vendor, shape: &[usize], columns| {
            let x = Layout::contiguous(shape);
            let traits = Traits {
                vendor,
                max_invocations: 1024,
                ..Traits::minimal()
            };
            let rows = RowLayout::new("test", [&x, &x], columns).expect("fits");
            rows.splits(&traits, rows.lanes(&traits))
        };
        assert_eq!(splits(0, &[1 << 26], 1), 64);
        assert_eq!(splits(0, &[32, 1 << 21], 1), 2);
        assert_eq!(splits(0, &[64, 1 << 20], 1), 1);
        assert_eq!(splits(0, &[60_000], 1), 1);
        assert_eq!(splits(0, &[100_000], 1), 12);
        assert_eq!(splits(tuning::MESA_SOFTWARE, &[1 << 26], 1), 64);
    }

    #[test]
    fn only_drivers_with_an_iteration_limit_reject_long_rows() {
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
    fn rows_with_strided_columns_get_one_invocation_each() {
        let across = Layout::contiguous(&[100, 300]).permute(&[1, 0]);
        assert_eq!(lanes(&across, 1), Lanes { lanes: 1, rows: 256 });
    }
}
