//! What restricts the tokens of a request's answers.

use refrain_engine::TokenConstraint;
use refrain_grammar::{GrammarConstraint, ReasoningBudget};

/// A grammar, and a budget of reasoning, for each answer of a request.
#[derive(Clone, Default)]
pub(crate) struct AnswerConstraint {
    pub grammar: Option<GrammarConstraint>,
    pub budget: Option<ReasoningBudget>,
}

impl AnswerConstraint {
    /// Returns the constraint of one answer, if it is restricted at all.
    pub fn of_answer(&self) -> Option<Box<dyn TokenConstraint>> {
        let grammar = self.grammar.as_ref();
        let grammar = grammar.map(|grammar| Box::new(grammar.fork()) as Box<dyn TokenConstraint>);
        match &self.budget {
            Some(budget) => Some(budget.around(grammar)),
            None => grammar,
        }
    }
}
