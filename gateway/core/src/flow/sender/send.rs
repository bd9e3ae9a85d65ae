//! Segments of a sender: counted and put on the scoreboard.

use spand_proto::units::{Bytes, Micros};

use super::Sender;
use crate::counters::Ignored;
use crate::flow::acceptance::Announced;
use crate::flow::copies::is_copy_of;
use crate::flow::coverage::{Coverage, Inserted};
use crate::flow::evidence::Evidence;
use crate::flow::maybe::MaybeTime;
use crate::flow::observation::Sent;
use crate::flow::reported_window::ReportedWindow;
use crate::flow::scoreboard::Stamp;
use crate::flow::seq_state::Extent;
use crate::flow::sink::FlowContext;
use crate::flow::tracked::{TrackedSender, Transfer};
use crate::types::Phase;
use crate::wire::segment::{Flags, Segment};

impl Sender {
    /// Whether `segment` is a second copy of an outstanding segment of this sender.
    pub(crate) fn has_outstanding_copy(&self, segment: &Segment) -> bool {
        let extent = self.state.extent(segment);
        let outstanding = extent.start < self.board.nxt() && extent.end > extent.start.max(self.board.una());
        outstanding
            && self
                .board
                .transmissions(extent.start)
                .is_some_and(|(stamp, _)| is_copy_of(&stamp, segment, self.rtt.min()))
    }

    /// Takes a segment of this sender; a second copy (`copy`) is only counted. Returns the bytes of it that had been sent before.
    pub(crate) fn send(&mut self, segment: &Segment, copy: bool, context: &mut FlowContext<'_>) -> u32 {
        let extent = self.state.extent(segment);
        self.note_packet(segment, copy);
        let inserted = self.cover(&extent, context);
        self.count(segment, &extent, &inserted);
        if copy {
            return 0;
        }
        let repeated = if extent.data < self.board.nxt() { self.repeated(segment, &extent, &inserted) } else { 0 };
        let accepted = self.state.accepts(segment, &extent, context);
        self.follow_start();
        if accepted && extent.end > extent.start {
            self.place(segment, &extent, &inserted, context);
            self.state.advance(&extent);
        } else if accepted && let Some(timestamps) = segment.options.timestamps {
            self.echo.sent_untimed(timestamps.value);
        }
        repeated
    }

    /// Bytes of a segment below the highest one sent that had been sent before, including those that the capture missed; none of a
    /// segment that was only reordered, also after its acknowledgement, of a keep-alive, or of a window probe.
    #[cold]
    fn repeated(&self, segment: &Segment, extent: &Extent, inserted: &Inserted) -> u32 {
        let (una, nxt) = (self.board.una(), self.board.nxt());
        let missed = inserted.repeated_bytes == 0 && extent.data_end <= una;
        if self.is_probe(segment, extent) || missed || self.state.is_overtaken(segment) {
            return 0;
        }
        u32::try_from(nxt - extent.data).unwrap_or(u32::MAX).min(segment.payload_len)
    }

    /// Whether it is a keep-alive or a window probe with a byte sent before.
    fn is_probe(&self, segment: &Segment, extent: &Extent) -> bool {
        let is_last = self.board.flight() == 0 && extent.end == self.board.nxt();
        segment.payload_len <= 1 && (is_last || self.state.peer_is_full())
    }

    /// Counts an ignored packet: it was on the wire, and changes nothing else.
    #[cold]
    pub(crate) fn note_ignored(&mut self, segment: &Segment, context: &mut FlowContext<'_>) {
        if self.state.has_sent() {
            let extent = self.state.extent(segment);
            self.note_packet(segment, false);
            let inserted = self.cover(&extent, context);
            self.count(segment, &extent, &inserted);
        }
    }

    /// Counts a packet in the report.
    fn note_packet(&mut self, segment: &Segment, copy: bool) {
        let Some(report) = &mut self.report else { return };
        if segment.payload_len > 0 {
            report.data_packets += 1;
            report.duplicate_data_packets += u64::from(copy);
        }
        if let Some(details) = &mut report.details {
            details.last_at = segment.at;
            details.packets += 1;
            details.duplicate_packets += u64::from(copy);
            details.payload = Bytes(details.payload.0 + u64::from(segment.payload_len));
        }
    }

    /// Whether it is a keep-alive, with or without its byte of garbage: everything up to its end is acknowledged.
    fn keeps_alive(&self, segment: &Segment, extent: &Extent) -> bool {
        segment.payload_len <= 1 && extent.end <= self.board.una() && self.state.is_acknowledged()
    }

    #[inline]
    fn cover(&mut self, extent: &Extent, context: &mut FlowContext<'_>) -> Inserted {
        if extent.data_end == extent.data {
            return Inserted::default();
        }
        let coverage = self.coverage.get_or_insert_with(|| Coverage::starting_at(extent.data));
        let inserted = coverage.insert(extent.data, extent.data_end, context.gap_limit());
        if inserted.gap_dropped {
            context.counters.ignore(Ignored::Inexact);
        }
        inserted
    }

    fn count(&mut self, segment: &Segment, extent: &Extent, inserted: &Inserted) {
        let fin = segment.flags.has(Flags::FIN);
        let fin_again = fin && self.state.finishes_at(extent.end);
        let syn_again = segment.flags.has(Flags::SYN) && self.state.syn.is_some_and(|syn| syn.isn == segment.seq);
        let repeated_bytes = if self.is_probe(segment, extent) { 0 } else { inserted.repeated_bytes };
        let Some(report) = &mut self.report else { return };
        report.unique = Bytes(report.unique.0 + inserted.new_bytes);
        report.retransmitted_packets += u64::from(repeated_bytes > 0);
        let Some(details) = &mut report.details else { return };
        details.retransmitted = Bytes(details.retransmitted.0 + repeated_bytes);
        details.probe_packets += u64::from(repeated_bytes < inserted.repeated_bytes);
        if inserted.repeated_bytes == 0 {
            details.synfin_retransmitted_packets += u64::from(fin_again || syn_again);
            details.hole_fill_packets += u64::from(inserted.below_highest && inserted.new_bytes > 0);
        }
        if let Some(coverage) = self.coverage.as_ref().filter(|_| segment.payload_len > 0) {
            let acknowledged = details.highest_ack.unwrap_or(coverage.origin());
            let flight = coverage.next().saturating_sub(acknowledged);
            details.flight_max = Bytes(details.flight_max.0.max(flight));
        }
    }

    /// Puts a segment with sequence space on the scoreboard, and passes it to recovery and the evidence.
    fn place(&mut self, segment: &Segment, extent: &Extent, inserted: &Inserted, context: &mut FlowContext<'_>) {
        let at = segment.at;
        let timestamps = segment.options.timestamps;
        let stamp = Stamp::of(segment);
        let zero_window_probe = self.state.peer_is_full() && segment.payload_len > 0;
        let keep_alive = self.keeps_alive(segment, extent);
        let is_new = extent.start >= self.board.nxt();
        let since_ack = self.last_ack.get().map(|last| at.since(last));
        let pipe_before = self.pipe_without_losses();
        let is_no_repeat = is_new || zero_window_probe || keep_alive || self.came_late(extent, inserted, &stamp);
        let judged = if is_no_repeat { None } else { self.judge(&stamp, extent, inserted, since_ack) };
        self.mark_losses(judged, extent, is_no_repeat);
        if let Some(kind) = judged {
            self.lose(kind, pipe_before, at, context);
        }
        let limit = context.segment_limit(self.state.is_acknowledged());
        let merged = self.board.send(extent.start, extent.end, stamp, limit);
        self.count_unsplit(context);
        if merged {
            context.counters.ignore(Ignored::Inexact);
        }
        // A keep-alive does not end a silence.
        if !(keep_alive && segment.payload_len > 0) {
            self.last_active = MaybeTime::some(context.now);
        }
        if zero_window_probe {
            self.board.forbid_timing(extent.start, extent.end);
        }
        if let Some(timestamps) = timestamps {
            if zero_window_probe || keep_alive {
                self.echo.sent_untimed(timestamps.value);
            } else {
                self.echo.sent(timestamps.value, at);
            }
        }
        if segment.payload_len > 0 && !zero_window_probe && !keep_alive {
            self.report_sent(segment, inserted, since_ack, context);
        }
    }

    /// Bytes in the network if none of them is marked lost: what the sender had outstanding before it detected a loss.
    pub(super) fn pipe_without_losses(&self) -> u64 {
        self.board.flight().saturating_sub(self.board.arrived())
    }

    fn report_sent(
        &mut self,
        segment: &Segment,
        inserted: &Inserted,
        since_ack: Option<Micros>,
        context: &mut FlowContext<'_>,
    ) {
        let at = segment.at;
        let pushed = segment.flags.has(Flags::PSH);
        self.follow(segment, context);
        let has_window_option = segment.options.window.is_some() && self.size.note_window_option();
        let (peer_window, board) = (self.state.peer_window, &self.board);
        let fills_peer = || {
            let window = peer_window.and_then(Announced::bytes);
            window.is_some_and(|window| window < board.flight().saturating_add(segment.payload_len.into()))
        };
        if self.size.sent(segment.payload_len, pushed, fills_peer) || has_window_option {
            self.report_segment_size(at);
        }
        let ecn_agreed = self.state.syn.is_some_and(|syn| syn.ecn_agreed);
        if ecn_agreed && segment.ect {
            self.recovery.note_ecn_capable();
        }
        let new_bytes = u32::try_from(inserted.new_bytes).unwrap_or(u32::MAX);
        if new_bytes > 0 {
            let nxt = self.board.nxt();
            let start = nxt.saturating_sub(inserted.new_bytes);
            self.recovery.sent(at, (start, nxt), ecn_agreed && segment.flags.has(Flags::CWR));
        }
        let (pipe, flight) = self.pipe_and_flight();
        let sent = Sent {
            new_bytes,
            retransmitted_bytes: segment.payload_len - new_bytes.min(segment.payload_len),
            full_sized: self.size.is_full(segment.payload_len),
            more: !pushed && !segment.flags.has(Flags::FIN),
            repeats_wait: self.board.repeats_wait(),
            pipe,
            flight,
            peer_window: self.state.peer_window.and_then(Announced::bytes),
            since_ack,
            stamp: segment.options.timestamps.map(|timestamps| timestamps.value),
        };
        let start = self.board.una();
        let Some(followed) = self.followed.as_deref_mut() else { return };
        let begins = followed.transfer.is_none();
        if begins {
            followed.begin_transfer(context.now);
        }
        if new_bytes > 0 {
            let network = followed.network;
            let begin = || Transfer {
                bytes: 0,
                start,
                advised: context.ledger.is_advised(segment.source.address, segment.destination.address, context.now),
                first_flight_segments: 0,
                pipe_most: 0,
                counted: context.findings.begins(network, context.now, context.rate),
            };
            if followed.transfer.is_none()
                && let Some(report) = &mut self.report
            {
                report.transfers.begin(context.now);
            }
            let transfer = followed.transfer.get_or_insert_with(begin);
            transfer.bytes += u64::from(new_bytes);
            if start <= transfer.start {
                let segments = Bytes(pipe).segments_ceil(Bytes(self.size.bytes_or_usual())).0;
                let most = u32::from(transfer.first_flight_segments).max(segments);
                transfer.first_flight_segments = u16::try_from(most).unwrap_or(u16::MAX);
            }
            transfer.pipe_most = transfer.pipe_most.max(u32::try_from(pipe).unwrap_or(u32::MAX));
            if context.read_window_option {
                // Without the option in this segment the window reported before is out of date.
                followed.reported_window = segment.options.window.map(|option| ReportedWindow::new(option, pipe));
                context.counters.window_options += u64::from(followed.reported_window.is_some());
            }
        }
        followed.evidence.on_sent(at, &sent);
        if begins {
            self.report_state(context);
        }
    }

    /// Starts to track the sender with its first data, if its window is estimated.
    fn follow(&mut self, segment: &Segment, context: &mut FlowContext<'_>) {
        if !self.follow.is_some() || self.followed.is_some() {
            return;
        }
        let remote = segment.destination.address;
        let network = context.prefixes.network_of(remote);
        let ends = [segment.source.address, remote];
        let evidence = Evidence::new(self.delivered, self.midstream);
        let mut followed = Box::new(TrackedSender::new(ends, network, segment.at, evidence));
        if !self.midstream && self.state.syn.is_some_and(|syn| syn.is_answer) {
            followed.service_port = Some(segment.source.port);
        }
        // The handshake's round trip is reported with those of its data, which saves a look-up of the network per connection.
        if let Some(rtt) = self.state.handshake_rtt.get().filter(|_| !self.midstream) {
            followed.pending_stats.add(rtt, rtt);
        }
        if let Some(reaction) = self.reaction.get() {
            followed.evidence.on_reaction(reaction);
        }
        followed.reported_phase = context.findings.wants_live().then_some(Phase::SlowStart);
        followed.compare_notes(context);
        self.followed = Some(followed);
        self.report_segment_size(segment.at);
    }
}
