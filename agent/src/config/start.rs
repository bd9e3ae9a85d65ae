//! `[start]`: how a connection goes on from its start, by default and for single prefixes and services.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use spand_proto::growth::{Growth, MOST_ACKED};
use spand_proto::network::Network;
use spand_proto::start::{Mode, Shape};
use strum::{Display, IntoStaticStr};
use toml::Spanned;

use crate::policy::{Growths, Shapes};

/// Prefixes, and services, that `[[start.for]]` may name; the kernel's tables have the same room (`MOST_GROWTHS`).
pub(crate) const MOST_NAMED: usize = 1_024;

/// Largest `dbc_dmax`: growth is computed for no larger one.
const MOST_DMAX: u32 = MOST_ACKED;
/// What `burst_f` may be, and the smallest outside `paper` mode.
const BURST_F: Range<u32> = 4..17;
const CAREFUL_BURST_F: u32 = 8;

/// `[start]`: how a connection goes on from its start.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// What a start is made of; `rule` is another name of it. Default `paced`.
    #[serde(alias = "rule")]
    pub shape: Spanned<Shape>,
    /// Whether the bottleneck's buffer bounds what is not paced, and the slow start after it. Default false.
    pub buffer: bool,
    /// How the window grows in slow start. Default `standard`.
    pub growth: GrowthRule,
    /// For `dbc`: what an acknowledged segment adds falls from one segment to one part in this many at the threshold. Default 2.
    pub dbc_dmax: Spanned<NonZeroU32>,
    /// For `burst`: the smaller, the faster small windows grow. Default 8.
    pub burst_f: Spanned<NonZeroU32>,
    /// Other choices for single prefixes and services.
    #[serde(rename = "for", skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<Spanned<StartFor>>,
}

/// `[[start.for]]`: another choice for some connections. The longest prefix wins, then the service, then `[start]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StartFor {
    /// Connections to these networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<Spanned<Network>>,
    /// Connections of this address and port of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Spanned<SocketAddr>>,
    /// As in `[start]`; for prefixes only.
    #[serde(alias = "rule", skip_serializing_if = "Option::is_none")]
    pub shape: Option<Spanned<Shape>>,
    /// As in `[start]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<GrowthRule>,
    /// That of `[start]` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dbc_dmax: Option<Spanned<NonZeroU32>>,
    /// That of `[start]` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_f: Option<Spanned<NonZeroU32>>,
}

/// How the window grows in slow start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Display, Eq, IntoStaticStr, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GrowthRule {
    /// As the kernel has it.
    #[default]
    Standard,
    /// Decreasing byte counting.
    Dbc,
    /// Burst TCP.
    Burst,
}

/// What is wrong, and where in the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: String,
}

impl Fault {
    fn of<T>(value: &Spanned<T>, message: String) -> Self {
        Self { at: value.span().start, message }
    }
}

impl Default for Start {
    fn default() -> Self {
        Self {
            shape: unwritten(Shape::default()),
            buffer: false,
            growth: GrowthRule::default(),
            dbc_dmax: unwritten(const { NonZeroU32::new(2).unwrap() }),
            burst_f: unwritten(const { NonZeroU32::new(8).unwrap() }),
            exceptions: Vec::new(),
        }
    }
}

/// A value that stands in no text.
fn unwritten<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl Start {
    /// The first fault.
    pub(super) fn check(&self, mode: Mode) -> Result<(), Fault> {
        check_shape("start", &self.shape, mode)?;
        check_numbers("start", Some(&self.dbc_dmax), Some(&self.burst_f), mode)?;
        let (mut prefixes, mut services) = (BTreeSet::new(), BTreeSet::new());
        for entry in &self.exceptions {
            entry.get_ref().check(entry, mode)?;
            for prefix in &entry.get_ref().prefixes {
                if !prefixes.insert(prefix.get_ref()) {
                    let message = format!("start.for: `{}` is named twice: leave one out", prefix.get_ref());
                    return Err(Fault::of(prefix, message));
                }
            }
            if let Some(service) = &entry.get_ref().service
                && !services.insert(canonical(*service.get_ref()))
            {
                let message = format!("start.for: the service `{}` is named twice: leave one out", service.get_ref());
                return Err(Fault::of(service, message));
            }
            if prefixes.len() > MOST_NAMED || services.len() > MOST_NAMED {
                let message = format!("start.for names more than {MOST_NAMED} prefixes or services: name fewer");
                return Err(Fault::of(entry, message));
            }
        }
        Ok(())
    }

    /// What starts are made of, by network.
    pub(crate) fn shapes(&self) -> Shapes {
        let mut shapes = Shapes { by_default: *self.shape.get_ref(), ..Shapes::default() };
        for entry in self.exceptions.iter().map(Spanned::get_ref) {
            let Some(shape) = &entry.shape else { continue };
            shapes.prefixes.extend(entry.prefixes.iter().map(|prefix| (*prefix.get_ref(), *shape.get_ref())));
        }
        shapes
    }

    /// The rules of slow start, by connection.
    pub(crate) fn growths(&self) -> Growths {
        let mut growths = Growths { by_default: self.growth(self.growth, None, None), ..Growths::default() };
        for entry in self.exceptions.iter().map(Spanned::get_ref) {
            let Some(rule) = entry.growth else { continue };
            let growth = self.growth(rule, entry.dbc_dmax.as_ref(), entry.burst_f.as_ref());
            growths.prefixes.extend(entry.prefixes.iter().map(|prefix| (*prefix.get_ref(), growth)));
            growths.services.extend(entry.service.as_ref().map(|service| (canonical(*service.get_ref()), growth)));
        }
        growths
    }

    fn growth(&self, rule: GrowthRule, dmax: Option<&Spanned<NonZeroU32>>, f: Option<&Spanned<NonZeroU32>>) -> Growth {
        match rule {
            GrowthRule::Standard => Growth::Standard,
            GrowthRule::Dbc => Growth::Dbc { dmax: *dmax.unwrap_or(&self.dbc_dmax).get_ref() },
            GrowthRule::Burst => Growth::Burst { f: *f.unwrap_or(&self.burst_f).get_ref() },
        }
    }
}

impl StartFor {
    fn check(&self, whole: &Spanned<Self>, mode: Mode) -> Result<(), Fault> {
        check_numbers("start.for", self.dbc_dmax.as_ref(), self.burst_f.as_ref(), mode)?;
        let refuse = |message: &str| Err(Fault::of(whole, format!("start.for {message}")));
        match (self.prefixes.is_empty(), &self.service) {
            (true, None) => return refuse("says not for which connections: give prefixes or a service"),
            (false, Some(_)) => return refuse("gives prefixes and a service: write an entry for each"),
            (true, Some(service)) if service.get_ref().ip().is_unspecified() || service.get_ref().port() == 0 => {
                let message = format!(
                    "start.for.service `{}` is no service: give an address of this host and a port",
                    service.get_ref()
                );
                return Err(Fault::of(service, message));
            }
            _ => {}
        }
        if let Some(shape) = &self.shape {
            if self.service.is_some() {
                let message = "start.for gives a shape for a service: shapes are chosen by prefixes".to_owned();
                return Err(Fault::of(shape, message));
            }
            check_shape("start.for", shape, mode)?;
        }
        if self.growth.is_none() && self.shape.is_none() {
            return refuse("changes nothing: give shape or growth");
        }
        if self.dbc_dmax.is_some() && self.growth != Some(GrowthRule::Dbc) {
            return refuse("gives dbc_dmax without growth = \"dbc\": leave it out");
        }
        if self.burst_f.is_some() && self.growth != Some(GrowthRule::Burst) {
            return refuse("gives burst_f without growth = \"burst\": leave it out");
        }
        Ok(())
    }
}

fn check_shape(section: &str, shape: &Spanned<Shape>, mode: Mode) -> Result<(), Fault> {
    let name = shape.get_ref();
    if name.is_compared_only() && mode != Mode::Paper {
        let message = format!("{section}.shape `{name}` is for comparison: it runs in mode `paper` only");
        return Err(Fault::of(shape, message));
    }
    Ok(())
}

fn check_numbers(
    section: &str,
    dmax: Option<&Spanned<NonZeroU32>>,
    f: Option<&Spanned<NonZeroU32>>,
    mode: Mode,
) -> Result<(), Fault> {
    if let Some(dmax) = dmax.filter(|dmax| dmax.get_ref().get() > MOST_DMAX) {
        return Err(Fault::of(dmax, format!("{section}.dbc_dmax is {}: give 1 to {MOST_DMAX}", dmax.get_ref())));
    }
    let Some(f) = f else { return Ok(()) };
    let number = f.get_ref().get();
    if !BURST_F.contains(&number) {
        let most = BURST_F.end - 1;
        return Err(Fault::of(f, format!("{section}.burst_f is {number}: give {} to {most}", BURST_F.start)));
    }
    if number < CAREFUL_BURST_F && mode != Mode::Paper {
        let message = format!("{section}.burst_f is {number}: below {CAREFUL_BURST_F} it is for mode `paper` only");
        return Err(Fault::of(f, message));
    }
    Ok(())
}

/// An address has one form, as networks have.
fn canonical(service: SocketAddr) -> SocketAddr {
    SocketAddr::new(service.ip().to_canonical(), service.port())
}
