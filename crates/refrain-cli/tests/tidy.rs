//! The house rules, as far as a program can see them.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/words.rs"]
mod words;

const MAX_FILE_LINES: usize = 450;
const MAX_FUNCTION_LINES: usize = 80;

/// What each crate of the workspace may depend on (its tests may also use what stands after the bar).
const DIRECTIONS: [(&str, &[&str], &[&str]); 17] = [
    ("refrain-testing", &[], &[]),
    ("refrain-vulkan", &[], &[]),
    ("refrain-quant", &[], &["refrain-quant"]),
    (
        "refrain-kernels",
        &["refrain-quant"],
        &["refrain-testing", "refrain-vulkan"],
    ),
    (
        "refrain",
        &["refrain-kernels", "refrain-vulkan"],
        &["refrain-lm", "refrain-testing"],
    ),
    ("refrain-lm", &["refrain", "refrain-kernels"], &["refrain-vulkan"]),
    ("refrain-mlx", &["refrain", "refrain-kernels", "refrain-lm"], &[]),
    (
        "refrain-python",
        &[
            "refrain",
            "refrain-engine",
            "refrain-hub",
            "refrain-mlx",
            "refrain-models",
            // For a feature of it alone.
            "refrain-quant",
            "refrain-server",
            "refrain-vulkan",
        ],
        &[],
    ),
    ("refrain-formats", &["refrain-quant"], &[]),
    ("refrain-text", &["refrain-formats"], &[]),
    ("refrain-hub", &[], &[]),
    (
        "refrain-models",
        &["refrain", "refrain-formats", "refrain-lm", "refrain-text"],
        &["refrain-write"],
    ),
    (
        "refrain-write",
        &["refrain-formats", "refrain-models", "refrain-quant", "refrain-text"],
        &["refrain-testing"],
    ),
    (
        "refrain-engine",
        &[
            "refrain",
            "refrain-formats",
            "refrain-lm",
            "refrain-models",
            "refrain-text",
        ],
        &["refrain-testing", "refrain-vulkan"],
    ),
    (
        "refrain-grammar",
        &["refrain-engine", "refrain-text"],
        &["refrain-testing"],
    ),
    (
        "refrain-server",
        &[
            "refrain-engine",
            "refrain-formats",
            "refrain-grammar",
            "refrain-models",
            "refrain-text",
        ],
        &["refrain-testing"],
    ),
    (
        "refrain-cli",
        &[
            "refrain",
            "refrain-engine",
            "refrain-formats",
            "refrain-grammar",
            "refrain-hub",
            "refrain-lm",
            "refrain-models",
            "refrain-server",
            "refrain-text",
            "refrain-vulkan",
            "refrain-write",
        ],
        &["refrain-testing"],
    ),
];

/// The files that may speak to one kind of operating system, and say what the others do instead.
const PLATFORM_FILE: &str = "crates/refrain-formats/src/platform.rs";
const PLATFORM_FILES: [&str; 2] = [PLATFORM_FILE, "crates/refrain-server/src/platform.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file with one of the endings below `crates/`, with its text.
fn sources(endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|e| endings.iter().any(|&known| e == known))
            {
                let name = path
                    .strip_prefix(root())
                    .expect("below the root")
                    .to_string_lossy()
                    .into_owned();
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    found.sort();
    assert!(found.len() > 5, "the sources are not where they are looked for");
    found
}

/// The line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Where a line of the Rust files that are `meant` is one that may not be there: without its comment.
fn offenders(meant: impl Fn(&str) -> bool, is: impl Fn(&str) -> bool) -> Vec<String> {
    let files = sources(&["rs"]).into_iter().filter(|(name, _)| meant(name));
    files
        .flat_map(|(name, text)| {
            let lines = text.lines().enumerate().filter(|(_, line)| is(code(line)));
            lines.map(|(n, _)| format!("{name}:{}", n + 1)).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn unsafe_stands_only_in_the_vulkan_crate_and_where_files_are_mapped() {
    let is_word = |line: &str| {
        line.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == "unsafe")
    };
    let meant = |name: &str| {
        !name.starts_with("crates/refrain-vulkan/")
            && name != "crates/refrain-formats/src/mmap.rs"
            && name != "crates/refrain-python/src/interchange.rs"
            && name != PLATFORM_FILE
            && !name.ends_with("tests/tidy.rs")
    };
    let offenders = offenders(meant, is_word);
    assert!(offenders.is_empty(), "unsafe code in {offenders:?}");
}

#[test]
fn what_only_some_systems_have_stands_in_files_of_its_own() {
    let names = [
        "std::os::",
        "libc::",
        "nix::",
        "cfg(unix)",
        "cfg(windows)",
        "cfg(target_os",
    ];
    let meant = |name: &str| name.contains("/src/") && !PLATFORM_FILES.contains(&name);
    let offenders = offenders(meant, |line| names.iter().any(|system| line.contains(system)));
    assert!(offenders.is_empty(), "only for some systems: {offenders:?}");
}

#[test]
fn libraries_speak_of_no_switch_of_the_program() {
    let is_switch = |line: &str| {
        let behind = |start: &str| {
            line.split(start)
                .skip(1)
                .any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
        };
        behind(" --") || behind("(--")
    };
    let meant = |name: &str| name.contains("/src/") && !name.starts_with("crates/refrain-cli/");
    let offenders = offenders(meant, is_switch);
    assert!(
        offenders.is_empty(),
        "the program adds such hints (error_hints.rs): {offenders:?}"
    );
}

#[test]
fn libraries_do_what_they_are_told_whatever_the_environment_says() {
    let may = [
        "crates/refrain-cli/",
        "crates/refrain-hub/src/settings.rs",
        "crates/refrain-testing/",
    ];
    let meant = |name: &str| name.contains("/src/") && !may.iter().any(|start| name.starts_with(start));
    let offenders = offenders(meant, |line| line.contains("env::var"));
    assert!(offenders.is_empty(), "variables of the environment in {offenders:?}");
}

#[test]
fn crates_depend_only_downwards() {
    for (name, normal, testing) in DIRECTIONS {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("a manifest");
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or("");
            if !section.contains("dependencies") || !dependency.starts_with("refrain") {
                continue;
            }
            let allowed =
                normal.contains(&dependency) || (section == "[dev-dependencies]" && testing.contains(&dependency));
            assert!(allowed, "{name} must not depend on {dependency} in {section}");
        }
    }
}

/// The modules that a file of a crate's `src/` is: of `linear/matmul/mod.rs` `linear` and `matmul`.
fn modules(name: &str) -> Vec<&str> {
    let name = name.trim_end_matches(".rs").trim_end_matches("/mod");
    name.split('/').collect()
}

/// The room of the kernels' crate that a module lies in; within the products each module is one.
fn room(modules: &[&str]) -> String {
    let depth = if modules.first() == Some(&"linear") { 2 } else { 1 };
    modules[..depth.min(modules.len())].join("/")
}

#[test]
fn families_of_kernels_use_each_other_in_one_direction() {
    const SOURCES: &str = "crates/refrain-kernels/src/";
    let files: Vec<(String, String)> = sources(&["rs"])
        .into_iter()
        .filter_map(|(name, text)| Some((name.strip_prefix(SOURCES)?.to_owned(), text)))
        .filter(|(name, _)| name != "lib.rs")
        .collect();
    let all: Vec<Vec<&str>> = files.iter().map(|(name, _)| modules(name)).collect();
    // What `crate::NAME` leads to: a module there, or one that `lib.rs` names from within another.
    let found = |path: &[&str]| {
        let is_room = all.iter().any(|m| m[0] == path[0]);
        let nested = || all.iter().find(|m| m.len() > 1 && m[1] == path[0]).map(|m| room(m));
        if is_room { Some(room(path)) } else { nested() }
    };
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut uses: Vec<(String, String)> = Vec::new();
    for ((_, text), own) in files.iter().zip(&all) {
        let text: String = text.lines().map(|line| format!("{}\n", code(line))).collect();
        let above = &own[..own.len() - 1];
        for (start, base) in [("crate::", &[][..]), ("super::", above)] {
            for path in text.split(start).skip(1) {
                let group = path
                    .strip_prefix('{')
                    .map(|group| group.split('}').next().unwrap_or(""));
                for name in group
                    .unwrap_or(&path[..path.find([',', ';']).unwrap_or(path.len())])
                    .split(',')
                {
                    let names: Vec<String> = name.trim().splitn(3, "::").map(word).collect();
                    let names = names.iter().map(String::as_str).filter(|name| !name.is_empty());
                    let path: Vec<&str> = base.iter().copied().chain(names).collect();
                    let is_module = base.is_empty() || all.iter().any(|m| path.starts_with(m) && m.len() > base.len());
                    let target = (is_module && !path.is_empty()).then(|| found(&path)).flatten();
                    uses.extend(target.filter(|t| *t != room(own)).map(|target| (room(own), target)));
                }
            }
        }
    }
    uses.retain(|(from, _)| from != "linear");
    uses.sort_unstable();
    uses.dedup();
    assert!(uses.len() > 40, "uses are not where they are looked for: {uses:?}");
    // What nothing else uses is taken away until nothing is left.
    let mut left = uses;
    while let Some(top) = (left.iter().map(|edge| edge.0.clone())).find(|room| left.iter().all(|edge| edge.1 != *room))
    {
        left.retain(|edge| edge.0 != top);
    }
    assert!(left.is_empty(), "these use each other in a circle: {left:?}");
}

#[test]
fn files_have_one_subject_and_fit_the_screen_a_few_times() {
    let long: Vec<String> = sources(&["rs", "comp", "glsl"])
        .into_iter()
        .map(|(name, text)| (text.lines().count(), name))
        .filter(|(lines, _)| *lines > MAX_FILE_LINES)
        .map(|(lines, name)| format!("{name}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "split these: {long:#?}");
}

#[test]
fn functions_fit_the_screen() {
    let mut long = Vec::new();
    for (name, text) in sources(&["rs"]) {
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let words: Vec<&str> = code(line).split_whitespace().collect();
            if !words.contains(&"fn")
                || !words
                    .iter()
                    .take_while(|w| **w != "fn")
                    .all(|w| w.starts_with("pub") || *w == "const")
            {
                continue;
            }
            // The formatter puts a function's last brace under its first word.
            let end = format!("{}}}", " ".repeat(indent));
            let length = lines[start..].iter().position(|l| {
                *l == end || l.trim_end().ends_with(';') && code(l).len() - code(l).trim_start().len() == indent
            });
            if let Some(length) = length.filter(|&l| l > MAX_FUNCTION_LINES) {
                long.push(format!("{name}:{}: {length} lines", start + 1));
            }
        }
    }
    assert!(long.is_empty(), "split these: {long:#?}");
}
