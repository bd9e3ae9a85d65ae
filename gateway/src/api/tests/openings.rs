//! What people see of a network and hosts do not: its opening, and the rules that are compared.

use serde_json::{Value, json};
use spand_core::estimate::Compared;
use spand_proto::estimate::RuleKind;
use spand_proto::opening::{LossClock, Opening};
use spand_proto::units::Micros;
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event as Update;

use super::*;

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
