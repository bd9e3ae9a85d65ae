//! What becomes of files that are not sound.

use super::*;

#[test]
fn what_stands_before_the_damage_counts_and_other_files_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (sound, cut, text) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
    capture(&sound, 3);
    capture(&cut, 5);
    let whole = fs::read(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() - 7]).unwrap();
    fs::write(&text, "no capture").unwrap();
    let report = replay(options(&[&cut, &text, &sound]), &mut States::default()).unwrap();
    assert_eq!(report.counters.frames, 4 + 3);
    let packets: Vec<_> = report.files.iter().map(|file| file.stats.packets).collect();
    assert_eq!(packets, [4, 0, 3]);
    assert!(matches!(report.files[0].outcome, Outcome::Damaged(_)) && !report.files[0].gave_nothing());
    assert!(matches!(report.files[1].outcome, Outcome::Unreadable(_)) && report.files[1].gave_nothing());
    assert!(report.files[2].fault().is_none());
}

#[test]
fn an_empty_but_sound_capture_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    capture(&path, 0);
    let report = replay(options(&[&path]), &mut States::default()).unwrap();
    assert!(report.span.is_none() && !report.files[0].gave_nothing());
}
