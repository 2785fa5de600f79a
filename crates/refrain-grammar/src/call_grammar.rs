//! The grammar that keeps calls well-formed which a model begins by itself, in the middle of free text.

use refrain_text::dialects::{CallForm, Dialect, Marks, MessageFormat, Notation};

use crate::answer::{AnswerForm, CallableFunction, Rules, SpecialTokens};
use crate::call_rules::Extent;
use crate::grammar::{LarkRules, literal};
use crate::schema::IgnoredKeyword;
use crate::{Grammar, GrammarError};

/// Free text in which calls may begin. Text is unrestricted; from the text that begins a call, its trigger, to the
/// call's end, the call's grammar holds.
#[derive(Debug, Clone, PartialEq)]
pub struct CallGrammar {
    /// The grammar of one call, trigger included, or of the calls between one pair of marks.
    lark: String,
    ignored: Vec<IgnoredKeyword>,
    pub(crate) triggers: Vec<Trigger>,
    /// The start of a message, in dialects of messages.
    pub(crate) start: &'static str,
    /// The marks around reasoning, in which no call begins.
    pub(crate) reasoning: Option<Marks>,
    /// Whether text or another call may follow a call.
    pub(crate) several: bool,
    /// Whether the answer begins within reasoning.
    pub(crate) is_reasoning: bool,
    is_strict: bool,
}

/// A text that begins a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trigger {
    pub text: String,
    pub place: TriggerPlace,
}

/// Where a trigger begins a call. Elsewhere it is a mention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TriggerPlace {
    /// Anywhere: a special token is never a mention.
    Anywhere,
    /// At the beginning of a line, or behind a sentence.
    Sentence,
    /// At the beginning of the answer or of a message, or behind another call.
    Front,
}

impl CallGrammar {
    /// Whether the schema of one of the functions must be enforced.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The same for an answer to a prompt that ends within reasoning, if `is_reasoning`.
    #[must_use]
    pub fn within_reasoning(self, is_reasoning: bool) -> CallGrammar {
        CallGrammar { is_reasoning, ..self }
    }

    pub(crate) fn rules(&self) -> LarkRules {
        LarkRules {
            lark: self.lark.clone(),
            ignored: self.ignored.clone(),
        }
    }
}

impl AnswerForm<'_> {
    /// Returns the grammar of free text in which such calls may begin, a [`Grammar::Calls`]. `None` if the dialect's
    /// notation of calls is not known for certain.
    ///
    /// # Errors
    /// If a schema is invalid or exceeds a limit; the error names the function.
    pub fn call_grammar(&self, special: &SpecialTokens) -> Result<Option<Grammar>, GrammarError> {
        let is_known = self.dialect.knows_calls() && !self.functions.is_empty();
        let relaxed: Vec<CallableFunction<'_>> = self.functions.iter().map(|f| relaxed(f, self.dialect)).collect();
        let form = AnswerForm {
            functions: &relaxed,
            ..*self
        };
        let mut rules = Rules::new(special);
        let (start, triggers) = match (self.dialect.messages, self.dialect.calls) {
            _ if !is_known => return Ok(None),
            (Some(format), _) => {
                let start = form.messages(&mut rules, format, Extent::Section)?;
                (start, message_triggers(format, self.functions))
            }
            (None, Some(notation)) => {
                let start = form.calls(&mut rules, notation, Extent::Section)?;
                let mark = self.dialect.call_mark();
                let triggers = if mark.is_empty() {
                    unmarked_triggers(notation, self.functions)
                } else {
                    vec![Trigger {
                        text: mark.to_owned(),
                        place: if special.begins(mark) {
                            TriggerPlace::Anywhere
                        } else {
                            TriggerPlace::Sentence
                        },
                    }]
                };
                (start, triggers)
            }
            (None, None) => return Ok(None),
        };
        if triggers.is_empty() {
            return Ok(None);
        }
        let LarkRules { lark, ignored } = rules.finish(&start)?;
        Ok(Some(Grammar::Calls(CallGrammar {
            lark,
            ignored,
            triggers,
            start: self.dialect.messages.map_or("", |format| format.start),
            reasoning: self.dialect.reasoning,
            several: self.several,
            is_reasoning: false,
            is_strict: self.functions.iter().any(|function| function.strict),
        })))
    }
}

/// A function whose arguments are any that the dialect can write, unless its schema must be enforced.
fn relaxed<'a>(function: &CallableFunction<'a>, dialect: &Dialect) -> CallableFunction<'a> {
    let form = match dialect.messages {
        Some(format) => format.calls.map(|notation| &notation.form),
        None => dialect.calls.map(|notation| &notation.form),
    };
    // These write each argument by its type.
    let needs_schema = matches!(form, Some(CallForm::Python | CallForm::Braces | CallForm::Elements(..)));
    CallableFunction {
        parameters: function.parameters.filter(|_| function.strict || needs_schema),
        ..*function
    }
}

/// What begins messages with calls.
fn message_triggers(format: &MessageFormat, functions: &[CallableFunction<'_>]) -> Vec<Trigger> {
    let Marks { open, close } = format.headers.call;
    // Where all headers begin alike, only the name tells a call.
    if !open.is_empty() && !format.headers.text.starts_with(open) {
        return vec![Trigger {
            text: open.to_owned(),
            place: TriggerPlace::Front,
        }];
    }
    let trigger = |function: &CallableFunction<'_>| Trigger {
        text: format!("{open}{}{close}", function.name),
        place: TriggerPlace::Front,
    };
    functions.iter().map(trigger).collect()
}

/// What begins calls in a notation without marks, up to the function's name.
fn unmarked_triggers(notation: &Notation, functions: &[CallableFunction<'_>]) -> Vec<Trigger> {
    let texts = functions.iter().filter_map(|function| {
        let name = function.name;
        match &notation.form {
            CallForm::Objects(keys) if !keys.is_list => Some(format!("{{\"{}\": {}", keys.name, literal(name))),
            CallForm::Python => Some(format!("[{name}(")),
            _ => None,
        }
    });
    let trigger = |text| Trigger {
        text,
        place: TriggerPlace::Front,
    };
    texts.map(trigger).collect()
}
