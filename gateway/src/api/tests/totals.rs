//! `/v1/totals`.

use super::*;
use crate::publisher::{CaptureStatus, EngineStatus};

/// 2026-11-28 12:00:00 UTC.
const NOON_S: u64 = 1_795_867_200;

/// Waits until the second reading after a change of the clock has been taken.
async fn read_at(rig: &Rig, s: u64, packets: u64) {
    rig.clock.0.store(s * 1_000_000_000, Ordering::Relaxed);
    let mut engine = EngineStatus::default();
    (engine.counters.frames, engine.counters.wire_bytes) = (packets, packets * 1_000);
    rig.published.set_captures(vec![CaptureStatus { dropped_queue: packets / 10, ..CaptureStatus::default() }]);
    rig.published.apply(Batch { engine: Some(engine), ..Batch::new() });
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
}

#[tokio::test]
async fn the_whole_is_shown_in_steps_with_its_gaps() {
    let rig = Rig::new(ApiConfig::default()).await;
    read_at(&rig, NOON_S, 100).await;
    read_at(&rig, NOON_S + 30, 400).await;
    read_at(&rig, NOON_S + 310, 1_000).await;
    let (status, totals) = rig.get("/v1/totals").await;
    assert_eq!((status, &totals["step_s"]), (200, &60.0.into()));
    assert_eq!(totals["since"], "2026-11-27T12:05:10.000Z");
    let points = totals["points"].as_array().unwrap();
    let shown: Vec<_> = points
        .iter()
        .map(|point| {
            (point["at"].as_str().unwrap(), point["packets"].as_u64().unwrap(), point["gap"].as_bool().unwrap())
        })
        .filter(|(at, ..)| *at >= "2026")
        .collect();
    assert_eq!(shown[shown.len() - 2].1 + shown[shown.len() - 1].1, 900, "{shown:?}");
    assert_eq!(shown[shown.len() - 1], ("2026-11-28T12:05:00Z", 600, true));
    let last = points.last().unwrap();
    for (name, value) in
        [("wire_bytes", 600_000), ("dropped_queue", 60), ("networks", 4), ("estimates", 3), ("agents", 0)]
    {
        assert_eq!(last[name], value, "{name}");
    }
    assert_eq!((last["difference_percent"].as_array().unwrap().len(), totals["sizes"][0].as_str()), (7, Some("10kB")));

    let (_, hours) = rig.get("/v1/totals?step=1h&from=2026-11-28T12:30:00Z&to=2026-11-28T13:00:00Z").await;
    assert_eq!((&hours["step_s"], hours["points"].as_array().unwrap().len()), (&3_600.0.into(), 1), "{hours}");
    assert_eq!(rig.get("/v1/totals?from=2026-11-25T00:00:00Z").await.1["step_s"], 600.0);
    assert_eq!(rig.get("/v1/totals?from=2026-01-01T00:00:00Z").await.1["step_s"], 3_600.0);

    let (status, csv) =
        rig.send("GET /v1/totals?format=csv HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((status, lines.len()), (200, points.len() + 1));
    assert_eq!(lines[0][..4], ["at", "observed_s", "gap", "packets"]);
    assert!(lines.iter().all(|line| line.len() == 3 + 12 + 3 + 21), "{csv}");
    assert_eq!(lines.last().unwrap()[..4], ["2026-11-28T12:05:00Z", "280", "true", "600"]);

    for (asked, why) in [
        ("from=yesterday", "from: `yesterday` is no moment: write one in UTC, such as 2027-01-15T08:00:00Z"),
        ("from=2027-01-15T08:00:00Z", "is not before to"),
        ("step=2m", "step is `2m`: give one of 1m, 10m, 1h"),
        ("format=xml", "give one of json, csv"),
        ("until=2027-01-15T08:00:00Z", "there is no parameter `until`: there is from, to, step, format"),
    ] {
        let (status, problem) = rig.get(&format!("/v1/totals?{asked}")).await;
        assert_eq!(status, 400, "{asked}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    rig.end().await;
}
