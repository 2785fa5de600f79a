//! Runs the commands of the help texts, the guide, README.md and ARCHITECTURE.md.

use std::fs;
use std::path::Path;

use refrain_testing::sample;

use crate::sandbox::Sandbox;
use crate::support::run;

/// Every command of the program.
pub fn commands() -> Vec<String> {
    let help = run(&["--help"]).done();
    let groups = help.split("Commands:\n").nth(1).unwrap();
    let names = groups
        .split("Options:\n")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 8, "{help}");
    names
}

/// The examples of a command's help, made small: measurements and random checkpoints of real sizes take
/// minutes and gigabytes.
fn examples(command: &str) -> Vec<String> {
    let help = run(&[command, "--help"]).done();
    let list = help
        .split("Examples:\n")
        .nth(1)
        .unwrap_or_else(|| panic!("{command} --help has no example"));
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let examples: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    assert!(!examples.is_empty(), "{command}");
    let sizes = ["qwen3-0.6b", "qwen3-8b", "llama-3.2-1b"];
    let small = |example: String| {
        let tiny = sizes.iter().fold(example, |text, size| text.replace(size, "tiny"));
        match command {
            // One repetition of each test.
            "bench" => tiny + " -r 1",
            "serve" => served(&tiny),
            // Agents are not installed.
            "launch" => {
                let printed = if tiny.contains("--print") {
                    tiny
                } else {
                    tiny.replacen("refrain launch", "refrain launch --print", 1)
                };
                beside_a_server(&format!("{printed}; kill -TERM $server"))
            }
            "stop" => beside_a_server(&tiny),
            "top" => beside_a_server(&format!("{tiny}; kill -TERM $server")),
            _ => tiny,
        }
    };
    examples.into_iter().map(small).collect()
}

/// An example behind which a server has ended that runs before.
fn beside_a_server(example: &str) -> String {
    let example = example.replace("8080", "$(sed 's/.*://' said)");
    format!(
        "refrain serve demo --port 0 > said & server=$!; until grep -q listening said; do kill -0 $server; sleep 0.1; done; \
         {example}; wait $server"
    )
}

/// An example of a server on a free port, which is told to end once it answers.
fn served(example: &str) -> String {
    let on_free_port = if example.contains("--port 0") {
        example.to_owned()
    } else {
        example.replace("--port 8000", "") + " --port 0"
    };
    format!(
        "{on_free_port} > said & server=$!; until grep -q listening said; do kill -0 $server; sleep 0.1; done; \
         kill -TERM $server; wait $server"
    )
}

#[test]
fn every_example_of_every_help_text_runs() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let found: usize = std::thread::scope(|scope| {
        let each = |command: String| {
            scope.spawn(move || {
                let examples = examples(&command);
                for example in sample(&examples, 6) {
                    assert!(example.starts_with("refrain "), "{example}");
                    let place = Sandbox::new();
                    if command == "rm" {
                        // What is removed must be there.
                        let pull = example.replace(" rm ", " pull ").replace(" --yes", "");
                        place.shell(&pull).done();
                    }
                    let outcome = place.shell(example);
                    assert_eq!(outcome.code, Some(0), "{example}: {outcome:?}");
                }
                examples.len()
            })
        };
        let running: Vec<_> = commands().into_iter().map(each).collect();
        running.into_iter().map(|command| command.join().unwrap()).sum()
    });
    assert!(found > 20, "{found}");
}

/// The blocks of a page: what stands after the fence, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = page.split("```").collect();
    assert!(parts.len() % 2 == 1, "a block is not closed");
    parts
        .iter()
        .skip(1)
        .step_by(2)
        .map(|block| block.split_once('\n').unwrap())
        .collect()
}

/// The program's command lines in the tables of a page, and its blocks of them.
fn scripts(name: &str, page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let in_tables = quoted.filter(|text| text.starts_with("refrain "));
    let blocks = blocks(page).into_iter().filter_map(|(kind, script)| match kind {
        "sh" => Some(script),
        // The text around it says why it does not run here.
        "sh,no-test" | "text" | "toml" | "rust,no_run" | "json" | "python" => None,
        other => panic!("{name}: a block of unknown kind {other:?}"),
    });
    in_tables.chain(blocks).map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_guide_run() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src");
    let summary = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let mut pages = vec![];
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in SUMMARY.md"
        );
        let scripts = scripts(&name, &fs::read_to_string(&path).unwrap());
        pages.push((name, scripts));
    }
    pages.sort();
    let found: usize = pages.iter().map(|(_, scripts)| scripts.len()).sum();
    assert!(found >= 40, "{found}");
    pages.retain(|(_, scripts)| !scripts.is_empty());
    // What stands on a page may need what stands before it.
    for (name, scripts) in sample(pages, 8) {
        let place = Sandbox::new();
        for script in scripts {
            let outcome = place.shell(&script);
            assert_eq!(outcome.code, Some(0), "{name}: {script}: {outcome:?}");
        }
    }
}

/// Commands of README.md and ARCHITECTURE.md that no test runs: they install, build a package, or run the tests.
const NOT_RUN: [&str; 4] = [
    "apt-get install g++",
    "cargo install --locked --path crates/refrain-cli",
    "ci/package",
    "ci/test",
];

/// The command lines of a page: those of its `sh` blocks, without their comments, and the code spans that begin with the
/// name of a program and an argument.
fn command_lines(page: &str) -> Vec<String> {
    let starts = [
        "refrain ",
        "cargo ",
        "python3 ",
        "pip ",
        "apt-get ",
        "mdbook ",
        "bench/load.py ",
    ];
    let is_command = |text: &str| starts.iter().any(|start| text.starts_with(start)) || NOT_RUN.contains(&text);
    let prose: String = page.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2);
    let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let scripts = blocks(page).into_iter().filter(|(kind, _)| *kind == "sh");
    let lines = scripts.flat_map(|(_, script)| script.lines());
    let lines = lines.map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned());
    lines.chain(spans.filter(|span| is_command(span))).collect()
}

/// A documented command as a test runs it: by the program that is built already, and with less to do.
fn made_small(command: &str) -> String {
    let command = command.replacen("cargo run --release -- ", "refrain ", 1);
    match command.split(' ').nth(1) {
        Some("run") if !command.contains(" -n ") => command + " -n 20",
        Some("bench") => command + " -r 1",
        Some("serve") => served(&command),
        _ => command,
    }
}

#[test]
fn the_commands_of_the_readme_and_of_the_architecture_run() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut not_named = NOT_RUN.to_vec();
    let mut found = 0;
    for name in ["README.md", "ARCHITECTURE.md"] {
        let sandbox = Sandbox::new();
        for command in command_lines(&fs::read_to_string(root.join(name)).unwrap()) {
            if NOT_RUN.contains(&command.as_str()) {
                not_named.retain(|known| *known != command);
                continue;
            }
            found += 1;
            let outcome = sandbox.shell(&made_small(&command));
            assert_eq!(outcome.code, Some(0), "{name}: {command}: {outcome:?}");
        }
    }
    assert!(found >= 8, "{found}");
    assert!(
        not_named.is_empty(),
        "no page names these, so they need no exception: {not_named:?}"
    );
}
