//! The command lines of coding agents, started by `refrain launch`: the scripted model asks for a command, the agent
//! runs it and sends the result, and the model answers.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::frameworks::{keep_offline, scripted_model};
use super::{NPM, Server, succeeds};
use crate::support::refrain;

const REQUEST: &str = "Write the file.";
const ANSWER: &str = "The file holds the words.";

/// Folders of an agent: an empty home, and a project in which it works.
struct Folders(TempDir);

impl Folders {
    /// `None` if the agents are not installed.
    fn new() -> Option<Folders> {
        if !NPM.are_installed_with(&["node"]) {
            return None;
        }
        let folders = tempfile::tempdir().expect("a folder");
        for name in ["home", "project", "run"] {
            fs::create_dir(folders.path().join(name)).expect("a folder");
        }
        Some(Folders(folders))
    }

    /// The program without the variables of its caller, which may be an agent itself.
    fn refrain(&self, arguments: &[&str]) -> Command {
        let mut command = refrain(arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env_clear();
        keep_offline(&mut command, &self.0.path().join("home"));
        command.env(
            "PATH",
            format!("{}:{path}", NPM.path().join("node_modules/.bin").display()),
        );
        command.env("XDG_RUNTIME_DIR", self.0.path().join("run"));
        command.env("HF_HUB_OFFLINE", "1").env("REFRAIN_DEVICE", "cpu");
        command.current_dir(self.0.path().join("project"));
        command
    }

    /// Removes the file that the agent has written.
    fn take_file(&self) {
        let path = self.0.path().join("project/made.txt");
        assert_eq!(fs::read_to_string(&path).expect("the file"), "a lost key\n");
        fs::remove_file(path).expect("the file");
    }

    /// Starts the agent with and without a running server. Returns the lines of JSON that it prints.
    fn outputs(&self, agent: &str, arguments: &[&str]) -> Vec<Vec<Value>> {
        let model = scripted_model();
        let alone = succeeds(self.refrain(&[&["launch", agent, model.path(), "-q", "--"], arguments].concat()));
        self.take_file();
        let server = self.refrain(&["serve", model.path(), "--alias", "scripted", "--port", "0", "-q"]);
        let _server = Server::of(server);
        let shared = succeeds(self.refrain(&[&["launch", agent, "--"], arguments].concat()));
        self.take_file();
        let json = |line: &str| serde_json::from_str(line).expect(line);
        [alone, shared].map(|text| text.lines().map(json).collect()).into()
    }
}

#[test]
fn codex_runs_a_command_and_gets_the_answer() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let Some(folders) = Folders::new() else { return };
    let arguments = [
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        REQUEST,
    ];
    for events in folders.outputs("codex", &arguments) {
        let items: Vec<&Value> = (events.iter())
            .filter(|event| event["type"] == "item.completed")
            .map(|event| &event["item"])
            .collect();
        let command = items
            .iter()
            .find(|item| item["type"] == "command_execution")
            .expect("a command");
        assert_eq!(
            (&command["exit_code"], &command["aggregated_output"]),
            (&0.into(), &"a lost key\n".into())
        );
        let message = items
            .iter()
            .find(|item| item["type"] == "agent_message")
            .expect("an answer");
        assert_eq!(message["text"], ANSWER);
        let end = events.last().expect("an event");
        assert_eq!(end["type"], "turn.completed", "{events:?}");
        assert!(end["usage"]["output_tokens"].as_u64() > Some(4), "{end}");
    }
}

#[test]
fn claude_code_runs_a_command_and_gets_the_answer() {
    if !refrain_testing::drawn(24) {
        return;
    }
    let Some(folders) = Folders::new() else { return };
    let arguments = [
        "-p",
        REQUEST,
        "--allowedTools",
        "Bash",
        "--output-format",
        "stream-json",
        "--verbose",
    ];
    for events in folders.outputs("claude", &arguments) {
        let result = (events.iter())
            .filter(|event| event["type"] == "user")
            .find_map(|event| event["message"]["content"].get(0).cloned())
            .expect("a tool's result");
        assert_eq!(
            (&result["content"], &result["is_error"]),
            (&"a lost key".into(), &false.into())
        );
        let end = events.last().expect("an event");
        assert_eq!(
            (&end["result"], &end["num_turns"]),
            (&ANSWER.into(), &2.into()),
            "{end}"
        );
        assert!(end["usage"]["output_tokens"].as_u64() > Some(4), "{end}");
    }
}
