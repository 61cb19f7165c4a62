//! `docs/config.md` lists exactly the keys that the parser knows: its tables come from the parser's
//! own key table.

use std::path::Path;

const BEGIN: &str = "<!-- begin keys: written from the parser's key table -->\n";
const END: &str = "<!-- end keys -->\n";

#[test]
fn docs_list_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = std::fs::read_to_string(&path).expect("docs/config.md is there");
    let begin = text.find(BEGIN).expect("docs/config.md has the begin mark") + BEGIN.len();
    let end = text.find(END).expect("docs/config.md has the end mark");
    let fresh = format!("\n{}", weir_config::key_reference());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let updated = format!("{}{fresh}{}", &text[..begin], &text[end..]);
        std::fs::write(&path, updated).expect("docs/config.md can be written");
        return;
    }
    assert!(
        text[begin..end] == fresh,
        "docs/config.md is not up to date; run: UPDATE_DOCS=1 cargo test -p weir-config reference"
    );
}
