//! What an application holds of the agent's advice, and the answers from it. Takes the time as an argument; does no IO.
//!
//! At the limit the network that was asked for longest ago goes, and with it its advice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use ipnet::IpNet;
use spand_proto::network::Network;
use spand_proto::report::Arm;
use spand_proto::start::{NO_THRESHOLD, RefusalReason, Shape, StartRequest, TransferSize, start_within};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};

use crate::budget::{Budget, Claim, Reservation};
use crate::message::{MOST_MSS_BYTES, Offer, Outcome, Settings, ToApplication};
use crate::{Ended, Reason};

/// Time after which a network that is still not known is asked for again.
const ASK_AGAIN: Micros = Micros::from_secs(1);

/// A connection that is about to start.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The other end.
    pub destination: SocketAddr,
    /// The host's end, where it is known.
    pub local: Option<SocketAddr>,
    /// The transfer's size, where it is known.
    pub bytes: Option<u64>,
    /// The connection's round trip so far, where it was measured.
    pub rtt: Option<Duration>,
    /// Payload of a full-sized packet, 1 to 65,527 bytes, where it is known; else that of the estimate.
    pub mss_bytes: Option<u64>,
    /// The arm that the connection was drawn for, where it has asked before.
    pub arm: Option<Arm>,
}

impl Question {
    /// About a connection of which nothing but its other end is known.
    pub const fn of(destination: SocketAddr) -> Self {
        Self { destination, local: None, bytes: None, rtt: None, mss_bytes: None, arm: None }
    }

    /// With the host's end.
    #[must_use]
    pub const fn local(self, local: SocketAddr) -> Self {
        Self { local: Some(local), ..self }
    }

    /// With the transfer's size.
    #[must_use]
    pub const fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// With the round trip of its handshake.
    #[must_use]
    pub const fn rtt(self, rtt: Duration) -> Self {
        Self { rtt: Some(rtt), ..self }
    }

    /// With the payload of a full-sized packet.
    #[must_use]
    pub const fn mss_bytes(self, mss_bytes: u64) -> Self {
        Self { mss_bytes: Some(mss_bytes), ..self }
    }
}

/// How to start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The congestion window in bytes.
    pub window_bytes: u64,
    /// The same in full-sized packets.
    pub window_segments: u32,
    /// The slow-start threshold in bytes, no less than the window; `None` where slow start goes on.
    pub threshold_bytes: Option<u64>,
    /// How the first window is spread; `None` where it may leave at once.
    pub pacing: Option<Pacing>,
    /// Payload of a full-sized packet that these are counted in.
    pub mss_bytes: u64,
    /// The network's share in bytes: what a connection there can sustain.
    pub share_bytes: u64,
    /// What the start is made of.
    pub shape: Shape,
    /// What the connection may jump to by Careful Resume (RFC 9959), once its initial window has arrived; the window is then the host's own.
    pub resume: Option<Resume>,
    /// For how long the advice holds: a connection that sends its first data later asks again.
    pub lifetime: Duration,
}

/// Saved parameters of Careful Resume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resume {
    /// The window of the jump.
    pub window_bytes: u64,
    /// The round trip of the network.
    pub rtt: Duration,
}

/// The spreading of a first window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pacing {
    /// Bytes that leave at once, before the rate holds.
    pub burst_bytes: u64,
    /// The rate of the rest.
    pub bytes_per_s: u64,
}

/// The answer to a question.
#[derive(Debug)]
pub struct Answer {
    /// The start, or why it is plain.
    pub start: Result<Start, Reason>,
    /// Its arm of the comparison; `None` where it is part of none.
    pub arm: Option<Arm>,
    /// The network that it is about.
    pub(crate) network: Option<Network>,
    reservation: Option<Reservation>,
    claim: Option<Claim>,
    /// What the agent must be asked to send, and to send no more.
    pub(crate) watch: Option<IpAddr>,
    pub(crate) unwatch: Option<Network>,
}

/// What became of questions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Questions.
    pub questions: u64,
    /// Those answered with a start on advice.
    pub advised: u64,
    /// Networks that went so that others had room.
    pub evicted: u64,
}

/// The advice.
#[derive(Debug)]
pub struct Table {
    limit: NonZeroUsize,
    settings: Option<Settings>,
    offers: HashMap<Network, (Offer, Budget)>,
    /// Prefix lengths of the offers, the longest first, with how many there are.
    lengths: BTreeMap<(bool, Reverse<u8>), usize>,
    watched: HashMap<Network, Watched>,
    /// The watched ones by the time of their last question.
    order: BTreeMap<u64, Network>,
    turn: u64,
    eras: u64,
    drawn: u64,
    counts: Counts,
}

#[derive(Debug)]
struct Watched {
    turn: u64,
    asked: Timestamp,
    nothing: Option<Reason>,
}

impl Table {
    /// Empty, for at most `limit` networks.
    pub fn new(limit: NonZeroUsize) -> Self {
        Self {
            limit,
            settings: None,
            offers: HashMap::new(),
            lengths: BTreeMap::new(),
            watched: HashMap::new(),
            order: BTreeMap::new(),
            turn: 0,
            eras: 0,
            drawn: 0,
            counts: Counts::default(),
        }
    }

    /// Takes in what the agent sent.
    pub fn take(&mut self, message: ToApplication) {
        match message {
            ToApplication::Settings(settings) => self.settings = Some(settings),
            ToApplication::Offer(offer) => self.take_offer(*offer),
            ToApplication::Renewed(renewed) => {
                if let Some((offer, _)) = self.offers.get_mut(&renewed.network) {
                    offer.expires = renewed.expires;
                }
            }
            ToApplication::Gone(network) => self.remove(network),
            ToApplication::Nothing(nothing) => {
                if let Some(watched) = self.watched.get_mut(&nothing.network) {
                    watched.nothing = Some(nothing.reason);
                }
            }
            // Of a clock or a single question alone.
            ToApplication::Started(_) | ToApplication::Alive { .. } | ToApplication::Error(_) => {}
        }
    }

    fn take_offer(&mut self, offer: Offer) {
        let network = offer.estimate.network;
        if let Some((known, _)) = self.offers.get_mut(&network) {
            *known = offer;
            return;
        }
        // Wide networks are few; twice as many narrow ones as are watched come only from an agent that counts otherwise.
        if self.offers.len() >= self.limit.get().saturating_mul(2) {
            self.counts.evicted += 1;
            return;
        }
        *self.lengths.entry(length(network)).or_default() += 1;
        self.eras += 1;
        self.offers.insert(network, (offer, Budget::of_era(self.eras)));
    }

    fn remove(&mut self, network: Network) {
        if self.offers.remove(&network).is_none() {
            return;
        }
        if let Some(count) = self.lengths.get_mut(&length(network)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length(network));
            }
        }
    }

    /// Forgets everything: the agent is gone.
    pub fn clear(&mut self) {
        let (limit, counts, eras, drawn) = (self.limit, self.counts, self.eras, self.drawn);
        *self = Self { eras, drawn, counts, ..Self::new(limit) };
    }

    /// Whether the agent is there.
    pub const fn is_ready(&self) -> bool {
        self.settings.is_some()
    }

    /// What happened so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Networks with advice.
    pub fn len(&self) -> usize {
        self.offers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }

    /// Forgets advice whose lifetime is over.
    pub fn expire(&mut self, now: Timestamp) {
        let over: BTreeSet<Network> =
            self.offers.iter().filter(|(_, (offer, _))| offer.expires <= now).map(|(network, _)| *network).collect();
        for network in over {
            self.remove(network);
        }
    }

    /// Answers; `now` is the agent's clock.
    pub fn start(&mut self, question: &Question, now: Timestamp) -> Answer {
        self.counts.questions += 1;
        let address = question.destination.ip().to_canonical();
        let Some(settings) = self.settings else {
            return Answer::plain(Reason::AgentGone);
        };
        let (mut watch, unwatch) = self.touch(address, now);
        let answer = self.decide(question, address, &settings, now);
        if let (Err(Reason::NotKnownYet), Some(watched)) = (&answer.start, self.watched.get_mut(&Network::of(address)))
            && now.since(watched.asked) >= ASK_AGAIN
        {
            // The line may have been lost.
            (watched.asked, watch) = (now, true);
        }
        self.counts.advised += u64::from(answer.start.is_ok());
        Answer { watch: watch.then_some(address), unwatch, ..answer }
    }

    /// Counts the address's network as asked for, without a question.
    pub fn watch(&mut self, address: IpAddr) {
        self.touch(address.to_canonical(), Timestamp::default());
    }

    /// Counts the address's network as asked for now. Whether that is new, and what went so that it has room.
    fn touch(&mut self, address: IpAddr, now: Timestamp) -> (bool, Option<Network>) {
        let network = Network::of(address);
        self.turn += 1;
        let turn = self.turn;
        if let Some(watched) = self.watched.get_mut(&network) {
            self.order.remove(&watched.turn);
            watched.turn = turn;
            self.order.insert(turn, network);
            return (false, None);
        }
        let mut gone = None;
        if self.watched.len() >= self.limit.get()
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.watched.remove(&oldest);
            self.remove(oldest);
            self.counts.evicted += 1;
            gone = Some(oldest);
        }
        self.watched.insert(network, Watched { turn, asked: now, nothing: None });
        self.order.insert(turn, network);
        (true, gone)
    }

    /// The longest network with advice around an address.
    fn lookup(&self, address: IpAddr) -> Option<Network> {
        let is_ipv6 = address.is_ipv6();
        let lengths = self.lengths.range((is_ipv6, Reverse(u8::MAX))..).take_while(|((ipv6, _), _)| *ipv6 == is_ipv6);
        lengths.into_iter().find_map(|((_, Reverse(length)), _)| {
            let network = Network::new(IpNet::new(address, *length).ok()?);
            self.offers.contains_key(&network).then_some(network)
        })
    }

    fn decide(&mut self, question: &Question, address: IpAddr, settings: &Settings, now: Timestamp) -> Answer {
        let Some(network) = self.lookup(address) else {
            let watched = self.watched.get(&Network::of(address));
            return Answer::plain(watched.and_then(|watched| watched.nothing).unwrap_or(Reason::NotKnownYet));
        };
        let is_control = if let Some(arm) = question.arm {
            arm == Arm::Control
        } else {
            self.drawn += 1;
            draw(settings.seed, self.drawn) < settings.control_fraction
        };
        let Some((offer, budget)) = self.offers.get_mut(&network) else { return Answer::plain(Reason::NotKnownYet) };
        let plain = |reason: Reason| Answer { network: Some(network), ..Answer::plain(reason) };
        if offer.expires <= now {
            return plain(Reason::Expired);
        }
        let own_reason = match offer.reason {
            // What is computed for this connection decides.
            None | Some(Reason::Refused(_)) => None,
            Some(reason @ (Reason::Excluded | Reason::NotIncluded | Reason::Paused)) => return plain(reason),
            Some(reason) => Some(reason),
        };
        let arm = if is_control || own_reason.is_some_and(Reason::is_control) { Arm::Control } else { Arm::Advised };
        let compared = |reason: Reason| Answer { arm: Some(arm), ..plain(reason) };
        if let Some(reason) = own_reason.or((arm == Arm::Control).then_some(Reason::Control)) {
            return compared(reason);
        }
        if budget.is_held_back(address, now) {
            return compared(Reason::Retreated);
        }
        let rtt = offer.estimate.rtt_mean.or(offer.estimate.rtt_min);
        let known_size = question.bytes.map(|bytes| TransferSize::Known(Bytes(bytes)));
        let usual_size = || settings.usual_bytes.map_or(TransferSize::Unknown, TransferSize::Usual);
        let request = StartRequest {
            estimate: Some(&offer.estimate),
            now,
            size: known_size.unwrap_or_else(usual_size),
            mss: question.mss_bytes.map_or(offer.estimate.mss, |bytes| Bytes(bytes.min(MOST_MSS_BYTES))),
            snd_wnd: None,
            handshake_rtt: question.rtt.map(Micros::from),
            initial_window: settings.initial_window,
            budget: offer.lease.map(|lease| budget.left(lease, now, rtt)),
        };
        let start = match start_within(offer.cap, &request, &offer.policy) {
            Ok(start) => start,
            Err(refusal) => return compared(Reason::Refused(refusal.reason())),
        };
        let jump = start.account.jump.filter(|jump| *jump > settings.initial_window);
        let (mss, share) = (start.mss, start.account.raised.unwrap_or(start.account.share));
        // The share and the budget are of packets as the network has them: ten of larger ones are more than they allow.
        let unit = mss.min(offer.estimate.mss);
        let window = if mss > unit {
            let left = request.budget.map_or(u32::MAX, |left| settings.initial_window.0.saturating_add(left.0));
            start.cwnd.bytes(mss).min(share.bytes(mss)).min(Segments(left).bytes(unit)).max(mss)
        } else {
            start.cwnd.bytes(mss)
        };
        let above = window.segments_ceil(unit).0.saturating_sub(settings.initial_window.0);
        let reservation = (above > 0).then(|| budget.reserve(above));
        let start = Start {
            window_bytes: window.0,
            window_segments: window.segments_floor(mss).0,
            threshold_bytes: (start.ssthresh != NO_THRESHOLD).then(|| {
                let threshold = start.ssthresh.bytes(mss);
                if mss > unit { threshold.min(share.bytes(mss)).max(window).0 } else { threshold.0 }
            }),
            pacing: start
                .pacing
                .map(|pacing| Pacing { burst_bytes: pacing.after_segments.bytes(mss).0, bytes_per_s: pacing.rate.0 })
                .filter(|pacing| mss == unit || pacing.burst_bytes < window.0),
            mss_bytes: mss.0,
            share_bytes: start.account.share.bytes(mss).0,
            shape: start.account.shape,
            resume: jump.zip(rtt).map(|(jump, rtt)| Resume { window_bytes: jump.bytes(mss).0, rtt: rtt.into() }),
            lifetime: offer.expires.since(now).into(),
        };
        Answer {
            start: Ok(start),
            arm: Some(arm),
            network: Some(network),
            reservation,
            ..Answer::plain(Reason::Expired)
        }
    }

    /// The first flight of an answered connection is over, with the segments that had left and those of them that were lost; or the
    /// connection is. What it reserved is free again.
    pub fn over(&mut self, answer: &mut Answer, client: IpAddr, flight: Option<(u32, u32)>, now: Timestamp) {
        let Some((_, budget)) = answer.network.and_then(|network| self.offers.get_mut(&network)) else { return };
        if let Some(claim) = answer.claim.take() {
            budget.end_claim(claim);
        }
        let Some(reservation) = answer.reservation.take() else { return };
        budget.release(reservation);
        if let Some((sent, lost)) = flight {
            budget.on_first_flight(client, lost > sent / 2, now);
        }
    }

    /// Whether an answered connection may jump now by Careful Resume: the advice holds still, no other connection to the network jumps,
    /// and the budget has room, which is reserved.
    pub fn may_resume(&mut self, answer: &mut Answer, client: IpAddr, now: Timestamp) -> bool {
        let (Some(settings), Ok(start)) = (self.settings, answer.start) else { return false };
        let Some((offer, budget)) = answer.network.and_then(|network| self.offers.get_mut(&network)) else {
            return false;
        };
        let Some(resume) = start.resume else { return false };
        if offer.expires <= now || offer.reason.is_some() || budget.is_held_back(client, now) {
            return false;
        }
        let rtt = Some(Micros::from(resume.rtt));
        let above = resume.window_bytes / start.mss_bytes.max(1);
        let above = u32::try_from(above).unwrap_or(u32::MAX).saturating_sub(settings.initial_window.0);
        if offer.lease.is_some_and(|lease| budget.left(lease, now, rtt).0 < above) {
            return false;
        }
        answer.claim = budget.claim(now, rtt);
        if answer.claim.is_some() && above > 0 {
            answer.reservation = Some(budget.reserve(above));
        }
        answer.claim.is_some()
    }

    /// Careful Resume of an answered connection is over. After a retreat no connection to the network jumps until the advice has been
    /// renewed or is over.
    pub fn resumed(&mut self, answer: &mut Answer, has_retreated: bool) {
        let Some((offer, budget)) = answer.network.and_then(|network| self.offers.get_mut(&network)) else { return };
        if let Some(reservation) = answer.reservation.take() {
            budget.release(reservation);
        }
        if let Some(claim) = answer.claim.take() {
            budget.end_claim(claim);
            if has_retreated {
                budget.forbid(offer.expires);
            }
        }
    }
}

impl Answer {
    const fn plain(reason: Reason) -> Self {
        Self {
            start: Err(reason),
            arm: None,
            network: None,
            reservation: None,
            claim: None,
            watch: None,
            unwatch: None,
        }
    }

    /// The report of the connection.
    pub fn report(&self, question: &Question, outcome: &Outcome, goes_on: bool) -> Ended {
        let refusal: Option<RefusalReason> = match self.start {
            Err(Reason::Refused(reason)) => Some(reason),
            _ => None,
        };
        Ended {
            id: None,
            local: question.local,
            remote: Some(question.destination),
            arm: self.arm,
            advised_segments: self.start.as_ref().ok().map(|start| start.window_segments),
            refusal,
            paused: matches!(self.start, Err(Reason::Paused)),
            goes_on,
            outcome: *outcome,
        }
    }
}

fn length(network: Network) -> (bool, Reverse<u8>) {
    let prefix = network.prefix();
    (prefix.addr().is_ipv6(), Reverse(prefix.prefix_len()))
}

/// A number from 0 to below 1 for the Nth connection (`SplitMix64`).
fn draw(seed: u64, number: u64) -> f64 {
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
