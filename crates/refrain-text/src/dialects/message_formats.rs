//! The formats of answers that are sequences of messages.

use super::ValueType::BySchema;
use super::notations::{marks, named};
use super::{ArgumentTags, CallForm, MessageFormat, MessageHeaders, Notation, Route};

/// gpt-oss: channels and recipients.
const HARMONY: MessageFormat = MessageFormat {
    name: "harmony",
    start: "<|start|>assistant",
    header_end: "<|message|>",
    ends: &["<|end|>", "<|call|>", "<|return|>"],
    header_begins: &["<|channel|>", " to=", "<|message|>", "<|start|>"],
    route: |header| {
        let recipient = header.split_once("to=").map(|(_, rest)| rest);
        let recipient = recipient.map(|rest| rest.split(['<', ' ']).next().unwrap_or(rest));
        match recipient {
            Some(name) if name != "user" => Route::Call(name.strip_prefix("functions.").unwrap_or(name).to_owned()),
            _ if header.contains("<|channel|>analysis") => Route::Reasoning,
            _ => Route::Text,
        }
    },
    calls: None,
    headers: MessageHeaders {
        reasoning: Some("<|channel|>analysis<|message|>"),
        text: "<|channel|>final<|message|>",
        call: marks("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>"),
    },
};

/// Functionary 3.2: recipients by name, text to `all`.
const FUNCTIONARY_3_2: MessageFormat = MessageFormat {
    name: "functionary-3.2",
    start: ">>>",
    header_end: "\n",
    ends: &["<|eot_id|>"],
    header_begins: &[],
    route: |header| match header.trim() {
        "all" => Route::Text,
        name => Route::Call(name.to_owned()),
    },
    calls: None,
    headers: MessageHeaders {
        reasoning: None,
        text: "all\n",
        call: marks("", "\n"),
    },
};

/// Muse: recipients as harmony has them, calls as elements.
const MUSE: MessageFormat = MessageFormat {
    name: "muse",
    start: "<|start|>assistant",
    header_end: "<|message|>",
    ends: &["<|eom|>", "<|eot|>"],
    header_begins: &[" to=", "<|message|>"],
    route: |header| match header.trim().strip_prefix("to=") {
        Some("self") => Route::Reasoning,
        None | Some("user") => Route::Text,
        Some(name) => Route::Call(name.to_owned()),
    },
    calls: Some(&Notation {
        name: "muse",
        section: Some(marks("<atem:function_calls>", "</atem:function_calls>")),
        call: marks("<atem:invoke name=\"", "</atem:invoke>"),
        form: CallForm::Tagged(
            named(&["\">"]),
            ArgumentTags {
                key: "<atem:parameter name=\"",
                key_ends: &[("\">", BySchema)],
                value: "",
                value_end: "</atem:parameter>",
                on_lines: false,
            },
        ),
        text: None,
        ignored: &[],
    }),
    headers: MessageHeaders {
        reasoning: Some(" to=self<|message|>"),
        text: " to=user<|message|>",
        call: marks(" to=", "<|message|>"),
    },
};

/// The formats of answers that are sequences of messages.
pub(super) const MESSAGE_FORMATS: [&MessageFormat; 3] = [&HARMONY, &MUSE, &FUNCTIONARY_3_2];

/// Marks in a template's text that tell a format where the template writes no calls.
pub(super) const FORMATS_BY_TEXT: [(&str, &MessageFormat); 1] = [("<|channel|>analysis<|message|>", &HARMONY)];
