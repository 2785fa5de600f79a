//! Structured output of `refrain run`: JSON schemas and grammars.

use std::path::PathBuf;

use clap::Args;
use refrain_engine::TokenConstraint;
use refrain_grammar::{Grammar, GrammarCompiler, ReasoningTokens};
use refrain_text::Tokenizer;

use crate::generation_args::PromptRenderer;
use crate::{Usage, input, output};

/// Options that constrain the output.
#[derive(Debug, Args)]
pub(super) struct ResponseFormatArguments {
    /// Constrain output to JSON that matches this schema (a file or inline JSON); {} allows any JSON
    #[arg(
        short = 'j',
        long,
        alias = "json-schema-file",
        value_name = "FILE|JSON",
        help_heading = "Output",
        conflicts_with_all = ["grammar", "verify"]
    )]
    json_schema: Option<String>,
    /// Constrain output to the Lark grammar in this file
    #[arg(
        long,
        alias = "grammar-file",
        value_name = "FILE",
        help_heading = "Output",
        conflicts_with = "verify"
    )]
    grammar: Option<PathBuf>,
}

impl ResponseFormatArguments {
    /// Whether a format is given.
    pub fn is_given(&self) -> bool {
        self.json_schema.is_some() || self.grammar.is_some()
    }

    /// Returns the requested format, if any, as the model's answers have it: `renderer` knows what stands around text.
    ///
    /// # Errors
    /// If the file cannot be read, or the schema is not valid.
    pub fn grammar(&self, renderer: Option<&PromptRenderer>, tokenizer: &Tokenizer) -> anyhow::Result<Option<Grammar>> {
        let form = self.text_grammar()?;
        let (Some(form), Some(renderer)) = (&form, renderer) else {
            return Ok(form);
        };
        let answer = renderer.answer_grammar(form.clone(), tokenizer);
        Ok(Some(answer.map_err(|why| Usage(format!("{}: {why}", self.option())))?))
    }

    /// The option that gives the format.
    pub fn option(&self) -> &'static str {
        if self.grammar.is_some() {
            "--grammar"
        } else {
            "--json-schema"
        }
    }

    fn text_grammar(&self) -> anyhow::Result<Option<Grammar>> {
        if let Some(path) = &self.grammar {
            return Ok(Some(Grammar::Lark(input::read_text(path)?)));
        }
        let Some(given) = &self.json_schema else {
            return Ok(None);
        };
        let is_inline = given.trim_start().starts_with(['{', '[', '"']);
        let text = if is_inline {
            given.clone()
        } else {
            input::read_text(given.as_ref())?
        };
        let schema = serde_json::from_str(&text);
        let schema = schema.map_err(|why| Usage(format!("--json-schema: invalid JSON: {why}")))?;
        Ok(Some(Grammar::JsonSchema(schema)))
    }
}

/// Compiles the format that an option gives into a token constraint, applied after reasoning if there may be any. Says
/// on standard error which keywords of a schema are not enforced, unless `quiet`.
///
/// # Errors
/// If the format is invalid or not supported.
pub(super) fn constraint(
    grammar: &Grammar,
    option: &str,
    tokenizer: &Tokenizer,
    reasoning: Option<ReasoningTokens>,
    quiet: bool,
) -> anyhow::Result<Box<dyn TokenConstraint>> {
    let made = GrammarCompiler::new(tokenizer).and_then(|grammars| grammars.constraint(grammar, reasoning));
    let constraint = made.map_err(|why| Usage(format!("{option}: {why}")))?;
    for ignored in constraint.ignored().iter().filter(|_| !quiet) {
        output::eprint_line(&format!("note: {option}: not enforced: {ignored}"));
    }
    Ok(Box::new(constraint))
}
