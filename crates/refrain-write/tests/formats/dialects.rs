//! Answers as published chat templates write them, read back: reasoning, text and calls, wherever the stream is cut.

use std::collections::BTreeMap;
use std::fs;

use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions};
use refrain_text::{ChatTemplate, Conversation};
use serde_json::{Value, json};

use crate::fetched::fetched;

/// Templates of which no dialect is known to read back all that they write, and why.
const LOSSY: [(&str, &str); 2] = [
    (
        "Apriel-1.6-15b-Thinker-fixed",
        "its history has no opening mark of the reasoning",
    ),
    (
        "NVIDIA-Nemotron-Nano-v2",
        "its history opens the reasoning and never ends it",
    ),
];

/// What templates write behind an answer: tokens that end it, which no decoder hands out.
const ENDINGS: [&str; 30] = [
    "<|im_end|>\n",
    "<|im_end|>",
    "<EOS>",
    "[e~[\n",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_sentence>\n",
    "<｜end▁of▁sentence｜>",
    "<turn|>\n",
    "<|end_of_text|>\n",
    "<|end_of_text|>",
    "<end_of_turn>\n",
    "</assistant>\n",
    "<|END_OF_TURN_TOKEN|>",
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>",
    "\n\n<sep>",
    "\n<sep>",
    "<|role_end|>",
    "<seed:eos>",
    "\n<|end|>\n<EOS>",
    "<|end|>\n<EOS>",
    "<|end|>\n",
    "<SPECIAL_12>\n\n",
    "<｜hy_eos:opensource｜>",
    "<|call|>",
    "<|return|>",
    "<|endoftext|>",
    "<|eot|>",
    "<|assistant_end|>",
    "<|message_sep|>\n\n",
];

/// An answer as it is read.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    text: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
}

fn read(dialect: Dialect, functions: &Functions, prompt: &str, pieces: &[&str]) -> Answer {
    let mut reader = AnswerReader::new(dialect, functions.clone(), prompt);
    let mut found: Vec<AnswerPiece> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
    found.extend(reader.finish());
    joined(found)
}

/// Reads an answer that a limit cut off.
fn read_cut(dialect: Dialect, functions: &Functions, prompt: &str, text: &str) -> Answer {
    let mut reader = AnswerReader::new(dialect, functions.clone(), prompt);
    let mut found = reader.push(text);
    found.extend(reader.cut_off());
    joined(found)
}

fn joined(found: Vec<AnswerPiece>) -> Answer {
    let mut answer = Answer::default();
    for piece in found {
        match piece {
            AnswerPiece::Reasoning(text) => answer.reasoning.push_str(&text),
            AnswerPiece::Text(text) => answer.text.push_str(&text),
            AnswerPiece::Call { name, .. } => answer.calls.push((name, String::new())),
            AnswerPiece::Arguments(text) => answer.calls.last_mut().expect("a call").1.push_str(&text),
        }
    }
    answer
}

fn tools() -> Vec<Value> {
    let described = |kind: &str| json!({"type": kind, "description": "It."});
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": described("string"), "days": described("integer"),
            "deep": described("object"), "on": described("boolean"),
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    [("get_weather", parameters), ("stop", none)]
        .map(|(name, parameters)| {
            json!({"type": "function", "function": {
                "name": name, "description": "Does it.", "parameters": parameters,
            }})
        })
        .to_vec()
}

fn arguments() -> Value {
    json!({
        "city": "Paris \"x\" </tool_call> é", "days": 3, "deep": {"a": [1, null, {"b": "}"}]}, "on": true,
    })
}

impl Answer {
    /// Whether it is what was read of `whole` before that was cut off.
    fn begins(&self, whole: &Answer) -> bool {
        let mut calls = self.calls.iter().zip(&whole.calls);
        whole.reasoning.starts_with(self.reasoning.trim_end())
            && whole.text.starts_with(self.text.trim_end())
            && self.calls.len() <= whole.calls.len()
            && calls.all(|(some, whole)| some.0 == whole.0 && whole.1.starts_with(&some.1))
    }
}

/// A template, with the form in which it wants arguments.
struct Published {
    name: String,
    template: ChatTemplate,
    as_text: bool,
}

impl Published {
    fn conversation(&self, answer: Option<&Answer>) -> Conversation {
        let mut messages = vec![json!({"role": "user", "content": "Hi"})];
        if let Some(answer) = answer {
            let mut message = json!({"role": "assistant", "content": answer.text});
            if !answer.reasoning.is_empty() {
                for key in ["reasoning_content", "reasoning", "thinking"] {
                    message[key] = answer.reasoning.as_str().into();
                }
            }
            let calls = answer
                .calls
                .iter()
                .zip(["abcdefgh1", "abcdefgh2"])
                .map(|((name, arguments), id)| {
                    let parsed = serde_json::from_str(arguments).unwrap_or(Value::Null);
                    let arguments = if self.as_text {
                        arguments.as_str().into()
                    } else {
                        parsed
                    };
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
                });
            let calls: Vec<Value> = calls.collect();
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            messages.push(message);
        }
        Conversation {
            messages,
            tools: Some(tools()),
            ..Conversation::default()
        }
    }

    /// The prompt, and what the template writes behind it for an answer, without what ends it.
    fn written(&self, answer: &Answer) -> Option<(String, String)> {
        let prompt = self.template.render(&self.conversation(None), true).ok()?;
        let whole = self.template.render(&self.conversation(Some(answer)), false).ok()?;
        let mut written = refrain_testing::continuation(&prompt, &whole);
        let before = whole.len() - written.len();
        let longest = |written: &str| {
            let endings = ENDINGS.iter().filter(|end| written.ends_with(**end));
            endings.map(|end| end.len()).max()
        };
        while let Some(length) = longest(written) {
            written = &written[..written.len() - length];
        }
        Some((whole[..before].to_owned(), written.to_owned()))
    }

    /// Whether the template writes a call where its prompt ends.
    fn writes_calls(&self) -> bool {
        let answer = Answer {
            calls: vec![("get_weather".to_owned(), arguments().to_string())],
            ..Answer::default()
        };
        self.written(&answer)
            .is_some_and(|(_, written)| written.contains("get_weather"))
    }

    /// Reads an answer back, cut at each place.
    fn check(&self, dialect: Dialect, answer: &Answer) -> Result<(), String> {
        let functions = Functions::of_tools(&tools());
        let Some((prompt, written)) = self.written(answer) else {
            return Ok(());
        };
        let found = read(dialect, &functions, &prompt, &[&written]);
        let (_, again) = self.written(&found).ok_or("cannot be rendered again")?;
        if again != written {
            return Err(format!("{written:?} was read as {found:?}, which is written {again:?}"));
        }
        // Some templates write one call at most.
        for ((name, given), (read_name, read)) in answer.calls.iter().zip(&found.calls) {
            let [given, read] = [given, read].map(|text| serde_json::from_str::<Value>(text).ok());
            if name != read_name || given != read {
                return Err(format!("a call of {written:?} was read as {found:?}"));
            }
        }
        let written_calls = answer
            .calls
            .iter()
            .filter(|(name, _)| written.contains(name.as_str()))
            .count();
        if found.calls.len() != written_calls {
            return Err(format!("{} calls in {written:?}", found.calls.len()));
        }
        for (at, _) in written.char_indices() {
            let (left, right) = written.split_at(at);
            let cut = read(dialect, &functions, &prompt, &[left, right]);
            if cut != found {
                return Err(format!("{left:?} and {right:?} were read as {cut:?}, not {found:?}"));
            }
            let begun = read_cut(dialect, &functions, &prompt, left);
            if !begun.begins(&found) {
                return Err(format!(
                    "{left:?}, cut off, was read as {begun:?}, not as a part of {found:?}"
                ));
            }
        }
        let letters: Vec<String> = written.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        if read(dialect, &functions, &prompt, &letters) != found {
            return Err(format!("{written:?} was read otherwise letter by letter"));
        }
        Ok(())
    }
}

fn published() -> Vec<Published> {
    let Some(directory) = fetched("llama.cpp/templates") else {
        return vec![];
    };
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jinja"));
    paths.sort();
    let templates = paths.iter().map(|path| {
        let special = [("bos_token", "<BOS>"), ("eos_token", "<EOS>")];
        let special = BTreeMap::from(special.map(|(role, token)| (role.to_owned(), token.to_owned())));
        let mut published = Published {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            template: ChatTemplate::new(fs::read_to_string(path).unwrap(), special),
            as_text: false,
        };
        published.as_text = !published.writes_calls();
        published
    });
    templates.collect()
}

#[test]
fn published_templates_answers_are_read_back() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let mut with_calls = 0;
    let mut wrong = vec![];
    let templates = published();
    for published in &templates {
        let dialect = Dialect::of(&published.template, None);
        with_calls += usize::from(published.writes_calls());
        let calls = [
            ("get_weather".to_owned(), arguments().to_string()),
            ("stop".to_owned(), "{}".to_owned()),
        ];
        let counts: &[usize] = if published.writes_calls() { &[0, 1, 2] } else { &[0] };
        for (count, text, reasoning) in counts.iter().flat_map(|&count| {
            let texts = ["Sure.", "Sure </tool_call> <b", ""];
            texts
                .into_iter()
                .flat_map(move |text| ["Zm, {x}.", ""].map(|reasoning| (count, text, reasoning)))
        }) {
            let answer = Answer {
                reasoning: reasoning.to_owned(),
                text: text.to_owned(),
                calls: calls[..count].to_vec(),
            };
            if let Err(why) = published.check(dialect, &answer)
                && !LOSSY.iter().any(|(name, _)| *name == published.name)
            {
                wrong.push(format!("{}: {why}", published.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        templates.is_empty() || with_calls >= 47,
        "{with_calls} templates write calls"
    );
}

#[test]
fn lossy_templates_calls_are_read_all_the_same() {
    for published in published() {
        if !LOSSY.iter().any(|(name, _)| *name == published.name) {
            continue;
        }
        let answer = Answer {
            reasoning: String::new(),
            text: String::new(),
            calls: vec![("get_weather".to_owned(), arguments().to_string())],
        };
        let (prompt, written) = published.written(&answer).expect("an answer");
        let functions = Functions::of_tools(&tools());
        let found = read(Dialect::of(&published.template, None), &functions, &prompt, &[&written]);
        assert_eq!(found.calls.len(), 1, "{}: {written:?}", published.name);
        let read: Value = serde_json::from_str(&found.calls[0].1).unwrap();
        assert_eq!(read, arguments(), "{}", published.name);
    }
}
