//! The mutations of `tools/sim/mutations` apply to the present source tree.

use std::path::Path;

use weir_planted::{Mutation, Tree, mutate};

/// Fails within seconds; the build of the mutated tree would fail only after minutes.
#[test]
fn every_mutation_applies_to_the_source_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mutations = Mutation::read_all(&root.join("tools/sim/mutations")).unwrap();
    if let Err(error) = mutate(&Tree::read(&root).unwrap(), &mutations) {
        panic!("{error}");
    }
}
