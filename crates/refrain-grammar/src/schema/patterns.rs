//! Regular expressions of schemas.

use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};

use crate::error::GrammarError;
use crate::regex::{self, RegexProblem};

/// Whether the library compiles a regular expression of a schema.
///
/// # Errors
/// If it is invalid or exceeds a limit.
pub(super) fn is_compilable(pattern: &str) -> Result<bool, GrammarError> {
    match regex::check(pattern) {
        Ok(()) => {
            let pattern = llguidance::regex_to_lark(pattern, "dw");
            Ok(RegexBuilder::new().mk_regex_for_serach(&pattern).is_ok())
        }
        Err(RegexProblem::Unsupported(_)) => Ok(false),
        Err(problem) => Err(GrammarError::new(problem.message())),
    }
}

/// Whether no text matches the last of these regular expressions and another. The library compiles no others beside
/// each other.
pub(super) fn are_disjoint(patterns: &[&str]) -> bool {
    const FUEL: u64 = 10_000;
    let mut builder = RegexBuilder::new();
    let made = patterns
        .iter()
        .map(|pattern| builder.mk_regex_for_serach(&llguidance::regex_to_lark(pattern, "dw")));
    let made: Vec<ExprRef> = made.filter_map(Result::ok).collect();
    let Some((last, others)) = made.split_last() else {
        return false;
    };
    others.iter().all(|other| {
        let both = RegexAst::And(vec![RegexAst::ExprRef(*other), RegexAst::ExprRef(*last)]);
        let regex = builder.mk(&both).and_then(|both| builder.to_regex_limited(both, FUEL));
        regex.is_ok_and(|mut regex| regex.always_empty())
    })
}
