//! The end of transfers and of the sender itself.

use std::net::SocketAddr;

use spand_proto::units::{Bytes, Timestamp};

use super::Sender;
use crate::counters::Ignored;
use crate::flow::maybe::MaybeCount;
use crate::flow::report::DirectionReport;
use crate::flow::sink::FlowContext;
use crate::flow::tracked::{TrackedSender, Transfer};
use crate::service::TransferEnded;

impl Sender {
    /// When the transfer under way ends unless something follows: one timeout after everything was acknowledged. `None`
    /// without a transfer, or with data outstanding.
    pub(crate) fn silence_ends_at(&self) -> Option<Timestamp> {
        if self.board.flight() > 0 {
            return None;
        }
        self.followed.as_deref()?.transfer.as_ref()?;
        self.last_active.get().map(|last| last.after(self.rtt.timeout()))
    }

    /// Ends the transfer under way if it was idle for a timeout by `now`; the table's timer may be late.
    pub(crate) fn end_by_silence(&mut self, now: Timestamp, context: &mut FlowContext<'_>) {
        if self.silence_ends_at().is_some_and(|deadline| deadline <= now) {
            self.end_transfer(context);
        }
    }

    /// After an acknowledgement: ends the transfer under way if its FIN is acknowledged; else returns when silence would
    /// end it.
    pub(crate) fn end_or_await_silence(&mut self, context: &mut FlowContext<'_>) -> Option<Timestamp> {
        let deadline = self.silence_ends_at()?;
        if self.state.is_closed() {
            self.end_transfer(context);
            return None;
        }
        Some(deadline)
    }

    /// Ends the transfer under way, if there is one.
    pub(crate) fn end_transfer(&mut self, context: &mut FlowContext<'_>) {
        let Some(followed) = self.followed.as_deref_mut() else { return };
        let Some(transfer) = followed.transfer else { return };
        if transfer.bytes > 0 {
            self.report_first_flight(true, context);
            if self.state.is_acknowledged() {
                self.report_size(&transfer, context);
            }
            let Some(followed) = self.followed.as_deref_mut() else { return };
            // The network enters the table with its first round trip.
            followed.flush_round_stats(context);
            context.findings.transfer(followed.network, context.now);
            if self.state.is_acknowledged() {
                let sample = followed.evidence.on_transfer_end();
                self.report_sample(sample, context);
            } else {
                context.findings.no_sample(followed.network, context.now, Ignored::OneSided);
                context.counters.ignore(Ignored::OneSided);
            }
        }
        self.forget_transfer(context);
        self.board.settle();
    }

    fn forget_transfer(&mut self, context: &mut FlowContext<'_>) {
        let connection = self.connection();
        let Some(followed) = self.followed.as_deref_mut() else { return };
        let ended = followed.transfer.take();
        if let Some(Transfer { counted, .. }) = ended.filter(|ended| ended.counted || followed.reported_phase.is_some())
        {
            context.findings.ends(
                followed.network,
                context.now,
                followed.id(connection),
                counted.then_some(context.rate),
            );
        }
        followed.round_end = 0;
        if let (Some(transfer), Some(report)) = (ended, &mut self.report) {
            report.transfers.end(Bytes(transfer.bytes), self.last_active.get().unwrap_or(context.now));
        }
    }

    /// Reports the size of the transfer to its service: the bytes acknowledged, which packets missing in the mirror do not change.
    fn report_size(&self, transfer: &Transfer, context: &mut FlowContext<'_>) {
        let service =
            |followed: &TrackedSender| Some((SocketAddr::new(followed.host, followed.service_port?), followed.remote));
        let Some((service, remote)) = self.followed.as_deref().and_then(service) else { return };
        let size = self.board.una().saturating_sub(transfer.start).saturating_sub(u64::from(self.state.is_closed()));
        if self.board.flight() > 0 || size == 0 {
            return context.counters.ignore(Ignored::CutTransfer);
        }
        context.counters.service_sizes += 1;
        let ended = TransferEnded { service, remote, at: context.now, size: Bytes(size), rate: context.rate };
        context.services.add(&ended, context.counters);
    }

    /// Frees the memory of a closed connection's sender. Later packets start it again, in mid-stream.
    pub(crate) fn release(&mut self, context: &mut FlowContext<'_>) {
        self.flush_last_round(context);
        self.note_verdicts(context);
        self.followed = None;
        self.midstream = true;
        self.board.release();
    }

    /// From here on only the report is kept.
    pub(crate) fn unfollow(&mut self) {
        self.follow = MaybeCount::NONE;
    }

    /// Flushes the pending statistics of a sender that is removed.
    fn flush_last_round(&mut self, context: &mut FlowContext<'_>) {
        if let Some(followed) = self.followed.as_deref_mut() {
            followed.flush_round_stats(context);
        }
    }

    /// Writes the final verdicts into the report.
    fn note_verdicts(&mut self, context: &FlowContext<'_>) {
        let Some(report) = &mut self.report else { return };
        report.acknowledged |= self.state.is_acknowledged();
        if let Some(followed) = self.followed.as_ref().filter(|_| context.bad_times.is_none()) {
            if let Some(details) = &mut report.details {
                details.limited_by = followed.mostly_limited_by();
            }
            report.congestion_control = followed.evidence.congestion_control();
        }
    }

    /// Ends the sender and its last transfer; returns its report if it sent anything.
    pub(crate) fn finish(&mut self, context: &mut FlowContext<'_>) -> Option<Box<DirectionReport>> {
        self.flush_last_round(context);
        let in_transfer = self.followed.as_deref().is_some_and(|followed| followed.transfer.is_some());
        if in_transfer && self.state.is_acknowledged() && self.board.flight() > 0 {
            if let Some(followed) = self.followed.as_deref() {
                context.findings.transfer(followed.network, context.now);
                context.findings.no_sample(followed.network, context.now, Ignored::Unfinished);
            }
            context.counters.ignore(Ignored::Unfinished);
            self.forget_transfer(context);
        } else {
            self.end_transfer(context);
        }
        self.note_verdicts(context);
        let report = self.report.take()?;
        report.has_counted().then_some(report)
    }
}
