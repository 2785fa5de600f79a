//! Dependencies must have permissive licences and come from one registry.

use std::process::Command;

use serde_json::Value;

/// SPDX licences that require no more than a notice.
const ALLOWED: [&str; 11] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    // The data of webpki-roots: Mozilla's certificate list.
    "CDLA-Permissive-2.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression offers a choice whose licences are all allowed. AND binds tighter than OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> bool {
    let mut allowed = all(rest);
    while take(rest, "OR") {
        allowed |= all(rest);
    }
    allowed
}

fn all(rest: &mut &[&str]) -> bool {
    let mut allowed = one(rest);
    while take(rest, "AND") {
        allowed &= one(rest);
    }
    allowed
}

fn one(rest: &mut &[&str]) -> bool {
    if take(rest, "(") {
        let allowed = any(rest);
        return take(rest, ")") && allowed;
    }
    let Some((&name, after)) = rest.split_first() else {
        return false;
    };
    *rest = after;
    if take(rest, "WITH") {
        let Some((exception, after)) = rest.split_first() else {
            return false;
        };
        *rest = after;
        return ALLOWED.contains(&format!("{name} WITH {exception}").as_str());
    }
    ALLOWED.contains(&name)
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let found = rest.first() == Some(&word);
    if found {
        *rest = &rest[1..];
    }
    found
}

/// The packages that the workspace is built from on this system.
fn packages() -> Vec<Value> {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--filter-platform",
            host,
        ])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn all_packages_have_permissive_licences_and_one_registry() {
    let packages = packages();
    assert!(packages.len() > 150);
    let source = |package: &Value| package["source"].as_str().map(str::to_owned);
    let registry = packages.iter().find_map(source).unwrap();
    assert!(registry.starts_with("registry+"), "{registry}");
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        if !package["license"].as_str().is_some_and(is_allowed) {
            wrong.push(format!("{name}: licence {}", package["license"]));
        }
        if source(package).is_some_and(|source| source != registry) {
            wrong.push(format!("{name}: from {}", package["source"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn allows_an_expression_with_an_allowed_choice() {
    for expression in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0-only OR MIT",
        "(MIT OR GPL-2.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
        "Apache-2.0 AND ISC OR GPL-3.0-only",
    ] {
        assert!(is_allowed(expression), "{expression}");
    }
    for expression in [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT OR ISC) AND GPL-3.0-only",
        "Apache-2.0 WITH Other-exception",
        "MIT ISC",
        "(MIT",
        "",
    ] {
        assert!(!is_allowed(expression), "{expression}");
    }
}
