//! The gateways that the one that is looked at shares with.

use std::time::{Duration, Instant};

use spand_core::sharing::{GatewayId, TapId};
use spand_gateway::share::exchange::{LinkState, Topic};
use spand_gateway::share::format::{FORMAT, Member};
use spand_gateway::share::{Compared, Incompatible, MemberView, ShareView};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};

/// One that sees other packets, and one whose buckets have another length. Messages get through no longer.
pub(super) fn view() -> ShareView {
    let now = Instant::now();
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now);
    let of = |gateway: u16, name: &str, tap| Member {
        gateway: GatewayId(gateway),
        tap,
        instance: gateway.into(),
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        bucket: Micros::from_secs(10),
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        formats: (FORMAT, FORMAT),
        clock: Timestamp(0),
        address: Some(format!("https://{name}.example.net:7443")),
    };
    let known =
        |member, clock_ahead_us, incompatible| MemberView { member, heard: ago(2), clock_ahead_us, incompatible };
    ShareView {
        link: LinkState::Down("no server answers".to_owned()),
        since: Some(ago(40)),
        first_up: Some(ago(900)),
        up_until: Some(ago(40)),
        own: Some(of(1, "edge-a", TapId::of_group(7))),
        cluster: "main".to_owned(),
        site: "main".to_owned(),
        members: vec![
            known(of(2, "edge-b", TapId::of_gateway(GatewayId(2))), 1_250, None),
            known(of(3, "edge-c", TapId::of_group(7)), -3_400_000, Some(Incompatible::BucketLength)),
        ],
        compared: [(
            GatewayId(2),
            Compared { one_direction: 40, other_direction: 1, both_directions: 900, ..Compared::default() },
        )]
        .into(),
        cells_received: [(GatewayId(2), 5_120)].into(),
        lag: [(Topic::Closed, Micros(450_000)), (Topic::Open, Micros(120_000))].into(),
    }
}
