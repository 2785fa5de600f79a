//! Chooses the dialect of a model by what its chat template writes.

use serde_json::{Value, json};

use super::message_formats::{FORMATS_BY_TEXT, MESSAGE_FORMATS};
use super::notations::{BY_TEXT, HERMES, NOTATIONS, REASONING};
use super::reader::{AnswerPiece, AnswerReader};
use super::{Dialect, Functions, Marks, Notation};
use crate::{ChatTemplate, Conversation, Tokenizer};

/// What the sample's answer contains. Rare words, so that no template has them.
const REASONING_TEXT: &str = "Zumbi pondered.";
const ANSWER_TEXT: &str = "Quorv answered.";
const FUNCTION: &str = "fetch_zorble";

impl Dialect {
    /// The dialect of a model: the one that reads back what its template writes for an answer with reasoning and a
    /// call. Where the template writes none, marks in its text or among the tokens decide.
    pub fn of(template: &ChatTemplate, tokenizer: Option<&Tokenizer>) -> Dialect {
        let samples: Vec<Sample> = [true, false]
            .iter()
            .flat_map(|&as_text| Sample::of(template, as_text))
            .collect();
        for format in MESSAGE_FORMATS {
            let dialect = Dialect {
                reasoning: None,
                calls: None,
                text_lead: "",
                messages: Some(format),
            };
            if samples.iter().any(|sample| sample.is_read_by(dialect)) {
                return dialect;
            }
        }
        let source: String = template.sources().map(|(_, source)| source).collect();
        let by_text = FORMATS_BY_TEXT.iter().find(|(mark, _)| source.contains(mark));
        if let Some((_, format)) = by_text {
            return Dialect {
                messages: Some(format),
                ..Dialect::PLAIN
            };
        }
        let plain = Sample::of_text(template);
        let text_lead = plain.as_ref().map_or("", Sample::text_lead);
        let is_token = |mark: &str| tokenizer.is_some_and(|tokenizer| tokenizer.id(mark).is_some());
        let written = reasoning_marks(template);
        let named = |marks: &&Marks| source.contains(marks.open) && source.contains(marks.close);
        let reasoning = written.or_else(|| REASONING.iter().find(named).copied());
        let calls = NOTATIONS.into_iter().find(|notation| {
            let dialect = Dialect {
                reasoning,
                calls: Some(notation),
                text_lead,
                messages: None,
            };
            let reads_text = plain.as_ref().is_none_or(|sample| sample.text_is_read_by(dialect));
            reads_text && samples.iter().any(|sample| sample.is_read_by(dialect))
        });
        let by_text = || {
            BY_TEXT
                .iter()
                .find(|(mark, _)| source.contains(mark))
                .map(|(_, notation)| *notation)
        };
        let has_tools = source.contains("tools");
        let by_token = || {
            BY_TEXT
                .iter()
                .find(|(mark, _)| is_token(mark))
                .map(|(_, notation)| *notation)
        };
        let calls = calls.or_else(by_text).or_else(|| has_tools.then(by_token).flatten());
        Dialect {
            reasoning,
            calls: calls.or(has_tools.then_some(&HERMES)),
            text_lead,
            messages: None,
        }
    }

    /// A dialect for each notation and format that is known, without reasoning.
    pub fn all() -> Vec<Dialect> {
        let none = Dialect {
            reasoning: None,
            calls: None,
            text_lead: "",
            messages: None,
        };
        let mut notations: Vec<&Notation> = NOTATIONS.to_vec();
        for (_, notation) in BY_TEXT {
            if !notations.iter().any(|known| known.name == notation.name) {
                notations.push(notation);
            }
        }
        let notations = notations.into_iter().map(|notation| Dialect {
            calls: Some(notation),
            ..none
        });
        let formats = MESSAGE_FORMATS.into_iter().map(|format| Dialect {
            messages: Some(format),
            ..none
        });
        notations.chain(formats).collect()
    }

    /// The marks that a decoder must not drop where they are special tokens.
    pub fn marks(&self) -> Vec<&'static str> {
        let reasoning = self.reasoning.map(|marks| [marks.open, marks.close]);
        let mut all: Vec<&str> = reasoning.into_iter().flatten().collect();
        if let Some(notation) = self.calls {
            all.extend(notation.marks());
        }
        if let Some(format) = self.messages {
            all.extend([format.start, format.header_end]);
            all.extend(format.ends.iter().chain(format.header_begins));
            all.extend(format.calls.into_iter().flat_map(Notation::marks));
        }
        all.retain(|mark| !mark.is_empty());
        all
    }
}

/// What a template writes for an answer with a call.
struct Sample {
    prompt: String,
    answer: String,
    functions: Functions,
    arguments: Value,
}

impl Sample {
    /// Samples with and without text. `as_text`: the arguments are given as a string, as OpenAI's interface has them.
    fn of(template: &ChatTemplate, as_text: bool) -> Vec<Sample> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "glim": {"type": "string", "description": "A glim."},
                "count": {"type": "integer", "description": "A count."},
            },
            "required": ["glim", "count"],
            "additionalProperties": false,
        });
        let function = json!({"name": FUNCTION, "description": "Fetches a zorble.", "parameters": parameters});
        let tools = vec![json!({"type": "function", "function": function})];
        let arguments = json!({"glim": "vok trel", "count": 37});
        let given = if as_text {
            Value::String(arguments.to_string())
        } else {
            arguments.clone()
        };
        let call = json!({
            "id": "k3v9x1q7z", "type": "function", "function": {"name": FUNCTION, "arguments": given},
        });
        let conversation = |answer: Option<Value>| Conversation {
            messages: [json!({"role": "user", "content": "Hello."})]
                .into_iter()
                .chain(answer)
                .collect(),
            tools: Some(tools.clone()),
            ..Conversation::default()
        };
        let Ok(prompt) = template.render(&conversation(None), true) else {
            return vec![];
        };
        let texts = [Some(ANSWER_TEXT), None];
        let answers = texts.map(|text| {
            json!({
                "role": "assistant", "content": text.unwrap_or(""), "tool_calls": [call],
            })
        });
        let rendered = answers.into_iter().filter_map(|answer| {
            let whole = template.render(&conversation(Some(answer)), false).ok()?;
            let (prompt, answer) = divide(&prompt, &whole);
            Some(Sample {
                prompt,
                answer,
                functions: Functions::of_tools(&tools),
                arguments: arguments.clone(),
            })
        });
        rendered.collect()
    }

    /// A sample of text alone.
    fn of_text(template: &ChatTemplate) -> Option<Sample> {
        let question = json!({"role": "user", "content": "Hello."});
        let answer = json!({"role": "assistant", "content": ANSWER_TEXT});
        let conversation = |messages| Conversation {
            messages,
            ..Conversation::default()
        };
        let prompt = template.render(&conversation(vec![question.clone()]), true).ok()?;
        let whole = template.render(&conversation(vec![question, answer]), false).ok()?;
        let (prompt, answer) = divide(&prompt, &whole);
        Some(Sample {
            prompt,
            answer,
            functions: Functions::default(),
            arguments: Value::Null,
        })
    }

    /// The blanks that stand before the text, where nothing else does.
    fn text_lead(&self) -> &'static str {
        let leads = ["\n\n", "\n", " "];
        let found = leads.into_iter().find(|lead| {
            let text = self.answer.strip_prefix(lead);
            text.is_some_and(|text| text.starts_with(ANSWER_TEXT))
        });
        found.unwrap_or("")
    }

    /// Whether a dialect reads the text without marks before it.
    fn text_is_read_by(&self, dialect: Dialect) -> bool {
        let mut reader = AnswerReader::new(dialect, self.functions.clone(), &self.prompt);
        let pieces = reader.push(&self.answer).into_iter().chain(reader.finish());
        let texts = pieces.filter_map(|piece| match piece {
            AnswerPiece::Text(text) => Some(text),
            _ => None,
        });
        let text: String = texts.collect();
        text.is_empty() || text.starts_with(ANSWER_TEXT)
    }

    /// Whether a dialect reads the call, and nothing of it as text.
    fn is_read_by(&self, dialect: Dialect) -> bool {
        let mut reader = AnswerReader::new(dialect, self.functions.clone(), &self.prompt);
        let mut pieces = reader.push(&self.answer);
        pieces.extend(reader.finish());
        let (mut names, mut arguments, mut text) = (vec![], String::new(), String::new());
        for piece in pieces {
            match piece {
                AnswerPiece::Call { name, .. } => names.push(name),
                AnswerPiece::Arguments(more) => arguments.push_str(&more),
                AnswerPiece::Text(more) | AnswerPiece::Reasoning(more) => text.push_str(&more),
            }
        }
        let arguments: Option<Value> = serde_json::from_str(&arguments).ok();
        names == [FUNCTION]
            && arguments.as_ref() == Some(&self.arguments)
            && !text.contains("glim")
            && !text.contains(FUNCTION)
    }
}

/// The marks between which a template writes reasoning.
fn reasoning_marks(template: &ChatTemplate) -> Option<Marks> {
    let tools = [true, false];
    tools.iter().find_map(|with_call| {
        let mut answer = json!({"role": "assistant", "content": ANSWER_TEXT});
        for name in ["reasoning_content", "reasoning", "thinking"] {
            answer[name] = REASONING_TEXT.into();
        }
        if *with_call {
            let function = json!({"name": FUNCTION, "arguments": {"glim": "vok"}});
            answer["tool_calls"] = json!([{"id": "k3v9x1q7z", "type": "function", "function": function}]);
        }
        let messages = vec![json!({"role": "user", "content": "Hello."}), answer];
        let conversation = Conversation {
            messages,
            ..Conversation::default()
        };
        let text = template.render(&conversation, false).ok()?;
        let (before, behind) = text.split_once(REASONING_TEXT)?;
        let around = |marks: &&Marks| {
            before.trim_end().ends_with(marks.open.trim_end()) && behind.trim_start().starts_with(marks.close)
        };
        REASONING.iter().find(around).copied()
    })
}

/// Divides a rendered conversation where the answer begins, so that no mark is cut. `prompt` is the rendering up to
/// there, which may end with marks that the history does not have.
fn divide(prompt: &str, whole: &str) -> (String, String) {
    let same = prompt
        .char_indices()
        .zip(whole.chars())
        .take_while(|((_, a), b)| a == b);
    let mut at = same.last().map_or(0, |((at, letter), _)| at + letter.len_utf8());
    if at < prompt.len() {
        let before = &whole[..at];
        let opened = before
            .rfind(['<', '['])
            .filter(|open| !before[*open..].contains(['>', ']']));
        at = opened.unwrap_or(at);
    }
    (whole[..at].to_owned(), whole[at..].to_owned())
}

impl Notation {
    /// The marks of a notation.
    fn marks(&self) -> Vec<&'static str> {
        use super::{CallForm, CallId};
        let pairs = [self.section, Some(self.call), self.text].into_iter().flatten();
        let mut all: Vec<&str> = pairs.flat_map(|marks| [marks.open, marks.close]).collect();
        all.extend(self.ignored);
        let of_name = |named: &super::NamedCall| {
            let id = match named.id {
                CallId::Before(mark) => vec![mark],
                CallId::Behind(before, behind) => vec![before, behind],
                CallId::None | CallId::InName | CallId::Skipped(_) => vec![],
            };
            named.name_ends.iter().copied().chain(id).collect::<Vec<_>>()
        };
        match &self.form {
            CallForm::Named(named) | CallForm::Elements(named, _) => all.extend(of_name(named)),
            CallForm::Tagged(named, tags) => {
                all.extend(of_name(named));
                all.extend([tags.key, tags.value, tags.value_end]);
                all.extend(tags.key_ends.iter().map(|(end, _)| *end));
            }
            CallForm::Objects(_) | CallForm::KeyedObjects | CallForm::Python => {}
            CallForm::Braces => all.push(super::literal::GEMMA_QUOTE),
        }
        all
    }
}
