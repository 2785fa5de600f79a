//! Exports build information for `refrain --version` as environment variables.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = |arguments: &[&str]| output("git", arguments, &repository);
    // Sources may come without a repository. Then the commit is left empty.
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| repository.join(".git").exists());
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustc = output(&rustc, &["--version"], &repository);
    export("REFRAIN_COMMIT", commit.as_deref().unwrap_or(""));
    export("REFRAIN_TARGET", &env::var("TARGET").unwrap_or_default());
    export("REFRAIN_PROFILE", &env::var("PROFILE").unwrap_or_default());
    export("REFRAIN_RUSTC", rustc.as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=build.rs");
    // This file changes with every commit and checkout.
    if let Some(path) = git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|path| repository.join(path))
        && path.exists()
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn export(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

fn output(program: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
