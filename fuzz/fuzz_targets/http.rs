//! Requests of any path and parameters: each gets an answer that is what it says, and none ends the gateway.

#![no_main]

use std::cell::OnceCell;

use libfuzzer_sys::fuzz_target;
use spand_core::event::Event;
use spand_core::service::ServiceSize;
use spand_gateway::api::fuzzing::Pages;
use spand_gateway::publisher::{Batch, PacketClock, Published, PublisherConfig};
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

thread_local!(static PAGES: OnceCell<Pages> = const { OnceCell::new() });

struct Stopped;

impl PacketClock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp(10_000_000_000)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((method, uri)) = data.split_first() else { return };
    let Ok(uri) = axum_uri(uri) else { return };
    let method = match method % 8 {
        0 => "POST",
        1 => "HEAD",
        2 => "OPTIONS",
        _ => "GET",
    };
    let method = method.parse().expect("a method");
    PAGES.with(|pages| {
        let pages = pages.get_or_init(|| Pages::new(published).expect("a runtime"));
        let (status, kind, body) = pages.ask(method, uri);
        // Not ready is an answer; nothing else that a client asks is the gateway's fault.
        assert!(status.as_u16() < 500 || status.as_u16() == 503, "{status}");
        if kind.contains("json") && !body.is_empty() {
            serde_json::from_slice::<serde_json::Value>(&body).expect("what says JSON is JSON");
        }
    });
});

fn axum_uri<U: TryFrom<Vec<u8>>>(bytes: &[u8]) -> Result<U, U::Error> {
    U::try_from(bytes.to_vec())
}

fn published() -> Published {
    let published = Published::new(PublisherConfig::default(), Stopped);
    let mut events: Vec<Event> = (0..40u8).map(|n| Event::Estimate(estimate(n))).collect();
    let service = ([192, 0, 2, 1], 443).into();
    events.push(Event::ServiceSize(ServiceSize { service, quantile: Bytes(30_048), transfers: 412 }));
    published.apply(Batch { events, ..Batch::new() });
    published
}

fn estimate(n: u8) -> Estimate {
    let network = if n % 3 == 0 { format!("2001:db8:{n}::/48") } else { format!("198.51.{n}.0/24") };
    Estimate {
        network: network.parse().expect("a network"),
        share: Window::from_bytes(f64::from(n + 1) * 14_480.0).expect("a window"),
        mss: Bytes(1_448),
        rtt_min: Some(Micros(38_000)),
        rtt_mean: Some(Micros(40_000)),
        samples: 30,
        connections: 12,
        loss_connections: 4,
        losses: 5,
        refreshed: Timestamp(9_000_000_000),
        confidence: Confidence::new(0.9),
        rule: RuleKind::Robust,
    }
}
