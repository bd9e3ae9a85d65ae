//! One generated connection: a NewReno sender beside the tap, a SACK receiver one way delay behind it.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use arrayvec::ArrayVec;
use rand::RngExt;
use rand::rngs::StdRng;

use super::packet::{ACK, FIN, MSS, PSH, Packet, SYN, Tuple, control};
use super::receiver::Receiver;

/// State of a connection between its packets.
#[derive(Debug)]
pub struct Connection {
    tuple: Tuple,
    stage: Stage,
    at_ns: u64,
    rtt_ns: u64,
    gap_ns: u64,
    request_len: u32,
    size: u32,
    // Sender, in bytes from the first.
    sent: u32,
    acked: u32,
    cwnd: f64,
    ssthresh: f64,
    duplicate_acks: u32,
    recovery_point: Option<u32>,
    retransmit: VecDeque<u32>,
    next_send_ns: u64,
    last_activity_ns: u64,
    receiver: Receiver,
    acks: VecDeque<(u64, Packet)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Syn,
    SynAck,
    HandshakeAck,
    Request,
    Transfer,
    Fin,
    FinAck,
    LastAck,
    Closed,
}

const SERVER_ISN: u32 = 1_000_000;
const CLIENT_ISN: u32 = 5_000_000;

impl Connection {
    /// A connection to one of `networks` client networks that begins at `at_ns`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are bounded below 2^31")]
    pub fn new(at_ns: u64, number: u64, networks: u32, rng: &mut StdRng) -> Self {
        let network = rng.random_range(0..networks.max(1));
        let client = Ipv4Addr::from(0x5000_0000 | (network << 8) | rng.random_range(1..255u32));
        let server = Ipv4Addr::from(0x0a00_0000 | rng.random_range(1..2_000u32));
        let rtt_ns = rng.random_range(5_000_000..200_000_000u64);
        // Pareto with shape 1.2 from 3 KB, as web transfers are, cut at 3 MB.
        let size = (3_000.0 / rng.random_range(0.0f64..1.0).max(1e-9).powf(1.0 / 1.2)).min(3_000_000.0) as u32;
        Self {
            tuple: Tuple {
                server: (server, 443),
                client: (client, 1_024 + u16::try_from(number % 60_000).unwrap_or(0)),
            },
            stage: Stage::Syn,
            at_ns,
            rtt_ns,
            gap_ns: rng.random_range(1_000..12_000),
            request_len: rng.random_range(100..900),
            size,
            sent: 0,
            acked: 0,
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            duplicate_acks: 0,
            recovery_point: None,
            retransmit: VecDeque::new(),
            next_send_ns: 0,
            last_activity_ns: at_ns,
            receiver: Receiver::default(),
            acks: VecDeque::new(),
        }
    }

    /// Its addresses.
    pub fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// When it has to be stepped next; `None` when it is over.
    pub fn next_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Closed => None,
            Stage::Transfer => {
                let ack = self.acks.front().map(|(at_ns, _)| *at_ns);
                let send = self.wants_to_send().then_some(self.next_send_ns);
                let timeout = self.last_activity_ns + 200_000_000 + 2 * self.rtt_ns;
                Some([ack, send].into_iter().flatten().min().unwrap_or(timeout))
            }
            _ => Some(self.at_ns),
        }
    }

    /// The packet that the tap sees now, if any.
    pub fn step(&mut self, now_ns: u64, loss: f64, rng: &mut StdRng) -> Option<Packet> {
        let control = match self.stage {
            Stage::Syn => {
                self.enter(Stage::SynAck, now_ns + 30_000);
                control(false, CLIENT_ISN, 0, SYN, 0)
            }
            Stage::SynAck => {
                self.enter(Stage::HandshakeAck, now_ns + self.rtt_ns);
                control(true, SERVER_ISN, CLIENT_ISN + 1, SYN | ACK, 0)
            }
            Stage::HandshakeAck => {
                self.enter(Stage::Request, now_ns + 20_000);
                control(false, CLIENT_ISN + 1, SERVER_ISN + 1, ACK, 0)
            }
            Stage::Request => {
                self.enter(Stage::Transfer, now_ns);
                self.next_send_ns = now_ns + 100_000;
                self.last_activity_ns = now_ns;
                control(false, CLIENT_ISN + 1, SERVER_ISN + 1, ACK | PSH, self.request_len)
            }
            Stage::Transfer => return self.transfer(now_ns, loss, rng),
            Stage::Fin => {
                self.enter(Stage::FinAck, now_ns + 40_000);
                control(false, self.client_seq(), SERVER_ISN + 1 + self.size, FIN | ACK, 0)
            }
            Stage::FinAck => {
                self.enter(Stage::LastAck, now_ns + self.rtt_ns);
                control(true, SERVER_ISN + 1 + self.size, self.client_seq() + 1, FIN | ACK, 0)
            }
            Stage::LastAck => {
                self.enter(Stage::Closed, now_ns);
                control(false, self.client_seq() + 1, SERVER_ISN + 2 + self.size, ACK, 0)
            }
            Stage::Closed => return None,
        };
        Some(control)
    }

    fn enter(&mut self, stage: Stage, at_ns: u64) {
        self.stage = stage;
        self.at_ns = at_ns;
    }

    fn client_seq(&self) -> u32 {
        CLIENT_ISN + 1 + self.request_len
    }

    fn wants_to_send(&self) -> bool {
        !self.retransmit.is_empty() || (self.sent < self.size && self.in_flight() + 1.0 <= self.cwnd)
    }

    /// Segments in the network.
    pub fn in_flight(&self) -> f64 {
        f64::from((self.sent - self.acked).saturating_sub(self.receiver.beyond())) / f64::from(MSS)
    }

    fn transfer(&mut self, now_ns: u64, loss: f64, rng: &mut StdRng) -> Option<Packet> {
        if self.acks.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
            let (_, packet) = self.acks.pop_front()?;
            self.on_ack(&packet, now_ns);
            return Some(packet);
        }
        if !self.wants_to_send() {
            // Nothing on its way and nothing allowed: the retransmission timer (RFC 6298 section 5).
            self.retransmit = VecDeque::from([self.acked]);
            self.ssthresh = (self.cwnd / 2.0).max(2.0);
            self.cwnd = 1.0;
            self.recovery_point = Some(self.sent);
        }
        self.next_send_ns = now_ns + self.gap_ns;
        self.last_activity_ns = now_ns;
        let (offset, is_retransmission) = match self.retransmit.pop_front() {
            Some(offset) => (offset, true),
            None => (self.sent, false),
        };
        let len = MSS.min(self.size - offset);
        self.sent = self.sent.max(offset + len);
        if !rng.random_bool(loss) {
            self.deliver(offset, len, now_ns);
        }
        let last = offset + len == self.size;
        Some(Packet {
            from_server: true,
            seq: SERVER_ISN + 1 + offset,
            ack: self.client_seq(),
            flags: if last { ACK | PSH } else { ACK },
            payload_len: len,
            sack: ArrayVec::new(),
            echo_ns: None,
            is_retransmission,
        })
    }

    /// The receiver gets a segment and answers; its answer is at the tap one round trip after the segment was.
    fn deliver(&mut self, offset: u32, len: u32, now_ns: u64) {
        let at_once = offset + len >= self.size || self.sent - self.acked <= 2 * MSS;
        let Some(answer) = self.receiver.take((offset, len), now_ns, at_once) else { return };
        let sack = answer.sack.iter().map(|(from, to)| (SERVER_ISN + 1 + from, SERVER_ISN + 1 + to)).collect();
        let packet = Packet { sack, ..control(false, self.client_seq(), SERVER_ISN + 1 + answer.ack, ACK, 0) };
        self.acks.push_back((now_ns + self.rtt_ns, packet));
    }

    fn on_ack(&mut self, packet: &Packet, now_ns: u64) {
        self.last_activity_ns = now_ns;
        self.next_send_ns = self.next_send_ns.max(now_ns + self.gap_ns);
        let ack = packet.ack - SERVER_ISN - 1;
        if ack > self.acked {
            let segments = f64::from((ack - self.acked).div_ceil(MSS));
            self.acked = ack;
            self.duplicate_acks = 0;
            self.retransmit.retain(|offset| *offset >= ack);
            match self.recovery_point {
                Some(point) if ack < point => {
                    // A partial acknowledgement: the next hole (RFC 6582 section 3.2).
                    if self.retransmit.is_empty() {
                        self.retransmit.push_back(ack);
                    }
                }
                _ => {
                    self.recovery_point = None;
                    self.cwnd += if self.cwnd < self.ssthresh { segments } else { segments / self.cwnd };
                }
            }
        } else if !packet.sack.is_empty() {
            self.duplicate_acks += 1;
            if self.duplicate_acks == 3 && self.recovery_point.is_none() {
                self.ssthresh = (self.cwnd / 2.0).max(2.0);
                self.cwnd = self.ssthresh;
                self.recovery_point = Some(self.sent);
                self.retransmit.push_back(self.acked);
            }
        }
        if self.acked >= self.size {
            self.stage = Stage::Fin;
            self.at_ns = now_ns + 50_000;
        }
    }
}
