//! The experiment of `/v1/benefit` over restarts of a gateway with a store.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use spand_core::estimate::Compared;
use spand_proto::estimate::RuleKind;
use spand_proto::opening::{LossClock, Opening};
use spand_proto::report::{Arm, ConnectionReport, PushCount, Report, Transport};
use spand_proto::units::{Micros, Segments};
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event as Update;

use super::*;
use crate::publisher::Client;
use crate::store::{SledStore, StoreWriter};

/// A gateway's API and its store, which writes at once.
struct Life {
    api: Api,
    clock: SetClock,
    store: Arc<StoreWriter>,
}

impl Life {
    fn begin(path: &Path, second: u64) -> Self {
        let clock = SetClock(Arc::new(AtomicU64::new(second * 1_000_000_000)));
        let published = Published::new(PublisherConfig::default(), clock.clone());
        published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 20.0))], ..Batch::new() });
        let opened = SledStore::open(path).unwrap();
        let store = StoreWriter::start(opened.store, Duration::from_millis(1)).unwrap();
        let api = Api::new(ApiConfig::default(), published, Some(store.measures().clone()));
        if let Some(saved) = opened.experiment.unwrap() {
            api.continue_experiment(saved);
        }
        Self { api, clock, store: Arc::new(store) }
    }

    /// Whether a batch was taken.
    async fn take(&self, host: u8, batch: u64) -> bool {
        let client = Client::Address([10, 0, 0, host].into());
        let published = &self.api.shared.published;
        self.api.shared.reports.take(&client, &reported(host, batch), published).await.accepted > 0
    }

    fn document(&self) -> Value {
        let survives = self.api.experiment_survives();
        serde_json::to_value(self.api.shared.reports.benefit_document(survives)).unwrap()
    }

    fn saved(&self) -> u64 {
        self.store.measures().experiments.get()
    }

    fn end(self) {
        Arc::into_inner(self.store).expect("nobody else writes").stop().unwrap();
    }
}

fn reported(host: u8, batch: u64) -> Report {
    let one = |n: u64| ConnectionReport {
        host: ([10, 0, 0, host], 443).into(),
        remote: ([192, 0, 2, 7], 50_000).into(),
        ended_ago: Micros(0),
        duration: (n != 39).then_some(Micros(100_000 + 7 * n * n + batch)),
        end_window: Some(Bytes(28_960 + n)),
        mss: Some(Bytes(1_448)),
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(29_000 + n),
        retransmitted: Segments(u32::from(n.is_multiple_of(5))),
        first_flight_loss: None,
        first_flight: None,
        limited_by: None,
        arm: Some(if n.is_multiple_of(2) { Arm::Advised } else { Arm::Control }),
        advised: n.is_multiple_of(2).then_some(Segments(20)),
        refusal: None,
        paused: n == 38,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    };
    Report {
        host_name: "web-1".to_owned().try_into().unwrap(),
        batch,
        agent_started: Timestamp(1),
        connections: (0..40).map(one).collect(),
        pushes: PushCount::default(),
        pause: None,
    }
}

#[tokio::test]
async fn the_experiment_goes_on_after_a_restart_and_counts_no_batch_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let first = Life::begin(&path, 1_800_000_000);
    assert!(!first.api.save_experiment(&first.store), "nothing was reported");
    for (host, batch) in [(1, 1), (1, 2), (2, 1)] {
        assert!(first.take(host, batch).await);
    }
    assert!(first.api.save_experiment(&first.store));
    assert!(!first.api.save_experiment(&first.store), "nothing changed since");
    let before = first.document();
    let class = &before["classes"][1];
    assert_eq!(
        (&before["hosts"], &before["unmeasured"], &before["transfers_paused"]),
        (&2.into(), &3.into(), &3.into())
    );
    assert!(class["advised"]["completion_median_ms"].is_number() && class["difference"]["completion_ms"].is_object());
    first.end();

    let second = Life::begin(&path, 1_800_086_400);
    assert_eq!(second.document(), before);
    assert_eq!((&before["since"], &before["survives_restart"]), (&"2027-01-15T08:00:00Z".into(), &true.into()));
    for (host, batch) in [(1, 2), (1, 1), (2, 1)] {
        assert!(!second.take(host, batch).await, "batch {batch} of host {host} comes again");
    }
    assert_eq!(second.document(), before);
    assert!(!second.api.save_experiment(&second.store));
    assert!(second.take(1, 3).await && second.take(3, 1).await);
    let after = second.document();
    assert_eq!((&after["hosts"], &after["since"]), (&3.into(), &before["since"]));
    // Killed: what was not handed over is lost.
    second.end();
    let third = Life::begin(&path, 1_800_172_800);
    assert_eq!(third.document(), before);
    assert!(third.take(1, 3).await);
    third.end();
}

#[tokio::test(start_paused = true)]
async fn the_experiment_is_saved_soon_after_a_change_and_at_most_every_ten_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let life = Life::begin(&dir.path().join("store"), 1_800_000_000);
    let (api, store) = (life.api.clone(), Arc::downgrade(&life.store));
    let keeper = tokio::spawn(async move { api.keep_experiment(store).await });
    let pass = async |seconds: u64| {
        for _ in 0..seconds {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        while life.store.experiment_waits() {
            tokio::task::yield_now().await;
        }
        life.saved()
    };
    assert_eq!(pass(30).await, 0, "nothing was reported");
    life.take(1, 1).await;
    assert_eq!(pass(1).await, 1);
    life.take(1, 2).await;
    assert_eq!(pass(8).await, 1, "not yet");
    assert_eq!(pass(2).await, 2);
    assert_eq!(pass(30).await, 2, "nothing changed");
    life.clock.0.fetch_add(1, Ordering::Relaxed);
    life.take(1, 2).await;
    assert_eq!(pass(30).await, 2, "a batch that was known is no change");
    keeper.abort();
}

// Openings and compared rules: people see both, hosts get the opening in force alone.

fn segments(segments: f64) -> Window {
    Window::from_bytes(segments * 1_448.0).unwrap()
}

/// `miss` with an opening and `cached` with nothing are compared; `in_force` as given.
fn view(name: &str, in_force: Option<Opening>) -> NetworkView {
    let last = Timestamp(8_500_000_000);
    let losses = LossClock { interval: Micros::from_secs(5), oldest_interval: Micros::from_secs(20), last };
    let miss = Opening { rule: RuleKind::Miss, threshold: segments(9.0), losses: Some(losses) };
    NetworkView {
        network: name.parse().unwrap(),
        estimate: Some(Estimate { opening: in_force, ..estimate(name, 30.0) }),
        addresses: Vec::new(),
        compared: vec![
            Compared { rule: RuleKind::Miss, share: Some(segments(21.0)), opening: Some(miss) },
            Compared { rule: RuleKind::Cached, share: None, opening: None },
        ],
        ..poor()
    }
}

#[tokio::test]
async fn a_network_shows_its_opening_and_what_is_compared_and_hosts_get_the_former_alone() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = SpandClient::connect(format!("http://{}", rig.grpc)).await.unwrap();
    let addresses = vec!["10.0.0.1".to_owned()];
    let wish = v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    };
    let mut updates = client.subscribe(wish).await.unwrap().into_inner();
    while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::SnapshotEnd(_)) {}
    let in_force = Opening { rule: RuleKind::Liss, threshold: segments(12.0), losses: None };
    let views = [view(GOOD, None), view(WIDE, Some(in_force))];
    let events = views.into_iter().map(|view| Event::Network(Box::new(view))).collect();
    rig.published.apply(Batch { events, ..Batch::new() });

    let compared = json!([
        { "rule": "miss", "wc_segments": 21, "wc_bytes": 30_408.0, "opening": {
            "rule": "miss", "ssthresh_segments": 9, "ssthresh_bytes": 13_032.0,
            "loss_interval_ms": 5_000.0, "oldest_loss_interval_ms": 20_000.0, "loss_age_s": 1.5 } },
        { "rule": "cached", "wc_segments": null, "wc_bytes": null, "opening": null },
    ]);
    let liss = json!({
        "rule": "liss", "ssthresh_segments": 12, "ssthresh_bytes": 17_376.0,
        "loss_interval_ms": null, "oldest_loss_interval_ms": null, "loss_age_s": null });
    for (name, opening, compared) in
        [(GOOD, Value::Null, compared.clone()), (WIDE, liss, compared), (SIX, Value::Null, json!([]))]
    {
        let (_, network) = rig.get(&format!("/v1/networks/{name}")).await;
        assert_eq!((&network["opening"], &network["compared"]), (&opening, &compared), "{name}");
        assert_eq!(network["rule"], "robust", "the share's");
    }

    // Pushed and asked for.
    let given = |estimate: v1::Estimate| (estimate.network, estimate.opening.map(|opening| opening.rule));
    let expected = [(GOOD.to_owned(), None), (WIDE.to_owned(), Some("liss".to_owned()))];
    let mut pushed = Vec::new();
    while pushed.len() < 2 {
        if let Update::Estimate(update) = updates.message().await.unwrap().unwrap().event.unwrap() {
            pushed.push(given(update.estimate.unwrap()));
        }
    }
    pushed.sort();
    assert_eq!(pushed, expected);
    let questions = ["192.0.2.7", "198.51.100.7"]
        .map(|address| v1::Question { address: address.to_owned(), ..v1::Question::default() });
    let query = v1::QueryRequest { contract_version: 1, questions: questions.into(), ..v1::QueryRequest::default() };
    let answers = client.query(query).await.unwrap().into_inner().answers;
    let answered: Vec<_> = answers.into_iter().map(|answer| given(answer.estimate.unwrap())).collect();
    assert_eq!(answered, expected);
    rig.end().await;
}
