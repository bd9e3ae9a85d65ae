//! What a gateway shares with others, and who they are.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use spand_cells::{Notice, TapId};
use spand_proto::estimate::RuleKind;
use spand_proto::units::Micros;
use spand_share::exchange::{LinkState, MirrorLag, SiteStream, StreamFault, StreamState, Topic};
use spand_share::format::Member;
use spand_share::{Incompatible, MemberView};

use super::insight::fields;
use super::*;

fn member(gateway: u16, tap: TapId) -> Member {
    Member {
        gateway: GatewayId(gateway),
        tap,
        instance: 1,
        name: format!("edge-{gateway}"),
        version: "0.1.0".to_owned(),
        bucket: Micros::from_secs(10),
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        clock: Timestamp(0),
        digests: Vec::new(),
        address: None,
    }
}

fn view() -> ShareView {
    let (of_two, now) = (TapId::of_gateway(GatewayId(2)), Instant::now());
    let known = |member, clock_ahead_us, incompatible| MemberView { member, heard: now, clock_ahead_us, incompatible };
    let lag = MirrorLag { messages: 4, heard: Some(Duration::from_millis(1_500)) };
    let found = [
        ("a", Ok(StreamState { current: 2, replicas: 3, copy: None })),
        ("b", Ok(StreamState { current: 3, replicas: 3, copy: Some(lag) })),
        ("c", Err(StreamFault::Missing)),
        ("d", Err(StreamFault::NoAnswer)),
    ];
    let streams: Vec<SiteStream> =
        found.into_iter().map(|(site, found)| SiteStream { site: site.to_owned(), found }).collect();
    ShareView {
        streams: Arc::new(Mutex::new(streams)),
        link: LinkState::Down("no server answers".to_owned()),
        since: Some(now),
        own: Some(member(1, TapId::of_group(7))),
        cluster: "main".to_owned(),
        site: "a".to_owned(),
        members: vec![
            known(member(2, of_two), -1_500, None),
            known(member(3, TapId::of_group(7)), 0, Some(Incompatible::PrefixList)),
        ],
        cells_received: [(GatewayId(2), 5)].into(),
        lag: [(Topic::Closed, Micros(450_000))].into(),
        ..ShareView::default()
    }
}

#[tokio::test]
async fn a_gateway_that_shares_nothing_says_only_that() {
    let rig = Rig::new(ApiConfig::default()).await;
    assert_eq!(rig.get("/v1/share").await, (200, json!({ "configured": false })));
    rig.end().await;
}

#[tokio::test]
async fn the_link_the_members_and_what_came_of_each_are_shown() {
    let rig = Rig::sharing(view()).await;
    let own = (GatewayId(1), TapId::of_group(7));
    rig.published.set_members(own, [(GatewayId(2), TapId::of_gateway(GatewayId(2)))].into());
    let seats = [1, 2].map(|n| Notice::Seat { host: [10, 0, 0, n].into(), here: true });
    rig.published.take_notices(GatewayId(2), Timestamp(1), &seats);
    let (status, mut share) = rig.get("/v1/share").await;
    assert_eq!(status, 200);
    let page = include_str!("../../../../docs/reference/api.md");
    let mut names = BTreeSet::new();
    fields(&share, &mut names);
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/reference/api.md does not describe {name}");
    }
    let since = share["link"]["since"].take();
    assert!(since.as_str().unwrap().starts_with("1970-01-01T00:00:"), "{since}");
    for known in share["members"].as_array_mut().unwrap() {
        assert!(known["last_heard_age_s"].take().as_f64().unwrap() < 600.0);
    }
    let members = share["members"].take();
    let none = json!(null);
    let stream = |site: &str, fault: &Value, [replicas, current]: [&Value; 2], [messages, s]: [&Value; 2]| {
        json!({
            "site": site, "fault": fault, "replicas": replicas, "replicas_current": current,
            "lag_messages": messages, "lag_s": s
        })
    };
    let expected = json!([
        stream("a", &none, [&json!(3), &json!(2)], [&none, &none]),
        stream("b", &none, [&json!(3), &json!(3)], [&json!(4), &json!(1.5)]),
        stream("c", &json!("missing"), [&none, &none], [&none, &none]),
        stream("d", &json!("no_answer"), [&none, &none], [&none, &none]),
    ]);
    assert_eq!(share["streams"].take(), expected);
    let expected = json!({
        "configured": true, "at": "1970-01-01T00:00:10.000Z", "gateway": 1, "cluster": "main", "site": "a", "mirror_group": 7,
        "link": { "state": "down", "since": null, "reason": "no server answers" }, "streams": null, "members": null,
        "lag": { "closed_s": 0.45, "open_s": null }, "cells_taken": 0, "cells_known": 0, "cells_dropped": 0,
        "notices_dropped": 0, "messages_refused_by_reason": {}, "cells_refused_by_reason": {}, "agents": 0,
        "seats_elsewhere": 2, "subscriptions_adopted": 0
    });
    assert_eq!(share, expected);
    let one = |of: Value| {
        let mut one = json!({
            "version": "0.1.0", "address": null,
            "last_heard_age_s": null
        });
        one.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
        one
    };
    let expected = json!([
        one(json!({
            "gateway": 2, "name": "edge-2", "mirror_group": null, "clock_offset_ms": -1.5, "incompatible": null,
            "cells_received": 5, "connections_compared": 40, "seen_by_both": 15, "duplicate": true, "seats": 2
        })),
        one(json!({
            "gateway": 3, "name": "edge-3", "mirror_group": 7, "clock_offset_ms": 0.0, "incompatible": "prefix_list",
            "cells_received": 0, "connections_compared": 0, "seen_by_both": 0, "duplicate": false, "seats": 0
        })),
    ]);
    assert_eq!(members, expected);
    rig.end().await;
}
