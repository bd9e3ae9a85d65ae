//! The gateway's estimates beside what the same rule makes of the kernel's own windows.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::Value;
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, SampleReason, WindowSample};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Timestamp, Window};
use spand_tests::lab::truth::rules::{self, KernelSample, Reason};
use spand_tests::lab::truth::{FlowId, Row, Source};

use crate::sequence::INITIAL_WINDOW;

/// Further apart than this, the demo fails.
const APART_MAX: f64 = 0.25;

/// Samples that each network needs before the comparison counts.
pub(crate) const SAMPLES_MIN: u64 = 12;

/// One network, as the gateway and as the kernel have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compared {
    /// The network.
    pub(crate) network: IpNet,
    gateway: Option<Estimated>,
    truth: Option<Truth>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimated {
    segments: f64,
    samples: u64,
    rtt_min_ms: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Truth {
    segments: f64,
    losses: usize,
    ends: usize,
    rtt_min_ms: Option<f64>,
}

impl Compared {
    /// How far the gateway is from the kernel, relative to the kernel; `None` where one of them has nothing.
    pub(crate) fn error(&self) -> Option<f64> {
        let (gateway, truth) = (self.gateway?.segments, self.truth?.segments);
        Some((gateway - truth) / truth)
    }

    /// Whether the gateway has samples enough for a comparison: one that it alone has or misses then moves the share by little.
    pub(crate) fn has_enough(&self) -> bool {
        self.gateway.is_some_and(|gateway| gateway.samples >= SAMPLES_MIN)
    }

    fn is_bad(&self) -> bool {
        self.error().is_none_or(|error| error.abs() > APART_MAX)
    }
}

/// Puts both sides together, the worst first. `listed` is the gateway's answer to `/v1/networks`.
pub(crate) fn compare(networks: &[IpNet], listed: &Value, rows: &[Row]) -> Result<Vec<Compared>> {
    let entries = entries(listed)?;
    // The gateway takes no sample of what was sent in slow start.
    let samples: Vec<KernelSample> =
        rules::samples(rows).into_iter().filter(|sample| !sample.sent_in_slow_start).collect();
    let advised = advised(rows);
    let mut compared: Vec<Compared> = networks
        .iter()
        .map(|network| {
            let entry =
                entries.iter().find(|entry| entry.get("prefix").and_then(Value::as_str) == Some(&network.to_string()));
            Compared {
                network: *network,
                gateway: entry.and_then(estimated),
                truth: truth(*network, (&samples, &advised), rows),
            }
        })
        .collect();
    compared.sort_by(|a, b| {
        let size = |c: &Compared| c.error().map_or(f64::INFINITY, f64::abs);
        size(b).total_cmp(&size(a))
    });
    Ok(compared)
}

/// What the gateway knows so far, in one line.
pub(crate) fn so_far(listed: &Value) -> Result<String> {
    let known = entries(listed)?.iter().map(|entry| {
        let prefix = entry.get("prefix").and_then(Value::as_str).unwrap_or("?");
        match estimated(entry) {
            Some(e) => format!("{prefix} {:.0} segments of {} samples", e.segments, e.samples),
            None => format!("{prefix} not yet"),
        }
    });
    Ok(known.collect::<Vec<_>>().join(", "))
}

/// The list of networks, whether bare or under a name.
fn entries(listed: &Value) -> Result<&Vec<Value>> {
    listed
        .as_array()
        .or_else(|| listed.get("networks").and_then(Value::as_array))
        .with_context(|| format!("the answer to /v1/networks holds no list of networks: {listed}"))
}

fn estimated(entry: &Value) -> Option<Estimated> {
    let number = |name: &str| entry.get(name).and_then(Value::as_f64);
    Some(Estimated {
        // The kernel's windows count segments of the same size: the quotient of bytes keeps the fraction.
        segments: number("wc_bytes")? / number("mss_bytes").filter(|mss| *mss > 0.0)?,
        samples: entry.get("samples").and_then(Value::as_u64)?,
        rtt_min_ms: number("rtt_min_ms"),
    })
}

fn truth(network: IpNet, (samples, advised): (&[KernelSample], &BTreeSet<FlowId>), rows: &[Row]) -> Option<Truth> {
    let here: Vec<&KernelSample> = samples.iter().filter(|s| network.contains(&s.flow.remote.ip())).collect();
    let count = |reason| here.iter().filter(|sample| sample.reason == reason).count();
    let rtt_min_us = rows
        .iter()
        .filter(|row| row.source == Source::Info && network.contains(&row.remote.ip()))
        .filter_map(|row| row.min_rtt_us)
        .min();
    Some(Truth {
        segments: share(network, &here, advised)?,
        losses: count(Reason::Loss),
        ends: count(Reason::End),
        rtt_min_ms: rtt_min_us.map(|us| f64::from(us) / 1e3),
    })
}

/// Connections that started with more than the kernel's initial window. `delivered` is 1 from the handshake until the first ACK of data.
fn advised(rows: &[Row]) -> BTreeSet<FlowId> {
    let starts = rows.iter().filter(|row| row.delivered.is_some_and(|delivered| delivered <= 1));
    starts.filter(|row| row.cwnd.is_some_and(|cwnd| u64::from(cwnd) > INITIAL_WINDOW)).map(Row::flow).collect()
}

/// The share by the gateway's rule from the kernel's own windows. Samples have no round-trip time here, so the rule raises none as a probe.
fn share(network: IpNet, samples: &[&KernelSample], advised: &BTreeSet<FlowId>) -> Option<f64> {
    let mut by_time = samples.to_vec();
    by_time.sort_by_key(|sample| sample.time_ns);
    let flows: BTreeSet<FlowId> = by_time.iter().map(|sample| sample.flow).collect();
    let mut table = NetworkTable::new(WindowConfig::default(), NonZeroUsize::MIN, RuleKind::default(), 0);
    let network = Network::new(network);
    for sample in &by_time {
        let reason = match sample.reason {
            Reason::Loss => SampleReason::Loss,
            Reason::End => SampleReason::End,
            Reason::SlowStartEnd => SampleReason::EndSlowStart,
            Reason::LowerBound => SampleReason::EndAppLimited,
        };
        table.add(&WindowSample {
            at: Timestamp(sample.time_ns),
            network,
            remote: sample.flow.remote.ip(),
            connection: ConnectionId(flows.iter().position(|flow| *flow == sample.flow)? as u64),
            window: Window::from_bytes(sample.segments * f64::from(sample.mss))?,
            mss: Bytes(sample.mss.into()),
            reason,
            reduced_before: false,
            transfer: Bytes(0),
            advised: advised.contains(&sample.flow),
            rtt_min: None,
            rtt: None,
        });
        while table.poll_event().is_some() {}
    }
    let estimate = table.estimate(network, Timestamp(by_time.last()?.time_ns))?;
    Some(estimate.share.segments_f64(estimate.mss))
}

/// Prints the table.
pub(crate) fn print(compared: &[Compared]) {
    println!(
        "  {:<18} {:>9} {:>9} {:>7}  {:>15}  {:>21}",
        "network", "gateway", "kernel", "apart", "rtt min (ms)", "samples"
    );
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    for row in compared {
        let gateway = row.gateway.map_or("none".to_owned(), |e| format!("{:.1}", e.segments));
        let kernel = row.truth.map_or("none".to_owned(), |t| format!("{:.1}", t.segments));
        let apart = row.error().map_or("-".to_owned(), |error| format!("{:+.1} %", error * 100.0));
        let rtt =
            format!("{} / {}", ms(row.gateway.and_then(|e| e.rtt_min_ms)), ms(row.truth.and_then(|t| t.rtt_min_ms)));
        let samples = format!(
            "{} / {} loss + {} end",
            row.gateway.map_or(0, |e| e.samples),
            row.truth.map_or(0, |t| t.losses),
            row.truth.map_or(0, |t| t.ends)
        );
        println!("  {:<18} {gateway:>9} {kernel:>9} {apart:>7}  {rtt:>15}  {samples:>21}", row.network.to_string());
    }
}

/// How far each network is from the kernel, in one line, the worst first.
pub(crate) fn in_words(compared: &[Compared]) -> String {
    let apart = |row: &Compared| row.error().map_or("-".to_owned(), |error| format!("{:+.1} %", error * 100.0));
    compared.iter().map(|row| format!("{} {}", row.network, apart(row))).collect::<Vec<_>>().join(", ")
}

/// Fails where a network is too far apart, naming it.
pub(crate) fn verdict(compared: &[Compared]) -> Result<()> {
    let bad: Vec<String> = compared
        .iter()
        .filter(|row| row.is_bad())
        .map(|row| match row.error() {
            Some(error) => format!("{} ({:+.1} %)", row.network, error * 100.0),
            None if row.gateway.is_none() => format!("{} (the gateway has no estimate)", row.network),
            None => format!("{} (the kernel gave no sample)", row.network),
        })
        .collect();
    if !bad.is_empty() {
        bail!("estimate and kernel are over {:.0} % apart for {}", APART_MAX * 100.0, bad.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compared(gateway: Option<f64>, truth: Option<f64>) -> Compared {
        Compared {
            network: "198.51.100.0/24".parse().unwrap(),
            gateway: gateway.map(|segments| Estimated { segments, samples: 3, rtt_min_ms: None }),
            truth: truth.map(|segments| Truth { segments, losses: 3, ends: 0, rtt_min_ms: None }),
        }
    }

    #[test]
    fn a_quarter_apart_passes_and_more_fails_by_name() {
        assert!(verdict(&[compared(Some(125.0), Some(100.0))]).is_ok());
        let error = verdict(&[compared(Some(126.0), Some(100.0))]).unwrap_err().to_string();
        assert!(error.contains("198.51.100.0/24") && error.contains("+26.0 %"), "{error}");
    }

    #[test]
    fn a_connection_that_starts_with_more_than_the_kernels_window_is_advised() {
        let row = |port: u16, delivered, cwnd| {
            let flow = FlowId {
                local: "192.0.2.2:80".parse().unwrap(),
                remote: format!("198.51.100.11:{port}").parse().unwrap(),
            };
            Row { delivered: Some(delivered), cwnd: Some(cwnd), ..Row::new(0, Source::Info, flow) }
        };
        let rows = [row(1, 1, 10), row(1, 11, 20), row(2, 1, 10), row(2, 1, 30), row(3, 40, 50)];
        let ports: Vec<u16> = advised(&rows).iter().map(|flow| flow.remote.port()).collect();
        assert_eq!(ports, [2]);
    }

    #[test]
    fn a_short_end_of_an_advised_connection_lowers_the_share_less_than_one_of_a_plain_connection() {
        let network: IpNet = "198.51.100.0/24".parse().unwrap();
        let sample = |n: u16, reason, segments| KernelSample {
            flow: FlowId {
                local: "192.0.2.2:80".parse().unwrap(),
                remote: format!("198.51.100.{}:{n}", 10 + n % 3).parse().unwrap(),
            },
            time_ns: u64::from(n) * 1_000_000_000,
            segments,
            mss: 1_448,
            reason,
            sent_in_slow_start: false,
        };
        // Of one address alone: where two lost packets, no end counts.
        let losses = (1..=6).map(|n| sample(3 * n, Reason::Loss, 40.0));
        let ends = [19, 20].map(|n| sample(n, Reason::End, 40.0)).into_iter();
        let short = (22..=27).map(|n| sample(n, Reason::End, 15.0));
        let samples: Vec<KernelSample> = losses.chain(ends).chain(short).collect();
        let ends: BTreeSet<FlowId> = samples.iter().filter(|s| s.reason == Reason::End).map(|s| s.flow).collect();
        let share = |advised: BTreeSet<FlowId>| share(network, &samples.iter().collect::<Vec<_>>(), &advised).unwrap();
        let (advised, plain) = (share(ends), share(BTreeSet::new()));
        assert!(advised > plain + 5.0, "{advised} {plain}");
    }

    #[test]
    fn nothing_to_compare_fails() {
        assert!(verdict(&[compared(None, Some(100.0))]).unwrap_err().to_string().contains("no estimate"));
        assert!(verdict(&[compared(Some(1.0), None)]).unwrap_err().to_string().contains("no sample"));
    }

    #[test]
    fn the_list_is_found_and_read() {
        let network: IpNet = "198.51.100.0/24".parse().unwrap();
        let listed = json!({"networks": [{"prefix": "198.51.100.0/24", "wc_bytes": 14_480.0, "mss_bytes": 1_448, "samples": 9}]});
        let compared = compare(&[network], &listed, &[]).unwrap();
        assert_eq!(compared.first().and_then(|c| c.gateway).map(|e| e.segments), Some(10.0));
        assert!(compare(&[network], &json!({}), &[]).is_err());
    }
}
