//! What a value's type cannot say: ranges, and values that do not go together.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use spand_proto::push::MAX_ADDRESSES;
use spand_proto::start::{DEFAULT_INITIAL_WINDOW, Floor, Mode, PacingRule, RttBounds, StartPolicy, TransferSize};
use spand_proto::units::{Bytes, Micros, Segments};

use super::{ApplyMethod, Config, Variant};
use crate::policy::{Holdout, Policy, Scope, Shapes};

/// Largest window in segments that any key may ask for: the most that TCP's scaled window can have in flight at the
/// smallest MSS, and far above anything sensible.
const MOST_SEGMENTS: u32 = 65_535;

impl Config {
    /// Every fault, the first one in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.gateway.check()?;
        self.tls.check(&self.gateway)?;
        if self.gateway.retry_min_ms > self.gateway.retry_max_ms {
            return Err("gateway.retry_min_ms is above gateway.retry_max_ms: swap them".to_owned());
        }
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(format!("addresses has {} entries: give at most {MAX_ADDRESSES}", self.addresses.len()));
        }
        if let Some(address) = self.addresses.iter().find(|a| a.is_unspecified() || a.is_loopback() || a.is_multicast())
        {
            return Err(format!("addresses: {address} is not an address that others reach this host by"));
        }
        if self.state_dir.as_os_str().is_empty() {
            return Err("state_dir is empty: name a folder, or leave it out for /var/lib/spand/agent".to_owned());
        }
        self.log.check()?;
        let (low, high) = (self.policy.rtt_ratio_min, self.policy.rtt_ratio_max);
        if !(low > 0.0 && low <= 1.0 && high >= 1.0 && high.is_finite()) {
            return Err(format!(
                "policy.rtt_ratio_min {low} and policy.rtt_ratio_max {high} must hold 1 between them, and the first be \
                 above 0"
            ));
        }
        if !(0.0..=1.0).contains(&self.holdout.fraction) {
            return Err(format!("holdout.fraction is {}: give 0 to 1, such as 0.05", self.holdout.fraction));
        }
        let name = &self.bpf.name;
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        if !(1..=9).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(format!("bpf.name `{name}` is no name: give 1 to 9 of a-z, 0-9 and _"));
        }
        if !(0.0..=1.0).contains(&self.bpf.control_fraction) {
            return Err(format!("bpf.control_fraction is {}: give 0 to 1, such as 0.05", self.bpf.control_fraction));
        }
        let socket = self.applications.socket.as_deref();
        if socket.is_some_and(|socket| socket == self.control_socket()) {
            return Err("applications.socket is the agent's control socket: name another".to_owned());
        }
        let day_ms = 24 * 3_600 * 1_000;
        let times_ms = [
            ("gateway.timeout_ms", self.gateway.timeout_ms.get()),
            ("gateway.idle_timeout_s", self.gateway.idle_timeout_s.get().saturating_mul(1_000)),
            ("gateway.retry_max_ms", self.gateway.retry_max_ms.get()),
            ("policy.lifetime_s", self.policy.lifetime_s.get().saturating_mul(1_000)),
            ("policy.max_age_s", self.policy.max_age_s.get().saturating_mul(1_000)),
            ("route.batch_ms", self.route.batch_ms.get()),
            ("route.settle_ms", self.route.settle_ms.get()),
            ("route.verify_s", self.route.verify_s.get().saturating_mul(1_000)),
        ];
        if let Some((key, _)) = times_ms.into_iter().find(|(_, ms)| *ms > day_ms) {
            return Err(format!("{key} is longer than a day: give less"));
        }
        let windows = [
            ("policy.cap_segments", self.policy.cap_segments),
            ("policy.floor_segments", self.policy.floor_segments),
            ("policy.initial_window_segments", self.policy.initial_window_segments),
            ("route.burst_cap_segments", self.route.burst_cap_segments),
        ];
        match windows.into_iter().find(|(_, window)| window.get() > MOST_SEGMENTS) {
            Some((key, window)) => Err(format!("{key} is {window}: give 1 to {MOST_SEGMENTS}")),
            None => Ok(()),
        }
    }

    /// The policy for applications: it does not depend on what the apply method can set.
    pub(crate) fn application_policy(&self) -> Policy {
        let bpf = super::Bpf { variant: Variant::Stay, ..self.bpf.clone() };
        Self { apply: ApplyMethod::Bpf, bpf, ..self.clone() }.policy()
    }

    /// The policy for the applier that is configured.
    pub fn policy(&self) -> Policy {
        let policy = &self.policy;
        let mut start = StartPolicy {
            min_samples: policy.min_samples.get(),
            min_connections: policy.min_connections.get(),
            max_age: Micros::from_secs(policy.max_age_s.get()),
            ..StartPolicy::of(self.mode)
        };
        if self.mode != Mode::Paper {
            start.fraction = Some(policy.fraction);
            start.cap = Some(Segments(policy.cap_segments.get()));
            start.floor = Some(Floor {
                lowest: Segments(policy.floor_segments.get()),
                loss_connections: policy.floor_loss_connections.get(),
            });
            start.crowd = policy.crowd;
            start.rtt_bounds = Some(RttBounds { low: policy.rtt_ratio_min, high: policy.rtt_ratio_max });
            if self.apply == ApplyMethod::Route {
                let burst = self.route.burst_fraction;
                start.fraction = start.fraction.map(|part| if burst < part { burst } else { part });
                start.cap = start.cap.map(|cap| cap.min(Segments(self.route.burst_cap_segments.get())));
            }
        }
        if self.apply == ApplyMethod::Bpf {
            // Linux paces no connection's first ten segments, whatever the mode asks for (docs/explain/decisions/kernel-programs.md).
            if let PacingRule::TokenBucket { .. } = start.pacing {
                start.pacing = PacingRule::AfterBurst { burst: DEFAULT_INITIAL_WINDOW };
            }
        }
        start.buffered = self.start.buffer;
        // A window by a route leaves as one burst, however large.
        if self.start.buffer && self.apply == ApplyMethod::Route {
            start.pacing = PacingRule::ShareAfterBurst { burst: Segments(u32::MAX) };
        }
        let has_shapes = self.apply == ApplyMethod::Bpf && matches!(self.bpf.variant, Variant::Auto | Variant::Stay);
        Policy {
            start,
            shapes: if has_shapes { self.start.shapes() } else { Shapes::default() },
            scope: Scope::new(&self.destinations.include, &self.destinations.exclude, &caps(&self.destinations.caps)),
            holdout: Holdout { fraction: self.holdout.fraction, slot_s: self.holdout.slot_s, seed: self.holdout.seed },
            initial_window: Segments(policy.initial_window_segments.get()),
            service_size: policy.service_bytes.map_or(TransferSize::Unknown, |b| TransferSize::Known(Bytes(b.get()))),
            sets_threshold: self.apply == ApplyMethod::Bpf,
            growths: self.start.growths(),
        }
    }
}

fn caps<N: Copy>(caps: &BTreeMap<N, NonZeroU32>) -> Vec<(N, Segments)> {
    caps.iter().map(|(network, cap)| (*network, Segments(cap.get()))).collect()
}
