//! A message in Anthropic's form: its blocks, and the events that report them.

use refrain_engine::Finish;
use refrain_text::dialects::AnswerPiece;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::answer::Ended;
use crate::openai::{new_call_id, object_id};

/// The signature of blocks with reasoning. Clients send a block back only if it has one; nothing here verifies it.
const SIGNATURE: &str = "refrain";

/// What is known of a message before it is generated.
pub(super) struct MessageHead {
    pub model: String,
    pub input_tokens: usize,
    /// The strings that end it.
    pub stops: Vec<String>,
}

/// A message so far.
pub(super) struct Message {
    head: MessageHead,
    id: String,
    blocks: Vec<Block>,
}

/// A block of a message.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(deny_unknown_fields, rename = "MessageBlock")]
pub(crate) enum Block {
    Thinking {
        thinking: String,
        signature: &'static str,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        /// The arguments so far: JSON as the model wrote it.
        #[serde(serialize_with = "as_json")]
        #[schemars(with = "Map<String, Value>")]
        input: String,
    },
}

impl Block {
    /// Whether it is a call whose arguments were cut off.
    fn is_cut_call(&self) -> bool {
        match self {
            Block::ToolUse { input, .. } => serde_json::from_str::<&RawValue>(input).is_err(),
            _ => false,
        }
    }
}

/// Serialises JSON as it is: numbers keep their digits. What is not an object becomes an empty one.
fn as_json<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let raw = RawValue::from_string(text.trim().to_owned());
    match raw.ok().filter(|raw| raw.get().starts_with('{')) {
        Some(raw) => raw.serialize(serializer),
        None => json!({}).serialize(serializer),
    }
}

/// The tokens of a message.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "MessageUsage")]
pub(crate) struct Usage {
    /// Tokens of the prompt that were computed.
    input_tokens: usize,
    output_tokens: usize,
    /// Tokens of the prompt that cost more because they are written to a cache; no tokens do here.
    cache_creation_input_tokens: usize,
    /// Tokens of the prompt that were found in the prefix cache. The beginning of a stream does not know them yet, and
    /// counts them as computed.
    cache_read_input_tokens: usize,
}

/// A message as clients receive it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Message")]
pub(crate) struct MessageJson<'m> {
    id: &'m str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'m str,
    content: Vec<&'m Block>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'m str>,
    usage: Usage,
}

impl Message {
    pub fn new(head: MessageHead) -> Message {
        Message {
            head,
            id: object_id("msg"),
            blocks: vec![],
        }
    }

    /// Returns the message so far, or all of it once it has `ended`.
    pub fn json(&self, ended: Option<Ended>) -> MessageJson<'_> {
        MessageJson {
            id: &self.id,
            kind: "message",
            role: "assistant",
            model: &self.head.model,
            // Arguments that were cut off are no object, and an empty one would be another call.
            content: self.blocks.iter().filter(|block| !block.is_cut_call()).collect(),
            stop_reason: ended.map(|ended| self.stop_reason(ended)),
            stop_sequence: ended.and_then(|ended| self.stop_sequence(ended)),
            usage: self.usage(ended),
        }
    }

    fn usage(&self, ended: Option<Ended>) -> Usage {
        let cached = ended.map_or(0, |ended| ended.cached_tokens.min(self.head.input_tokens));
        Usage {
            input_tokens: self.head.input_tokens - cached,
            output_tokens: ended.map_or(0, |ended| ended.tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
        }
    }

    fn stop_reason(&self, ended: Ended) -> &'static str {
        let is_call = |block: &Block| matches!(block, Block::ToolUse { .. }) && !block.is_cut_call();
        let calls = self.blocks.iter().any(is_call);
        match ended.finish {
            Finish::Length | Finish::Context => "max_tokens",
            _ if calls => "tool_use",
            Finish::StopString => "stop_sequence",
            Finish::Stop | Finish::Interrupted => "end_turn",
        }
    }

    /// The string that ended it.
    fn stop_sequence(&self, ended: Ended) -> Option<&str> {
        self.head.stops.get(ended.stop?).map(String::as_str)
    }

    /// Returns the event that begins the stream.
    pub fn begin(&self) -> Value {
        json!({"type": "message_start", "message": self.json(None)})
    }

    /// Returns the events that end the stream.
    pub fn end(&self, ended: Ended) -> Vec<Value> {
        let delta = json!({"stop_reason": self.stop_reason(ended), "stop_sequence": self.stop_sequence(ended)});
        let mut events = self.close();
        events.push(json!({"type": "message_delta", "delta": delta, "usage": self.usage(Some(ended))}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    /// Adds a piece. Returns the events that report it.
    pub fn add(&mut self, piece: AnswerPiece) -> Vec<Value> {
        let mut events = vec![];
        let delta = match piece {
            AnswerPiece::Reasoning(piece) => {
                if !matches!(self.blocks.last(), Some(Block::Thinking { .. })) {
                    events = self.start(Block::Thinking {
                        thinking: String::new(),
                        signature: SIGNATURE,
                    });
                }
                if let Some(Block::Thinking { thinking, .. }) = self.blocks.last_mut() {
                    thinking.push_str(&piece);
                }
                json!({"type": "thinking_delta", "thinking": piece})
            }
            AnswerPiece::Text(piece) => {
                if !matches!(self.blocks.last(), Some(Block::Text { .. })) {
                    events = self.start(Block::Text { text: String::new() });
                }
                if let Some(Block::Text { text }) = self.blocks.last_mut() {
                    text.push_str(&piece);
                }
                json!({"type": "text_delta", "text": piece})
            }
            AnswerPiece::Call { name, .. } => {
                let (id, input) = (new_call_id(), String::new());
                return self.start(Block::ToolUse { id, name, input });
            }
            AnswerPiece::Arguments(piece) => {
                if let Some(Block::ToolUse { input, .. }) = self.blocks.last_mut() {
                    input.push_str(&piece);
                }
                json!({"type": "input_json_delta", "partial_json": piece})
            }
        };
        events
            .push(json!({"type": "content_block_delta", "index": self.blocks.len().saturating_sub(1), "delta": delta}));
        events
    }

    /// Starts a block after the one before.
    fn start(&mut self, block: Block) -> Vec<Value> {
        let mut events = self.close();
        let mut begun = json!(block);
        // Like the text, the signature comes in a delta.
        if let Some(signature) = begun.get_mut("signature") {
            *signature = "".into();
        }
        events.push(json!({"type": "content_block_start", "index": self.blocks.len(), "content_block": begun}));
        self.blocks.push(block);
        events
    }

    /// Returns the events that end the last block, if there is one.
    fn close(&self) -> Vec<Value> {
        let Some((last, before)) = self.blocks.split_last() else {
            return vec![];
        };
        let index = before.len();
        let mut events = vec![];
        if let Block::Thinking { signature, .. } = last {
            let delta = json!({"type": "signature_delta", "signature": signature});
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stops: &[&str]) -> Message {
        Message::new(MessageHead {
            model: "m".to_owned(),
            input_tokens: 3,
            stops: stops.iter().map(|stop| stop.to_string()).collect(),
        })
    }

    fn ended(finish: Finish, stop: Option<usize>) -> Ended {
        Ended {
            finish,
            tokens: 9,
            cached_tokens: 2,
            reasoning_tokens: 1,
            stop,
        }
    }

    fn call(arguments: &[&str]) -> Vec<AnswerPiece> {
        let call = AnswerPiece::Call {
            name: "f".to_owned(),
            id: None,
        };
        let arguments = arguments.iter().map(|piece| AnswerPiece::Arguments(piece.to_string()));
        std::iter::once(call).chain(arguments).collect()
    }

    #[test]
    fn a_call_that_was_cut_off_is_no_block_of_a_whole_message() {
        for (arguments, blocks) in [(&[][..], 0), (&["{\"x\":"], 0), (&["{\"x\":", "1}"], 1)] {
            let mut message = message(&[]);
            call(arguments).into_iter().for_each(|piece| drop(message.add(piece)));
            let whole = serde_json::to_value(message.json(Some(ended(Finish::Length, None)))).unwrap();
            assert_eq!(whole["content"].as_array().map(Vec::len), Some(blocks), "{whole}");
        }
    }

    #[test]
    fn pieces_become_blocks_whole_and_as_events() {
        let mut message = message(&[]);
        let texts = ["a", "b"].map(|text| AnswerPiece::Text(text.to_owned()));
        let pieces = std::iter::once(AnswerPiece::Reasoning("hm".to_owned())).chain(texts);
        let pieces: Vec<AnswerPiece> = pieces.chain(call(&["{\"x\":", "1}"])).collect();
        let mut events: Vec<Value> = pieces.into_iter().flat_map(|piece| message.add(piece)).collect();
        let ended = ended(Finish::Stop, None);
        events.extend(message.end(ended));
        let kinds: Vec<String> = events
            .iter()
            .map(|event| format!("{} {}", event["type"].as_str().unwrap(), event["index"]))
            .collect();
        let expected = [
            "content_block_start 0",
            "content_block_delta 0",
            "content_block_delta 0",
            "content_block_stop 0",
            "content_block_start 1",
            "content_block_delta 1",
            "content_block_delta 1",
            "content_block_stop 1",
            "content_block_start 2",
            "content_block_delta 2",
            "content_block_delta 2",
            "content_block_stop 2",
            "message_delta null",
            "message_stop null",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(events[0]["content_block"]["signature"], "");
        let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
        assert_eq!(events[2]["delta"], signature);
        assert_eq!(events[9]["delta"]["partial_json"], "{\"x\":");
        assert_eq!(events[8]["content_block"]["input"], json!({}));
        let whole = json!(message.json(Some(ended)));
        assert_eq!(whole["content"][0]["signature"], SIGNATURE);
        assert_eq!(whole["content"][1], json!({"type": "text", "text": "ab"}));
        assert_eq!(whole["content"][2]["input"], json!({"x": 1}));
        let usage = json!({
            "input_tokens": 1,
            "output_tokens": 9,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
        });
        assert_eq!((&whole["stop_reason"], &whole["usage"]), (&json!("tool_use"), &usage));
        assert_eq!(events[12]["usage"], usage, "a stream reports the input tokens too");
    }

    #[test]
    fn the_stop_sequence_that_was_found_is_reported() {
        let message = message(&["END", "STOP"]);
        let whole = json!(message.json(Some(ended(Finish::StopString, Some(1)))));
        assert_eq!(
            (&whole["stop_reason"], &whole["stop_sequence"]),
            (&json!("stop_sequence"), &json!("STOP"))
        );
        let whole = json!(message.json(Some(ended(Finish::Stop, None))));
        assert_eq!(
            (&whole["stop_reason"], &whole["stop_sequence"]),
            (&json!("end_turn"), &Value::Null)
        );
    }

    #[test]
    fn numbers_of_arguments_keep_their_digits() {
        for (arguments, expected) in [
            (
                "{\"id\": 98765432109876543210}",
                "\"input\":{\"id\": 98765432109876543210}",
            ),
            ("", "\"content\":[],\"stop_reason\":\"end_turn\""),
            ("{\"cut\": ", "\"content\":[],\"stop_reason\":\"end_turn\""),
        ] {
            let mut message = message(&[]);
            call(&[arguments])
                .into_iter()
                .for_each(|piece| drop(message.add(piece)));
            let text = serde_json::to_string(&message.json(Some(ended(Finish::Stop, None)))).unwrap();
            assert!(text.contains(expected), "{text}");
        }
    }
}
