//! Careful Resume (RFC 9959) on real connections: one goes through the phases to the end, one has to retreat, and one of two at the same time
//! may jump, whatever becomes of the advice meanwhile.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use spand_needs::{Need, needs};
use spand_proto::resume::Phase;
use spand_proto::start::{NO_THRESHOLD, Shape};
use spand_proto::units::{BytesPerSecond, Micros};
use spand_tests::advised::{Advice, Stage, ask};
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::NetworkPlan;
use spand_tests::lab::traffic::{Plan, Step};
use spand_tests::lab::truth::{CongestionState, Row, Source};

const NETWORK: &str = "198.51.100.0/24";
const SEGMENT_BYTES: u64 = 1_448;
/// The host's own window.
const INITIAL: u32 = 10;
/// What is saved, in segments, and half of it. The receiver's first window holds more.
const SAVED: u64 = 100;
const JUMP: u32 = 50;

/// Tests of one process use the same names of cgroup and congestion controls, so they run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Connections that entered each phase: reconnaissance, unvalidated, validating, safe retreat.
type Entered = [u64; 4];

fn entered(stage: &Stage) -> Entered {
    ["resume_reconnaissance", "resume_unvalidated", "resume_validating", "resume_safe_retreat"]
        .map(|name| stage.count(name))
}

/// A server whose agent knows the window, and this round trip, which may not be the path's.
fn stage(base: &str, path: &PathConfig, saved_rtt: Duration) -> Result<Stage> {
    let mut advice = Advice::shape(Shape::CarefulResume, saved_rtt);
    advice.inputs.share_half_bytes = 2 * SAVED * SEGMENT_BYTES;
    let plan = NetworkPlan { prefix: NETWORK.parse()?, clients: 2, path: *path };
    Stage::build(base, &[(plan, Some(advice))])
}

fn transfer(segments: u64) -> Plan {
    Plan::new(Plan::AS_THE_HOST, vec![Step::Send(segments * SEGMENT_BYTES)])
}

/// The rows of one connection's acknowledgements, how many connections entered each phase, and the phase of its report.
fn run(base: &str, path: &PathConfig, saved_rtt: Duration) -> Result<(Vec<Row>, Entered, Option<Phase>)> {
    let mut stage = stage(base, path, saved_rtt)?;
    ask(&stage.lab, 0, 0, &transfer(900))?;
    std::thread::sleep(path.base_rtt() * 2);
    ensure!(stage.started() == 1, "{} connections started on advice", stage.started());
    let entered = entered(&stage);
    let reports = stage.reports();
    ensure!(reports.len() == 1, "{} connections reported", reports.len());
    let phase = reports[0].careful_resume;
    Ok((stage.finish()?.into_iter().filter(|row| row.source == Source::SegmentIn).collect(), entered, phase))
}

fn flight(row: &Row) -> u32 {
    row.unacked.unwrap() + row.retrans.unwrap() - row.sacked.unwrap() - row.lost.unwrap()
}

/// 86 segments in a round trip of 100 ms, and a queue that nothing overflows.
fn wide() -> PathConfig {
    PathConfig::bottleneck(BytesPerSecond(1_250_000), Duration::from_millis(50), Queue::Packets(1_000))
}

/// 7 segments in a round trip, and a queue of 20: 50 do not fit.
fn narrow() -> PathConfig {
    PathConfig::bottleneck(BytesPerSecond(250_000), Duration::from_millis(20), Queue::Packets(20))
}

/// Where the window is first that of the jump; rows are taken before their segment is processed.
fn jump_of(rows: &[Row]) -> usize {
    rows.iter().position(|row| row.cwnd == Some(JUMP)).expect("a jump")
}

fn delivered(row: &Row) -> u32 {
    row.delivered.unwrap()
}

#[test]
fn a_connection_jumps_to_half_of_what_is_saved_and_validates_it() {
    if !needs(Need::Root) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock();
    for base in ["reno", "cubic"] {
        let (rows, entered, phase) = run(base, &wide(), wide().base_rtt()).unwrap();
        assert_eq!((entered, phase), ([1, 1, 1, 0], Some(Phase::Validating)), "{base}");
        let jumped = jump_of(&rows);
        let (before, after) = (&rows[jumped - 1], &rows[jumped]);
        let moment = |row: &Row| Duration::from_nanos(row.time_ns - rows[0].time_ns);
        println!("{base}: {:?} to {:?} after {:?}", before.cwnd, after.cwnd, moment(after));
        assert_eq!(after.ssthresh, Some(JUMP + 1), "{base}");
        assert!(before.cwnd < Some(2 * INITIAL) && delivered(after) >= INITIAL, "{base}: {before:?}");
        // What the kernel makes of it: 1.2 times the window in a round trip.
        let rate = after.pacing_rate.unwrap() as f64;
        let paced = f64::from(JUMP) * SEGMENT_BYTES as f64 / (f64::from(after.srtt_us.unwrap()) / 1e6);
        assert!((1.1 * paced..1.3 * paced).contains(&rate), "{base}: {rate} for {paced}");
        // The window stays until it is full, and the threshold is then the one before.
        let end = jumped + rows[jumped..].iter().position(|row| row.ssthresh != Some(JUMP + 1)).unwrap();
        assert!(rows[jumped..end].iter().all(|row| row.cwnd == Some(JUMP)), "{base}: the window is held");
        let (last, validating) = (&rows[end - 1], &rows[end]);
        println!("{base}: {:?}, threshold {:?} after {:?}", validating.cwnd, validating.ssthresh, moment(validating));
        assert!(validating.cwnd.unwrap() <= flight(last) + delivered(validating) - delivered(last), "{base}: {last:?}");
        assert!(validating.cwnd.unwrap() > JUMP - INITIAL, "{base}: {validating:?}");
        assert!(base == "cubic" || validating.ssthresh == Some(NO_THRESHOLD.0), "{base}: {validating:?}");
        assert_eq!(rows.last().unwrap().total_retrans, Some(0), "{base}");
    }
}

#[test]
fn a_loss_of_what_was_not_validated_leads_to_safe_retreat() {
    if !needs(Need::Root) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock();
    for base in ["reno", "cubic"] {
        let (rows, entered, phase) = run(base, &narrow(), narrow().base_rtt()).unwrap();
        assert_eq!((entered[1], entered[3], phase), (1, 1, Some(Phase::SafeRetreat)), "{base}: {entered:?}");
        let jumped = jump_of(&rows);
        let state = |state, from: usize| {
            from + rows[from..].iter().position(|row| row.ca_state == Some(state)).expect("a state")
        };
        let lost = state(CongestionState::Recovery, jumped);
        let over = state(CongestionState::Open, lost);
        // The window stays meanwhile.
        let held = rows[jumped..lost].iter().take_while(|row| row.ssthresh == Some(JUMP + 1));
        assert!(held.clone().all(|row| row.cwnd == Some(JUMP)) && held.count() > 3, "{base}: the window is held");
        // PipeSize: the flight after the acknowledgement that led to the jump, and what was delivered since.
        let (before, after) = (&rows[jumped - 1], &rows[jumped]);
        let at_jump = flight(before) - (delivered(after) - delivered(before));
        let pipe = |row: &Row| at_jump + delivered(row) - delivered(after);
        let window = (pipe(&rows[lost]) / 2).max(INITIAL);
        let repaired = &rows[over];
        println!(
            "{base}: {} in flight, a window of {window} in the retreat; then {:?} and threshold {:?}, pipe size {}",
            flight(&rows[lost - 1]),
            repaired.cwnd,
            repaired.ssthresh,
            pipe(repaired)
        );
        // The path drains first, and what leaves then fits the window.
        assert!(flight(&rows[lost - 1]) > window + 10, "{base}: a retreat from more");
        let flights: Vec<u32> = rows[lost..over].iter().map(flight).collect();
        for (before, after) in flights.iter().zip(&flights[1..]) {
            assert!(after <= before.max(&window), "{base}: {after} in flight after {before}");
        }
        let grown = delivered(repaired) - delivered(&rows[over - 1]);
        assert!(repaired.cwnd.unwrap() <= window + grown, "{base}: {repaired:?}");
        assert!(repaired.ssthresh.unwrap() <= pipe(repaired) / 2, "{base}: {repaired:?}");
        assert!(repaired.ssthresh.unwrap() > window, "{base}: slow start goes on");
    }
}

#[test]
fn one_connection_at_a_time_jumps_and_none_after_a_retreat_or_on_another_path() {
    if !needs(Need::Root) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock();
    // A round trip of 100 ms where more than 200 or less than 10 were saved.
    for saved_rtt in [220, 9] {
        let stage = stage("cubic", &wide(), Duration::from_millis(saved_rtt)).unwrap();
        ask(&stage.lab, 0, 0, &transfer(300)).unwrap();
        assert_eq!((entered(&stage), stage.count("rtt_mismatch")), ([0; 4], 1), "{saved_rtt} ms");
        stage.finish().unwrap();
    }
    let stage = stage("cubic", &wide(), wide().base_rtt()).unwrap();
    std::thread::scope(|scope| {
        for client in 0..2 {
            let lab = &stage.lab;
            scope.spawn(move || ask(lab, 0, client, &transfer(900)).unwrap());
        }
    });
    assert_eq!((entered(&stage)[0], entered(&stage)[1], stage.count("resume_in_use")), (2, 1, 1));
    ask(&stage.lab, 0, 0, &transfer(900)).unwrap();
    assert_eq!(entered(&stage)[1], 2, "after a success another one jumps");
    stage.finish().unwrap();

    let stage = self::stage("cubic", &narrow(), narrow().base_rtt()).unwrap();
    for _ in 0..2 {
        ask(&stage.lab, 0, 0, &transfer(400)).unwrap();
    }
    assert_eq!((entered(&stage)[1], entered(&stage)[3], stage.count("resume_in_use")), (1, 1, 1));
    stage.finish().unwrap();
}

/// Waits until this many connections have jumped.
fn until_jumped(stage: &Stage, connections: u64) {
    let end = Instant::now() + Duration::from_secs(20);
    while entered(stage)[1] < connections {
        assert!(Instant::now() < end, "{connections} connections jump: {:?}", entered(stage));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn after_a_retreat_none_jumps_before_the_newest_advice_ends() {
    if !needs(Need::Root) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock();
    let stage = stage("cubic", &narrow(), narrow().base_rtt()).unwrap();
    let lifetime = Duration::from_secs(2);
    let began = Instant::now();
    stage.renew(lifetime.into());
    std::thread::scope(|scope| {
        let lab = &stage.lab;
        scope.spawn(move || ask(lab, 0, 0, &transfer(400)).unwrap());
        until_jumped(&stage, 1);
        assert_eq!(entered(&stage)[3], 0, "the advice is renewed before the retreat");
        stage.renew(Micros::from_secs(60));
    });
    assert_eq!((entered(&stage)[1], entered(&stage)[3], stage.count("resume_in_use")), (1, 1, 0));
    // The advice that the jump was made on is over.
    std::thread::sleep(lifetime.saturating_sub(began.elapsed()));
    ask(&stage.lab, 0, 0, &transfer(400)).unwrap();
    assert_eq!((entered(&stage)[0], entered(&stage)[1], stage.count("resume_in_use")), (2, 1, 1));
    stage.finish().unwrap();
}

#[test]
fn a_claim_that_ended_with_its_advice_frees_no_other_connections_claim() {
    if !needs(Need::Root) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock();
    // A connection jumps two and a half round trips after it began, and is validated one and a half later.
    let rtt = Duration::from_millis(800);
    let path = PathConfig::bottleneck(BytesPerSecond(1_250_000), rtt / 2, Queue::Packets(1_000));
    let stage = stage("cubic", &path, path.base_rtt()).unwrap();
    stage.renew((rtt * 3).into());
    let in_use = std::thread::scope(|scope| {
        let lab = &stage.lab;
        let connect = |client: usize| scope.spawn(move || ask(lab, 0, client, &transfer(900)).unwrap());
        connect(0);
        std::thread::sleep(rtt);
        connect(1);
        std::thread::sleep(rtt);
        connect(0);
        until_jumped(&stage, 1);
        stage.renew(Micros::from_secs(60));
        // By the second one's jump the first one's claim is over. The third one comes between the ends of the two.
        until_jumped(&stage, 2);
        assert_eq!(stage.count("resume_in_use"), 0);
        std::thread::sleep(rtt * 7 / 5);
        stage.count("resume_in_use")
    });
    assert_eq!((entered(&stage)[0], entered(&stage)[1], in_use), (3, 2, 1), "the third one finds the second one's");
    stage.finish().unwrap();
}

#[test]
fn none_jumps_after_its_advice_has_ended() {
    if !needs(Need::Root) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock();
    // Established after one and a half round trips, it would jump after one more.
    let rtt = Duration::from_millis(400);
    let path = PathConfig::bottleneck(BytesPerSecond(1_250_000), rtt / 2, Queue::Packets(1_000));
    let stage = stage("cubic", &path, path.base_rtt()).unwrap();
    stage.renew((rtt * 2).into());
    ask(&stage.lab, 0, 0, &transfer(300)).unwrap();
    assert_eq!((entered(&stage), stage.count("resume_no_gain")), ([1, 0, 0, 0], 1));
    stage.finish().unwrap();
}
