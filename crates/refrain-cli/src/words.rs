//! Words that people type who come from other programs.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::demo;

/// Commands of other programs, and what to type for them here.
const WORDS: [(&[&str], &str); 18] = [
    (
        &[
            "generate",
            "complete",
            "completion",
            "cli",
            "infer",
            "ask",
            "prompt",
            "simple",
        ],
        "`refrain run MODEL \"PROMPT\"` generates text",
    ),
    (&["talk", "interactive"], "`refrain chat MODEL` talks, turn by turn"),
    (
        &["server", "api"],
        "`refrain serve MODEL` answers many clients at once, by OpenAI's, Anthropic's and Ollama's HTTP",
    ),
    (
        &["unload", "kill"],
        "a model stays in memory as long as its command runs: `refrain ps` lists the servers, `refrain stop` ends one",
    ),
    (
        &["show", "info", "describe", "gguf-dump"],
        "`refrain inspect MODEL` describes a model, and `refrain devices` this computer",
    ),
    (
        &[
            "quantize",
            "quantise",
            "convert-hf-to-gguf",
            "convert-hf-to-gguf-py",
            "export",
        ],
        "`refrain convert MODEL OUT --format q4_k_m` quantises and converts; `refrain convert --help` lists the formats",
    ),
    (
        &["perplexity", "ppl", "evaluate"],
        "`refrain eval MODEL --text FILE` measures the perplexity, with --against MODEL2 the divergence too",
    ),
    (
        &["benchmark", "batched-bench"],
        "`refrain bench MODEL -p 512 -n 128` measures speed, -b 1,8 of several sequences at once",
    ),
    (
        &["download", "get", "fetch", "install"],
        "`refrain pull ORG/NAME[:QUANT]` downloads a model",
    ),
    (
        &["models", "manage", "search"],
        "`refrain list` shows what has been downloaded, and `refrain rm NAME` removes it; there is a list of all \
         models at https://huggingface.co/models",
    ),
    (
        &["remove", "delete", "uninstall"],
        "`refrain rm NAME` removes a model that has been downloaded",
    ),
    (
        &["create", "cp", "copy"],
        "a model is a file or a folder, not an entry with a name and settings of its own: those are options of \
         `refrain run` and `refrain chat`",
    ),
    (
        &["push", "upload", "login", "logout", "signin", "signout"],
        "nothing is uploaded; for gated models set HF_TOKEN, or log in by `hf auth login`",
    ),
    (
        &["lora", "train", "finetune", "fuse", "imatrix", "awq", "gptq", "dwq"],
        "models are run and converted as they are, not trained; `refrain convert` quantises without calibration",
    ),
    (
        &["embed", "embedding", "embeddings", "rerank"],
        "`refrain serve MODEL` answers with embeddings at /v1/embeddings, and at /api/embed as Ollama does",
    ),
    (
        &["gpus", "device", "list-devices"],
        "`refrain devices` lists what can compute, and `refrain doctor` tests it",
    ),
    (
        &["gguf-split", "split", "merge"],
        "a split file needs no merging: give any part of it as MODEL",
    ),
    (
        &["cache-prompt"],
        "`refrain run MODEL --save-state FILE` keeps what the model has read, and --load-state goes on from there",
    ),
];

/// The command line with `help`, `help COMMAND` and `version` as the options that they mean.
pub(crate) fn meant(mut arguments: Vec<OsString>) -> Vec<OsString> {
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("version") => arguments[1] = "--version".into(),
        Some("help") => {
            arguments.remove(1);
            arguments.truncate(2);
            arguments.push("--help".into());
        }
        _ => {}
    }
    arguments
}

/// What to say instead of `error`, if it is about a word that other programs know.
pub(crate) fn instead(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => command(context(ContextKind::InvalidSubcommand)?),
        ErrorKind::UnknownArgument => option(context(ContextKind::InvalidArg)?),
        _ => None,
    }
}

fn option(word: &str) -> Option<String> {
    let names_model = ["-m", "--model", "-hf", "--hf", "--hf-repo"].contains(&word);
    names_model.then(|| {
        format!("there is no option {word} here; the model stands behind the command, as in `refrain run MODEL`")
    })
}

fn command(word: &str) -> Option<String> {
    let plain = word.to_lowercase().replace(['_', '.'], "-");
    let plain = ["llama-", "mlx-lm-"]
        .iter()
        .find_map(|family| plain.strip_prefix(family))
        .unwrap_or(&plain);
    let known = WORDS.iter().find(|(words, _)| words.contains(&plain));
    let advice = match known {
        Some((_, advice)) => (*advice).to_owned(),
        None if is_model(word) => format!("a model stands behind a command, as in `refrain run {word} \"PROMPT\"`"),
        None => return None,
    };
    Some(format!("there is no command `{word}`; {advice}"))
}

/// Whether a word looks like what a command calls MODEL.
fn is_model(word: &str) -> bool {
    word == demo::NAME
        || word.contains('/')
        || word.starts_with("synthetic:")
        || word.ends_with(".gguf")
        || Path::new(word).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    #[test]
    fn help_and_version_may_be_typed_as_commands() {
        for (typed, means) in [
            (&["refrain", "help"][..], &["refrain", "--help"][..]),
            (&["refrain", "help", "run"], &["refrain", "run", "--help"]),
            (&["refrain", "help", "run", "demo"], &["refrain", "run", "--help"]),
            (&["refrain", "version"], &["refrain", "--version"]),
            (&["refrain", "run", "help"], &["refrain", "run", "help"]),
            (&["refrain"], &["refrain"]),
        ] {
            assert_eq!(meant(words(typed)), words(means));
        }
    }

    #[test]
    fn no_advice_is_about_a_command_of_this_program() {
        let command = crate::command();
        for word in WORDS.iter().flat_map(|(words, _)| *words) {
            assert!(command.find_subcommand(word).is_none(), "{word}");
        }
    }

    #[test]
    fn commands_that_advice_names_exist() {
        for (_, advice) in WORDS {
            for named in advice.split("`refrain ").skip(1) {
                let name = named.split([' ', '`']).next().unwrap();
                assert!(crate::command().find_subcommand(name).is_some(), "{advice}");
            }
        }
    }
}
