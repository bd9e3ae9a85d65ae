//! What the senders of one simulation show a gateway, and the starts that it tells them: a table of networks as the gateway
//! keeps it, a rule, and the start function.
//!
//! Every question is `WORD TIME NETWORK CONNECTION ..`, with the time in seconds and windows in segments:
//!
//! - `rule RULE MODE MSS INITIAL SAMPLES CONNECTIONS [SHAPE [episodes|each]]`, once and first, without a time: how estimates are
//!   made, how far starts go and of which shape they are, what counts as a loss of its own, the segment size and initial window of every sender, and what an estimate needs at least.
//! - `open T NET ID`, `close T NET ID`: a connection begins and ends.
//! - `start T NET ID BYTES`: it begins a transfer, of `unknown` size perhaps. Answered `CWND SSTHRESH RATE BURST`, rate in bytes
//!   per second after the burst and 0 where nothing is paced, or `none REASON`.
//! - `state T NET ID PHASE CWND ACKS`: where it is after ACKS further acknowledgements.
//! - `loss T NET ID CWND PHASE`: a loss, with the window before and the phase that it ended; `timeout` for a retransmission
//!   timeout, which is no sample of the window.
//! - `rtt T NET ID US`: a round trip.
//! - `end T NET ID CWND LIMIT BYTES`: the transfer ended, with what held it back.
//!
//! Those without an answer of their own are answered `ok`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};

use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, LimitCounts, Phase, RttSum, SampleReason, SenderId, SenderState, WindowSample};
use spand_openings::{LossCount, PLACES, openings};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::start::{Mode, Shape, StartPolicy, StartRequest, TransferSize, start};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};

use super::line::{Fault, Words};

#[cfg(test)]
mod tests;

/// More is a fault of the script.
const MOST_CONNECTIONS: usize = 1_000_000;
/// Scripts report their senders more often.
const SILENCE: Micros = Micros::from_secs(60);
/// Networks of one simulation; the table evicts beyond.
const NETWORKS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
/// The questions about networks, after `rule`.
pub(super) const QUESTIONS: [&str; 7] = ["open", "close", "start", "state", "loss", "rtt", "end"];
/// Answer where there is nothing to say.
pub(super) const OK: &str = "ok";

/// Everything that a gateway knows of the simulated senders.
#[derive(Debug)]
pub(super) struct Networks {
    table: NetworkTable,
    policy: StartPolicy,
    mss: Bytes,
    initial_window: Segments,
    now: Timestamp,
    connections: BTreeMap<u64, Connection>,
}

/// One sender's connection.
#[derive(Debug)]
struct Connection {
    network: Network,
    remote: IpAddr,
    /// The transfer under way began with a start on advice.
    advised: bool,
    /// It lost something since.
    lost: bool,
    rtt_min: Option<Micros>,
    /// The newest.
    rtt: Option<Micros>,
    delivered_bytes: u64,
}

/// What the other words of a question are about.
struct About {
    network: Network,
    id: u64,
}

impl Networks {
    /// The table for what follows the word `rule`.
    pub(super) fn of(words: &mut Words<'_>) -> Result<Self, Fault> {
        let rule = words.word("rule")?.parse::<RuleKind>().map_err(fault)?;
        let mode = words.word("mode")?.parse::<Mode>().map_err(fault)?;
        let mss = Bytes(words.whole::<NonZeroU16>("segment size")?.get().into());
        let initial_window = Segments(words.whole::<NonZeroU16>("initial window")?.get().into());
        let min_samples = words.whole("smallest number of samples")?;
        let min_connections = words.whole("smallest number of connections")?;
        let shape = words.optional().map_or(Ok(Shape::default()), str::parse).map_err(fault)?;
        let losses = match words.optional() {
            None | Some("episodes") => LossCount::Episodes,
            Some("each") => LossCount::PerEvent,
            Some(other) => return Err(Fault::new(format!("losses count as `episodes` or `each`, not `{other}`"))),
        };
        let config = WindowConfig { min_samples, min_connections, ..WindowConfig::default() };
        Ok(Self {
            table: NetworkTable::new(config, NETWORKS, rule, 0).with_openings(openings(rule, &[], PLACES, losses)),
            policy: StartPolicy { min_samples, min_connections, shape, ..StartPolicy::of(mode) },
            mss,
            initial_window,
            now: Timestamp(0),
            connections: BTreeMap::new(),
        })
    }

    /// Answers what follows `question`, one of [`QUESTIONS`].
    pub(super) fn answer(&mut self, question: &str, words: &mut Words<'_>) -> Result<String, Fault> {
        match question {
            "open" => self.open(words),
            "close" => self.close(words),
            "start" => self.start(words),
            "state" => self.state(words),
            "loss" => self.loss(words),
            "rtt" => self.rtt(words),
            "end" => self.end(words),
            other => Err(Fault::new(format!("there is no question `{other}`"))),
        }
    }

    fn open(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let About { network, id } = self.about(words)?;
        if self.connections.len() >= MOST_CONNECTIONS {
            return Err(Fault::new(format!("there are {MOST_CONNECTIONS} connections already")));
        }
        let hosts = network.prefix().hosts();
        let place = usize::try_from(id % 254).unwrap_or_default();
        let remote = hosts.clone().nth(place).unwrap_or(network.prefix().addr());
        let connection =
            Connection { network, remote, advised: false, lost: false, rtt_min: None, rtt: None, delivered_bytes: 0 };
        match self.connections.insert(id, connection) {
            None => Ok(OK.to_owned()),
            Some(_) => Err(Fault::new(format!("connection {id} is open already"))),
        }
    }

    fn close(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let about = self.about(words)?;
        let remote = self.connection(&about)?.remote;
        self.connections.remove(&about.id);
        let sender = SenderId { connection: ConnectionId(about.id), remote };
        self.table.end_transfer(about.network, self.now, sender, None);
        Ok(OK.to_owned())
    }

    fn start(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let about = self.about(words)?;
        let size = match words.word("size")? {
            "unknown" => TransferSize::Unknown,
            word => TransferSize::Known(Bytes(number("size", word)?)),
        };
        let estimate = self.table.estimate(about.network, self.now);
        let request = StartRequest {
            estimate: estimate.as_ref(),
            now: self.now,
            size,
            mss: self.mss,
            snd_wnd: None,
            handshake_rtt: None,
            initial_window: self.initial_window,
            budget: None,
        };
        let start = start(&request, &self.policy);
        let connection = self.connection(&about)?;
        (connection.advised, connection.lost) = (start.is_ok(), false);
        Ok(match start {
            Ok(start) => {
                let (rate, burst) =
                    start.pacing.map_or((0, start.cwnd), |pacing| (pacing.rate.0, pacing.after_segments));
                format!("{} {} {rate} {}", start.cwnd.0, start.ssthresh.0, burst.0)
            }
            Err(refusal) => format!("none {}", refusal.reason()),
        })
    }

    fn state(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let about = self.about(words)?;
        let phase = match words.word("phase")? {
            "slow_start" => Phase::SlowStart,
            "avoidance" => Phase::CongestionAvoidance,
            "recovery" => Phase::Recovery,
            other => return Err(Fault::new(format!("there is no phase `{other}`"))),
        };
        let window = self.window(words.positive("window")?)?;
        let acknowledged: u32 = words.whole("acknowledgements")?;
        let ssthresh = words.optional().map(|word| number("ssthresh", word)).transpose()?;
        let ssthresh = ssthresh.map(|ssthresh| self.window(ssthresh as f64)).transpose()?;
        let mss = self.mss;
        let connection = self.connection(&about)?;
        connection.delivered_bytes += u64::from(acknowledged) * mss.0;
        let state = SenderState {
            phase,
            window,
            ssthresh,
            delivered_bytes: connection.delivered_bytes,
            mss,
            rtt: connection.rtt.unwrap_or_default(),
            silence: SILENCE,
        };
        let sender = SenderId { connection: ConnectionId(about.id), remote: connection.remote };
        self.table.add_state(about.network, self.now, sender, &state);
        Ok(OK.to_owned())
    }

    /// Only a fast retransmit in congestion avoidance shows the window that the path carries, one segment below
    /// (`docs/explain/definitions.md`, "Samples"); a further loss in recovery is the same event, for the clock of losses as well: what
    /// Yu and Newman measure from one drop to the next is the time in which a halved window grows back.
    fn loss(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let about = self.about(words)?;
        let window = words.positive("window")?;
        let phase = words.word("phase")?;
        let connection = self.connection(&about)?;
        match phase {
            "avoidance" | "slow_start" | "timeout" | "recovery" => {}
            other => return Err(Fault::new(format!("there is no phase `{other}`"))),
        }
        connection.lost = true;
        let sender = SenderId { connection: ConnectionId(about.id), remote: connection.remote };
        let rtt = connection.rtt.unwrap_or_default();
        if phase != "recovery" {
            self.table.add_loss(about.network, self.now, sender, rtt);
        }
        if phase == "avoidance" {
            let window = (window - 1.0).max(1.0);
            self.sample(&about, window, SampleReason::Loss, Bytes(0))?;
        }
        self.settle();
        Ok(OK.to_owned())
    }

    fn rtt(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let about = self.about(words)?;
        let rtt = Micros(words.whole::<NonZeroU64>("round trip")?.get());
        let connection = self.connection(&about)?;
        connection.rtt = Some(rtt);
        connection.rtt_min = Some(connection.rtt_min.map_or(rtt, |min| min.min(rtt)));
        let remote = connection.remote;
        self.table.add_rounds(about.network, self.now, remote, RttSum::of(rtt), LimitCounts::default());
        self.settle();
        Ok(OK.to_owned())
    }

    fn end(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let about = self.about(words)?;
        let window = words.positive("window")?;
        let reason = match words.word("limit")? {
            "window" => SampleReason::End,
            "receiver" => SampleReason::EndReceiverLimited,
            "application" => SampleReason::EndAppLimited,
            other => return Err(Fault::new(format!("there is no limit `{other}`"))),
        };
        let bytes = Bytes(words.whole("bytes transferred")?);
        let connection = self.connection(&about)?;
        if !std::mem::take(&mut connection.lost) {
            self.sample(&about, window, reason, bytes)?;
        }
        self.settle();
        Ok(OK.to_owned())
    }

    fn sample(
        &mut self,
        about: &About,
        window_segments: f64,
        reason: SampleReason,
        transfer: Bytes,
    ) -> Result<(), Fault> {
        let window = self.window(window_segments)?;
        let (at, mss) = (self.now, self.mss);
        let Connection { network, remote, advised, rtt_min, .. } = *self.connection(about)?;
        let connection = ConnectionId(about.id);
        self.table.add(&WindowSample {
            at,
            network,
            remote,
            connection,
            window,
            mss,
            reason,
            reduced_before: false,
            transfer,
            advised,
            rtt_min,
            rtt: None,
        });
        Ok(())
    }

    fn window(&self, segments: f64) -> Result<Window, Fault> {
        let bytes = segments * self.mss.0 as f64;
        Window::from_bytes(bytes).ok_or_else(|| Fault::new(format!("there is no window of {bytes} bytes")))
    }

    /// Time and connection of a question; the table ages up to there.
    fn about(&mut self, words: &mut Words<'_>) -> Result<About, Fault> {
        let now = time(words.word("time")?)?;
        if now < self.now {
            let (now, before) = (now.as_secs_f64(), self.now.as_secs_f64());
            return Err(Fault::new(format!("time goes back from {before} to {now} s")));
        }
        let network = words.word("network")?.parse::<Network>().map_err(fault)?;
        let id = words.whole("connection")?;
        self.now = now;
        self.settle();
        Ok(About { network, id })
    }

    fn connection(&mut self, about: &About) -> Result<&mut Connection, Fault> {
        let About { network, id } = about;
        let connection = self.connections.get_mut(id).filter(|connection| connection.network == *network);
        connection.ok_or_else(|| Fault::new(format!("there is no connection {id} to {network}")))
    }

    /// Nobody subscribes here, so events go nowhere.
    fn settle(&mut self) {
        self.table.expire(self.now, usize::MAX);
        while self.table.poll_event().is_some() {}
    }
}

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

fn number(name: &str, word: &str) -> Result<u64, Fault> {
    word.parse().map_err(|_| Fault::new(format!("{name} is `{word}`, not a whole number in range")))
}

/// Seconds since the simulation's begin, to the nanosecond.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within a century, and not negative")]
fn time(word: &str) -> Result<Timestamp, Fault> {
    const CENTURY_S: f64 = 3.2e9;
    let seconds = word.parse().ok().filter(|seconds: &f64| (0.0..CENTURY_S).contains(seconds));
    let seconds = seconds.ok_or_else(|| Fault::new(format!("time is `{word}`, not seconds from 0 on")))?;
    Ok(Timestamp((seconds * 1e9).round() as u64))
}
