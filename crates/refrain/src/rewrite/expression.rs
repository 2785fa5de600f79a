use refrain_kernels::elementwise::{Expression, ExpressionStep};

/// The expression with its inputs reordered: input `order[i]` becomes input `i`.
pub fn reordered(expression: &Expression, order: &[usize]) -> Expression {
    let index = |input: usize| {
        order
            .iter()
            .position(|&o| o == input)
            .expect("`order` names every input")
    };
    let step = |step: &ExpressionStep| match step {
        ExpressionStep::Input(input) => ExpressionStep::Input(index(*input)),
        other => *other,
    };
    Expression {
        inputs: order.iter().map(|&o| expression.inputs[o]).collect(),
        steps: expression.steps.iter().map(step).collect(),
    }
}
