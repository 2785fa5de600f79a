//! Blocks of Anthropic's messages that are text.

use serde_json::Value;

use crate::error::Refusal;

/// Whether a block of an earlier answer is of a tool that Anthropic's servers ran.
pub(super) fn is_server_block(kind: &str) -> bool {
    matches!(kind, "server_tool_use" | "mcp_tool_use") || kind.ends_with("_tool_result")
}

/// Returns the text of a block. `place` is where it stands, for errors.
///
/// # Errors
/// A block that is not text.
pub(super) fn text(place: &str, block: &Value) -> Result<String, Refusal> {
    let refuse = |what: String| {
        Err(Refusal::field(
            "messages",
            format!("{place} has {what}; only text is supported"),
        ))
    };
    let kind = block["type"].as_str();
    let field = match kind {
        Some("text") => &block["text"],
        Some("compaction") => &block["content"],
        Some("tool_reference") => &block["tool_name"],
        Some("search_result") => return texts(place, &block["content"]),
        Some("document") => match (block["source"]["type"].as_str(), &block["source"]) {
            (Some("text"), source) => &source["data"],
            (Some("content"), source) => return texts(place, &source["content"]),
            (kind, _) => return refuse(format!("a document of the type {:?}", kind.unwrap_or_default())),
        },
        Some(kind) => return refuse(format!("a block of the type {kind:?}")),
        None => return refuse("a block without a type".to_owned()),
    };
    match field.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => refuse(format!(
            "a block of the type {:?} without text",
            kind.unwrap_or_default()
        )),
    }
}

/// Returns the text of a text or of blocks.
fn texts(place: &str, content: &Value) -> Result<String, Refusal> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => blocks.iter().map(|block| text(place, block)).collect(),
        _ => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_and_search_results_of_text_are_text() {
        for block in [
            json!({"type": "text", "text": "abc", "citations": null, "cache_control": {"type": "ephemeral"}}),
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}}),
            json!({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "abc"}]}}),
            json!({"type": "search_result", "source": "x", "title": "t", "content": [{"type": "text", "text": "abc"}]}),
            json!({"type": "tool_reference", "tool_name": "abc"}),
        ] {
            assert_eq!(text("message 0", &block).unwrap(), "abc", "{block}");
        }
    }

    #[test]
    fn other_blocks_are_refused_by_their_type() {
        for (block, why) in [
            (json!({"type": "image", "source": {"type": "base64"}}), "image"),
            (json!({"type": "document", "source": {"type": "base64"}}), "base64"),
            (json!({"type": "text"}), "without text"),
            (json!({"text": "a"}), "without a type"),
            (json!("a"), "without a type"),
        ] {
            let error = text("message 3", &block).unwrap_err().to_string();
            assert!(
                error.starts_with("messages: message 3 has ") && error.contains(why),
                "{error}"
            );
        }
    }
}
