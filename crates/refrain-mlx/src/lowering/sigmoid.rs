//! The sigmoid of half precision, which MLX's operation writes out so that it rounds as MLX does
//! ([`crate::ops::approximations::sigmoid`]). Where the roundings are left out, it is the sigmoid of kernels, which
//! patterns for activations look for.

use refrain_kernels::elementwise::{BinaryOp, Expression, ExpressionStep, UnaryOp};

/// The same expression with sigmoid(x) for `select(x < 0, t, 1 − t)`, where t = 1 / (e^|x| + 1).
pub(super) fn recognised(mut expression: Expression) -> Expression {
    let mut is_changed = false;
    for number in 0..expression.steps.len() {
        if let Some(x) = argument(&expression, number) {
            expression.steps[number] = ExpressionStep::Unary(UnaryOp::Sigmoid, x);
            is_changed = true;
        }
    }
    if is_changed { needed(expression) } else { expression }
}

/// x, if step `number` is its sigmoid.
fn argument(expression: &Expression, number: usize) -> Option<usize> {
    let steps = &expression.steps;
    let ExpressionStep::Select(condition, below, above) = steps[number] else {
        return None;
    };
    let ExpressionStep::Binary(BinaryOp::Lt, x, zero) = steps[condition] else {
        return None;
    };
    let ExpressionStep::Binary(BinaryOp::Div, one, sum) = steps[below] else {
        return None;
    };
    let ExpressionStep::Binary(BinaryOp::Add, power, added) = steps[sum] else {
        return None;
    };
    let ExpressionStep::Unary(UnaryOp::Exp, magnitude) = steps[power] else {
        return None;
    };
    let ExpressionStep::Unary(UnaryOp::Abs, same_x) = steps[magnitude] else {
        return None;
    };
    let ExpressionStep::Binary(BinaryOp::Sub, whole, same_below) = steps[above] else {
        return None;
    };
    let are_constants = expression.float(zero) == Some(0.0)
        && [one, added, whole]
            .into_iter()
            .all(|step| expression.float(step) == Some(1.0));
    (are_constants && same(steps, x, same_x) && same(steps, below, same_below)).then_some(x)
}

/// Whether two steps compute the same. An input may be read by several steps.
fn same(steps: &[ExpressionStep], a: usize, b: usize) -> bool {
    a == b
        || match (steps[a], steps[b]) {
            (ExpressionStep::Input(a), ExpressionStep::Input(b)) => a == b,
            (ExpressionStep::Cast(a, to), ExpressionStep::Cast(b, same_to)) => to == same_to && same(steps, a, b),
            _ => false,
        }
}

/// The expression without the steps that nothing reads.
fn needed(expression: Expression) -> Expression {
    let Expression { inputs, steps } = expression;
    let mut is_needed = vec![false; steps.len()];
    if let Some(last) = is_needed.last_mut() {
        *last = true;
    }
    for number in (0..steps.len()).rev() {
        if is_needed[number] {
            operands(&steps[number]).for_each(|operand| is_needed[operand] = true);
        }
    }
    let mut at = vec![0; steps.len()];
    let mut kept = Vec::with_capacity(steps.len());
    for (number, step) in steps.into_iter().enumerate().filter(|(number, _)| is_needed[*number]) {
        at[number] = kept.len();
        kept.push(step.renumbered(|operand| at[operand]));
    }
    Expression { inputs, steps: kept }
}

fn operands(step: &ExpressionStep) -> impl Iterator<Item = usize> {
    let operands = match *step {
        ExpressionStep::Unary(_, a) | ExpressionStep::Cast(a, _) => [Some(a), None, None],
        ExpressionStep::Binary(_, a, b) => [Some(a), Some(b), None],
        ExpressionStep::Select(condition, a, b) => [Some(condition), Some(a), Some(b)],
        _ => [None; 3],
    };
    operands.into_iter().flatten()
}
