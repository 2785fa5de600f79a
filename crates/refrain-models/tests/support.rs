//! The table of families in the guide, which is generated from their records.

use std::path::Path;

use refrain_models::FAMILIES;

const START: &str = "<!-- families: UPDATE=1 cargo test --workspace --test support -->\n";
const END: &str = "<!-- end of families -->\n";

fn table() -> String {
    let mut text = "\n| family | `model_type` | GGUF |\n|---|---|---|\n".to_owned();
    for family in FAMILIES {
        let gguf = family.gguf.map_or("–".to_owned(), |name| format!("`{name}`"));
        text += &format!("| {} | `{}` | {gguf} |\n", family.description, family.name);
    }
    text + "\n"
}

#[test]
fn guide_lists_all_families() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/models.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(START).expect("the list begins");
    let (found, after) = rest.split_once(END).expect("the list ends");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{before}{START}{}{END}{after}", table())).unwrap();
        return;
    }
    assert!(
        found == table(),
        "out of date: UPDATE=1 cargo test --workspace --test support"
    );
}
