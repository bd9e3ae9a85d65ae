//! What `status` shows.

use spand_proto::growth::Growth;
use spand_proto::operator::lines_left_out;

use super::agent::Agent;
use crate::applications::Applications;
use crate::apply::Applier;
use crate::clock;
use crate::config::{ApplyMethod, Variant};
use crate::control::{GrowthInForce, InForce, Limitation, Status};
use crate::policy::GrowthSource;

impl<A: Applier> Agent<A> {
    pub(super) fn status(&self) -> Status {
        let now = self.clock.now();
        let named = |counts: &std::collections::BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.clock.uptime().0 / 1_000_000,
            log_lines_left_out: lines_left_out(),
            sandbox: self.confined.parts().map(|(part, dropped)| (part.to_owned(), dropped)).collect(),
            paused: self.pause.pausing().is_paused(),
            paused_until: self.pause.until(),
            reloads: self.reloads.clone(),
            mode: self.config.mode,
            method: self.applier.method(),
            variant: self.variant().map(|variant| variant.name().to_owned()),
            lacking: self.taken.lacks.clone(),
            host_name: self.host_name.to_string(),
            addresses: self.addresses.borrow().clone(),
            gateway: self.gateway.shown(self.dialer.status(), now, clock::wall_ns()),
            networks_held: self.holdings.len(),
            in_force: self
                .applier
                .in_force()
                .into_iter()
                .map(|(prefix, window)| InForce { prefix, cwnd_segments: window.0 })
                .collect(),
            not_in_force: self.not_in_force(),
            growth: self.growth_in_force(),
            decisions: named(&self.decisions),
            method_events: named(&self.applier.counts()),
            advice: self.holdings.counts(),
            pushes: self.pushes.counts(),
            connections_seen: Some(self.seen.shown()),
            applications: self.applications.as_ref().map(Applications::status),
            applications_error: self.applications_error.clone(),
            comparison: self.comparison.classes(),
            transfers_paused: self.comparison.paused(),
            limitations: self
                .limitations()
                .map(|limitation| Limitation {
                    name: limitation.name().to_owned(),
                    sentence: limitation.sentence().to_owned(),
                })
                .collect(),
        }
    }

    /// `bpf.variant` as it is in force.
    fn variant(&self) -> Option<Variant> {
        let (method, variant) = self.taken.in_force;
        (method == ApplyMethod::Bpf).then_some(variant)
    }

    /// What the apply method cannot do of what is asked of it.
    fn limitations(&self) -> impl Iterator<Item = crate::apply::Limitation> {
        let all_standard = self.policy.growths.is_standard();
        let start = &self.config.start;
        let all_paced = start.shapes().is_standard();
        let all = self.applier.limitations().iter().copied();
        all.filter(move |limitation| match limitation {
            crate::apply::Limitation::Growth => !all_standard,
            crate::apply::Limitation::Shape => !all_paced,
            _ => true,
        })
    }

    /// The rules of slow start; none where the kernel's own holds for all, by choice or since the method has no other.
    fn growth_in_force(&self) -> Vec<GrowthInForce> {
        let growths = &self.policy.growths;
        let may = !self.applier.limitations().contains(&crate::apply::Limitation::Growth);
        if growths.is_standard() || !may || self.pause.pausing().is_paused() {
            return Vec::new();
        }
        let shown = |(source, growth): (GrowthSource, Growth)| {
            let (name, dbc_dmax, burst_f) = match growth {
                Growth::Standard => ("standard", None, None),
                Growth::Dbc { dmax } => ("dbc", Some(dmax.get()), None),
                Growth::Burst { f } => ("burst", None, Some(f.get())),
            };
            let (prefix, service) = match source {
                GrowthSource::Default => (None, None),
                GrowthSource::Prefix(prefix) => (Some(prefix), None),
                GrowthSource::Service(service) => (None, Some(service)),
            };
            GrowthInForce { prefix, service, growth: name.to_owned(), dbc_dmax, burst_f }
        };
        growths.all().map(shown).collect()
    }
}
