//! What people see who sit at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use serde_json::json;

use crate::serve::Server;
use crate::support::{Copy, refrain};
use crate::thinking::thinker;

const PATIENCE: Duration = Duration::from_secs(120);

/// The program at a terminal of its own, and what it wrote there so far.
struct Terminal {
    keyboard: File,
    written: Receiver<Vec<u8>>,
    text: String,
    /// How much of `text` was looked at.
    seen: usize,
    child: Child,
}

impl Terminal {
    fn new(arguments: &[&str]) -> Self {
        Self::with(&[], arguments)
    }

    /// With variables of the environment.
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
            // A terminal that nobody writes to any more is an error to read from.
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

    /// Types without waiting for anything.
    fn types(&mut self, keys: impl AsRef<[u8]>) {
        self.keyboard.write_all(keys.as_ref()).unwrap();
    }

    /// Waits until the program has written `expected`, behind what was waited for before.
    #[track_caller]
    fn shows(&mut self, expected: &str) {
        let end = Instant::now() + PATIENCE;
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

    /// Waits for the end; returns all that was written.
    #[track_caller]
    fn ends(mut self) -> String {
        let status = self.child.wait().unwrap();
        while let Ok(bytes) = self.written.recv_timeout(PATIENCE) {
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
fn lines_typed_while_the_model_loads_are_answered_one_by_one() {
    let mut terminal = Terminal::chat(&[]);
    terminal.types("What is 12 + 30?\nWhat is 5 + 4?\n/exit\n");
    terminal.shows("12 + 30 = 42");
    terminal.shows("5 + 4 = 9");
    terminal.ends();
}

#[test]
fn lines_pasted_at_once_are_answered_one_by_one() {
    let mut terminal = Terminal::chat(&[]);
    terminal.shows(">>> ");
    terminal.types("What is 12 + 30?\rWhat is 5 + 4?\rWhat is 1 + 1?\r/exit\r");
    for answer in ["12 + 30 = 42", "5 + 4 = 9", "1 + 1 = 2"] {
        terminal.shows(answer);
    }
    terminal.ends();
}

#[test]
fn lines_that_the_terminal_says_were_pasted_are_one_message() {
    let mut terminal = Terminal::chat(&[]);
    // The terminal is told that the program wants to know.
    terminal.shows("\x1b[?2004h");
    terminal.shows(">>> ");
    terminal.types("\x1b[200~What is\r12 + 30?\\\x1b[201~\r");
    terminal.shows("first token after");
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
fn a_byte_that_is_no_text_costs_a_line_and_not_the_conversation() {
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
    // What stood before the byte can be had again.
    terminal.types(b"What is 1 + 1?\xff");
    terminal.shows("up arrow");
    terminal.types("\x1b[A\r");
    terminal.shows("1 + 1 = 2");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn a_full_context_leaves_out_old_turns_and_may_be_made_longer() {
    let mut terminal = Terminal::chat(&["--ctx", "60"]);
    for sum in 1..6 {
        terminal.types(format!("What is {sum} + 30?\r"));
        terminal.shows(&format!("{sum} + 30 = {}", sum + 30));
    }
    terminal.shows("no longer sees");
    terminal.types("/ctx 200\r");
    terminal.shows("room for 200 tokens");
    terminal.types("/ctx 5000\r");
    terminal.shows("/ctx 1024 or less");
    terminal.types("What is 5 + 4?\r");
    terminal.shows("5 + 4 = 9");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn a_conversation_may_be_wished_to_end_when_the_context_is_full() {
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
fn a_model_without_a_prompt_talks() {
    let mut terminal = Terminal::new(&["run", "demo", "--temp", "0"]);
    terminal.shows(">>> ");
    terminal.types("What is 12 + 30?\r");
    terminal.shows("12 + 30 = 42");
    terminal.shows(">>> ");
    terminal.types("\x04");
    terminal.ends();
}

#[test]
fn settings_change_and_are_shown() {
    let mut terminal = Terminal::chat(&[]);
    terminal.types("/set temp 0.25\r/set seed 7\r/set parameter num_predict 2\r/set\r");
    for line in ["temperature", "0.25", "seed", "7", "max-tokens", "2"] {
        terminal.shows(line);
    }
    terminal.types("/set mood fine\r");
    terminal.shows("no setting mood");
    terminal.types("/set top-p 2\r");
    terminal.shows("error: invalid value '2'");
    terminal.types("/set think\rhi\r");
    terminal.shows("no switch for thinking");
    terminal.types("/exit\r");
    terminal.ends();
}

#[test]
fn thoughts_and_figures_step_back_behind_the_answer() {
    let model = thinker();
    let mut terminal = Terminal::new(&["chat", model.path(), "--temp", "0", "--no-history"]);
    terminal.types("What is 12 + 30?\r/exit\r");
    terminal.shows("\x1b[2m");
    terminal.shows("12");
    terminal.shows("\x1b[0m\r\n\r\n42\r\n");
    terminal.shows("\x1b[2m");
    terminal.shows("tokens/s");
    let text = terminal.ends();
    assert!(!text.contains("think>"), "{text:?}");
    assert_eq!(text.matches("first token after").count(), 1, "{text:?}");
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
fn answers_are_drawn_as_their_markdown_means() {
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
fn what_is_no_answer_or_not_to_be_drawn_is_shown_as_it_is() {
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
fn the_load_of_a_server_is_drawn_anew_in_its_place_until_ctrl_c() {
    let server = Server::start(&["--alias", "watched"]);
    let address = format!("http://{}", server.address);
    let mut terminal = Terminal::new(&["top", &address, "--interval", "0.2"]);
    terminal.shows("RUNNING");
    terminal.shows("watched");
    // Two lines up, and cleared.
    terminal.shows("\x1b[2A");
    terminal.shows("watched");
    drop(server);
    terminal.shows("does not answer");
    let sent = Command::new("kill")
        .args(["-INT", &terminal.child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let text = terminal.ends();
    assert!(!text.contains("bug"), "{text:?}");
}
