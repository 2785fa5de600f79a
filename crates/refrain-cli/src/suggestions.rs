//! Suggestions for users of other programs: what to type for their commands and options.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use refrain_models::demo;

/// Commands of other programs, and the suggestion for each.
const SUGGESTIONS: [(&[&str], &str); 18] = [
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
        "use `refrain run MODEL \"PROMPT\"` to generate text",
    ),
    (
        &["talk", "interactive"],
        "use `refrain chat MODEL` for an interactive chat",
    ),
    (
        &["server", "api"],
        "use `refrain serve MODEL` to serve the OpenAI, Anthropic and Ollama HTTP APIs",
    ),
    (
        &["unload", "kill"],
        "a model stays loaded while its command runs: `refrain ps` lists servers, `refrain stop` stops one",
    ),
    (
        &["show", "info", "describe", "gguf-dump"],
        "use `refrain inspect MODEL` to show a model, and `refrain devices` to list devices",
    ),
    (
        &[
            "quantize",
            "quantise",
            "convert-hf-to-gguf",
            "convert-hf-to-gguf-py",
            "export",
        ],
        "use `refrain convert MODEL OUT --format q4_k_m` to quantise or convert; `refrain convert --help` lists the formats",
    ),
    (
        &["perplexity", "ppl", "evaluate"],
        "use `refrain eval MODEL --text FILE` to measure perplexity, and --against MODEL2 for the KL divergence",
    ),
    (
        &["benchmark", "batched-bench"],
        "use `refrain bench MODEL -p 512 -n 128` to measure speed, and -b 1,8 for batches",
    ),
    (
        &["download", "get", "fetch", "install"],
        "use `refrain pull ORG/NAME[:QUANT]` to download a model",
    ),
    (
        &["models", "manage", "search"],
        "use `refrain list` to show downloaded models and `refrain rm NAME` to remove one; find models at \
         https://huggingface.co/models",
    ),
    (
        &["remove", "delete", "uninstall"],
        "use `refrain rm NAME` to remove a downloaded model",
    ),
    (
        &["create", "cp", "copy"],
        "models are plain files or directories without a registry of named settings: pass settings as options of \
         `refrain run` and `refrain chat`",
    ),
    (
        &["push", "upload", "login", "logout", "signin", "signout"],
        "uploading is not supported; for gated models set HF_TOKEN, or log in with `hf auth login`",
    ),
    (
        &["lora", "train", "finetune", "fuse", "imatrix", "awq", "gptq", "dwq"],
        "training is not supported; `refrain convert` quantises without calibration",
    ),
    (
        &["embed", "embedding", "embeddings", "rerank"],
        "use `refrain serve MODEL`, which serves embeddings at /v1/embeddings and /api/embed",
    ),
    (
        &["gpus", "device", "list-devices"],
        "use `refrain devices` to list devices, and `refrain doctor` to test them",
    ),
    (
        &["gguf-split", "split", "merge"],
        "split GGUF files need no merging: pass any part as MODEL",
    ),
    (
        &["cache-prompt"],
        "use `refrain run MODEL --save-state FILE` to save the processed prompt, and --load-state to continue from it",
    ),
];

/// Rewrites `help`, `help COMMAND` and `version` into the corresponding options.
pub(crate) fn normalise_arguments(mut arguments: Vec<OsString>) -> Vec<OsString> {
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

/// A suggestion to print instead of `error`, if it is about a known word of another program.
pub(crate) fn for_error(error: &clap::Error) -> Option<String> {
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
    names_model.then(|| format!("unknown option {word}; pass the model as an argument, as in `refrain run MODEL`"))
}

fn command(word: &str) -> Option<String> {
    let plain = word.to_lowercase().replace(['_', '.'], "-");
    let plain = ["llama-", "mlx-lm-"]
        .iter()
        .find_map(|family| plain.strip_prefix(family))
        .unwrap_or(&plain);
    let known = SUGGESTIONS.iter().find(|(words, _)| words.contains(&plain));
    let suggestion = match known {
        Some((_, suggestion)) => (*suggestion).to_owned(),
        None if is_model(word) => format!("pass a model to a command, as in `refrain run {word} \"PROMPT\"`"),
        None => return None,
    };
    Some(format!("unknown command `{word}`; {suggestion}"))
}

/// Whether a word looks like a MODEL argument.
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
    fn help_and_version_work_as_commands() {
        for (typed, means) in [
            (&["refrain", "help"][..], &["refrain", "--help"][..]),
            (&["refrain", "help", "run"], &["refrain", "run", "--help"]),
            (&["refrain", "help", "run", "demo"], &["refrain", "run", "--help"]),
            (&["refrain", "version"], &["refrain", "--version"]),
            (&["refrain", "run", "help"], &["refrain", "run", "help"]),
            (&["refrain"], &["refrain"]),
        ] {
            assert_eq!(normalise_arguments(words(typed)), words(means));
        }
    }

    #[test]
    fn no_suggestion_is_for_a_command_of_this_program() {
        let command = crate::command();
        for word in SUGGESTIONS.iter().flat_map(|(words, _)| *words) {
            assert!(command.find_subcommand(word).is_none(), "{word}");
        }
    }

    #[test]
    fn commands_in_suggestions_exist() {
        for (_, suggestion) in SUGGESTIONS {
            for named in suggestion.split("`refrain ").skip(1) {
                let name = named.split([' ', '`']).next().unwrap();
                assert!(crate::command().find_subcommand(name).is_some(), "{suggestion}");
            }
        }
    }
}
