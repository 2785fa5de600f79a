//! GLSL that is generated from the product's description: accessors, sections, epilogues.

use super::epilogue::{Epilogue, epilogues};
use super::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use super::section::OP;
use crate::elementwise;
use crate::kit::arguments::PushArguments;
use crate::kit::glsl;
use crate::kit::text::{SourceBuilder, unpack};
use crate::{DType, Unsupported};

/// Declares the accessors of all operands, and the macros that describe them.
pub(crate) fn declare<'t>(
    text: SourceBuilder<'t>,
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
) -> SourceBuilder<'t> {
    let chunk = sections[0].parts[0].chunk();
    let text = declare_routing(declare_input(text, problem, 4), problem, chunk);
    declare_sections(text, problem, sections, chunk)
}

/// Declares the accessors of the experts.
fn declare_routing<'t>(
    mut text: SourceBuilder<'t>,
    problem: &ProjectionProblem<'_>,
    chunk: usize,
) -> SourceBuilder<'t> {
    let Some(routing) = &problem.routing else {
        return text;
    };
    text = text
        .input("experts", DType::U32)
        .define("USED", format!("{}u", routing.used));
    let Some(weights) = &routing.weights else {
        return text;
    };
    // Chunks of an expert's row. A constant, so that shaders do not divide by a variable.
    text.define("SEGMENT", format!("{}u", problem.columns / chunk))
        .flag("SCORES", weights.are_scores)
        .input("routing", weights.dtype)
}

/// Declares the accessors of x, which is read `run` values at once, and of its norm.
pub(crate) fn declare_input<'t>(
    mut text: SourceBuilder<'t>,
    problem: &ProjectionProblem<'_>,
    run: usize,
) -> SourceBuilder<'t> {
    text = text.input("x", problem.x.dtype);
    if problem.x.wide && problem.columns.is_multiple_of(run) {
        text = text.define("X_WIDE", 1).runs("x", problem.x.dtype, run, true);
    }
    if let Some((_, norm_weight)) = &problem.norm {
        text = text.define("NORM", 1);
        if let Some(norm_weight) = norm_weight {
            let wide = norm_weight.wide && problem.columns.is_multiple_of(4);
            text = text.define("NORM_WEIGHT", 1).input("norm_weight", norm_weight.dtype);
            if wide {
                text = text
                    .define("NORM_WEIGHT_WIDE", 1)
                    .runs("norm_weight", norm_weight.dtype, 4, true);
            }
        }
    }
    text
}

/// Declares the accessors of the matrices, which are read `chunk` values at once, of the epilogues' inputs, and of the
/// result.
pub(crate) fn declare_sections<'t>(
    mut text: SourceBuilder<'t>,
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
    chunk: usize,
) -> SourceBuilder<'t> {
    let section = sections[0];
    text = text
        .define("PARTS", format!("{}u", section.parts.len()))
        .output("y", problem.out.dtype);
    for (e, extra) in epilogues(sections)
        .iter()
        .flat_map(|epilogue| &epilogue.first.extras)
        .enumerate()
    {
        text = text.input(&format!("extra{e}"), extra.dtype);
    }
    match &section.parts[0].planes {
        WeightPlanes::Dense { dtype, wide, .. } => {
            text = text.input("w", *dtype);
            if *wide {
                text = text.define("WIDE", 1);
            }
            text.body(&format!("#define UNPACK(bits) {}\n", unpack(*dtype, "bits")))
        }
        WeightPlanes::Quantised(weights) => {
            let group = weights.format.group as usize;
            weights
                .declare(text)
                .define("WORDS", chunk * weights.format.bits as usize / 32)
                .define("TERMS", format!("{}u", (chunk / group).max(1)))
        }
    }
}

/// Generates all source that depends on the arguments.
///
/// # Errors
/// Fails if an epilogue is not a valid expression.
pub(crate) fn generate(
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
    arguments: &PushArguments,
) -> Result<String, Unsupported> {
    let invalid = |e: elementwise::InvalidExpression| Unsupported::Size {
        op: OP,
        what: e.to_string(),
    };
    let epilogues = epilogues(sections);
    let evaluate: Vec<String> = (epilogues.iter())
        .map(|epilogue| {
            let dtypes = epilogue.first.epilogue.dtypes().map_err(invalid)?;
            Ok(elementwise::evaluate(&epilogue.first.epilogue, &dtypes))
        })
        .collect::<Result<_, Unsupported>>()?;
    let parts = [
        arguments.declaration(),
        batches(problem),
        blocks(sections.len()),
        planes(sections),
        elementwise::libraries(&evaluate.concat()),
        inputs(&epilogues),
        evaluations(&epilogues, &evaluate),
    ];
    Ok(parts.concat())
}

/// Generates the offsets of x, the weights and the result of the current batch.
fn batches(problem: &ProjectionProblem<'_>) -> String {
    if problem.routing.is_some() {
        return "#define ROUTED 1\nconst uint w_at = 0u;\nuint x_at, y_at, t_at;\n".into();
    }
    match problem.batch {
        None => "const uint x_at = 0u, w_at = 0u, y_at = 0u, t_at = 0u;\n".into(),
        Some(_) => "#define BATCHED 1\nconst uint t_at = 0u;\nuint x_at, w_at, y_at;\n\
                    uint batch_offset(uint batch, uint outer, uint inner) { \
                    return batch / INNER_BATCHES * outer + batch % INNER_BATCHES * inner; }\n"
            .into(),
    }
}

/// Generates `Block block_of(uint number)`. A block is the rows that a workgroup computes at once; they belong to one
/// section.
fn blocks(sections: usize) -> String {
    let count = |s: usize| format!("(ROWS_{s} + per_block - 1u) / per_block");
    let counts: Vec<String> = (0..sections).map(count).collect();
    let mut text = format!(
        "struct Block {{ uint section, row, rows, column; }};\n\
         uint block_count() {{ uint per_block = ROWS * EACH; return {}; }}\n\
         Block block_of(uint number) {{ uint per_block = ROWS * EACH; ",
        counts.join(" + ")
    );
    for (s, count) in counts.iter().enumerate() {
        let block = format!("return Block({s}u, number * per_block, ROWS_{s}, COLUMN_{s});");
        if s + 1 == sections {
            text.push_str(&format!("{block} }}\n"))
        } else {
            text.push_str(&format!("if (number < {count}) {block} number -= {count}; "))
        }
    }
    text
}

/// Generates `Planes planes_of(uint section, uint part)`.
fn planes(sections: &[&SectionPlan<'_>]) -> String {
    let members: Vec<&str> = match &sections[0].parts[0].planes {
        WeightPlanes::Dense { .. } => vec!["w_ref w"],
        WeightPlanes::Quantised(weights) if weights.biases.is_some() => {
            vec!["words_ref quants", "scales_ref scales", "biases_ref biases"]
        }
        WeightPlanes::Quantised(_) => vec!["words_ref quants", "scales_ref scales"],
    };
    let of = |s: usize, p: usize| {
        let name = |member: &&str| {
            let (_, name) = member.split_once(' ').expect("a type and a name");
            format!("pc.{name}_{s}_{p}")
        };
        let values: Vec<String> = members.iter().map(name).collect();
        format!("return Planes({});", values.join(", "))
    };
    let mut text = format!(
        "struct Planes {{ {}; }};\nPlanes planes_of(uint section, uint part) {{ ",
        members.join("; ")
    );
    let count = sections[0].parts.len();
    let all: Vec<(usize, usize)> = (0..sections.len())
        .flat_map(|s| (0..count).map(move |p| (s, p)))
        .collect();
    for &(s, p) in &all[1..] {
        text.push_str(&format!("if (section == {s}u && part == {p}u) {} ", of(s, p)));
    }
    text.push_str(&format!("{} }}\n", of(0, 0)));
    text
}

/// Generates the type `Inputs` with `load_inputs`, which loads the extra inputs of a section's epilogue, and
/// `with_sums`, which adds the sums.
fn inputs(epilogues: &[Epilogue<'_, '_>]) -> String {
    let first = epilogues[0].first;
    let parts = first.parts.len();
    let widest = epilogues
        .iter()
        .map(|epilogue| epilogue.first.epilogue.inputs.len())
        .max()
        .unwrap_or(0);
    let mut members = String::new();
    let mut loads = String::new();
    for n in 0..widest {
        // If sections have different epilogues, all inputs are floats.
        let dtype = first.epilogue.inputs.get(n).copied().unwrap_or(DType::F32);
        members.push_str(&format!("{} x{n}; ", glsl::compute_type(dtype)));
        if n < parts || epilogues.len() > 1 {
            loads.push_str(&format!("inputs.x{n} = 0.0; "));
        }
    }
    for epilogue in epilogues {
        let mut own = String::new();
        for e in 0..epilogue.first.extras.len() {
            let (number, input) = (epilogue.extras + e, parts + e);
            let place = format!("t * EXTRA_STRIDE_{number} + n * EXTRA_WITHIN_{number}");
            let pointer = |s: &usize| format!("pc.extra{number}_{s}");
            own.push_str(&format!(
                "extra{number}_ref p{number} = {}; ",
                pointer(&epilogue.sections[0])
            ));
            for s in &epilogue.sections[1..] {
                own.push_str(&format!("if (section == {s}u) p{number} = {}; ", pointer(s)));
            }
            own.push_str(&format!("inputs.x{input} = load_extra{number}(p{number}, {place}); "));
        }
        match epilogues.len() {
            1 => loads.push_str(&own),
            _ => loads.push_str(&format!("if ({}) {{ {own}}} ", is_one_of(&epilogue.sections))),
        }
    }
    let sums: String = (0..parts)
        .map(|p| {
            let sum = elementwise::rounded(format!("totals[{p}]"), first.epilogue.inputs[p]);
            format!("inputs.x{p} = {sum}; ")
        })
        .collect();
    format!(
        "struct Inputs {{ {members}}};\n\
         Inputs load_inputs(uint section, uint t, uint n) {{ Inputs inputs; {loads}return inputs; }}\n\
         Inputs with_sums(Inputs inputs, float totals[PARTS]) {{ {sums}return inputs; }}\n"
    )
}

fn is_one_of(sections: &[usize]) -> String {
    let each: Vec<String> = sections.iter().map(|s| format!("section == {s}u")).collect();
    each.join(" || ")
}

/// Generates `result_of(section, element, inputs)`, which evaluates the section's epilogue.
fn evaluations(epilogues: &[Epilogue<'_, '_>], evaluate: &[String]) -> String {
    let mut text = String::new();
    let mut choice = String::new();
    for (number, (epilogue, evaluate)) in epilogues.iter().zip(evaluate).enumerate() {
        text.push_str(&format!(
            "#define constant_bits(n) NUMBER(FIRST_CONSTANT + {}u + n)\n#define evaluate evaluate_{number}\n\
             {evaluate}#undef evaluate\n#undef constant_bits\n",
            epilogue.constants
        ));
        if number > 0 {
            choice.push_str(&format!(
                "if ({}) return evaluate_{number}(element, inputs); ",
                is_one_of(&epilogue.sections)
            ));
        }
    }
    format!(
        "{text}float result_of(uint section, uint element, Inputs inputs) \
         {{ {choice}return evaluate_0(element, inputs); }}\n"
    )
}
