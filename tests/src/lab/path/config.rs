//! What a path is, and how a person writes it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use spand_proto::units::BytesPerSecond;

use super::impairments::{Cross, Impairments};

/// How much may wait before the bottleneck; the packet in service counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Queue {
    /// Whole packets, whatever their size.
    Packets(u32),
    /// IP bytes.
    Bytes(u64),
    /// Queues by flow with an AQM (RFC 8290), as Linux has them by default: of the kernel's paths alone.
    FqCodel,
}

/// A bottleneck and what follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    /// Its rate in IP bytes; `None`: no bottleneck and no queue.
    pub rate: Option<BytesPerSecond>,
    /// The queue before it, drop-tail.
    pub queue: Queue,
    /// Time from its end to the next, or to the other side.
    pub delay: Duration,
    /// A packet of an ECN-capable sender that finds this many or more before it is marked (CE, RFC 3168).
    pub mark_above: Option<u32>,
    /// Traffic that shares it.
    pub cross: Option<Cross>,
    /// When its rate changes, in order of time.
    pub changes: [Option<RateChange>; CHANGES_MAX],
    /// When its delay changes.
    pub delay_change: Option<DelayChange>,
}

/// Most changes of one bottleneck's rate.
pub const CHANGES_MAX: usize = 2;

/// A bottleneck's new rate. What waits already leaves as it would have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateChange {
    /// Time from the path's first packet.
    pub after: Duration,
    /// In IP bytes.
    pub rate: BytesPerSecond,
}

/// A new delay. What is on its way arrives as it would have, and nothing overtakes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DelayChange {
    /// Time from the path's first packet.
    pub after: Duration,
    /// In place of [`Hop::delay`].
    pub delay: Duration,
}

impl Hop {
    /// A bottleneck that marks nothing and that nobody shares.
    pub const fn new(rate: Option<BytesPerSecond>, queue: Queue, delay: Duration) -> Self {
        Self { rate, queue, delay, mark_above: None, cross: None, changes: [None; CHANGES_MAX], delay_change: None }
    }
}

/// Most bottlenecks that follow the first.
pub const FURTHER_MAX: usize = 5;

/// One direction of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// What happens to packets, bottlenecks apart.
    pub impairments: Impairments,
    /// The first bottleneck.
    pub hop: Hop,
    /// Those in a row after it.
    pub further: [Option<Hop>; FURTHER_MAX],
}

impl LinkConfig {
    /// One bottleneck without impairments.
    pub fn new(hop: Hop) -> Self {
        Self { impairments: Impairments::default(), hop, further: [None; FURTHER_MAX] }
    }

    /// The same with these bottlenecks in a row after the first, at most [`FURTHER_MAX`].
    #[must_use]
    pub fn then(self, hops: impl IntoIterator<Item = Hop>) -> Self {
        let mut further = [None; FURTHER_MAX];
        for (place, hop) in further.iter_mut().zip(hops) {
            *place = Some(hop);
        }
        Self { further, ..self }
    }

    /// Delay of an empty direction, transmission times left out.
    pub fn delay(&self) -> Duration {
        self.hops().map(|hop| hop.delay).sum()
    }

    /// Bottlenecks in order.
    pub fn hops(&self) -> impl Iterator<Item = Hop> {
        std::iter::once(self.hop).chain(self.further.into_iter().flatten())
    }
}

/// Both directions of a path, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathConfig {
    /// From the server to the clients.
    pub down: LinkConfig,
    /// From the clients to the server.
    pub up: LinkConfig,
    /// Seed of everything random in it.
    pub seed: u64,
}

impl PathConfig {
    /// A path with its bottleneck downwards and `delay` each way.
    pub fn bottleneck(rate: BytesPerSecond, delay: Duration, queue: Queue) -> Self {
        let link = |rate| LinkConfig::new(Hop::new(rate, queue, delay));
        Self { down: link(Some(rate)), up: link(None), seed: 1 }
    }

    /// Round trip of an empty path, transmission times left out.
    pub fn base_rtt(&self) -> Duration {
        self.down.delay() + self.up.delay()
    }

    /// Bandwidth-delay product downwards in bytes, where there is a bottleneck.
    pub fn bdp_bytes(&self) -> Option<f64> {
        let narrowest = self.down.hops().filter_map(|hop| hop.rate).min()?;
        Some(narrowest.0 as f64 * self.base_rtt().as_secs_f64())
    }
}

/// Reads a rate such as `1.6mbit`, `500kbit` or `1gbit` (decimal prefixes, bits per second).
pub fn parse_rate(text: &str) -> Result<BytesPerSecond> {
    let (number, factor) = split(text, &[("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)])
        .with_context(|| format!("`{text}` is not a rate: write it as 20mbit"))?;
    let bytes_per_second = number * factor / 8.0;
    if !(1_000.0..=1.25e10).contains(&bytes_per_second) {
        bail!("a rate of {text} is outside 8kbit to 100gbit");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to lie in the range above")]
    Ok(BytesPerSecond(bytes_per_second.round() as u64))
}

/// Reads a delay such as `50ms`, `500us` or `1.5s`.
pub fn parse_delay(text: &str) -> Result<Duration> {
    let (number, factor) = split(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
        .with_context(|| format!("`{text}` is not a delay: write it as 50ms"))?;
    let seconds = number * factor;
    if !(0.0..=10.0).contains(&seconds) {
        bail!("a delay of {text} is outside 0 to 10s");
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn split(text: &str, units: &[(&str, f64)]) -> Option<(f64, f64)> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.is_finite().then_some((number, *factor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_delays_are_read_as_written() {
        assert_eq!(parse_rate("1.6mbit").unwrap(), BytesPerSecond(200_000));
        assert_eq!(parse_rate("500kbit").unwrap(), BytesPerSecond(62_500));
        assert_eq!(parse_delay("50ms").unwrap(), Duration::from_millis(50));
        assert_eq!(parse_delay("1.5s").unwrap(), Duration::from_millis(1_500));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "20", "mbit", "-1mbit", "NaNmbit", "infmbit", "1bit"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        for text in ["", "50", "-1ms", "11s", "infs"] {
            assert!(parse_delay(text).is_err(), "{text}");
        }
    }
}
