//! The items of a response as they are generated, and the events that report them.
//!
//! The order of an item's events is that of OpenAI's API: the item is added, its content part is added, deltas, the
//! text is done, the part is done, the item is done.

use refrain_text::dialects::AnswerPiece;
use serde_json::{Value, json};

use super::items;
use crate::openai::tools::{OfferedTool, ToolKind, ToolSet, custom_input};
use crate::openai::{new_call_id, object_id};

/// Items so far.
pub(super) struct Output {
    items: Vec<Value>,
    tools: ToolSet,
    /// Whether there may be several calls.
    several: bool,
    /// Whether reasoning comes with content that clients can send back.
    encrypts_reasoning: bool,
    /// Log-probabilities of the tokens of the next piece.
    logprobs: Vec<Value>,
    /// Whether more may come of the last item.
    is_open: bool,
    /// What the call that is open stands for, and its arguments so far.
    call: Option<(OfferedTool, String)>,
    /// Whether a further call is dropped, because only one is allowed.
    is_full: bool,
}

/// Where an item has its text, and what its events are called.
struct TextKind {
    item: &'static str,
    id: &'static str,
    part: &'static str,
}

const REASONING: TextKind = TextKind {
    item: "reasoning",
    id: "rs",
    part: "reasoning_text",
};
const TEXT: TextKind = TextKind {
    item: "message",
    id: "msg",
    part: "output_text",
};

impl Output {
    pub fn new(tools: ToolSet, several: bool, encrypts_reasoning: bool) -> Output {
        Output {
            items: vec![],
            tools,
            several,
            encrypts_reasoning,
            logprobs: vec![],
            is_open: false,
            call: None,
            is_full: false,
        }
    }

    /// Returns the items.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// Takes log-probabilities of the tokens of the next piece.
    pub fn add_logprobs(&mut self, entries: Vec<Value>) {
        self.logprobs.extend(entries);
    }

    /// Takes a piece. Returns the events that follow.
    pub fn take(&mut self, piece: AnswerPiece) -> Vec<Value> {
        match piece {
            AnswerPiece::Reasoning(piece) => self.text(&REASONING, piece),
            AnswerPiece::Text(piece) => self.text(&TEXT, piece),
            AnswerPiece::Call { name, .. } => self.begin_call(&name),
            AnswerPiece::Arguments(piece) => self.arguments(&piece).into_iter().collect(),
        }
    }

    fn text(&mut self, kind: &TextKind, piece: String) -> Vec<Value> {
        let mut events = vec![];
        if !self.is_open || self.items.last().is_none_or(|item| item["type"] != kind.item) {
            events = self.close();
            let id = object_id(kind.id);
            let mut item = json!({"id": id, "type": kind.item, "status": "in_progress", "content": []});
            match kind.item {
                "message" => item["role"] = "assistant".into(),
                _ => item["summary"] = json!([]),
            }
            events.push(self.open(item));
            let part = match kind.part {
                "output_text" => json!({"type": kind.part, "text": "", "annotations": [], "logprobs": []}),
                _ => json!({"type": kind.part, "text": ""}),
            };
            events.push(self.part_event("response.content_part.added", "part", part.clone()));
            self.last()["content"] = json!([part]);
        }
        let entries = std::mem::take(&mut self.logprobs);
        let part = &mut self.last()["content"][0];
        if let Value::String(text) = &mut part["text"] {
            text.push_str(&piece);
        }
        // Reasoning has no log-probabilities.
        if let Some(Value::Array(all)) = part.get_mut("logprobs") {
            all.extend(entries.iter().cloned());
        }
        let mut event = self.part_event(&format!("response.{}.delta", kind.part), "delta", piece.into());
        if kind.part == "output_text" {
            event["logprobs"] = entries.into();
        }
        events.push(event);
        events
    }

    fn begin_call(&mut self, function: &str) -> Vec<Value> {
        self.logprobs.clear();
        let mut events = self.close();
        let is_call = |item: &Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call"));
        if !self.several && self.items.iter().any(is_call) {
            self.is_full = true;
            return events;
        }
        let tool = self
            .tools
            .tool(function)
            .cloned()
            .unwrap_or_else(|| OfferedTool::function(function));
        let (kind, id) = match tool.kind {
            ToolKind::Function => ("function_call", "fc"),
            ToolKind::Custom => ("custom_tool_call", "ctc"),
            ToolKind::LocalShell => ("local_shell_call", "lsh"),
        };
        let mut item = json!({"id": object_id(id), "type": kind, "status": "in_progress", "call_id": new_call_id()});
        match tool.kind {
            ToolKind::Function => {
                item["name"] = tool.name.clone().into();
                item["arguments"] = "".into();
            }
            ToolKind::Custom => {
                item["name"] = tool.name.clone().into();
                item["input"] = "".into();
            }
            ToolKind::LocalShell => item["action"] = shell_action("{}"),
        }
        if let Some(namespace) = &tool.namespace {
            item["namespace"] = namespace.clone().into();
        }
        events.push(self.open(item));
        self.call = Some((tool, String::new()));
        events
    }

    fn arguments(&mut self, piece: &str) -> Option<Value> {
        self.logprobs.clear();
        let (tool, arguments) = self.call.as_mut()?;
        arguments.push_str(piece);
        // Others are known once they are complete.
        if tool.kind != ToolKind::Function {
            return None;
        }
        let arguments = arguments.clone();
        self.last()["arguments"] = arguments.into();
        let mut event = self.item_event("response.function_call_arguments.delta");
        event["delta"] = piece.into();
        Some(event)
    }

    /// Returns the item that came last. There must be one.
    fn last(&mut self) -> &mut Value {
        self.items.last_mut().expect("an item is open")
    }

    fn open(&mut self, item: Value) -> Value {
        let event = json!({"type": "response.output_item.added", "output_index": self.items.len(), "item": item});
        self.items.push(item);
        self.is_open = true;
        event
    }

    /// Ends the item that is open, because another one follows or the answer is complete. Returns the events that
    /// follow.
    pub fn close(&mut self) -> Vec<Value> {
        self.close_as("completed")
    }

    /// Ends the item that is open where the answer was cut off. Returns the events that follow.
    pub fn cut(&mut self) -> Vec<Value> {
        self.close_as("incomplete")
    }

    fn close_as(&mut self, status: &str) -> Vec<Value> {
        if !std::mem::take(&mut self.is_open) {
            return vec![];
        }
        let rest = std::mem::take(&mut self.logprobs);
        let last = self.last();
        last["status"] = status.into();
        if let Some(Value::Array(all)) = last.pointer_mut("/content/0/logprobs") {
            all.extend(rest);
        }
        let mut events = match self.call.take() {
            Some((tool, arguments)) => self.close_call(&tool, &arguments),
            None => self.close_text(),
        };
        let (index, item) = (self.items.len() - 1, self.last().clone());
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        events
    }

    fn close_call(&mut self, tool: &OfferedTool, arguments: &str) -> Vec<Value> {
        match tool.kind {
            ToolKind::Function => {
                self.last()["arguments"] = arguments.into();
                let mut done = self.item_event("response.function_call_arguments.done");
                done["name"] = tool.name.clone().into();
                done["arguments"] = arguments.into();
                vec![done]
            }
            ToolKind::Custom => {
                let input = custom_input(arguments);
                self.last()["input"] = input.clone().into();
                let mut delta = self.item_event("response.custom_tool_call_input.delta");
                delta["delta"] = input.clone().into();
                let mut done = self.item_event("response.custom_tool_call_input.done");
                done["input"] = input.into();
                vec![delta, done]
            }
            ToolKind::LocalShell => {
                self.last()["action"] = shell_action(arguments);
                vec![]
            }
        }
    }

    fn close_text(&mut self) -> Vec<Value> {
        let part = self.last()["content"][0].clone();
        let Some(kind) = part["type"].as_str() else {
            return vec![];
        };
        if kind == REASONING.part && self.encrypts_reasoning {
            let text = part["text"].as_str().unwrap_or_default();
            self.last()["encrypted_content"] = items::encrypted(text).into();
        }
        let mut done = self.part_event(&format!("response.{kind}.done"), "text", part["text"].clone());
        if kind == TEXT.part {
            done["logprobs"] = part["logprobs"].clone();
        }
        vec![
            done,
            self.part_event("response.content_part.done", "part", part.clone()),
        ]
    }

    /// Returns an event of the item that came last.
    fn item_event(&self, name: &str) -> Value {
        let index = self.items.len() - 1;
        json!({"type": name, "item_id": self.items[index]["id"], "output_index": index})
    }

    /// Returns an event of its text.
    fn part_event(&self, name: &str, field: &str, value: Value) -> Value {
        let mut event = self.item_event(name);
        event["content_index"] = 0.into();
        event[field] = value;
        event
    }
}

/// Returns what a call of the local shell executes.
fn shell_action(arguments: &str) -> Value {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let command = match &arguments["command"] {
        Value::String(command) => json!(["sh", "-c", command]),
        Value::Array(command) => command.clone().into(),
        _ => json!([]),
    };
    json!({
        "type": "exec",
        "command": command,
        "env": {},
        "timeout_ms": arguments["timeout_ms"],
        "user": null,
        "working_directory": arguments["working_directory"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> AnswerPiece {
        AnswerPiece::Call {
            name: name.to_owned(),
            id: None,
        }
    }

    fn arguments(text: &str) -> AnswerPiece {
        AnswerPiece::Arguments(text.to_owned())
    }

    fn events(output: &mut Output, pieces: Vec<AnswerPiece>) -> Vec<Value> {
        let mut events: Vec<Value> = pieces.into_iter().flat_map(|piece| output.take(piece)).collect();
        events.extend(output.close());
        events
    }

    fn names(events: &[Value]) -> Vec<&str> {
        let names = events.iter().map(|event| event["type"].as_str().unwrap());
        names.map(|name| name.strip_prefix("response.").unwrap()).collect()
    }

    #[test]
    fn events_are_in_the_documented_order() {
        let mut output = Output::new(ToolSet::default(), true, true);
        let text = |text: &str| AnswerPiece::Text(text.to_owned());
        let pieces = vec![
            AnswerPiece::Reasoning("hm".to_owned()),
            text("a"),
            text("b"),
            call("f"),
            arguments("{}"),
        ];
        let events = events(&mut output, pieces);
        let expected = [
            "output_item.added",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        ];
        assert_eq!(names(&events), expected);
        assert_eq!(output.items()[1]["content"][0]["text"], "ab");
        assert!(output.items()[0]["encrypted_content"].is_string());
    }

    #[test]
    fn calls_are_items_of_the_tools_that_they_stand_for() {
        let tools = json!([
            {"type": "custom", "name": "say"},
            {"type": "local_shell"},
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "wait"}]},
        ]);
        let tools = ToolSet::of_responses(tools.as_array().unwrap()).unwrap();
        let mut output = Output::new(tools, true, false);
        let pieces = vec![
            call("say"),
            arguments("{\"input\":"),
            arguments(" \"a\\nb\"}"),
            call("local_shell"),
            arguments("{\"command\": [\"ls\"], \"timeout_ms\": 5}"),
            call("agents__wait"),
        ];
        let events = events(&mut output, pieces);
        let expected = [
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
            "output_item.added",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.done",
            "output_item.done",
        ];
        assert_eq!(names(&events), expected);
        let [say, shell, wait] = output.items() else {
            panic!("{:?}", output.items())
        };
        assert_eq!(
            (&say["type"], &say["input"]),
            (&json!("custom_tool_call"), &json!("a\nb"))
        );
        assert_eq!(
            (&shell["action"]["command"], &shell["action"]["timeout_ms"]),
            (&json!(["ls"]), &json!(5))
        );
        assert_eq!((&wait["name"], &wait["namespace"]), (&json!("wait"), &json!("agents")));
        // It was cut off before its arguments began.
        assert_eq!(wait["arguments"], "");
    }

    #[test]
    fn an_item_that_was_cut_off_is_incomplete() {
        let mut output = Output::new(ToolSet::default(), true, false);
        output.take(AnswerPiece::Text("a".to_owned()));
        output.take(call("f"));
        let events = output.cut();
        assert_eq!(names(&events), ["function_call_arguments.done", "output_item.done"]);
        assert_eq!(events[1]["item"]["status"], "incomplete");
        assert_eq!(output.items()[0]["status"], "completed");
        assert_eq!(output.items()[1]["arguments"], "", "no arguments are made up");
    }

    #[test]
    fn a_second_call_is_dropped_where_one_is_allowed() {
        let mut output = Output::new(ToolSet::default(), false, false);
        events(
            &mut output,
            vec![call("f"), arguments("{\"x\": 1}"), call("g"), arguments("{}")],
        );
        assert_eq!(output.items().len(), 1);
        assert_eq!(output.items()[0]["arguments"], "{\"x\": 1}");
    }
}
