//! The program on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use serde_json::json;

use crate::reasoning::reasoning_model;
use crate::serve::Server;
use crate::support::{Copy, refrain};

const TIMEOUT: Duration = Duration::from_secs(120);

/// The program on a terminal of its own, and its output so far.
struct Terminal {
    keyboard: File,
    written: Receiver<Vec<u8>>,
    text: String,
    /// Bytes of `text` that were matched.
    seen: usize,
    child: Child,
}

impl Terminal {
    fn new(arguments: &[&str]) -> Self {
        Self::with(&[], arguments)
    }

    /// With environment variables.
    fn with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let size = Winsize {
            ws_row: 50,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = refrain(arguments);
        command.env("REFRAIN_DEVICE", "cpu").env("TERM", "xterm");
        command.envs(variables.iter().copied());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut screen = keyboard.try_clone().unwrap();
        let (sender, written) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading a terminal after its writers closed it is an error.
            while let Ok(read @ 1..) = screen.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            keyboard,
            written,
            text: String::new(),
            seen: 0,
            child,
        }
    }

    fn chat(arguments: &[&str]) -> Self {
        Self::new(&[&["chat", "demo", "--temp", "0", "--no-history"], arguments].concat())
    }

    /// Types without waiting.
    fn types(&mut self, keys: impl AsRef<[u8]>) {
        self.keyboard.write_all(keys.as_ref()).unwrap();
    }

    /// Waits until the program writes `expected` after the last match.
    #[track_caller]
    fn shows(&mut self, expected: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(at) = self.text[self.seen..].find(expected) {
                self.seen += at + expected.len();
                return;
            }
            match self.written.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) => panic!("no {expected:?} in time in {:?}", self.text),
                Err(RecvTimeoutError::Disconnected) => panic!("no {expected:?} in {:?}", self.text),
            }
        }
    }

    /// Waits for the end; returns all output.
    #[track_caller]
    fn ends(mut self) -> String {
        let status = self.child.wait().unwrap();
        while let Ok(bytes) = self.written.recv_timeout(TIMEOUT) {
            self.text.push_str(&String::from_utf8_lossy(&bytes));
        }
        assert_eq!(status.code(), Some(0), "{:?}", self.text);
        std::mem::take(&mut self.text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn answers_lines_typed_while_the_model_loads() {
    let mut terminal = Terminal::chat(&[]);
    terminal.types("What is 12 + 30?\nWhat is 5 + 4?\n/exit\n");
    terminal.shows("12 + 30 = 42");
    terminal.shows("5 + 4 = 9");
    terminal.ends();
}

#[test]
fn answers_lines_typed_at_once_one_by_one() {
    let mut terminal = Terminal::chat(&[]);
    terminal.shows(">>> ");
    terminal.types("What is 12 + 30?\rWhat is 5 + 4?\rWhat is 1 + 1?\r/exit\r");
    for answer in ["12 + 30 = 42", "5 + 4 = 9", "1 + 1 = 2"] {
        terminal.shows(answer);
    }
    terminal.ends();
}

#[test]
fn bracketed_paste_is_one_message() {
    let mut terminal = Terminal::chat(&[]);
    // Bracketed paste is enabled.
    terminal.shows("\x1b[?2004h");
    terminal.shows(">>> ");
    terminal.types("\x1b[200~What is\r12 + 30?\\\x1b[201~\r");
    terminal.shows("time to first token");
    terminal.types("/stats\r");
    terminal.shows("2 messages");
    terminal.types("\x1b[200~\"\"\"\rWhat is 12 + 30?\r\"\"\"\x1b[201~\r");
    terminal.shows("12 + 30 = 42");
    terminal.types("/stats\r");
    terminal.shows("4 messages");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn invalid_utf8_drops_the_line_and_keeps_the_conversation() {
    let mut terminal = Terminal::chat(&["What is 12 + 30?"]);
    terminal.shows("12 + 30 = 42");
    terminal.shows(">>> ");
    for bytes in [&b"\xff"[..], b"caf\xe9\r", b"\xc3\x28", b"\xf0\x9f\x98\r"] {
        terminal.types(bytes);
        terminal.shows("not UTF-8");
        terminal.shows(">>> ");
    }
    terminal.types("What is 5 + 4?\r");
    terminal.shows("5 + 4 = 9");
    terminal.types("/stats\r");
    terminal.shows("4 messages");
    // The text before the invalid byte can be restored.
    terminal.types(b"What is 1 + 1?\xff");
    terminal.shows("up arrow");
    terminal.types("\x1b[A\r");
    terminal.shows("1 + 1 = 2");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn full_context_drops_old_turns_and_can_be_enlarged() {
    let mut terminal = Terminal::chat(&["--ctx", "60"]);
    for sum in 1..6 {
        terminal.types(format!("What is {sum} + 30?\r"));
        terminal.shows(&format!("{sum} + 30 = {}", sum + 30));
    }
    terminal.shows("no longer sees");
    terminal.types("/ctx 200\r");
    terminal.shows("now 200 tokens");
    terminal.types("/ctx 5000\r");
    terminal.shows("/ctx 1024 or less");
    terminal.types("What is 5 + 4?\r");
    terminal.shows("5 + 4 = 9");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn on_full_stop_ends_the_response() {
    let mut terminal = Terminal::chat(&["--ctx", "30", "--on-full", "stop"]);
    terminal.types("What is 12 + 30?\r");
    terminal.shows("12 + 30 = ");
    terminal.types("What is 5 + 4?\r");
    terminal.shows("the context holds 30");
    terminal.types("/set on-full shift\rWhat is 5 + 4?\r");
    terminal.shows("5 + 4 = ");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn run_without_a_prompt_starts_a_chat() {
    let mut terminal = Terminal::new(&["run", "demo", "--temp", "0"]);
    terminal.shows(">>> ");
    terminal.types("What is 12 + 30?\r");
    terminal.shows("12 + 30 = 42");
    terminal.shows(">>> ");
    terminal.types("\x04");
    terminal.ends();
}

#[test]
fn changes_and_shows_settings() {
    let mut terminal = Terminal::chat(&[]);
    terminal.types("/set temp 0.25\r/set seed 7\r/set parameter num_predict 2\r/set\r");
    for line in ["temperature", "0.25", "seed", "7", "max-tokens", "2"] {
        terminal.shows(line);
    }
    terminal.types("/set mood fine\r");
    terminal.shows("unknown setting mood");
    terminal.types("/set top-p 2\r");
    terminal.shows("error: invalid value '2'");
    terminal.types("/set think\rhi\r");
    terminal.shows("no switch for reasoning");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn reasoning_and_statistics_are_dimmed() {
    let model = reasoning_model();
    let mut terminal = Terminal::new(&["chat", model.path(), "--temp", "0", "--no-history"]);
    terminal.types("What is 12 + 30?\r/exit\r");
    terminal.shows("\x1b[2m");
    terminal.shows("12");
    terminal.shows("\x1b[0m\r\n\r\n42\r\n");
    terminal.shows("\x1b[2m");
    terminal.shows("tokens/s");
    let text = terminal.ends();
    assert!(!text.contains("think>"), "{text:?}");
    assert_eq!(text.matches("time to first token").count(), 1, "{text:?}");
}

/// The demo model, which says " **is**" for " =".
fn emphatic() -> Copy {
    let copy = Copy::of("../../demo/model");
    copy.change_json("tokenizer.json", |tokenizer| {
        let byte_level = tokenizer["decoder"].take();
        let replace = json!({"type": "Replace", "pattern": {"String": " ="}, "content": " **is**"});
        tokenizer["decoder"] = json!({"type": "Sequence", "decoders": [byte_level, replace]});
    });
    copy
}

#[test]
fn renders_markdown() {
    let model = emphatic();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut terminal = Terminal::new(&["chat", model.path(), "--temp", "0", "--no-history"]);
    terminal.types("What is 12 + 30?\r");
    terminal.shows("12 + 30");
    terminal.shows("\x1b[1mis\x1b[0m");
    terminal.shows(" 42\r\n");
    terminal.types(format!("/save {}\r", file.path().display()));
    terminal.shows("saved");
    terminal.types("/set nomarkdown\r/regenerate\r");
    terminal.shows("12 + 30 **is** 42\r\n");
    terminal.types("/exit\r");
    terminal.ends();
    let saved = std::fs::read_to_string(file.path()).unwrap();
    assert!(saved.contains("12 + 30 **is** 42"), "{saved}");
}

#[test]
fn prints_plain_text_without_markdown_rendering() {
    let model = emphatic();
    let question = "What is 12 + 30?";
    let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
    let cases = [
        (("LANG", "C"), question, "--no-markdown"),
        (("LANG", "C"), &prompt, "--raw"),
        (("NO_COLOR", "1"), question, "--no-think"),
        (("TERM", "dumb"), question, "--no-think"),
    ];
    for (variable, prompt, option) in cases {
        let arguments = ["run", model.path(), prompt, "--temp", "0", option];
        let mut terminal = Terminal::with(&[variable], &arguments);
        terminal.shows("12 + 30 **is** 42");
        terminal.ends();
    }
}

#[test]
fn top_refreshes_in_place_until_ctrl_c() {
    let server = Server::start(&["--alias", "watched"]);
    let address = format!("http://{}", server.address);
    let mut terminal = Terminal::new(&["top", &address, "--interval", "0.2"]);
    terminal.shows("RUNNING");
    terminal.shows("watched");
    // The cursor moves two lines up.
    terminal.shows("\x1b[2A");
    terminal.shows("watched");
    drop(server);
    terminal.shows("cannot connect");
    let sent = Command::new("kill")
        .args(["-INT", &terminal.child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let text = terminal.ends();
    assert!(!text.contains("has a bug"), "{text:?}");
}
