//! The engine makes of every input what it made of it when `tests/digests.tsv` was recorded (`make digests`).

use spand_tests::digests::{file, inputs, lines, recorded};

#[test]
fn the_engine_makes_of_every_input_what_was_recorded() {
    let (recorded, inputs) = (recorded(&file()).unwrap(), inputs().unwrap());
    let lines = lines(&inputs, &|_| {}).unwrap();
    let differ: Vec<&str> =
        lines.iter().filter(|(name, now)| recorded.get(name) != Some(now)).map(|(name, _)| name.as_str()).collect();
    assert!(lines.len() >= 16 + 82, "{} inputs", lines.len());
    assert!(
        differ.is_empty(),
        "the engine makes something else of {} of {} inputs; `make digests ARGS=\"--only NAME --show FOLDER\"` writes what: {differ:?}",
        differ.len(),
        lines.len()
    );
}
