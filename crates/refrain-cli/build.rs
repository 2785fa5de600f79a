//! Facts of the build for `refrain --version`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = |arguments: &[&str]| output("git", arguments, &repository);
    // Sources may come without their history: then the commit is not told.
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| repository.join(".git").exists());
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustc = output(&rustc, &["--version"], &repository);
    tell("REFRAIN_COMMIT", commit.as_deref().unwrap_or(""));
    tell("REFRAIN_TARGET", &env::var("TARGET").unwrap_or_default());
    tell("REFRAIN_PROFILE", &env::var("PROFILE").unwrap_or_default());
    tell("REFRAIN_RUSTC", rustc.as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=build.rs");
    // This file grows with every commit, and with every change of branch.
    if let Some(path) = git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|path| repository.join(path))
        && path.exists()
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn tell(name: &str, value: &str) {
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
