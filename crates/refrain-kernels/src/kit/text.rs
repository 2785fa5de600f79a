use crate::kit::fragments;
use crate::kit::glsl::{self, AccessorKind};
use crate::kit::walk::{Walk, check_reach};
use crate::{DType, Dimensions, KernelSource, Layout, OperandSpec, Push, Traits, Unsupported};

/// Builds a kernel's source, and a name that says which pieces it consists of.
pub(crate) struct SourceBuilder<'t> {
    traits: &'t Traits,
    name: String,
    source: String,
    /// Whether `stored_…` loads are issued long before their use.
    ahead: bool,
}

impl<'t> SourceBuilder<'t> {
    pub(crate) fn new(traits: &'t Traits, family: &str) -> SourceBuilder<'t> {
        SourceBuilder::with_head(traits, family, glsl::head(traits))
    }

    /// Source of a kernel with cooperative matrices.
    pub(crate) fn with_fragments(traits: &'t Traits, family: &str) -> SourceBuilder<'t> {
        SourceBuilder::with_head(traits, family, fragments::head(traits))
    }

    /// Source of a kernel with subgroup shuffles.
    pub(crate) fn with_shuffles(traits: &'t Traits, family: &str) -> SourceBuilder<'t> {
        let lines = "#extension GL_KHR_shader_subgroup_shuffle : require\n";
        SourceBuilder::with_head(traits, family, glsl::head_with(traits, lines))
    }

    /// Source of a kernel in which several rows of lanes may share a subgroup.
    pub(crate) fn with_shared_subgroups(traits: &'t Traits, family: &str) -> SourceBuilder<'t> {
        let lines = "#extension GL_KHR_shader_subgroup_shuffle : require\n#define ROWS_SHARE_SUBGROUPS 1\n";
        SourceBuilder::with_head(traits, &format!("{family}+shared"), glsl::head_with(traits, lines))
    }

    fn with_head(traits: &'t Traits, family: &str, head: String) -> SourceBuilder<'t> {
        let mut name = family.to_string();
        if traits.full_subgroups {
            name.push_str(&format!("+full{}", traits.subgroup_size));
        }
        for (there, tag) in [
            (traits.subgroup_arithmetic, "+subgroup"),
            (traits.subgroup_uniform_flow, "+flow"),
            (traits.storage16, "+s16"),
            (traits.storage8, "+s8"),
            (traits.integer_dot, "+dot"),
        ] {
            if there {
                name.push_str(tag);
            }
        }
        SourceBuilder {
            traits,
            name,
            source: head,
            ahead: false,
        }
    }

    /// Adds `#define macro value`; the value becomes part of the name.
    pub(crate) fn define(mut self, macro_name: &str, value: impl std::fmt::Display) -> Self {
        self.source.push_str(&format!("#define {macro_name} {value}\n"));
        self.name.push_str(&format!(".{}={value}", macro_name.to_lowercase()));
        self
    }

    /// Adds `#define macro 1` if `holds`.
    pub(crate) fn flag(self, macro_name: &str, holds: bool) -> Self {
        if holds { self.define(macro_name, 1) } else { self }
    }

    /// Sets whether loops marked `UNROLL` are unrolled.
    pub(crate) fn unrolled(self, unrolled: bool) -> Self {
        self.define("UNROLLED", u32::from(unrolled))
            .body(include_str!("unroll.glsl"))
    }

    /// Adds `load_{name}`.
    pub(crate) fn input(self, name: &str, dtype: DType) -> Self {
        self.accessor(name, dtype, AccessorKind::Read)
    }

    /// Declares that `stored_…` loads are issued long before their use.
    pub(crate) fn ahead(mut self) -> Self {
        self.name.push_str("+ahead");
        self.ahead = true;
        self
    }

    /// Adds `load_{name}` and, for floats, its two steps: `stored_{name}`, which loads bits, and `{name}_of`.
    pub(crate) fn stored_input(self, name: &str, dtype: DType) -> Self {
        let access = if !dtype.is_float() {
            AccessorKind::Read
        } else if self.ahead {
            AccessorKind::ReadAhead
        } else {
            AccessorKind::ReadStored
        };
        self.accessor(name, dtype, access)
    }

    /// Adds `load_{name}` and `store_{name}`.
    pub(crate) fn output(self, name: &str, dtype: DType) -> Self {
        self.accessor(name, dtype, AccessorKind::Write)
    }

    fn accessor(mut self, name: &str, dtype: DType, access: AccessorKind) -> Self {
        self.source.push_str(&glsl::accessor(self.traits, name, dtype, access));
        self.name.push_str(&format!(".{dtype}"));
        self
    }

    /// Adds `void load4_{name}(p, i, values)` or, for a `run` of 8, `load8_{name}(p, i, low, high)`, which load
    /// consecutive floats. If `wide`, they use the largest loads; `i` must then be a multiple of the run and `p`
    /// 16-byte aligned. Needs [`SourceBuilder::input`] first.
    pub(crate) fn runs(mut self, name: &str, dtype: DType, run: usize, wide: bool) -> Self {
        let parts = if run == 4 { &["values"][..] } else { &["low", "high"] };
        self.source.push_str(&if wide {
            wide_run(name, dtype, parts)
        } else {
            narrow_run(name, parts)
        });
        let tag = if wide { "wide" } else { "narrow" };
        self.name.push_str(&format!(".{tag}{run}"));
        self
    }

    /// Adds `void store4_{name}(p, i, values)`, which stores four consecutive floats, at once if `wide` (as for
    /// [`SourceBuilder::runs`]). Needs [`SourceBuilder::output`] first.
    pub(crate) fn store_vec4(mut self, name: &str, dtype: DType, wide: bool) -> Self {
        self.source.push_str(&vec4_store(name, dtype, wide));
        let tag = if wide { "wide" } else { "narrow" };
        self.name.push_str(&format!(".{tag}"));
        self
    }

    /// Adds the type `{name}_pairs` and `load2_{name}(p, i)`, which loads pair `i` of floats at once. `p` must be
    /// aligned to a pair.
    pub(crate) fn pairs(mut self, name: &str, dtype: DType) -> Self {
        self.source.push_str(&pairs(name, dtype));
        self.name.push_str(&format!(".{dtype}"));
        self
    }

    /// Adds source that is not reflected in the name.
    pub(crate) fn body(mut self, body: &str) -> Self {
        self.source.push_str(body);
        self
    }

    pub(crate) fn kernel(self, constants: Vec<(u32, u32)>) -> KernelSource {
        let invocations = constants.iter().find(|(id, _)| *id == 0);
        let whole = invocations.is_some_and(|(_, count)| count.is_multiple_of(self.traits.subgroup_size));
        let mut kernel = KernelSource::new(&self.name, self.source, &constants);
        kernel.full_subgroups = self.traits.full_subgroups && whole;
        kernel
    }
}

/// The signature of `load4_{name}` or `load8_{name}`, which sets a vec4 for each of `parts`.
fn run_head(name: &str, parts: &[&str]) -> String {
    let values: Vec<String> = parts.iter().map(|part| format!("out vec4 {part}")).collect();
    let run = 4 * parts.len();
    format!("void load{run}_{name}({name}_ref p, uint i, {})", values.join(", "))
}

fn narrow_run(name: &str, parts: &[&str]) -> String {
    let part = |(number, part): (usize, &&str)| {
        let load = |j: usize| format!("load_{name}(p, i + {}u)", 4 * number + j);
        format!(
            "    {part} = vec4({}, {}, {}, {});\n",
            load(0),
            load(1),
            load(2),
            load(3)
        )
    };
    let body: String = parts.iter().enumerate().map(part).collect();
    format!("{} {{\n{body}}}\n", run_head(name, parts))
}

fn wide_run(name: &str, dtype: DType, parts: &[&str]) -> String {
    let run = 4 * parts.len();
    let vectors = dtype.size() * run / 16;
    // Elements per load and type of the load: 16 bytes, or 8 bytes for four 16-bit elements.
    let (per_load, unit, align) = if vectors == 0 {
        (4, "uvec2", 8)
    } else {
        (16 / dtype.size(), "uvec4", 16)
    };
    let mut text = format!(
        "layout(buffer_reference, scalar, buffer_reference_align = {align}) readonly buffer {name}_wide {{ {unit} at[]; }};\n{} {{\n",
        run_head(name, parts)
    );
    for load in 0..vectors.max(1) {
        text.push_str(&format!(
            "    {unit} bits{load} = {name}_wide(p).at[i / {per_load}u + {load}u];\n"
        ));
    }
    for (number, part) in parts.iter().enumerate() {
        let value = match dtype {
            DType::F32 => format!("uintBitsToFloat(bits{number})"),
            _ => {
                let [x, y] = [["x", "y"], ["z", "w"]][number];
                let pair = |component: &str| unpack(dtype, &format!("bits0.{component}"));
                format!("vec4({}, {})", pair(x), pair(y))
            }
        };
        text.push_str(&format!("    {part} = {value};\n"));
    }
    text.push_str("}\n");
    text
}

fn vec4_store(name: &str, dtype: DType, wide: bool) -> String {
    let head = format!("void store4_{name}({name}_ref p, uint i, vec4 values)");
    if !wide {
        let stores = (0..4).map(|j| format!("    store_{name}(p, i + {j}u, values[{j}]);\n"));
        return format!("{head} {{\n{}}}\n", stores.collect::<String>());
    }
    let (_, encode) = glsl::conversions(dtype);
    let half = |component: &str| encode.replace("VALUE", &format!("values.{component}"));
    let pair = |low: &str, high: &str| format!("{} | {} << 16", half(low), half(high));
    let (unit, align, value) = match dtype {
        DType::F32 => ("vec4", 16, "values".to_string()),
        _ => ("uvec2", 8, format!("uvec2({}, {})", pair("x", "y"), pair("z", "w"))),
    };
    format!(
        "layout(buffer_reference, scalar, buffer_reference_align = {align}) writeonly buffer {name}_fours {{ {unit} at[]; }};\n\
         {head} {{ {name}_fours(p).at[i / 4u] = {value}; }}\n"
    )
}

fn pairs(name: &str, dtype: DType) -> String {
    let (unit, align, value) = match dtype {
        DType::F32 => ("vec2", 8, "p.at[i]".to_string()),
        _ => ("uint", 4, unpack(dtype, "p.at[i]")),
    };
    format!(
        "layout(buffer_reference, scalar, buffer_reference_align = {align}) readonly buffer {name}_pairs {{ {unit} at[]; }};\n\
         vec2 load2_{name}({name}_pairs p, uint i) {{ return {value}; }}\n"
    )
}

/// GLSL expression for the two 16-bit floats in the word `bits`.
pub(crate) fn unpack(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::F16 => format!("unpack_halves({bits})"),
        _ => format!("uintBitsToFloat(uvec2({bits} << 16, {bits} & 0xffff0000u))"),
    }
}

/// Number of elements in 16 bytes.
fn aligned_elements(dtype: DType) -> usize {
    16 / dtype.size()
}

/// Returns the address of an operand's first element.
///
/// # Errors
/// Fails if an element is too far away for a positive 32-bit index.
pub(crate) fn address(op: &'static str, number: usize, operand: &OperandSpec) -> Result<Push, Unsupported> {
    check_reach(op, &operand.layout)?;
    Ok(operand.address(number))
}

/// Whether runs of elements that start `strides` elements apart can be loaded 16 bytes at a time.
pub(crate) fn is_wide(operand: &OperandSpec, strides: &[usize]) -> bool {
    let unit = aligned_elements(operand.dtype);
    operand.layout.offset.is_multiple_of(unit) && strides.iter().all(|s| s.is_multiple_of(unit))
}

/// Returns the strides of all but the last dimension, which must be contiguous.
pub(crate) fn outer_strides(op: &'static str, number: usize, operand: &OperandSpec) -> Result<Vec<Push>, Unsupported> {
    let Some((&last, outer)) = operand.layout.strides.split_last() else {
        let what = "an operand is a scalar".to_string();
        return Err(Unsupported::Size { op, what });
    };
    if last != 1 && operand.layout.shape.last() != Some(&1) {
        return Err(Unsupported::NeedsContiguous { op, operand: number });
    }
    Ok(outer.iter().map(|&stride| Push::U32(stride as u32)).collect())
}

/// Fails unless the operand's elements are floats.
pub(crate) fn require_float(op: &'static str, operand: &OperandSpec) -> Result<(), Unsupported> {
    require(op, operand, operand.dtype.is_float())
}

/// Fails unless the operand is of type `dtype`.
pub(crate) fn require_dtype(op: &'static str, operand: &OperandSpec, dtype: DType) -> Result<(), Unsupported> {
    require(op, operand, operand.dtype == dtype)
}

fn require(op: &'static str, operand: &OperandSpec, holds: bool) -> Result<(), Unsupported> {
    if holds {
        Ok(())
    } else {
        Err(Unsupported::DType {
            op,
            dtype: operand.dtype,
        })
    }
}

/// Fails unless the operand has shape `shape`.
pub(crate) fn require_shape(
    op: &'static str,
    name: &str,
    operand: &OperandSpec,
    shape: &[usize],
) -> Result<(), Unsupported> {
    if *operand.layout.shape == *shape {
        return Ok(());
    }
    let what = format!("{name} has shape {:?}, expected {shape:?}", operand.layout.shape);
    Err(Unsupported::Size { op, what })
}

/// Fails unless operand `number` is contiguous.
pub(crate) fn require_contiguous(op: &'static str, operand: &OperandSpec, number: usize) -> Result<(), Unsupported> {
    if operand.layout.is_contiguous() {
        Ok(())
    } else {
        Err(Unsupported::NeedsContiguous { op, operand: number })
    }
}

/// Returns a grid of at least `count` workgroups. The shader's group number is x + y · width.
pub(crate) fn grid(op: &'static str, count: usize) -> Result<[u32; 3], Unsupported> {
    const MAX_GROUPS: usize = 65_535;
    let x = count.clamp(1, MAX_GROUPS);
    let y = count.div_ceil(x).max(1);
    if y > MAX_GROUPS {
        let what = format!("{count} workgroups; the maximum is {}", MAX_GROUPS * MAX_GROUPS);
        return Err(Unsupported::Size { op, what });
    }
    Ok([x as u32, y as u32, 1])
}

/// Merges the operands' dimensions except the last `inner` ones. Returns (extent, stride in each operand), outermost
/// first; exactly `rank` of them, padded with extents of 1 in front.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] if more than `rank` are left; it names an operand to copy.
pub(crate) fn outer_dimensions(
    op: &'static str,
    operands: &[&OperandSpec],
    inner: usize,
    rank: usize,
) -> Result<Vec<(u32, Vec<u32>)>, Unsupported> {
    let outer = |operand: &&OperandSpec| {
        let layout = &operand.layout;
        let outer = layout.rank() - inner;
        Layout {
            shape: Dimensions::from_slice(&layout.shape[..outer]),
            strides: Dimensions::from_slice(&layout.strides[..outer]),
            offset: 0,
        }
    };
    let outers: Vec<Layout> = operands.iter().map(outer).collect();
    let words = Walk::new(op, &outers.iter().collect::<Vec<_>>())?.words();
    let mut dimensions: Vec<(u32, Vec<u32>)> = words
        .chunks_exact(1 + operands.len())
        .map(|d| (d[0], d[1..].to_vec()))
        .collect();
    if dimensions.len() > rank {
        let strided = |o: &Layout| !o.is_contiguous() && o.collapsed().rank() > 1;
        let operand = outers.iter().position(strided).unwrap_or(0);
        return Err(Unsupported::NeedsContiguous { op, operand });
    }
    while dimensions.len() < rank {
        dimensions.insert(0, (1, vec![0; operands.len()]));
    }
    Ok(dimensions)
}
