use refrain_kernels::elementwise::{Expression, ExpressionStep};

/// The expression with its inputs in another order: input `order[i]` becomes input `i`.
pub fn reordered(expression: &Expression, order: &[usize]) -> Expression {
    let place = |input: usize| order.iter().position(|&o| o == input).expect("every input has a place");
    let step = |step: &ExpressionStep| match step {
        ExpressionStep::Input(input) => ExpressionStep::Input(place(*input)),
        other => *other,
    };
    Expression {
        inputs: order.iter().map(|&o| expression.inputs[o]).collect(),
        steps: expression.steps.iter().map(step).collect(),
    }
}
