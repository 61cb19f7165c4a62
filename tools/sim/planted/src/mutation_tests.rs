//! Mutations of a tree of a few lines: those that apply, and the errors of those that do not.

use super::*;

const PORTS: &str = "\
mod ports {
    fn take(&mut self) {
        self.used += 1;
        self.note();
    }
    fn give(&mut self) {
        self.used -= 1;
        self.note();
    }
}
";

fn tree() -> Tree {
    let mut tree = Tree::default();
    tree.set("dataplane/nat/Cargo.toml", "[package]\n\n[dependencies]\nserde = \"1\"\n".to_owned());
    tree.set("dataplane/nat/src/ports.rs", PORTS.to_owned());
    tree.set("dataplane/nat/src/other.rs", "fn other() {\n    rest();\n}\n".to_owned());
    tree
}

/// A mutation whose lines are in `file`.
fn mutation(name: &str, file: &str, lines: &str) -> Mutation {
    let text = format!("it is wrong\n\n--- a/{file}\n+++ b/{file}\n@@ -1,2 +3,4 @@ fn\n{lines}");
    Mutation::parse(name, &text).unwrap()
}

fn refusal(mutations: &[Mutation]) -> String {
    mutate(&tree(), mutations).unwrap_err().to_string()
}

#[test]
fn hunk_replaces_its_lines_whatever_their_indentation() {
    let lines = "-self.used += 1;\n+if !PLANTED { self.used += 1; }\n self.note();\n";
    let mutated =
        mutate(&tree(), &[mutation("Forgets", "dataplane/nat/src/ports.rs", lines)]).unwrap();
    let text = mutated.text("dataplane/nat/src/ports.rs").unwrap();
    assert!(text.contains("if !weir_planted::is(\"Forgets\") { self.used += 1; }\nself.note();\n"));
    assert_eq!(text.lines().count(), PORTS.lines().count());
    let manifest = mutated.text("dataplane/nat/Cargo.toml").unwrap();
    assert!(manifest.contains("[dependencies]\nweir-planted.workspace = true\nserde"));
    assert_eq!(
        mutated.text("dataplane/nat/src/other.rs"),
        tree().text("dataplane/nat/src/other.rs")
    );
}

#[test]
fn two_mutations_may_insert_beside_the_same_line() {
    let one = mutation("One", "dataplane/nat/src/ports.rs", "+one(PLANTED);\n self.used += 1;\n");
    let two = mutation("Two", "dataplane/nat/src/ports.rs", "+two(PLANTED);\n self.used += 1;\n");
    let mutated = mutate(&tree(), &[one, two]).unwrap();
    let text = mutated.text("dataplane/nat/src/ports.rs").unwrap();
    assert!(text.contains("one(weir_planted::is(\"One\"));\ntwo(weir_planted::is(\"Two\"));\n"));
    assert_eq!(
        mutated.text("dataplane/nat/Cargo.toml").unwrap().matches("weir-planted").count(),
        1
    );
}

#[test]
fn mutation_that_does_not_apply_is_reported_with_its_lines_and_remedy() {
    let here = "dataplane/nat/src/ports.rs";
    let cases = [
        (here, "-self.note();\n+PLANTED\n", "stand there 2 times, not once", "neighbouring line"),
        (here, "-self.gone();\n+PLANTED\n", "are not there any more", "as they are now"),
        (here, "-rest();\n+PLANTED\n", "have moved to dataplane/nat/src/other.rs", "behind +++"),
        ("a.rs", "-self.gone();\n+PLANTED\n", "have no such file", "behind +++"),
        ("a.rs", "-rest();\n+PLANTED\n", "have moved to dataplane/nat/src/other.rs", "behind +++"),
    ];
    for (file, lines, state, remedy) in cases {
        let text = refusal(&[mutation("Wrong", file, lines)]);
        let line = lines.lines().next().unwrap().strip_prefix('-').unwrap();
        for part in
            [&format!("Wrong: {file}"), state, remedy, line, "tools/sim/mutations/Wrong.patch"]
        {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}

#[test]
fn every_mutation_that_does_not_apply_is_reported() {
    let here = "dataplane/nat/src/ports.rs";
    let both = refusal(&[
        mutation("One", here, "-self.used += 1;\n+one(PLANTED);\n"),
        mutation("Two", here, "-self.used += 1;\n+two(PLANTED);\n"),
        mutation("Three", here, "-gone();\n+PLANTED\n"),
    ]);
    assert!(both.contains("mutation Two") && both.contains("changed by another mutation, too"));
    assert!(both.contains("mutation Three") && !both.contains("mutation One"));
}

#[test]
fn history_that_has_found_a_bug_is_read_from_its_patch() {
    let of = |seed: &str| {
        let text = format!("it is wrong\n{seed}\n--- a/f\n+++ b/f\n@@\n a\n+if PLANTED {{}}\n");
        Mutation::parse("Forgets", &text).map(|mutation| mutation.found_by)
    };
    assert_eq!((of("").unwrap(), of("seed: 341\n").unwrap()), (None, Some(341)));
    assert!(of("seed: first\n").is_err());
}

#[test]
fn patch_that_is_no_mutation_is_refused() {
    let cases = [
        ("+++ b/a.rs\n@@\n+PLANTED\n x\n", "one sentence"),
        ("wrong\n", "no hunk"),
        ("wrong\n@@\n x\n", "before the name of its file"),
        ("wrong\n+++ b/a.rs\n@@\n+PLANTED\n", "no line says where"),
        ("wrong\n+++ b/a.rs\n@@\n-x\n+y\n", "no added line of a hunk asks"),
        ("wrong\n+++ b/a.rs\n@@\nx\n", "begins with a blank, - or +"),
        ("wrong\nand more\n", "neither header nor hunk"),
    ];
    for (text, refusal) in cases {
        let text = Mutation::parse("Wrong", text).unwrap_err().to_string();
        assert!(text.contains(refusal), "{refusal:?} is not in {text}");
    }
}

#[test]
fn written_tree_replaces_changed_files_and_removes_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("copy");
    tree().write(&root).unwrap();
    assert_eq!(Tree::read(&root).unwrap(), tree());
    let time_of = |file| root.join(file).metadata().unwrap().modified().unwrap();
    let times = ["dataplane/nat/src/ports.rs", "dataplane/nat/Cargo.toml"].map(time_of);
    let mut next = Tree::default();
    for file in ["dataplane/nat/src/ports.rs", "dataplane/nat/Cargo.toml"] {
        next.set(file, tree().text(file).unwrap().to_owned());
    }
    next.set("dataplane/nat/src/more.rs", "fn more() {}\n".to_owned());
    next.write(&root).unwrap();
    assert_eq!(Tree::read(&root).unwrap(), next);
    assert_eq!(["dataplane/nat/src/ports.rs", "dataplane/nat/Cargo.toml"].map(time_of), times);
}
