//! What a pause's file holds over restarts, whatever the clocks do.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn opened(path: &Path) -> Pause {
    Pause::open(path, Clock::start()).unwrap()
}

fn left_s(pause: &Pause) -> Option<u64> {
    match pause.pausing() {
        Pausing::Paused { ends: Some(ends) } => Some(ends.since(pause.clock.now()).0.div_ceil(1_000_000)),
        _ => None,
    }
}

/// A record with some of its fields replaced, as an agent reads it.
fn reread(path: &Path, changes: &[(&str, serde_json::Value)]) -> Pause {
    let text = fs::read_to_string(path).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, value) in changes {
        record[*name] = value.clone();
    }
    fs::write(path, record.to_string()).unwrap();
    opened(path)
}

#[test]
fn a_pause_outlasts_the_agent_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pause.json");
    let mut first = opened(&path);
    assert_eq!(first.pausing(), Pausing::Active);
    first.pause(None).unwrap();
    let mut next = opened(&path);
    assert_eq!((next.pausing(), next.until()), (Pausing::Paused { ends: None }, None));
    assert!(next.resume().unwrap());
    assert!(!next.resume().unwrap(), "it is not paused any more");
    assert_eq!(opened(&path).pausing(), Pausing::Active);
}

#[test]
fn its_end_holds_in_the_same_boot_whatever_the_wall_clock_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pause.json");
    let mut first = opened(&path);
    first.pause(Some(HOUR)).unwrap();
    let until = first.until().unwrap();
    assert!(until.ends_with('Z'), "{until}");
    let next = opened(&path);
    assert_eq!(next.until().as_ref(), Some(&until));
    assert!((3_599..=3_601).contains(&left_s(&next).unwrap()));
    // The wall clock was set by years in either direction meanwhile.
    for stepped in ["1999-01-01T00:00:00Z", "2199-01-01T00:00:00Z"] {
        let next = reread(&path, &[("paused_until", stepped.into())]);
        assert!((3_599..=3_601).contains(&left_s(&next).unwrap()), "{stepped}");
    }
}

#[test]
fn after_a_reboot_the_wall_clock_decides_and_prolongs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pause.json");
    opened(&path).pause(Some(HOUR)).unwrap();
    let other_boot = ("boot_id", serde_json::json!("another"));
    let soon = rfc3339_unix_s(clock::wall_unix_s() + 60);
    assert!((59..=61).contains(&left_s(&reread(&path, &[other_boot.clone(), ("paused_until", soon.into())])).unwrap()));
    // A host without a clock of its own begins long before the end.
    let far = ("paused_until", serde_json::json!("2199-01-01T00:00:00Z"));
    assert!(left_s(&reread(&path, &[other_boot.clone(), far])).unwrap() <= 3_601);
    let past = ("paused_until", serde_json::json!("2001-01-01T00:00:00Z"));
    assert_eq!(reread(&path, &[other_boot, past]).pausing(), Pausing::Active);
    assert!(!path.exists(), "a pause that has ended leaves no file");
}

#[test]
fn a_damaged_file_is_set_aside_and_advice_stays_paused() {
    for text in [
        "",
        "\0\0",
        "{}",
        "{\"format\":2}",
        "{\"format\":1,\"paused_since\":\"x\",\"paused_until\":\"never\",\
         \"length_s\":5,\"boot_id\":null,\"ends_boot_ns\":null}",
        &"x".repeat(10_000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pause.json");
        fs::write(&path, text).unwrap();
        assert_eq!(opened(&path).pausing(), Pausing::Paused { ends: None }, "{text}");
        assert_eq!(fs::read_to_string(path.with_extension("damaged")).unwrap(), text);
        // The next agent reads what took its place.
        assert_eq!(opened(&path).pausing(), Pausing::Paused { ends: None }, "{text}");
    }
}

#[test]
fn a_pause_that_cannot_be_written_is_in_effect_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut pause = opened(&folder.path().join("none/pause.json"));
    let error = pause.pause(None).unwrap_err().to_string();
    assert!(error.contains("none/pause.json"), "{error}");
    assert!(pause.pausing().is_paused());
}

#[test]
fn a_length_is_bounded_and_a_bad_one_gets_one_sentence() {
    for (text, seconds) in [("90s", 90), ("1h30m", 5_400), ("2days", 172_800), ("366days", MOST.as_secs())] {
        assert_eq!(parse_length(text), Ok(Duration::from_secs(seconds)), "{text}");
    }
    for bad in ["", "0s", "999ms", "5", "-1h", "tomorrow", "367days", "99999999999999999999years"] {
        let error = parse_length(bad).unwrap_err();
        assert!(error.contains("from 1s to 366days") && !error.contains('\n'), "{bad}: {error}");
    }
}
