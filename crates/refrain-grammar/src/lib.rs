//! Texts of a form that is asked for: JSON of a schema, what a grammar or a regular expression describes.
//!
//! A [`Grammar`] becomes a [`GrammarConstraint`] by the [`Grammars`] of a tokenizer: at each place of a text it tells an
//! engine which tokens may come next. The token that ends a text may where the grammar is satisfied.
//!
//! ```
//! use refrain_grammar::Grammar;
//!
//! let answer = Grammar::Choice(vec!["yes".to_owned(), "no".to_owned()]);
//! assert_eq!(answer.lark()?, r#"start: "yes" | "no""#);
//! # Ok::<(), refrain_grammar::GrammarError>(())
//! ```

mod calls;
mod constraint;
mod grammar;

use std::sync::Arc;

use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory, panic_utils};
use refrain_text::{TokenBytes, Tokenizer};

pub use calls::{CallableFunction, calls_grammar};
pub use constraint::{GrammarConstraint, ReasoningTokens};
pub use grammar::{Grammar, GrammarError};

/// What makes constraints for the tokens of one tokenizer.
pub struct Grammars {
    factory: ParserFactory,
    end_ids: Vec<u32>,
}

impl Grammars {
    /// For texts in a tokenizer's tokens. Takes a second where there are many.
    ///
    /// # Errors
    /// A vocabulary of which no trie can be made.
    pub fn new(tokenizer: &Tokenizer) -> Result<Grammars, GrammarError> {
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie(tokenizer)));
        let made = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| ParserFactory::new_simple(&environment)));
        let mut factory = made.map_err(GrammarError::of)?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Grammars {
            factory,
            end_ids: tokenizer.eos_ids().to_vec(),
        })
    }

    /// A constraint for one text, behind its reasoning if it may have some.
    ///
    /// # Errors
    /// A grammar that is none, is too large, or asks for what is not supported.
    pub fn constraint(
        &self,
        grammar: &Grammar,
        reasoning: Option<ReasoningTokens>,
    ) -> Result<GrammarConstraint, GrammarError> {
        let lark = grammar.lark()?;
        let made = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let grammar = llguidance::api::TopLevelGrammar::from_lark(lark);
            self.factory.create_parser(grammar)
        }));
        let mut matcher = Matcher::new(made);
        // Some of what is wrong shows only when it is first asked.
        matcher.compute_mask().map_err(|why| match grammar {
            Grammar::Lark(_) => GrammarError::of(why),
            _ => GrammarError::of(why).without_place(),
        })?;
        Ok(GrammarConstraint::new(matcher, reasoning, self.end_ids.clone()))
    }
}

/// All tokens by their bytes; special ones are none of any text.
fn trie(tokenizer: &Tokenizer) -> TokTrie {
    let written = |token: Option<TokenBytes>| match token {
        Some(TokenBytes { bytes, is_special }) if is_special => [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat(),
        Some(TokenBytes { bytes, .. }) => bytes,
        None => vec![],
    };
    let mut words: Vec<Vec<u8>> = tokenizer.vocabulary().into_iter().map(written).collect();
    let mut ends: Vec<u32> = (tokenizer.eos_ids().iter().copied())
        .filter(|id| (*id as usize) < words.len())
        .collect();
    if ends.is_empty() {
        // Some token has to be it: one that no model picks.
        ends.push(words.len() as u32);
        words.push(b"\xff<|end|>".to_vec());
    }
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    TokTrie::from(&info, &words).with_eos_tokens(&ends)
}
