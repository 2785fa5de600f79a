//! Structured output: constrains generated text to a JSON schema, a grammar or a regular expression, and tool calls
//! to a model's dialect.
//!
//! A [`GrammarCompiler`] compiles a [`Grammar`] for one tokenizer to a [`GrammarConstraint`]. At each step the
//! constraint tells the engine which tokens may come next. End-of-text tokens are allowed once the grammar is
//! satisfied. [`AnswerForm`] makes grammars of answers with tool calls, and of free text in which calls may begin. A
//! [`ReasoningBudget`] limits the tokens of reasoning.
//!
//! Compilation runs on threads of its own with large stacks, a few at a time, and takes at most 2 s. Keywords of JSON
//! schemas that cannot be enforced are ignored and reported ([`GrammarConstraint::ignored`]). No reference to another
//! document is ever fetched.
//!
//! ```
//! use refrain_grammar::Grammar;
//!
//! let answer = Grammar::Choice(vec!["yes".to_owned(), "no".to_owned()]);
//! assert_eq!(answer.lark()?, r#"start: "yes" | "no""#);
//! # Ok::<(), refrain_grammar::GrammarError>(())
//! ```

mod answer;
mod arguments;
mod call_grammar;
mod call_rules;
mod call_watch;
mod cancellation;
mod compiler;
mod constraint;
mod error;
mod grammar;
mod lark;
mod limits;
mod reasoning_budget;
mod regex;
mod schema;
mod text_argument;
mod token_text;

pub use answer::{AnswerForm, AnswerGrammar, CallableFunction, SpecialTokens};
pub use call_grammar::CallGrammar;
pub use cancellation::{CancelOnDrop, Cancellation};
pub use compiler::GrammarCompiler;
pub use constraint::{GrammarConstraint, ReasoningTokens};
pub use error::GrammarError;
pub use grammar::Grammar;
pub use reasoning_budget::{ReasoningBudget, ReasoningSource};
pub use schema::IgnoredKeyword;
