//! The form that an answer is to have.

use std::path::PathBuf;

use clap::Args;
use refrain_engine::TokenConstraint;
use refrain_grammar::{Grammar, Grammars, ReasoningTokens};
use refrain_text::Tokenizer;

use crate::{Usage, input};

/// What the answer must be.
#[derive(Debug, Args)]
pub(super) struct FormArguments {
    /// Answer in JSON of this schema, a file or as it is typed; {} is any JSON
    #[arg(
        short = 'j',
        long,
        alias = "json-schema-file",
        value_name = "FILE|JSON",
        help_heading = "Output",
        conflicts_with_all = ["grammar", "verify"]
    )]
    json_schema: Option<String>,
    /// Answer as the grammar in this file describes it (Lark's notation)
    #[arg(
        long,
        alias = "grammar-file",
        value_name = "FILE",
        help_heading = "Output",
        conflicts_with = "verify"
    )]
    grammar: Option<PathBuf>,
}

impl FormArguments {
    /// Whether the answer is to have one.
    pub fn is_given(&self) -> bool {
        self.json_schema.is_some() || self.grammar.is_some()
    }

    /// The form, if one is asked for.
    ///
    /// # Errors
    /// A file that cannot be read, a schema that is no JSON.
    pub fn grammar(&self) -> anyhow::Result<Option<Grammar>> {
        if let Some(path) = &self.grammar {
            return Ok(Some(Grammar::Lark(input::read_text(path)?)));
        }
        let Some(given) = &self.json_schema else {
            return Ok(None);
        };
        let is_typed = given.trim_start().starts_with(['{', '[', '"']);
        let text = if is_typed {
            given.clone()
        } else {
            input::read_text(given.as_ref())?
        };
        let schema = serde_json::from_str(&text);
        let schema = schema.map_err(|why| Usage(format!("--json-schema: this is no JSON: {why}")))?;
        Ok(Some(Grammar::JsonSchema(schema)))
    }
}

/// What a form leaves of an answer in a tokenizer's tokens, behind its reasoning if it may have some.
///
/// # Errors
/// A form that is none.
pub(super) fn constraint(
    grammar: &Grammar,
    tokenizer: &Tokenizer,
    reasoning: Option<ReasoningTokens>,
) -> anyhow::Result<Box<dyn TokenConstraint>> {
    let option = match grammar {
        Grammar::Lark(_) => "--grammar",
        _ => "--json-schema",
    };
    let made = Grammars::new(tokenizer).and_then(|grammars| grammars.constraint(grammar, reasoning));
    let constraint = made.map_err(|why| Usage(format!("{option}: {why}")))?;
    Ok(Box::new(constraint))
}
