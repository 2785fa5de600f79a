use std::fmt;

use super::expression::{BinaryOp, Expression, Scalar, Step, UnaryOp};

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
    /// The operator written between operands, where there is one.
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

/// One formula, such as `t2 = sigmoid(x0); (x0 * t2) * x1`: steps that are used more than once are
/// named, inputs never are.
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

fn operands(step: &Step) -> Vec<usize> {
    match *step {
        Step::Input(_) | Step::Constant { .. } | Step::Index => vec![],
        Step::Unary(_, a) | Step::Cast(a, _) => vec![a],
        Step::Binary(_, a, b) => vec![a, b],
        Step::Select(a, b, c) => vec![a, b, c],
    }
}

/// The text of a step, and whether it needs parentheses as an operand of an operator.
fn formula(step: &Step, texts: &[(String, bool)]) -> (String, bool) {
    let plain = |n: usize| texts.get(n).map_or("?", |(text, _)| text.as_str());
    let tight = |n: usize| match texts.get(n) {
        Some((text, true)) => format!("({text})"),
        _ => plain(n).to_string(),
    };
    match *step {
        Step::Input(input) => (format!("x{input}"), false),
        Step::Constant { value, .. } => (value.to_string(), false),
        Step::Index => ("index".into(), false),
        Step::Unary(UnaryOp::Neg, a) => (format!("-{}", tight(a)), true),
        Step::Unary(op, a) => (format!("{op}({})", plain(a)), false),
        Step::Binary(op, a, b) => match op.sign() {
            Some(sign) => (format!("{} {sign} {}", tight(a), tight(b)), true),
            None => (format!("{op}({}, {})", plain(a), plain(b)), false),
        },
        Step::Select(c, a, b) => (format!("select({}, {}, {})", plain(c), plain(a), plain(b)), false),
        Step::Cast(a, to) => (format!("{to}({})", plain(a)), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn a_step_used_twice_is_named_once() {
        let expression = Expression {
            inputs: vec![DType::BF16, DType::BF16],
            steps: vec![
                Step::Input(0),
                Step::Cast(0, DType::F32),
                Step::Unary(UnaryOp::Sigmoid, 1),
                Step::Binary(BinaryOp::Mul, 1, 2),
                Step::Input(1),
                Step::Cast(4, DType::F32),
                Step::Binary(BinaryOp::Mul, 3, 5),
            ],
        };
        assert_eq!(expression.to_string(), "t1 = f32(x0); (t1 * sigmoid(t1)) * f32(x1)");
    }
}
