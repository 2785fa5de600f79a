//! Grammars and constraints of a model's answers.

use std::sync::Arc;

use refrain_grammar::{
    AnswerForm, CallableFunction, Cancellation, Grammar, GrammarCompiler, GrammarConstraint, GrammarError,
    SpecialTokens,
};

use super::ServedModel;
use crate::answer::AnswerFormat;
use crate::answer_constraint::AnswerConstraint;
use crate::error::Refusal;
use crate::memory::{self, FreedOnDrop};
use crate::openai::structure::ResponseFormat;
use crate::record::RequestRecord;

impl ServedModel {
    /// Returns the grammar of answers that call `functions` or have the form `text`, in the model's dialect.
    ///
    /// # Errors
    /// A schema that is none, or functions for a model that calls none.
    pub(crate) fn answer_grammar(
        &self,
        functions: &[CallableFunction<'_>],
        several: bool,
        text: Option<&Grammar>,
    ) -> Result<Grammar, GrammarError> {
        let dialect = if functions.is_empty() {
            self.dialect
        } else {
            self.dialect.with_calls()
        };
        let form = AnswerForm {
            dialect: &dialect,
            functions,
            several,
            text,
        };
        form.grammar(self.special_tokens())
    }

    /// Returns the grammar of free text in which calls of `functions` may begin. `None` if it is not known how the
    /// model writes calls, or a schema that need not be enforced cannot be.
    ///
    /// # Errors
    /// A schema that must be enforced and cannot be.
    pub(crate) fn call_grammar(
        &self,
        functions: &[CallableFunction<'_>],
        several: bool,
    ) -> Result<Option<Grammar>, GrammarError> {
        let form = AnswerForm {
            dialect: &self.dialect,
            functions,
            several,
            text: None,
        };
        match form.call_grammar(self.special_tokens()) {
            Err(_) if functions.iter().all(|function| !function.strict) => Ok(None),
            made => made,
        }
    }

    /// Returns the grammar of answers whose text has a form, with what the model writes around text.
    ///
    /// # Errors
    /// A form that is invalid.
    pub(crate) fn form_in_dialect(&self, form: Grammar) -> Result<Grammar, GrammarError> {
        form.in_dialect(&self.dialect, self.special_tokens())
    }

    fn special_tokens(&self) -> &SpecialTokens {
        self.special.get_or_init(|| SpecialTokens::of(&self.tokenizer))
    }

    /// Compiles the grammar that a field asks for, and the budget of reasoning, for answers that are read as `format`
    /// says.
    ///
    /// # Errors
    /// A grammar that is invalid or needs too much, by the name of its field.
    pub(crate) async fn constraint(
        self: &Arc<Self>,
        form: Option<ResponseFormat>,
        format: &AnswerFormat,
    ) -> Result<AnswerConstraint, Refusal> {
        if form.is_none() && format.reasoning_budget.is_none() {
            return Ok(AnswerConstraint::default());
        }
        let model = self.clone();
        let format = format.clone();
        let reasoning = format.reasoning_tokens(&self.tokenizer);
        RequestRecord::current().add_work(memory::GRAMMAR_BYTES);
        // A client that leaves ends the compilation.
        let cancellation = Cancellation::default();
        let _cancelled_with_the_request = cancellation.cancel_on_drop();
        let made = tokio::task::spawn_blocking(move || {
            let _freed = FreedOnDrop(memory::GRAMMAR_BYTES);
            let field = form.as_ref().map_or("reasoning_budget", |(field, _)| field);
            let failed = |why: GrammarError| {
                if why.is_busy() {
                    Refusal::GrammarsBusy(why.to_string())
                } else {
                    Refusal::field(field, why.to_string())
                }
            };
            let compiler = model.grammars.get_or_init(|| GrammarCompiler::new(&model.tokenizer));
            let compiler = compiler.as_ref().map_err(|why| failed(why.clone()))?;
            let budget = format.reasoning_budget.and_then(|limit| {
                let source = format.reasoning_source()?;
                compiler.reasoning_budget(limit, source, &model.tokenizer)
            });
            let compile = |grammar: &Grammar, reasoning| {
                let made = compiler.cancellable_constraint(grammar, reasoning, &cancellation);
                made.map(Some)
            };
            let grammar = match &form {
                None => Ok(None),
                Some((_, Grammar::Calls(calls))) => {
                    let calls = calls.clone().within_reasoning(format.is_within_reasoning());
                    let is_strict = calls.is_strict();
                    let made = compile(&Grammar::Calls(calls), None);
                    // Without the grammar, calls are as the model writes them.
                    made.or_else(|why| if is_strict { Err(why) } else { Ok(None) })
                }
                Some((_, grammar)) => compile(grammar, reasoning),
            };
            let grammar = grammar.map_err(failed)?;
            Ok::<_, Refusal>(AnswerConstraint { grammar, budget })
        });
        let made = made.await.map_err(|_| Refusal::Silence)??;
        let ignored = made.grammar.as_ref().map_or(&[][..], GrammarConstraint::ignored);
        if !ignored.is_empty() {
            RequestRecord::current().set_not_enforced(ignored.iter().map(ToString::to_string).collect());
        }
        Ok(made)
    }
}
