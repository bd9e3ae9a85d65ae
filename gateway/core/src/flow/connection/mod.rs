//! A connection: two senders, how far opening and closing have come, and the starts that its segments announce.

mod judge;

use std::net::IpAddr;

use spand_proto::units::{Micros, Timestamp};

use self::judge::{Doubts, RecordTimes};
use crate::config::FlowReports;
use crate::counters::Ignored;
use crate::flow::connection_end::ConnectionEnd;
use crate::flow::evidence::Evidence;
use crate::flow::handshake::window_shift;
use crate::flow::maybe::MaybeTime;
use crate::flow::passed::{Passed, unit};
use crate::flow::report::{DirectionDetails, DirectionReport};
use crate::flow::sender::Sender;
use crate::flow::seq_state::SeqState;
use crate::flow::sink::{FlowContext, Place};
use crate::flow::tuple::Side;
use crate::mem::Held;
use crate::types::{ConnectionId, Flow, Flows, SampleRate, Trigger};
use crate::wire::segment::{Endpoint, Flags, Segment};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// No completed handshake, nor packets of both sides, or nothing acknowledged of what they sent, yet.
    Opening,
    /// Data may flow.
    Established,
    /// FIN from both, or RST.
    Closed,
}

/// Who a side of a connection is to us.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Role {
    /// Inside the organisation.
    pub(crate) inside: bool,
    /// Its window is wanted.
    pub(crate) follow: bool,
}

/// A start that a segment announces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Imminent {
    /// Who starts: the segment's sender, or its receiver.
    pub(crate) by_sender: bool,
    /// What announced it.
    pub(crate) trigger: Trigger,
}

impl Imminent {
    /// What `segment` announces if it is the first SYN of a connection: the start of its sender, where that is inside, else of its
    /// receiver. Nothing else of the connection has to be known for it.
    #[inline]
    pub(crate) fn by_syn(segment: &Segment, from: Role, to: Role) -> Option<Self> {
        if !segment.flags.has(Flags::SYN) || segment.ack.is_some() {
            return None;
        }
        let by_sender = from.inside;
        let (host, trigger) = if by_sender { (from, Trigger::ActiveOpen) } else { (to, Trigger::PassiveOpen) };
        host.is_announced_here().then_some(Self { by_sender, trigger })
    }

    /// What data from outside announce that arrive at an idle host.
    pub(crate) fn by_data_after_idle(from: Role, to: Role) -> Option<Self> {
        (!from.inside && to.is_announced_here()).then_some(Self { by_sender: false, trigger: Trigger::Idle })
    }
}

impl Role {
    /// Whether starts of this end are announced, and by this engine.
    fn is_announced_here(self) -> bool {
        self.inside && self.follow
    }
}

/// Which silence ends a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Idleness {
    /// That of an established connection.
    Established,
    /// That of one opening or closing.
    Other,
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    id: ConnectionId,
    roles: [Role; 2],
    parties: [Option<ConnectionEnd>; 2],
    /// The shifts of the windows that they announce, where known.
    shifts: [Option<u8>; 2],
    stage: Stage,
    doubts: Doubts,
    /// Both sides were seen, and agree on their sequence numbers: other numbers are rejected from here on.
    agreed: bool,
    times: RecordTimes,
    /// When what passed was last handed over, in units of [`unit()`].
    handed_over: u16,
    /// How many of its sides sent anything, of those whose senders are gone.
    sent: u8,
    /// Something of it was acknowledged for the first time since [`Self::take_progress`] last asked.
    progressed: bool,
    /// It is counted here, and not by another engine.
    counted: bool,
    reports: FlowReports,
    /// The part of the connections like it that is followed.
    rate: SampleRate,
}

/// What the segment at hand repeated, before it is handed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated {
    /// Who sent it.
    side: Side,
    bytes: u32,
}

impl Repeated {
    /// There is no segment.
    pub(crate) const NONE: Self = Self { side: Side::Low, bytes: 0 };
}

/// What a segment led to.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    /// A host inside is about to start.
    pub(crate) imminent: Option<Imminent>,
    /// A look is wanted at this time.
    pub(crate) look_at: Option<Timestamp>,
    /// It has closed, and nothing more is counted: [`Connection::take_reports`] has the accounts of its directions.
    pub(crate) closed: bool,
}

impl Connection {
    /// A connection whose sides have `roles`, in the order of [`Side`], of which `rate` are followed.
    pub(crate) fn new(
        id: ConnectionId,
        roles: [Role; 2],
        counted: bool,
        reports: FlowReports,
        (rate, began): (SampleRate, Timestamp),
    ) -> Self {
        let (parties, shifts) = ([None, None], [None, None]);
        Self {
            id,
            roles,
            parties,
            shifts,
            stage: Stage::Opening,
            doubts: Doubts::NONE,
            agreed: false,
            times: RecordTimes::default(),
            handed_over: unit(began),
            sent: 0,
            progressed: false,
            counted,
            reports,
            rate,
        }
    }

    /// How long it may be silent.
    pub(crate) fn idleness(&self) -> Idleness {
        let goes_on = self.stage == Stage::Established && self.doubts.reset_at == MaybeTime::NONE;
        if goes_on { Idleness::Established } else { Idleness::Other }
    }

    /// Whether this engine counts it.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// How far it has come.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// What the packets of the sender on `side` show, where it is followed.
    pub(crate) fn evidence(&self, side: Side) -> Option<&Evidence> {
        self.party(side)?.sender()?.evidence()
    }

    /// The accounts of its directions so far.
    pub(crate) fn reports(&self) -> impl Iterator<Item = &DirectionReport> {
        self.parties.iter().flatten().filter_map(|party| party.sender()?.report())
    }

    /// Whether `segment`, sent by `side`, opens another connection with the same addresses and ports: a SYN with another
    /// initial sequence number.
    pub(crate) fn is_reused_by(&self, side: Side, segment: &Segment) -> bool {
        if !segment.flags.has(Flags::SYN) {
            return false;
        }
        let closed = self.stage == Stage::Closed;
        if self.is_over() {
            // An answer, too: the tap may have missed the SYN before it.
            return true;
        }
        let Some(sender) = self.party(side) else {
            // Its peer was seen alone so far: a SYN that answers belongs to it, another one to it only while it opens.
            return !segment.flags.has(Flags::ACK) && closed;
        };
        match sender.state().syn {
            Some(syn) if syn.isn == segment.seq => false,
            Some(_) => !segment.flags.has(Flags::ACK) || closed,
            None => !segment.flags.has(Flags::ACK) && (sender.state().has_sent() || closed),
        }
    }

    /// Takes a segment sent by `side`.
    #[inline(never)]
    pub(crate) fn take(
        &mut self,
        side: Side,
        segment: &Segment,
        place: Place,
        context: &mut FlowContext<'_>,
    ) -> Reaction {
        if self.is_over() {
            // Its last words, once more.
            return Reaction::default();
        }
        if self.ignores(side, segment, context) {
            return Reaction::default();
        }
        self.note_time(segment, place, context.now);
        (context.bad_times, context.rate) = (self.times.fault(), self.rate);
        self.ensure_parties(side, segment, place);
        let (from, to) = (self.role(side), self.role(side.other()));
        let syn = segment.flags.has(Flags::SYN);
        let [low, high] = &mut self.parties;
        let (sender, mut peer, shift) = match side {
            Side::Low => (low.as_mut(), high.as_mut(), self.shifts[0]),
            Side::High => (high.as_mut(), low.as_mut(), self.shifts[1]),
        };
        let Some(sender) = sender else { return Reaction::default() };
        if let Some(sender) = sender.sender_mut() {
            sender.end_by_silence(context.now, context);
        }
        if let Some(peer) = peer.as_deref_mut().and_then(ConnectionEnd::sender_mut) {
            peer.end_by_silence(context.now, context);
        }
        let copy = sender.is_copy(segment);
        let imminent = if copy || self.stage == Stage::Closed {
            None
        } else {
            Self::imminent(segment, from, to, peer.as_deref(), context.now)
        };
        if copy {
            context.counters.ignore(Ignored::DuplicateCopy);
        } else if let Some(peer) = peer.as_deref_mut() {
            let una = peer.state().una();
            // A SYN's own window is not shifted.
            peer.acknowledge(segment, if syn { Some(0) } else { shift }, context);
            self.progressed |= peer.state().una() > una;
        }
        let repeated = sender.send(segment, copy, context);
        if syn
            && let Some(peer) = peer.as_deref_mut()
            && let (Some(own), Some(other)) = (sender.state().syn, peer.state().syn)
        {
            let (reaction, peer_reaction) = (peer.state().handshake_rtt.get(), sender.state().handshake_rtt.get());
            for (end, other, reaction) in [(&mut *sender, other, reaction), (peer, own, peer_reaction)] {
                if let Some(sender) = end.sender_mut() {
                    sender.agree(&other, reaction, segment.at);
                }
            }
        }
        let mut closed = false;
        let look_at = peer.and_then(ConnectionEnd::sender_mut).and_then(|peer| peer.end_or_await_silence(context));
        if segment.flags.has(Flags::SYN | Flags::FIN | Flags::RST) || self.stage != Stage::Established {
            if syn {
                self.settle_shifts();
            }
            closed = self.advance_stage(segment, context);
        }
        if unit(context.now).wrapping_sub(self.handed_over) >= context.patience || repeated > 0 || closed {
            let (from, to) = (segment.source.address, segment.destination.address);
            let ends = if side == Side::Low { [from, to] } else { [to, from] };
            self.hand_over(ends, Repeated { side, bytes: repeated }, (context.now, closed), context);
        }
        Reaction { imminent, look_at, closed }
    }

    /// Hands what its sides, at these addresses in the order of [`Side`], sent by `at` over to the networks that are their peers'.
    #[inline(never)]
    pub(crate) fn hand_over(
        &mut self,
        ends: [IpAddr; 2],
        repeated: Repeated,
        (at, ended): (Timestamp, bool),
        context: &mut FlowContext<'_>,
    ) {
        self.handed_over = unit(at);
        let passed = self.passed();
        let [mut low, mut high] = passed.map(Flow::from);
        let from = if repeated.side == Side::Low { &mut low } else { &mut high };
        from.retransmitted_packets = u64::from(repeated.bytes > 0);
        from.retransmitted_bytes = repeated.bytes.into();
        // It stays until the network is in the table, or it ends.
        if self.pass_on(ends, [low, high], (at, ended), context) {
            self.parties.iter_mut().flatten().for_each(|party| party.state_mut().passed = Passed::default());
        }
    }

    fn passed(&self) -> [Passed; 2] {
        self.parties.each_ref().map(|party| party.as_ref().map(|party| party.state().passed).unwrap_or_default())
    }

    /// Gives the networks of its sides' peers what is theirs; whether any of them took it.
    fn pass_on(
        &self,
        [low, high]: [IpAddr; 2],
        [from_low, from_high]: [Flow; 2],
        (at, ended): (Timestamp, bool),
        context: &mut FlowContext<'_>,
    ) -> bool {
        let [low_role, high_role] = self.roles;
        let mut taken = false;
        if from_low.packets + from_high.packets > 0 {
            for (role, remote, outbound, inbound) in
                [(low_role, high, from_low, from_high), (high_role, low, from_high, from_low)]
            {
                if role.follow {
                    let flows = Flows { outbound, inbound };
                    let covered = context.findings.traffic(context.prefixes.network_of(remote), at, &flows);
                    if covered.is_some() || ended {
                        context.counters.count_traffic(&flows, covered == Some(true));
                    }
                    taken |= covered.is_some();
                }
            }
        }
        taken
    }

    /// Notes whether the time of a segment's record holds beside those before.
    #[inline]
    fn note_time(&mut self, segment: &Segment, place: Place, now: Timestamp) {
        if !place.timed {
            self.times.note_untimed();
        } else if segment.at >= now {
            self.times.note_in_order();
        } else if let Some(latest) = self.parties.iter().flatten().filter_map(|end| end.state().last_at()).max() {
            match latest.since(segment.at) {
                Micros(0) => self.times.note_in_order(),
                by => self.times.note_late(by),
            }
        }
    }

    /// What it takes in memory beside its place in the table: asked after every packet.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        let [low, high] =
            self.parties.each_ref().map(|end| end.as_ref().map_or_else(Held::default, ConnectionEnd::held));
        low.and(high)
    }

    /// Whether something of it was acknowledged for the first time since this was last asked.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Frees the room that its senders' segments take.
    pub(crate) fn give_room(&mut self) {
        self.parties.iter_mut().flatten().filter_map(ConnectionEnd::sender_mut).for_each(Sender::give_room);
    }

    /// Looks whether a transfer has ended by silence; returns when to look next.
    pub(crate) fn look(&mut self, now: Timestamp, context: &mut FlowContext<'_>) -> Option<Timestamp> {
        (context.bad_times, context.rate) = (self.times.fault(), self.rate);
        let mut next = None;
        for sender in self.parties.iter_mut().flatten().filter_map(ConnectionEnd::sender_mut) {
            match sender.silence_ends_at() {
                Some(deadline) if deadline <= now => sender.end_transfer(context),
                Some(deadline) => next = Some(next.map_or(deadline, |next: Timestamp| next.min(deadline))),
                None => {}
            }
        }
        next
    }

    /// Ends the connection between these addresses, whose last packet came at `last_at`; gives the accounts of its directions, the side
    /// first seen first.
    pub(crate) fn finish(
        mut self,
        (ends, last_at): ([IpAddr; 2], Timestamp),
        context: &mut FlowContext<'_>,
    ) -> [Option<Box<DirectionReport>>; 2] {
        let passed = self.passed().map(Flow::from);
        (context.bad_times, context.rate) = (self.times.fault(), self.rate);
        if self.doubts.reset_at.get().is_some() && self.stage != Stage::Closed {
            // Nothing contradicted the reset.
            for sender in self.parties.iter_mut().flatten().filter_map(ConnectionEnd::sender_mut) {
                sender.end_transfer(context);
            }
        }
        if self.counted && self.sides_that_sent() < 2 {
            context.counters.connections_one_sided += 1;
        }
        let reports = std::mem::take(&mut self.parties).map(|mut party| party.as_mut()?.sender_mut()?.finish(context));
        // The network may be in the table since then.
        self.pass_on(ends, passed, (last_at, true), context);
        reports
    }

    /// The accounts of the directions of a connection that has closed, the side first seen first. Its senders go.
    #[cold]
    pub(crate) fn take_reports(&mut self, context: &mut FlowContext<'_>) -> [Option<Box<DirectionReport>>; 2] {
        (context.bad_times, context.rate) = (self.times.fault(), self.rate);
        self.sent = u8::try_from(self.sides_that_sent()).unwrap_or(u8::MAX);
        let parties = std::mem::take(&mut self.parties);
        parties.map(|mut party| party.as_mut()?.sender_mut()?.finish(context))
    }

    fn sides_that_sent(&self) -> usize {
        usize::from(self.sent).max(self.parties.iter().flatten().filter(|party| party.state().has_sent()).count())
    }

    /// Whether it is closed and its senders are gone.
    fn is_over(&self) -> bool {
        self.stage == Stage::Closed && self.parties.iter().all(Option::is_none)
    }

    fn party(&self, side: Side) -> Option<&ConnectionEnd> {
        let [low, high] = &self.parties;
        match side {
            Side::Low => low.as_ref(),
            Side::High => high.as_ref(),
        }
    }

    fn party_mut(&mut self, side: Side) -> &mut Option<ConnectionEnd> {
        let [low, high] = &mut self.parties;
        match side {
            Side::Low => low,
            Side::High => high,
        }
    }

    /// Makes the sender of `side`, and its peer where the segment acknowledges something of it.
    fn ensure_parties(&mut self, side: Side, segment: &Segment, place: Place) {
        if self.party(side).is_none() {
            let party = self.new_party(side, segment.seq, [segment.source, segment.destination], segment);
            *self.party_mut(side) = Some(party);
        }
        let other = side.other();
        if let Some(ack) = segment.ack
            && self.party(other).is_none()
        {
            let party = self.new_party(other, ack, [segment.destination, segment.source], segment);
            *self.party_mut(other) = Some(party);
        }
        if let Some(party) = self.party_mut(side).as_mut().filter(|party| !party.state().has_sent()) {
            party.state_mut().place_first(segment);
            if let Some(sender) = party.sender_mut() {
                sender.place_first(segment, place);
            }
        }
    }

    fn new_party(&self, side: Side, number: u32, [own, peer]: [Endpoint; 2], segment: &Segment) -> ConnectionEnd {
        let follow = self.role(side).follow.then_some(self.id);
        let full = self.reports == FlowReports::Full;
        if follow.is_none() && !full {
            return ConnectionEnd::SeqOnly(Box::new(SeqState::new(number)));
        }
        let midstream = !segment.flags.has(Flags::SYN);
        let report = (self.reports != FlowReports::None).then(|| {
            let details = full.then(|| Box::new(DirectionDetails::new(self.id, segment.at)));
            Box::new(DirectionReport { details, ..DirectionReport::new([own, peer], midstream) })
        });
        ConnectionEnd::Rebuilt(Box::new(Sender::new(number, follow, midstream, report)))
    }

    fn role(&self, side: Side) -> Role {
        let [low, high] = self.roles;
        match side {
            Side::Low => low,
            Side::High => high,
        }
    }

    /// A SYN came: the window scales of both ends hold from here on.
    fn settle_shifts(&mut self) {
        let [low, high] = [Side::Low, Side::High].map(|side| self.party(side).and_then(|party| party.state().syn));
        self.shifts = [window_shift(low, high), window_shift(high, low)];
    }

    /// Follows opening and closing; what is over ends its transfers and gives its memory back. Returns whether nothing more of it is
    /// counted.
    fn advance_stage(&mut self, segment: &Segment, context: &mut FlowContext<'_>) -> bool {
        let count = |is: fn(&SeqState) -> bool| {
            let [low, high] = self.parties.each_ref().map(|end| end.as_ref().is_some_and(|end| is(end.state())));
            usize::from(low) + usize::from(high)
        };
        let reset = segment.flags.has(Flags::RST);
        self.agreed |= !segment.flags.has(Flags::SYN) && count(SeqState::is_agreed) == 2;
        self.stage = match self.stage {
            _ if reset || count(SeqState::has_finished) == 2 => Stage::Closed,
            // Both were heard, and agree: what one side alone says, anybody may have made up. And something that one sent has
            // arrived: until then a flood of data costs nobody else a place.
            Stage::Opening
                if !segment.flags.has(Flags::SYN)
                    && count(SeqState::is_agreed) == 2
                    && count(SeqState::has_delivered) > 0 =>
            {
                Stage::Established
            }
            stage => stage,
        };
        if reset || (self.stage == Stage::Closed && count(SeqState::is_closed) == 2) {
            for sender in self.parties.iter_mut().flatten().filter_map(ConnectionEnd::sender_mut) {
                sender.end_transfer(context);
                sender.release(context);
                // After a reset, which may be forged, data is taken in mid-stream; nothing comes after both ends have closed.
                if !reset {
                    sender.unfollow();
                }
            }
            return self.reports != FlowReports::Full && !reset;
        }
        false
    }

    /// The start that a segment of `from` announces, before `peer` has taken it.
    fn imminent(
        segment: &Segment,
        from: Role,
        to: Role,
        peer: Option<&ConnectionEnd>,
        now: Timestamp,
    ) -> Option<Imminent> {
        if segment.flags.has(Flags::SYN) {
            return Imminent::by_syn(segment, from, to);
        }
        let wakes =
            segment.payload_len > 0 && peer.and_then(ConnectionEnd::sender).is_some_and(|peer| peer.is_idle(now));
        if wakes { Imminent::by_data_after_idle(from, to) } else { None }
    }
}
