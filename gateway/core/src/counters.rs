//! What the engine saw, and every thing it ignored, by a bounded reason.

use strum::{IntoStaticStr, VariantArray};

/// Why a frame, a segment or a sample was not used. The names are stable: they are metric labels and table rows.
#[derive(Clone, Copy, Debug, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Ignored {
    /// Frame: a link type that is not understood.
    LinkType,
    /// Frame: neither IPv4 nor IPv6 inside (ARP, LLDP, …).
    NotIp,
    /// Frame: IP, but not TCP.
    NotTcp,
    /// Frame: a fragment of an IP packet that gives its segment with another one, if at all.
    Fragment,
    /// IP packet: given up in fragments because there were more such packets, or parts of it, than are kept.
    FragmentNoRoom,
    /// IP packet: a fragment of it did not come within 30 s, or before the end of the capture.
    FragmentTimeout,
    /// IP packet: its fragments overlap or contradict each other.
    FragmentOverlap,
    /// IP packet: a fragment ends beyond the longest packet that there can be.
    FragmentTooLarge,
    /// Frame: the snap length cut a header.
    Truncated,
    /// Frame: headers that contradict themselves.
    Malformed,
    /// Frame: more layers of encapsulation than are followed.
    TooDeep,
    /// Segment: neither end lies inside the organisation.
    NotInternal,
    /// Segment: a second copy of the same packet from the mirror port.
    DuplicateCopy,
    /// Segment: of a connection that is left alone under overload.
    Shed,
    /// Segment: no room in the flow table.
    NoRoom,
    /// Segment: its time was before the one seen last; clamped to it.
    TimeBackwards,
    /// Segment: its time was more than a day after the one seen last, and no second frame bore it out; clamped.
    TimeForwards,
    /// Segment: data or an acknowledgement beyond any window that its receiver announced; kept from the replica.
    BeyondWindow,
    /// Round-trip time: the answer bears an earlier time than the question, or one more than two minutes later.
    Mistimed,
    /// Sample: only one direction of the connection is visible.
    OneSided,
    /// Sample: the connection was there before the capture, its window is not known yet.
    Midstream,
    /// Sample: the application, not the window, limited the sender; kept as a lower bound.
    AppLimited,
    /// Sample: the receiver's window limited the sender; kept as a lower bound.
    ReceiverLimited,
    /// Sample: a loss in slow start gives none.
    SlowStartLoss,
    /// Sample: a retransmission timeout gives none.
    Timeout,
    /// Sample: the transfer ended after a loss, which gave one already.
    EndAfterLoss,
    /// Sample: the connection was over, by the end of the capture or of the table's patience, with data outstanding.
    Unfinished,
    /// Sample: the segment size is not known.
    NoMss,
    /// Sample: a loss told while an earlier one was being repaired belongs to that one.
    LossInRecovery,
    /// Sequence range: the scoreboard or the interval count had no room to keep it apart; what rests on it is not exact.
    Inexact,
    /// Round-trip time: a retransmitted segment was acknowledged (Karn's rule).
    Karn,
    /// Network: no room in the table of networks.
    NoRoomNetwork,
    /// Event: the queue was full and the oldest went.
    EventQueueFull,
    /// Advice: more pairs of hosts were told than are remembered, and the oldest went before its lifetime was over; starts
    /// between them count as not advised.
    AdviceForgotten,
    /// Congestion control: more hosts spoke than are remembered, and this one had not for longest; it is asked anew.
    NoRoomHost,
    /// Service size: its transfer was cut off with data outstanding.
    CutTransfer,
    /// Service size: more services sent than are remembered, and this one had not for longest.
    NoRoomService,
    /// Service size: the engine that keeps the services had too many transfers waiting to be told of one more.
    TransferUntold,
    /// Window option: the window that the sender said at a sample is not borne out by what was in the network; the replica's
    /// counts.
    WindowOption,
}

impl Ignored {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Counters of an engine; they only rise.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames handed in.
    pub frames: u64,
    /// Bytes of them on the wire.
    pub wire_bytes: u64,
    /// TCP segments among them.
    pub segments: u64,
    /// Connections seen.
    pub connections: u64,
    /// Connections that closed (FIN both ways, RST) or were idle too long.
    pub connections_ended: u64,
    /// Connections that had to go because the table was full.
    pub connections_evicted: u64,
    /// Of them, those that were established: they may still be alive.
    pub established_evicted: u64,
    /// Connections whose start was not seen.
    pub connections_midstream: u64,
    /// Connections of which only one direction was seen, counted at their end.
    pub connections_one_sided: u64,
    /// Networks that had to go because the table was full.
    pub networks_evicted: u64,
    /// Samples that were added to another connection's place because their bucket had no room for one more.
    pub contributions_shared: u64,
    /// Round-trip times at which an address lost its place to another because their bucket had no room for one more.
    pub rtts_shared: u64,
    /// Window samples taken.
    pub window_samples: u64,
    /// Lower bounds taken.
    pub lower_bounds: u64,
    /// Round-trip time samples taken.
    pub rtt_samples: u64,
    /// Loss events recognised (one per window).
    pub loss_events: u64,
    /// Retransmission timeouts recognised.
    pub timeouts: u64,
    /// Imminent starts told.
    pub imminent_starts: u64,
    /// Sizes of whole transfers taken for their service.
    pub service_sizes: u64,
    /// Segments with new data in which their sender said its window, where that is read.
    pub window_options: u64,
    /// Window samples that took what the sender said.
    pub window_option_samples: u64,
    ignored: PerReason,
}

/// One count for each reason.
#[derive(Clone, Debug, Eq, PartialEq)]
struct PerReason([u64; Ignored::VARIANTS.len()]);

impl Default for PerReason {
    fn default() -> Self {
        Self([0; Ignored::VARIANTS.len()])
    }
}

impl Counters {
    /// Counts one ignored thing.
    pub fn ignore(&mut self, reason: Ignored) {
        if let Some(count) = self.ignored.0.get_mut(usize::from(reason as u8)) {
            *count += 1;
        }
    }

    /// How often `reason` occurred.
    pub fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored.0.get(usize::from(reason as u8)).copied().unwrap_or(0)
    }

    /// Every count but those of ignored things, with its stable name, in the order of declaration.
    pub fn named(&self) -> [(&'static str, u64); 21] {
        let Self {
            frames,
            wire_bytes,
            segments,
            connections,
            connections_ended,
            connections_evicted,
            established_evicted,
            connections_midstream,
            connections_one_sided,
            networks_evicted,
            contributions_shared,
            rtts_shared,
            window_samples,
            lower_bounds,
            rtt_samples,
            loss_events,
            timeouts,
            imminent_starts,
            service_sizes,
            window_options,
            window_option_samples,
            ignored: _,
        } = *self;
        [
            ("frames", frames),
            ("wire_bytes", wire_bytes),
            ("segments", segments),
            ("connections", connections),
            ("connections_ended", connections_ended),
            ("connections_evicted", connections_evicted),
            ("established_evicted", established_evicted),
            ("connections_midstream", connections_midstream),
            ("connections_one_sided", connections_one_sided),
            ("networks_evicted", networks_evicted),
            ("contributions_shared", contributions_shared),
            ("rtts_shared", rtts_shared),
            ("window_samples", window_samples),
            ("lower_bounds", lower_bounds),
            ("rtt_samples", rtt_samples),
            ("loss_events", loss_events),
            ("timeouts", timeouts),
            ("imminent_starts", imminent_starts),
            ("service_sizes", service_sizes),
            ("window_options", window_options),
            ("window_option_samples", window_option_samples),
        ]
    }

    /// Adds another engine's counts (one engine per shard).
    pub fn add(&mut self, other: &Self) {
        let Self {
            frames,
            wire_bytes,
            segments,
            connections,
            connections_ended,
            connections_evicted,
            established_evicted,
            connections_midstream,
            connections_one_sided,
            networks_evicted,
            contributions_shared,
            rtts_shared,
            window_samples,
            lower_bounds,
            rtt_samples,
            loss_events,
            timeouts,
            imminent_starts,
            service_sizes,
            window_options,
            window_option_samples,
            ignored,
        } = other;
        self.frames += frames;
        self.wire_bytes += wire_bytes;
        self.segments += segments;
        self.connections += connections;
        self.connections_ended += connections_ended;
        self.connections_evicted += connections_evicted;
        self.established_evicted += established_evicted;
        self.connections_midstream += connections_midstream;
        self.connections_one_sided += connections_one_sided;
        self.networks_evicted += networks_evicted;
        self.contributions_shared += contributions_shared;
        self.rtts_shared += rtts_shared;
        self.window_samples += window_samples;
        self.lower_bounds += lower_bounds;
        self.rtt_samples += rtt_samples;
        self.loss_events += loss_events;
        self.timeouts += timeouts;
        self.imminent_starts += imminent_starts;
        self.service_sizes += service_sizes;
        self.window_options += window_options;
        self.window_option_samples += window_option_samples;
        for (mine, theirs) in self.ignored.0.iter_mut().zip(ignored.0) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name() {
        let mut counters = Counters::default();
        for (index, &reason) in Ignored::VARIANTS.iter().enumerate() {
            assert_eq!(reason as usize, index, "{} is out of order", reason.name());
            counters.ignore(reason);
        }
        assert!(Ignored::VARIANTS.iter().all(|reason| counters.ignored(*reason) == 1));
        let mut names: Vec<_> = Ignored::VARIANTS.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Ignored::VARIANTS.len());
    }
}
