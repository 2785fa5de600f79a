//! Display of expressions as formulas.

use std::fmt;

use super::expression::{BinaryOp, Expression, ExpressionStep, Scalar, UnaryOp};

impl fmt::Display for UnaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for BinaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl BinaryOp {
    /// Returns the infix operator, if the op has one.
    fn sign(self) -> Option<&'static str> {
        Some(match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::And => "&",
            BinaryOp::Or => "|",
            BinaryOp::Xor => "^",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Pow | BinaryOp::Max | BinaryOp::Min => return None,
        })
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::F32(x) => write!(f, "{x:?}"),
            Scalar::I32(x) => write!(f, "{x}"),
            Scalar::U32(x) => write!(f, "{x}"),
        }
    }
}

/// Writes a formula, such as `t2 = sigmoid(x0); (x0 * t2) * x1`. Steps that are used more than once are named, inputs
/// never.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut uses = vec![0; self.steps.len()];
        for step in &self.steps {
            for operand in operands(step) {
                if let Some(count) = uses.get_mut(operand) {
                    *count += 1;
                }
            }
        }
        let mut texts: Vec<(String, bool)> = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let (text, compound) = formula(step, &texts);
            let last = number + 1 == self.steps.len();
            if last {
                return f.write_str(&text);
            }
            let computes = !operands(step).is_empty();
            if computes && uses[number] > 1 {
                write!(f, "t{number} = {text}; ")?;
                texts.push((format!("t{number}"), false));
            } else {
                texts.push((text, compound));
            }
        }
        Ok(())
    }
}

fn operands(step: &ExpressionStep) -> Vec<usize> {
    match *step {
        ExpressionStep::Input(_) | ExpressionStep::Constant { .. } | ExpressionStep::Index => vec![],
        ExpressionStep::Unary(_, a) | ExpressionStep::Cast(a, _) => vec![a],
        ExpressionStep::Binary(_, a, b) => vec![a, b],
        ExpressionStep::Select(a, b, c) => vec![a, b, c],
    }
}

/// Returns the text of a step, and whether it needs parentheses as an operand of an operator.
fn formula(step: &ExpressionStep, texts: &[(String, bool)]) -> (String, bool) {
    let plain = |n: usize| texts.get(n).map_or("?", |(text, _)| text.as_str());
    let parenthesised = |n: usize| match texts.get(n) {
        Some((text, true)) => format!("({text})"),
        _ => plain(n).to_string(),
    };
    match *step {
        ExpressionStep::Input(input) => (format!("x{input}"), false),
        ExpressionStep::Constant { value, .. } => (value.to_string(), false),
        ExpressionStep::Index => ("index".into(), false),
        ExpressionStep::Unary(UnaryOp::Neg, a) => (format!("-{}", parenthesised(a)), true),
        ExpressionStep::Unary(op, a) => (format!("{op}({})", plain(a)), false),
        ExpressionStep::Binary(op, a, b) => match op.sign() {
            Some(sign) => (format!("{} {sign} {}", parenthesised(a), parenthesised(b)), true),
            None => (format!("{op}({}, {})", plain(a), plain(b)), false),
        },
        ExpressionStep::Select(c, a, b) => (format!("select({}, {}, {})", plain(c), plain(a), plain(b)), false),
        ExpressionStep::Cast(a, to) => (format!("{to}({})", plain(a)), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn names_steps_used_more_than_once() {
        let expression = Expression {
            inputs: vec![DType::BF16, DType::BF16],
            steps: vec![
                ExpressionStep::Input(0),
                ExpressionStep::Cast(0, DType::F32),
                ExpressionStep::Unary(UnaryOp::Sigmoid, 1),
                ExpressionStep::Binary(BinaryOp::Mul, 1, 2),
                ExpressionStep::Input(1),
                ExpressionStep::Cast(4, DType::F32),
                ExpressionStep::Binary(BinaryOp::Mul, 3, 5),
            ],
        };
        assert_eq!(expression.to_string(), "t1 = f32(x0); (t1 * sigmoid(t1)) * f32(x1)");
    }
}
