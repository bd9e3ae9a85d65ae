//! The engine makes of every input what it made of it when `tests/engine/digests.tsv` was recorded (`make shares WHAT=digests`).

use spand_engine_tests::digests::{file, inputs, lines, recorded};

#[test]
fn the_engine_makes_of_every_input_what_was_recorded() {
    // The recordings with the kernel's account are the largest by far: a fourth of them, and all by `make shares WHAT=digests`.
    let largest = |number: usize, name: &str| name.starts_with("truth/") && !number.is_multiple_of(4);
    let (recorded, inputs) = (recorded(&file()).unwrap(), inputs().unwrap());
    let inputs: Vec<_> = inputs
        .into_iter()
        .enumerate()
        .filter(|(number, (name, _))| !largest(*number, name))
        .map(|(_, input)| input)
        .collect();
    let lines = lines(&inputs, &|_| {}).unwrap();
    let differ: Vec<&str> =
        lines.iter().filter(|(name, now)| recorded.get(name) != Some(now)).map(|(name, _)| name.as_str()).collect();
    assert!(lines.len() >= 16 + 75, "{} inputs", lines.len());
    assert!(
        differ.is_empty(),
        "the engine makes something else of {} of {} inputs; `make shares WHAT=digests ARGS=\"--only NAME --show FOLDER\"` writes what: {differ:?}",
        differ.len(),
        lines.len()
    );
}
