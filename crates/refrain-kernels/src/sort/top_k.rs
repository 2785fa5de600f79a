//! The places of the largest elements of the last dimension, largest first.
//!
//! `x` `[.., n]` of any dtype and strides, 1 ≤ k ≤ n → `out` `[.., k]` u32, any strides. Of equal
//! elements the first comes first (-0 equals 0); NaN counts as larger than everything. The elements themselves, if they
//! are wanted too, go to `values` `[.., k]` of x's dtype, which has no gaps.
//!
//! In short rows, an element's place among the results is how many come before it (`kit/largest.glsl`). In
//! longer ones nothing is sorted that is not returned: a workgroup finds the k-th largest element by radix
//! selection (histograms of eight bits at a time, over the value and then over the place, which makes
//! all elements distinct), collects what lies above, and sorts that. Where k is larger than
//! 1,024, each chunk of the result has its own workgroup, which selects both of its ends; where it is
//! not, and rows are few and long, several workgroups share each, and a second call chooses among what
//! they have chosen.

use rayon::prelude::*;

use crate::kit::iterations::{self, looped};
use crate::kit::largest;
use crate::kit::order;
use crate::kit::rows::RowLayout;
use crate::kit::text::{self, Text};
use crate::kit::threads::least_items;
use crate::{Call, DType, Layout, OperandSpec, Push, Traits, Unsupported, Values, tuning};

const OP: &str = "top_k";

/// Most results that one workgroup sorts.
const CHUNK: usize = 1024;

/// Elements that an invocation loads together, as in the shader.
const TOGETHER: usize = 4;

/// Fewer elements are not worth a workgroup of their own.
const FEWEST_ELEMENTS: usize = 1 << 14;

/// The number of the values, behind `x` and `out`; without them, that of the workspace.
const VALUES: usize = 2;

/// The calls for operands `x` (0), `out` (1) and perhaps `values` (2), each depending on the one before, and the
/// workspace that they need, if any (the next), whose contents do not matter; k is the last extent of `out`.
///
/// # Errors
/// When k is 0 or larger than n, dtypes or shapes do not fit, or sizes are beyond what a kernel takes (on
/// Mesa's software drivers, more than 1,024 of rows of about 7 million elements, with workgroups of 1,024).
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    out: &OperandSpec,
    values: Option<&OperandSpec>,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    let problem = TopKProblem::of(traits, x, out, values)?;
    if problem.n <= largest::MOST_ELEMENTS {
        return Ok((vec![problem.short_call([x, out])?], None));
    }
    let share = problem.share();
    let [count, found] = share.map_or([problem.n; 2], |share| [share.columns, share.parts * problem.k]);
    for count in [count, found] {
        let what = || format!("the {} largest of {} elements", problem.k, problem.n);
        iterations::check(OP, traits, problem.iterations(count), what)?;
    }
    let Some(share) = share else {
        return Ok((vec![problem.call(Stage::Whole, [x, out])?], None));
    };
    let workspace = OperandSpec::contiguous(DType::U32, &[problem.rows.rows(), share.parts, problem.k]);
    text::address(OP, problem.workspace(), &workspace)?;
    let calls = vec![
        problem.call(Stage::Share(share), [x, &workspace])?,
        problem.call(Stage::Join(&workspace), [x, out])?,
    ];
    Ok((calls, Some(workspace)))
}

/// What is asked for.
struct TopKProblem<'t> {
    traits: &'t Traits,
    rows: RowLayout,
    n: usize,
    k: usize,
    strides: [usize; 2],
    values: Option<&'t OperandSpec>,
    workgroup: u32,
}

/// Workgroups that share a row, and elements of each.
#[derive(Clone, Copy)]
struct Share {
    parts: usize,
    columns: usize,
}

/// What a call does.
enum Stage<'w> {
    /// Chooses among all elements.
    Whole,
    /// Chooses candidates among those of a part.
    Share(Share),
    /// Chooses among the candidates.
    Join(&'w OperandSpec),
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
            let what = "operands without dimensions".to_string();
            return Err(Unsupported::Size { op: OP, what });
        };
        if k == 0 || k > n {
            let what = format!("the largest {k} of {n} elements");
            return Err(Unsupported::Size { op: OP, what });
        }
        let last = leading.len();
        // Only the rows' starts are walked; columns have one stride on each side.
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

    /// The number of the workspace.
    fn workspace(&self) -> usize {
        VALUES + usize::from(self.values.is_some())
    }

    /// The text with the accessors of the values, and their address, if they are wanted.
    fn with_values(&self, text: Text<'t>, push: &mut Vec<Push>) -> Text<'t> {
        let Some(values) = self.values else {
            return text;
        };
        push.push(values.address(VALUES));
        text.flag("VALUES", true).output("v", values.dtype)
    }

    /// Parts of each row, where several workgroups choose candidates: as many as keep the device busy, if
    /// there are far fewer candidates than elements, and as its driver's loops need.
    fn share(&self) -> Option<Share> {
        let worth = (self.n / FEWEST_ELEMENTS).min(self.n / (4 * self.k));
        let enough = tuning::choose(self.traits).decode.enough_groups;
        let busy = enough.on(self.traits) / self.rows.rows().max(1);
        let most = iterations::most(self.traits).unwrap_or(usize::MAX);
        let fits = |parts: &usize| self.iterations(self.n.div_ceil(*parts)) <= most;
        let parts = (busy.clamp(1, worth.max(1))..=worth).find(fits)?;
        let columns = self.n.div_ceil(parts);
        let parts = self.n.div_ceil(columns);
        (parts > 1 && self.k <= CHUNK).then_some(Share { parts, columns })
    }

    /// Results that one workgroup sorts.
    fn sorted(&self) -> usize {
        self.k.min(CHUNK).next_power_of_two()
    }

    /// Iterations of an invocation of a workgroup that chooses among `count` elements.
    fn iterations(&self, count: usize) -> usize {
        let (width, sorted) = (self.workgroup as usize, self.sorted());
        let over = |elements: usize, each: usize| looped(elements.div_ceil(width), each);
        let read = looped(count.div_ceil(TOGETHER * width), 0);
        let digit = read + over(256, 0) + over(16, 16) + 16 + 16;
        let selections = if self.k > CHUNK { 2 } else { 1 };
        let steps = looped(sorted.ilog2() as usize, 0);
        let sort = steps * (1 + steps) / 2 * (1 + over(sorted / 2, 0));
        selections * looped(8, digit) + read + 2 * over(sorted, 0) + sort
    }

    /// The call where a workgroup holds a row.
    fn short_call(&self, [x, y]: [&OperandSpec; 2]) -> Result<Call, Unsupported> {
        let fours = largest::fours(self.n);
        let mut push = vec![x.address(0), y.address(1), Push::Record(self.rows.outer().words())];
        let text = Text::new(self.traits, "top_k.short")
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
            Stage::Share(_) => "top_k.share",
            Stage::Join(_) => "top_k.join",
        };
        let mut text = Text::new(self.traits, name)
            .flag("SHARED_ROWS", matches!(stage, Stage::Share(_)))
            .flag("JOINED", matches!(stage, Stage::Join(_)))
            .input("x", x.dtype)
            .output("y", y.dtype);
        let y_number = if matches!(stage, Stage::Share(_)) {
            self.workspace()
        } else {
            1
        };
        let mut push = vec![
            x.address(0),
            y.address(y_number),
            Push::Record(self.rows.outer().words()),
        ];
        if !matches!(stage, Stage::Share(_)) {
            text = self.with_values(text, &mut push);
        }
        if let Stage::Join(workspace) = stage {
            text = text.input("z", workspace.dtype);
            push.push(workspace.address(self.workspace()));
        }
        let [x_stride, y_stride] = self.strides;
        let numbers = [self.rows.rows(), self.n, x_stride, self.k, y_stride];
        push.extend(numbers.map(|n| Push::U32(n as u32)));
        let groups = match stage {
            Stage::Whole => self.k.div_ceil(CHUNK),
            Stage::Share(Share { parts, columns }) => {
                push.extend([parts, columns].map(|n| Push::U32(n as u32)));
                parts
            }
            Stage::Join(workspace) => {
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

/// The same on contiguous rows of `columns` values: k places for each row.
///
/// # Panics
/// When k is larger than `columns`, or `columns` is 0.
pub fn reference(x: &Values, columns: usize, k: usize) -> Vec<u32> {
    assert!(k <= columns && columns > 0, "the largest {k} of {columns}");
    let keys = order::keys(x);
    let rows: Vec<Vec<u32>> = keys
        .par_chunks(columns)
        .with_min_len(least_items(columns))
        .map(|row| {
            let rank = |&place: &u32| (!row[place as usize], place);
            let mut places: Vec<u32> = (0..columns as u32).collect();
            if k < columns {
                places.select_nth_unstable_by_key(k, rank);
                places.truncate(k);
            }
            places.sort_unstable_by_key(rank);
            places
        })
        .collect();
    rows.concat()
}
