//! The gateways that the one that is looked at shares with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spand_core::sharing::{GatewayId, TapId};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};
use spand_share::exchange::{LinkState, MirrorLag, SiteStream, StreamFault, StreamState, Topic};
use spand_share::format::{FORMAT, Member};
use spand_share::{Incompatible, MemberView, ShareStatus, ShareView};

/// The group of the gateway that is looked at, and of the one that sees the same packets.
const GROUP: u16 = 7;
/// How often a gateway sends who it is, as in the daemon.
const EVERY: Duration = Duration::from_secs(5);

fn before(now: Instant, seconds: u64) -> Instant {
    now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now)
}

/// Two that see other packets, and one of the own mirror group.
pub(super) fn view() -> ShareView {
    let now = Instant::now();
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
        digests: Vec::new(),
        address: Some(format!("https://{name}.example.net:7443")),
    };
    let known = |member: Member, clock_ahead_us| {
        let heard = before(now, (u64::from(member.gateway.0) * 2) % EVERY.as_secs());
        MemberView { member, heard, clock_ahead_us, incompatible: None }
    };
    ShareView {
        link: LinkState::Up,
        since: Some(before(now, 900)),
        first_up: Some(before(now, 900)),
        up_until: None,
        own: Some(of(1, "edge-a", TapId::of_group(GROUP))),
        cluster: "main".to_owned(),
        site: "main".to_owned(),
        members: vec![
            known(of(2, "edge-b", TapId::of_gateway(GatewayId(2))), 1_250),
            known(of(3, "edge-c", TapId::of_group(GROUP)), -3_400),
            known(of(4, "edge-d", TapId::of_gateway(GatewayId(4))), -210),
        ],
        cells_received: [(GatewayId(2), 5_120), (GatewayId(3), 4_870), (GatewayId(4), 1_030)].into(),
        lag: [(Topic::Closed, Micros(450_000)), (Topic::Open, Micros(120_000))].into(),
        lag_since: [].into(),
        streams: Arc::new(Mutex::new(streams())),
    }
}

/// The stream of the site, and the copies of two others, of which nobody answers for one.
fn streams() -> Vec<SiteStream> {
    let lag = MirrorLag { messages: 3, heard: Some(Duration::from_millis(400)) };
    let found = [
        ("main", Ok(StreamState { current: 3, replicas: 3, copy: None })),
        ("b", Ok(StreamState { current: 3, replicas: 3, copy: Some(lag) })),
        ("c", Err(StreamFault::NoAnswer)),
    ];
    found.into_iter().map(|(site, found)| SiteStream { site: site.to_owned(), found }).collect()
}

/// Messages of the others come: of each who it is, and cells where they count.
pub(super) fn hear(share: &ShareStatus) {
    share.change(|view| {
        for known in &mut view.members {
            if known.heard.elapsed() >= EVERY {
                known.heard += EVERY;
            }
            if known.incompatible.is_none() && view.link == LinkState::Up {
                *view.cells_received.entry(known.member.gateway).or_default() += 1;
                share.measures().cells_taken.inc();
            }
        }
    });
}

/// Connections of two of them that are seen here too: a few of one, and with `duplicate` most of the other.
pub(super) fn compare(share: &ShareStatus, duplicate: bool) {
    share.measures().compared(GatewayId(2), [900, 9]);
    share.measures().compared(GatewayId(4), [900, if duplicate { 870 } else { 2 }]);
}

/// Lets something be wrong with two: other buckets, and a wrong clock.
pub(super) fn fail(view: &mut ShareView) {
    for known in &mut view.members {
        match known.member.gateway {
            GatewayId(3) => {
                (known.clock_ahead_us, known.incompatible) = (-3_400_000, Some(Incompatible::BucketLength));
            }
            GatewayId(4) => known.clock_ahead_us = 2_600_000,
            _ => {}
        }
    }
}
