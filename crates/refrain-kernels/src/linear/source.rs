//! The part of the text that depends on what is projected: arguments, places of sections, the epilogue.

use super::epilogue::{End, ends};
use super::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use super::section::OP;
use crate::elementwise;
use crate::kit::arguments::PushArguments;
use crate::kit::glsl;
use crate::kit::text::{Text, unpack};
use crate::{DType, Unsupported};

/// The accessors of all operands, and what the shader asks of them.
pub(crate) fn declared<'t>(text: Text<'t>, problem: &ProjectionProblem<'_>, sections: &[&SectionPlan<'_>]) -> Text<'t> {
    let chunk = sections[0].parts[0].chunk();
    let text = declared_routing(declared_input(text, problem, 4), problem, chunk);
    declared_sections(text, problem, sections, chunk)
}

/// The accessors of the experts that tokens are routed to.
fn declared_routing<'t>(mut text: Text<'t>, problem: &ProjectionProblem<'_>, chunk: usize) -> Text<'t> {
    let Some(routing) = &problem.routing else {
        return text;
    };
    text = text
        .input("experts", DType::U32)
        .define("USED", format!("{}u", routing.used));
    let Some(weights) = &routing.weights else {
        return text;
    };
    // The chunks of one expert's row: known here, so that nothing is divided by a variable.
    text.define("SEGMENT", format!("{}u", problem.columns / chunk))
        .flag("SCORES", weights.are_scores)
        .input("routing", weights.dtype)
}

/// The accessors of x, by `run` values at once, and of its norm.
pub(crate) fn declared_input<'t>(mut text: Text<'t>, problem: &ProjectionProblem<'_>, run: usize) -> Text<'t> {
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

/// The accessors of the matrices, which are read `chunk` values at once, of the epilogue's inputs and of the
/// result.
pub(crate) fn declared_sections<'t>(
    mut text: Text<'t>,
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
    chunk: usize,
) -> Text<'t> {
    let section = sections[0];
    text = text
        .define("PARTS", format!("{}u", section.parts.len()))
        .output("y", problem.out.dtype);
    for (e, extra) in ends(sections).iter().flat_map(|end| &end.like.extras).enumerate() {
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

/// Everything that the arguments determine.
///
/// # Errors
/// When an epilogue is no valid expression.
pub(crate) fn generated(
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
    arguments: &PushArguments,
) -> Result<String, Unsupported> {
    let invalid = |e: elementwise::Invalid| Unsupported::Size {
        op: OP,
        what: e.to_string(),
    };
    let ends = ends(sections);
    let evaluate: Vec<String> = (ends.iter())
        .map(|end| {
            let dtypes = end.like.epilogue.dtypes().map_err(invalid)?;
            Ok(elementwise::evaluate(&end.like.epilogue, &dtypes))
        })
        .collect::<Result<_, Unsupported>>()?;
    let parts = [
        arguments.declaration(),
        batches(problem),
        blocks(sections.len()),
        planes(sections),
        elementwise::libraries(&evaluate.concat()),
        inputs(&ends),
        evaluations(&ends, &evaluate),
    ];
    Ok(parts.concat())
}

/// Where x, the weights and the result of the batch at hand start.
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

/// `Block block_of(uint number)`: the rows that a workgroup takes at once lie in one section.
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

/// `Planes planes_of(uint section, uint part)`.
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

/// The type `Inputs`, `load_inputs`, which loads what a section's epilogue reads beside the sums, and
/// `with_sums`.
fn inputs(ends: &[End<'_, '_>]) -> String {
    let first = ends[0].like;
    let parts = first.parts.len();
    let widest = ends.iter().map(|end| end.like.epilogue.inputs.len()).max().unwrap_or(0);
    let mut members = String::new();
    let mut loads = String::new();
    for n in 0..widest {
        // Where sections end differently all are floats.
        let dtype = first.epilogue.inputs.get(n).copied().unwrap_or(DType::F32);
        members.push_str(&format!("{} x{n}; ", glsl::compute_type(dtype)));
        if n < parts || ends.len() > 1 {
            loads.push_str(&format!("inputs.x{n} = 0.0; "));
        }
    }
    for end in ends {
        let mut own = String::new();
        for e in 0..end.like.extras.len() {
            let (number, input) = (end.extras + e, parts + e);
            let place = format!("t * EXTRA_STRIDE_{number} + n * EXTRA_WITHIN_{number}");
            let pointer = |s: &usize| format!("pc.extra{number}_{s}");
            own.push_str(&format!(
                "extra{number}_ref p{number} = {}; ",
                pointer(&end.sections[0])
            ));
            for s in &end.sections[1..] {
                own.push_str(&format!("if (section == {s}u) p{number} = {}; ", pointer(s)));
            }
            own.push_str(&format!("inputs.x{input} = load_extra{number}(p{number}, {place}); "));
        }
        match ends.len() {
            1 => loads.push_str(&own),
            _ => loads.push_str(&format!("if ({}) {{ {own}}} ", is_one_of(&end.sections))),
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

/// `result_of(section, element, inputs)`, made of the epilogues.
fn evaluations(ends: &[End<'_, '_>], evaluate: &[String]) -> String {
    let mut text = String::new();
    let mut choice = String::new();
    for (number, (end, evaluate)) in ends.iter().zip(evaluate).enumerate() {
        text.push_str(&format!(
            "#define constant_bits(n) NUMBER(FIRST_CONSTANT + {}u + n)\n#define evaluate evaluate_{number}\n\
             {evaluate}#undef evaluate\n#undef constant_bits\n",
            end.constants
        ));
        if number > 0 {
            choice.push_str(&format!(
                "if ({}) return evaluate_{number}(element, inputs); ",
                is_one_of(&end.sections)
            ));
        }
    }
    format!(
        "{text}float result_of(uint section, uint element, Inputs inputs) \
         {{ {choice}return evaluate_0(element, inputs); }}\n"
    )
}
