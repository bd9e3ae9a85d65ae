//! What survives a crash, and what counts as damage.

use std::fs;

use spand_proto::units::Segments;

use super::entry::parse;
use super::*;

fn entry(n: u8) -> Entry {
    Entry {
        network: format!("192.0.{n}.0/24").parse().unwrap(),
        window: Segments(20),
        gateway: "10.1.0.1".parse().unwrap(),
        link: "eth0".to_owned(),
        old: "no route of its own".to_owned(),
        undo: format!("ip route del 192.0.{n}.0/24"),
        reason: "careful: share 40".to_owned(),
        lifetime_s: 60,
        made_unix_s: 1_767_225_600,
    }
}

fn networks(recorded: &Recorded) -> Vec<String> {
    match recorded {
        Recorded::Entries(entries) => entries.keys().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_on_the_disk_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let (mut ledger, _) = Ledger::open(&path).unwrap();
    let appended = spand_needs::without_sync(|| ledger.record(vec![entry(0)]));
    assert!(appended.unwrap_err().to_string().starts_with("cannot write the ledger"));
    let replaced = spand_needs::without_sync(|| replace(&path, "").map(drop));
    assert_eq!(replaced.unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn what_was_recorded_is_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let (mut ledger, before) = Ledger::open(&path).unwrap();
    assert_eq!(before, Recorded::Missing);
    ledger.record(vec![entry(0), entry(1), entry(2)]).unwrap();
    ledger.forget(&[entry(1).network], "withdrawn").unwrap();
    // Nothing is closed or flushed: this is what a killed process leaves.
    std::mem::forget(ledger);
    assert_eq!(networks(&read(&path).unwrap()), ["192.0.0.0/24", "192.0.2.0/24"]);
    let (ledger, after) = Ledger::open(&path).unwrap();
    assert_eq!(networks(&after), ["192.0.0.0/24", "192.0.2.0/24"]);
    assert_eq!(ledger.in_force().len(), 2);
}

#[test]
fn a_crash_at_any_byte_loses_whole_changes_from_the_end_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let (mut ledger, _) = Ledger::open(&path).unwrap();
    ledger.record(vec![entry(0), entry(1)]).unwrap();
    ledger.forget(&[entry(0).network], "withdrawn").unwrap();
    let text = fs::read(&path).unwrap();
    let first_line = text.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let mut seen = std::collections::BTreeSet::new();
    for end in first_line..=text.len() {
        seen.insert(networks(&parse(&text[..end])));
    }
    let expected: [&[&str]; 4] = [&[], &["192.0.0.0/24"], &["192.0.0.0/24", "192.0.1.0/24"], &["192.0.1.0/24"]];
    assert_eq!(seen.len(), 4);
    assert!(expected.iter().all(|state| seen.contains(&state.iter().map(ToString::to_string).collect::<Vec<_>>())));
}

#[test]
fn damage_is_set_aside_and_work_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let (mut ledger, _) = Ledger::open(&path).unwrap();
    ledger.record(vec![entry(0), entry(1)]).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    for (damage, line) in [
        (String::new(), 1),
        (whole.replace("\"version\":1", "\"version\":2"), 1),
        (whole.replacen("\"window\"", "\"wimdow\"", 1), 2),
        (format!("{whole}rubbish\n"), 4),
        (format!("\0{whole}"), 1),
        (whole.lines().skip(1).map(|line| line.to_owned() + "\n").collect(), 1),
    ] {
        fs::write(&path, &damage).unwrap();
        assert_eq!(read(&path).unwrap(), Recorded::Damaged { line }, "{damage}");
        let (mut ledger, recorded) = Ledger::open(&path).unwrap();
        assert!(recorded.is_ours(entry(7).network), "without a ledger the route's own marks decide");
        assert_eq!(fs::read_to_string(path.with_extension("damaged")).unwrap(), damage);
        ledger.record(vec![entry(3)]).unwrap();
        assert_eq!(networks(&read(&path).unwrap()), ["192.0.3.0/24"]);
    }
}

#[test]
fn history_does_not_grow_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let (mut ledger, _) = Ledger::open(&path).unwrap();
    let mut longest = 0;
    for _ in 0..30 {
        ledger.record((0..100).map(entry).collect()).unwrap();
        longest = longest.max(fs::read_to_string(&path).unwrap().lines().count());
    }
    assert!((1_000..1_400).contains(&longest), "{longest} lines for 100 entries");
    assert_eq!(ledger.in_force().len(), 100);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = Ledger::open(Path::new("/nonexistent/ledger.jsonl")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/ledger.jsonl") && error.contains("nothing is changed"), "{error}");
}
