use super::epilogue::epilogues;
use super::problem::{ProjectionProblem, SectionPlan, WeightPlanes};
use super::section::OP;
use crate::kit::arguments::PushArguments;
use crate::{Push, Traits, Unsupported, elementwise};

/// Source of x for a call.
pub(crate) enum InputSource<'a> {
    /// x and the norm's weight themselves.
    Unpacked,
    /// The output of a packing call.
    Packed(&'a dyn Fn(&mut PushArguments)),
}

/// Builds the arguments of the call that computes `sections`.
pub(crate) fn arguments(
    traits: &Traits,
    problem: &ProjectionProblem<'_>,
    sections: &[&SectionPlan<'_>],
    inputs: InputSource<'_>,
) -> Result<PushArguments, Unsupported> {
    let mut arguments = PushArguments::new(traits);
    match inputs {
        InputSource::Unpacked => {
            arguments.address("x_ref x", problem.x.address.clone());
            if let Some((_, Some(norm_weight))) = &problem.norm {
                arguments.address("norm_weight_ref norm_weight", norm_weight.address.clone());
            }
        }
        InputSource::Packed(add) => add(&mut arguments),
    }
    if let Some(routing) = &problem.routing {
        arguments.address("experts_ref experts", routing.experts.clone());
        if let Some(weights) = &routing.weights {
            arguments.address("routing_ref routing", weights.address.clone());
        }
    }
    let epilogues = epilogues(sections);
    for (s, section) in sections.iter().enumerate() {
        let epilogue = epilogues.iter().find(|epilogue| epilogue.sections.contains(&s));
        addresses(
            &mut arguments,
            s,
            section,
            epilogue.map_or(0, |epilogue| epilogue.extras),
        );
    }
    arguments.address("y_ref y", problem.out.address.clone());
    if let Some((top_k, _)) = problem.top_k_of(sections) {
        let own = |operand| Push::Address { operand, bytes: 0 };
        arguments.address("places_ref places", top_k.indices.clone());
        arguments.address("left_ref partial_keys", own(problem.operands));
        arguments.address("counters_ref tickets", own(problem.operands + 1));
        arguments.number("CHOSEN", top_k.count);
    }
    sizes(&mut arguments, problem, sections);
    for (s, section) in sections.iter().enumerate() {
        arguments.number(&format!("ROWS_{s}"), section.rows);
        arguments.number(&format!("COLUMN_{s}"), section.column);
    }
    for epilogue in &epilogues {
        for (e, extra) in epilogue.first.extras.iter().enumerate() {
            let e = epilogue.extras + e;
            arguments.stride(&format!("EXTRA_STRIDE_{e}"), between(problem, extra.strides[0]));
            arguments.stride(&format!("EXTRA_WITHIN_{e}"), extra.strides[1]);
        }
    }
    let constants = epilogues
        .iter()
        .flat_map(|epilogue| elementwise::constant_bits(&epilogue.first.epilogue));
    arguments.numbers("FIRST_CONSTANT", constants.collect());
    arguments.check(OP)?;
    Ok(arguments)
}

/// Adds the addresses of section `s`. Its epilogue's extra inputs are numbered from `first` on.
fn addresses(arguments: &mut PushArguments, s: usize, section: &SectionPlan<'_>, first: usize) {
    for (p, part) in section.parts.iter().enumerate() {
        let types: &[&str] = match part.planes {
            WeightPlanes::Dense { .. } => &["w"],
            WeightPlanes::Quantised(_) => &["quants", "scales", "biases"],
        };
        for (name, address) in types.iter().zip(part.planes.addresses()) {
            let of = if *name == "quants" { "words" } else { name };
            arguments.address(format!("{of}_ref {name}_{s}_{p}"), address);
        }
    }
    for (extra, e) in section.extras.iter().zip(first..) {
        arguments.address(format!("extra{e}_ref extra{e}_{s}"), extra.address.clone());
    }
}

fn sizes(arguments: &mut PushArguments, problem: &ProjectionProblem<'_>, sections: &[&SectionPlan<'_>]) {
    arguments.number("COLUMNS", problem.columns);
    arguments.stride("X_STRIDE", between(problem, problem.x.strides[0]));
    arguments.stride("X_WITHIN", problem.x.strides[1]);
    arguments.stride("Y_STRIDE", between(problem, problem.out.strides[0]));
    arguments.stride("Y_WITHIN", problem.out.strides[1]);
    if let WeightPlanes::Dense { stride, .. } = sections[0].parts[0].planes {
        arguments.number("W_STRIDE", stride);
    }
    if let Some((eps, _)) = problem.norm {
        arguments.number("EPS", eps.to_bits() as usize);
    }
    if let Some(routing) = &problem.routing {
        arguments.number("REPEATS", routing.repeats());
        arguments.number("EXPERTS", routing.count);
        arguments.number("EXPERT_ROWS", routing.between);
        if let Some(weights) = &routing.weights {
            arguments.stride("ROUTING_STRIDE", weights.stride);
        }
    }
    if let Some(batch) = &problem.batch {
        arguments.number("BATCHES", batch.count());
        arguments.number("INNER_BATCHES", batch.extents[1]);
        for (name, [outer, inner]) in ["X", "W", "Y"].iter().zip(batch.strides) {
            arguments.stride(&format!("{name}_OUTER"), outer);
            arguments.stride(&format!("{name}_INNER"), inner);
        }
    }
}

/// A stride between tokens. With one token it is set to 0, so that equal kernels get equal arguments.
fn between(problem: &ProjectionProblem<'_>, stride: usize) -> usize {
    if problem.tokens == 1 && problem.routing.is_none() {
        0
    } else {
        stride
    }
}
