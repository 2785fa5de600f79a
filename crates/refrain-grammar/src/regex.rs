//! Checks regular expressions before they are compiled.

use regex_syntax::ast::{
    Assertion, AssertionKind, Ast, ErrorKind, RepetitionKind, RepetitionRange, parse::ParserBuilder,
};

use crate::limits::{MAX_REGEX_BYTES, MAX_REGEX_NESTING, MAX_REGEX_OPTIONS};

/// Why a regular expression is not compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RegexProblem {
    /// It is invalid in every notation of regular expressions.
    Invalid(String),
    /// It uses what cannot be compiled.
    Unsupported(String),
    /// It exceeds a limit.
    TooLarge(String),
}

impl RegexProblem {
    /// The message for the user.
    pub fn message(self) -> String {
        match self {
            RegexProblem::Invalid(why) | RegexProblem::Unsupported(why) | RegexProblem::TooLarge(why) => why,
        }
    }
}

/// Checks a regular expression.
///
/// # Errors
/// If it is invalid or too large.
pub(crate) fn check(pattern: &str) -> Result<(), RegexProblem> {
    let too_large = |what: String| Err(RegexProblem::TooLarge(format!("the regular expression {what}")));
    if pattern.len() > MAX_REGEX_BYTES {
        return too_large(format!(
            "has {} bytes, more than the limit of {MAX_REGEX_BYTES}",
            pattern.len()
        ));
    }
    let parsed = ParserBuilder::new()
        .nest_limit(MAX_REGEX_NESTING)
        .build()
        .parse(pattern);
    let tree = parsed.map_err(|why| match why.kind() {
        ErrorKind::NestLimitExceeded(limit) => {
            RegexProblem::TooLarge(format!("the regular expression nests more than {limit} groups"))
        }
        kind if is_invalid_everywhere(kind) => RegexProblem::Invalid(format!("invalid regular expression: {kind}")),
        kind => RegexProblem::Unsupported(format!("unsupported regular expression: {kind}")),
    })?;
    if has_word_boundary(&tree) {
        let why = "unsupported regular expression: word boundaries, such as \\b, are not supported";
        return Err(RegexProblem::Unsupported(why.to_owned()));
    }
    if options(&tree) > MAX_REGEX_OPTIONS {
        return too_large(format!("has more than {MAX_REGEX_OPTIONS} optional parts"));
    }
    Ok(())
}

/// Whether no notation of regular expressions admits this. JavaScript's, which schemas use, differs from ours in
/// escapes, braces and brackets.
fn is_invalid_everywhere(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ClassRangeInvalid
            | ErrorKind::GroupUnclosed
            | ErrorKind::GroupUnopened
            | ErrorKind::RepetitionCountInvalid
            | ErrorKind::RepetitionMissing
    )
}

fn has_word_boundary(tree: &Ast) -> bool {
    match tree {
        Ast::Assertion(assertion) => !is_of_line(assertion),
        Ast::Group(group) => has_word_boundary(&group.ast),
        Ast::Repetition(repetition) => has_word_boundary(&repetition.ast),
        Ast::Alternation(parts) => parts.asts.iter().any(has_word_boundary),
        Ast::Concat(parts) => parts.asts.iter().any(has_word_boundary),
        _ => false,
    }
}

fn is_of_line(assertion: &Assertion) -> bool {
    matches!(
        assertion.kind,
        AssertionKind::StartLine | AssertionKind::EndLine | AssertionKind::StartText | AssertionKind::EndText
    )
}

/// Returns the number of parts that may be absent. The library expands no repetition: one counts twice, since its
/// first round differs from the others.
fn options(tree: &Ast) -> u64 {
    let sum = |parts: &[Ast]| parts.iter().map(options).sum();
    match tree {
        Ast::Group(group) => options(&group.ast),
        Ast::Alternation(parts) => sum(&parts.asts),
        Ast::Concat(parts) => sum(&parts.asts),
        Ast::Repetition(repetition) => {
            let (is_optional, is_repeated) = match &repetition.op.kind {
                RepetitionKind::ZeroOrOne => (true, false),
                RepetitionKind::ZeroOrMore | RepetitionKind::Range(RepetitionRange::Bounded(0, _)) => (true, true),
                RepetitionKind::Range(RepetitionRange::AtLeast(0)) => (true, true),
                RepetitionKind::OneOrMore | RepetitionKind::Range(_) => (false, true),
            };
            let inner = options(&repetition.ast);
            inner
                .saturating_mul(1 + u64::from(is_repeated))
                .saturating_add(u64::from(is_optional))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_compiles_slowly() {
        for fine in [
            "",
            r"^\d{4}-\d{2}$",
            "a{0,20000}",
            "(ab|cd)*",
            "[a-z]{0,100000}x",
            &"a?".repeat(400),
            "(a|b)*a(a|b){25}",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        let nested = format!("{}a{}", "(".repeat(300), ")".repeat(300));
        let words = (0..10_000)
            .map(|number| format!("w{number}"))
            .collect::<Vec<_>>()
            .join("|");
        for large in [
            &"a?".repeat(5_000),
            &"(a|b*)".repeat(600),
            &format!("({}){{9}}", "a?".repeat(300)),
            &nested,
            &words,
        ] {
            assert!(matches!(check(large), Err(RegexProblem::TooLarge(_))), "{large:.40}");
        }
        for invalid in ["(", "a)", "a{2,1}", "*a", "[z-a]"] {
            assert!(matches!(check(invalid), Err(RegexProblem::Invalid(_))), "{invalid}");
        }
        for unsupported in ["(?=a)b", r"(a)\1", r"\bfoo\b", r"(a|\B)*", r"\cA", "[[a]"] {
            assert!(
                matches!(check(unsupported), Err(RegexProblem::Unsupported(_))),
                "{unsupported}"
            );
        }
    }
}
