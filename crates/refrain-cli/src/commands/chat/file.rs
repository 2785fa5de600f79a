//! Saves and loads conversations.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use refrain_formats::AtomicFile;
use refrain_text::Conversation;
use serde_json::{Map, Value};

use crate::input;

/// Reads a conversation: a JSON list of messages, or an object with them.
///
/// # Errors
/// If the file cannot be read, or has another format.
pub(super) fn load(path: &Path) -> anyhow::Result<Conversation> {
    let conversation = Conversation::from_json(&input::read_text(path)?);
    conversation.map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Path of the session state that belongs to a conversation file.
pub(super) fn state_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".state");
    name.into()
}

/// Writes a conversation as JSON that [`load`] and `refrain template --messages` read. The file is
/// replaced as a whole, or not at all.
///
/// # Errors
/// If it cannot be written.
pub(super) fn save(path: &Path, conversation: &Conversation) -> anyhow::Result<()> {
    let mut object: Map<String, Value> = conversation.variables.clone().into_iter().collect();
    object.insert("messages".to_owned(), conversation.messages.clone().into());
    for (key, list) in [("tools", &conversation.tools), ("documents", &conversation.documents)] {
        if let Some(list) = list {
            object.insert(key.to_owned(), list.clone().into());
        }
    }
    let text = format!("{:#}\n", Value::Object(object));
    Ok(AtomicFile::write(path, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn loads_what_was_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.json");
        let text = r#"{"enable_thinking": false, "messages": [{"role": "user", "content": "hé"}], "tools": []}"#;
        let conversation = Conversation::from_json(text).unwrap();
        for _ in 0..2 {
            save(&path, &conversation).unwrap();
            assert_eq!(load(&path).unwrap(), conversation);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/chat.json");
        let conversation = Conversation::from_prompt(None, "hi");
        assert!(
            save(&missing, &conversation)
                .unwrap_err()
                .to_string()
                .contains("no/chat.json")
        );
        assert!(load(&missing).unwrap_err().to_string().contains("no/chat.json"));
        let broken = folder.path().join("broken.json");
        fs::write(&broken, "{").unwrap();
        assert!(load(&broken).unwrap_err().to_string().contains("broken.json: "));
    }
}
