//! Indices of the k largest elements of the last dimension, largest first.
//!
//! `x` `[.., n]` of any dtype and strides, 1 ≤ k ≤ n → `out` `[.., k]` u32, any strides. Of equal elements the first comes
//! first (-0 equals 0). NaN is larger than everything. The elements themselves, if wanted, go to `values` `[.., k]` of
//! x's dtype, which is contiguous.
//!
//! In short rows, an element's rank is the number of elements before it (`kit/largest.glsl`). In longer rows only
//! results are sorted. A workgroup finds the k-th largest element by radix selection: histograms of eight bits at a
//! time, over the value and then over the index, which makes all elements distinct. It collects the elements above and
//! sorts them. If k is larger than 1,024, each chunk of the results has its own workgroup, which selects both of its
//! bounds. Otherwise, with few long rows, several workgroups split each row, and a second call selects among their
//! candidates.

use rayon::prelude::*;

use crate::kit::iterations::{self, looped};
use crate::kit::largest;
use crate::kit::order;
use crate::kit::rows::RowLayout;
use crate::kit::text::{self, SourceBuilder};
use crate::kit::threads::min_items;
use crate::{Call, DType, Layout, OperandSpec, Push, Traits, Unsupported, Values, tuning};

const OP: &str = "top_k";

/// Maximum number of results sorted by one workgroup.
const MAX_CHUNK: usize = 1024;

/// Elements of an invocation whose loads are issued together, as in the shader.
const LOADS_EACH: usize = 4;

/// Minimum number of elements of a row that are worth a workgroup.
const MIN_SPLIT_ELEMENTS: usize = 1 << 14;

/// Operand number of the values, after `x` and `out`; without values, that of the workspace.
const VALUES: usize = 2;

/// Returns the calls for operands `x` (0), `out` (1) and, if given, `values` (2), each depending on the one before, and
/// the workspace they need, if any (the next operand), whose contents do not matter. k is the last extent of `out`.
///
/// # Errors
/// When k is 0 or larger than n, dtypes or shapes do not match, or sizes exceed the limits of a kernel (on
/// Mesa's software drivers, k above 1,024 with rows of about 7 million elements and workgroups of 1,024).
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    out: &OperandSpec,
    values: Option<&OperandSpec>,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    let problem = TopKProblem::of(traits, x, out, values)?;
    if problem.n <= largest::MAX_ELEMENTS {
        return Ok((vec![problem.short_call([x, out])?], None));
    }
    let split = problem.split();
    let [elements, candidates] = split.map_or([problem.n; 2], |split| [split.columns, split.splits * problem.k]);
    for count in [elements, candidates] {
        let what = || format!("the {} largest of {} elements", problem.k, problem.n);
        iterations::check(OP, traits, problem.iterations(count), what)?;
    }
    let Some(split) = split else {
        return Ok((vec![problem.call(Stage::Whole, [x, out])?], None));
    };
    let workspace = OperandSpec::contiguous(DType::U32, &[problem.rows.rows(), split.splits, problem.k]);
    text::address(OP, problem.workspace(), &workspace)?;
    let calls = vec![
        problem.call(Stage::Split(split), [x, &workspace])?,
        problem.call(Stage::Combine(&workspace), [x, out])?,
    ];
    Ok((calls, Some(workspace)))
}

/// Checked operands of a top-k.
struct TopKProblem<'t> {
    traits: &'t Traits,
    rows: RowLayout,
    n: usize,
    k: usize,
    strides: [usize; 2],
    values: Option<&'t OperandSpec>,
    workgroup: u32,
}

/// Workgroups that split a row, and elements of each.
#[derive(Clone, Copy)]
struct RowSplit {
    splits: usize,
    columns: usize,
}

/// The stage of a call.
enum Stage<'w> {
    /// Selects among all elements.
    Whole,
    /// Selects candidates within a split.
    Split(RowSplit),
    /// Selects among the candidates.
    Combine(&'w OperandSpec),
}

impl<'t> TopKProblem<'t> {
    fn of(
        traits: &'t Traits,
        x: &OperandSpec,
        out: &OperandSpec,
        values: Option<&'t OperandSpec>,
    ) -> Result<TopKProblem<'t>, Unsupported> {
        text::require_dtype(OP, out, DType::U32)?;
        if let Some(values) = values {
            text::require_dtype(OP, values, x.dtype)?;
            crate::kit::walk::check_reach(OP, &values.layout)?;
            if !values.layout.is_contiguous() || values.layout.shape != out.layout.shape {
                return Err(Unsupported::NeedsContiguous {
                    op: OP,
                    operand: VALUES,
                });
            }
        }
        let ends = (x.layout.shape.split_last(), out.layout.shape.split_last());
        let (Some((&n, leading)), Some((&k, _))) = ends else {
            let what = "operands must have at least one dimension".to_string();
            return Err(Unsupported::Size { op: OP, what });
        };
        if k == 0 || k > n {
            let what = format!("k is {k}, but must be from 1 to {n}, the number of elements");
            return Err(Unsupported::Size { op: OP, what });
        }
        let last = leading.len();
        // The walk covers only the rows' starts; columns have one stride per operand.
        let starts = Layout {
            shape: [leading, &[n]].concat().into(),
            strides: [&out.layout.strides[..last], &[0]].concat().into(),
            offset: out.layout.offset,
        };
        crate::kit::walk::check_reach(OP, &out.layout)?;
        Ok(TopKProblem {
            traits,
            rows: RowLayout::new(OP, [&x.layout, &starts], 1)?,
            n,
            k,
            strides: [x.layout.strides[last], out.layout.strides[last]],
            values,
            workgroup: traits.workgroup(if n >= 8192 { 1024 } else { 256 }),
        })
    }

    /// Returns the operand number of the workspace.
    fn workspace(&self) -> usize {
        VALUES + usize::from(self.values.is_some())
    }

    /// Adds the values' accessors and address, if values are wanted.
    fn with_values(&self, text: SourceBuilder<'t>, push: &mut Vec<Push>) -> SourceBuilder<'t> {
        let Some(values) = self.values else {
            return text;
        };
        push.push(values.address(VALUES));
        text.flag("VALUES", true).output("v", values.dtype)
    }

    /// Returns the splits of each row, if several workgroups select candidates. There are as many as fill the device
    /// and as the driver's limit of iterations needs, as long as there are far fewer candidates than elements.
    fn split(&self) -> Option<RowSplit> {
        let max_splits = (self.n / MIN_SPLIT_ELEMENTS).min(self.n / (4 * self.k));
        let enough_groups = tuning::choose(self.traits).decode.target_groups;
        let filling = enough_groups.on(self.traits) / self.rows.rows().max(1);
        let max_iterations = iterations::max_iterations(self.traits).unwrap_or(usize::MAX);
        let fits = |splits: &usize| self.iterations(self.n.div_ceil(*splits)) <= max_iterations;
        let splits = (filling.clamp(1, max_splits.max(1))..=max_splits).find(fits)?;
        let columns = self.n.div_ceil(splits);
        let splits = self.n.div_ceil(columns);
        (splits > 1 && self.k <= MAX_CHUNK).then_some(RowSplit { splits, columns })
    }

    /// Returns the number of results that one workgroup sorts.
    fn sorted(&self) -> usize {
        self.k.min(MAX_CHUNK).next_power_of_two()
    }

    /// Returns the loop iterations of an invocation of a workgroup that selects among `count` elements.
    fn iterations(&self, count: usize) -> usize {
        let (width, sorted) = (self.workgroup as usize, self.sorted());
        let over = |elements: usize, each: usize| looped(elements.div_ceil(width), each);
        let read = looped(count.div_ceil(LOADS_EACH * width), 0);
        let digit = read + over(256, 0) + over(16, 16) + 16 + 16;
        let selections = if self.k > MAX_CHUNK { 2 } else { 1 };
        let steps = looped(sorted.ilog2() as usize, 0);
        let sort = steps * (1 + steps) / 2 * (1 + over(sorted / 2, 0));
        selections * looped(8, digit) + read + 2 * over(sorted, 0) + sort
    }

    /// Returns the call for rows that a workgroup holds.
    fn short_call(&self, [x, y]: [&OperandSpec; 2]) -> Result<Call, Unsupported> {
        let fours = largest::fours(self.n);
        let mut push = vec![x.address(0), y.address(1), Push::Record(self.rows.outer().words())];
        let text = SourceBuilder::new(self.traits, "top_k.short")
            .input("x", x.dtype)
            .output("y", y.dtype);
        let text = self.with_values(text, &mut push);
        let [x_stride, y_stride] = self.strides;
        let numbers = [self.rows.rows(), self.n, x_stride, self.k, y_stride];
        push.extend(numbers.map(|n| Push::U32(n as u32)));
        let kernel = text
            .body(
                "layout(local_size_x_id = 0) in;\nlayout(constant_id = 3) const uint FOURS = 64;\n#define WALKED 2u\n",
            )
            .body(include_str!("../kit/order.glsl"))
            .body(include_str!("../kit/walk.glsl"))
            .body(largest::TEXT)
            .body(include_str!("top_k/short.comp"))
            .kernel(vec![
                (0, self.workgroup.min(4 * fours)),
                (3, fours),
                (5, self.rows.outer().rank()),
            ]);
        Ok(Call {
            kernel,
            groups: text::grid(OP, self.rows.rows())?,
            push,
        })
    }

    fn call(&self, stage: Stage<'_>, [x, y]: [&OperandSpec; 2]) -> Result<Call, Unsupported> {
        let name = match stage {
            Stage::Whole => OP,
            Stage::Split(_) => "top_k.split",
            Stage::Combine(_) => "top_k.combine",
        };
        let mut text = SourceBuilder::new(self.traits, name)
            .flag("SHARED_ROWS", matches!(stage, Stage::Split(_)))
            .flag("JOINED", matches!(stage, Stage::Combine(_)))
            .input("x", x.dtype)
            .output("y", y.dtype);
        let y_number = if matches!(stage, Stage::Split(_)) {
            self.workspace()
        } else {
            1
        };
        let mut push = vec![
            x.address(0),
            y.address(y_number),
            Push::Record(self.rows.outer().words()),
        ];
        if !matches!(stage, Stage::Split(_)) {
            text = self.with_values(text, &mut push);
        }
        if let Stage::Combine(workspace) = stage {
            text = text.input("z", workspace.dtype);
            push.push(workspace.address(self.workspace()));
        }
        let [x_stride, y_stride] = self.strides;
        let numbers = [self.rows.rows(), self.n, x_stride, self.k, y_stride];
        push.extend(numbers.map(|n| Push::U32(n as u32)));
        let groups = match stage {
            Stage::Whole => self.k.div_ceil(MAX_CHUNK),
            Stage::Split(RowSplit { splits, columns }) => {
                push.extend([splits, columns].map(|n| Push::U32(n as u32)));
                splits
            }
            Stage::Combine(workspace) => {
                push.push(Push::U32((workspace.layout.shape[1] * self.k) as u32));
                1
            }
        };
        let kernel = text
            .body("#define WALKED 2u\n")
            .body(include_str!("../kit/order.glsl"))
            .body(include_str!("../kit/walk.glsl"))
            .body(include_str!("top_k/top_k.comp"))
            .kernel(vec![
                (0, self.workgroup),
                (3, self.sorted() as u32),
                (5, self.rows.outer().rank()),
            ]);
        Ok(Call {
            kernel,
            groups: text::grid(OP, self.rows.rows() * groups)?,
            push,
        })
    }
}

/// Computes the top-k of contiguous rows of `columns` values: k indices per row.
///
/// # Panics
/// Panics if k is larger than `columns`, or `columns` is 0.
pub fn reference(x: &Values, columns: usize, k: usize) -> Vec<u32> {
    assert!(k <= columns && columns > 0, "the largest {k} of {columns}");
    let keys = order::keys(x);
    let rows: Vec<Vec<u32>> = keys
        .par_chunks(columns)
        .with_min_len(min_items(columns))
        .map(|row| {
            let rank = |&index: &u32| (!row[index as usize], index);
            let mut indices: Vec<u32> = (0..columns as u32).collect();
            if k < columns {
                indices.select_nth_unstable_by_key(k, rank);
                indices.truncate(k);
            }
            indices.sort_unstable_by_key(rank);
            indices
        })
        .collect();
    rows.concat()
}
