//! Words that comments do not use: see CONTRIBUTING.md, "Words".

use crate::source::{SourceFile, assert_none, rust_files};

/// A sentence of a comment does not begin so: its subject is a noun.
const OPENINGS: [&str; 8] =
    ["Who ", "Nobody ", "Of those ", "Of a ", "Told ", "Refused is", "By and by", "All the same"];

/// Not in a comment: a machine is "it", and each of the others has a plain word in its place.
const WORDS: [&str; 9] =
    ["he", "him", "his", "anew", "told", "nobody", "standstill", "mishap", "hearsay"];

/// The faults of a comment line without its marks: words, and openings of the sentences in it.
fn faults_of(text: &str) -> Vec<&'static str> {
    // A name in quotes is not prose.
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join("_");
    let mut words = prose.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
    let words: Vec<_> = words.by_ref().map(str::to_lowercase).collect();
    let banned = WORDS.into_iter().filter(|word| words.iter().any(|it| it == word));
    let opens = |sentence: &str| OPENINGS.into_iter().find(|opening| sentence.starts_with(opening));
    let openings = prose.split(". ").filter(|sentence| !sentence.contains('?')).filter_map(opens);
    banned.chain(openings).collect()
}

fn prose(line: &str) -> &str {
    line.trim_start().trim_start_matches('/').trim_start_matches('!').trim_start()
}

fn faults(file: &SourceFile) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in file.comments() {
        for word in faults_of(prose(line)) {
            faults.push(format!("{}:{number}: {word:?}: {}", file.path, prose(line)));
        }
    }
    faults
}

#[test]
fn comments_are_plain_sentences() {
    let faults: Vec<_> = rust_files().iter().flat_map(faults).collect();
    assert_none(
        &faults,
        "A sentence has a noun as its subject, a verb and an object; a worker is \"it\".",
    );
}

#[test]
fn a_banned_opening_is_found_behind_another_sentence() {
    assert_eq!(faults_of("The lane moves. Who has it asks him."), ["him", "Who "]);
    assert!(faults_of("Who holds the lane? The entry says.").is_empty());
    assert!(faults_of("The field `told` counts them.").is_empty());
}
