//! The scenarios: a path, what its clients do, and the question it answers.

use std::fmt::Write as _;
use std::time::Duration;

use spand_proto::units::BytesPerSecond;
use strum::VariantArray;

use crate::lab::path::{CHANGES_MAX, Impairments, PathConfig, Queue, RateChange};

/// What a scenario is for, in the order of the page.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, VariantArray)]
pub enum Question {
    /// Is the estimate the mean of the true peaks of five minutes, less one segment, after 100 samples?
    Peaks,
    /// Is it the new share 60 s after the bottleneck changed?
    Follow,
    /// What does one random loss in a clean series move?
    SingleLoss,
    /// Do lower bounds lift it?
    AppLimited,
    /// Does it stay at the share when most transfers start on advice that is too low, right or too high?
    Advised,
    /// What does one address that hides clients of unlike paths make of it?
    Nat,
    /// What does a receiver move whose acknowledgements never show a loss?
    Liar,
}

impl Scenario {
    /// Paths and clients in a line.
    pub fn words(&self) -> String {
        let sites: Vec<String> = self.sites.iter().map(Site::words).collect();
        let start = self.start.map_or(String::new(), |start| format!("; advised starts at {start} segments"));
        format!("{} s, {}{start}", self.seconds, sites.join("; and "))
    }
}

/// One recording.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name and that of its folder.
    pub name: String,
    /// What it is for.
    pub question: Question,
    /// Congestion control of the senders.
    pub cc: &'static str,
    /// How long clients work.
    pub seconds: u64,
    /// Client networks, which the replay takes for one.
    pub sites: Vec<Site>,
    /// Windows that the senders start with (`initcwnd`), where that is not the kernel's own ten.
    pub start: Option<u32>,
}

/// A client network behind a path of its own.
#[derive(Clone, Debug)]
pub struct Site {
    /// Megabits per second of the bottleneck; `None`: there is none.
    pub mbit: Option<u64>,
    /// Round trip of the empty path in milliseconds.
    pub rtt_ms: u64,
    /// Packets that may wait.
    pub queue: u32,
    /// After how many seconds the bottleneck has how many megabits per second.
    pub changes: &'static [(u64, u64)],
    /// When one packet is lost, in seconds.
    pub single_loss: Option<u64>,
    /// Chance of a loss per packet.
    pub loss: f64,
    /// Who works there.
    pub groups: Vec<Group>,
    /// All its clients show one address.
    pub one_address: bool,
}

/// Clients that do the same.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// How many.
    pub clients: u8,
    /// What they do.
    pub work: Work,
    /// Their senders start on advice.
    pub advised: bool,
}

/// What one client does for the whole time.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// One transfer without end.
    Bulk,
    /// One connection after another, each of that many bytes (from, to; evenly in the logarithm), with pauses up to that many
    /// milliseconds.
    Transfers(u64, u64, u64),
    /// One connection with messages of that many bytes (from, to) and pauses up to that many milliseconds.
    Messages(u64, u64, u64),
}

impl Work {
    fn words(self) -> String {
        let kb = |bytes: u64| bytes / 1_000;
        match self {
            Self::Bulk => "bulk".to_owned(),
            Self::Transfers(from, to, _) => format!("transfers of {} to {} KB", kb(from), kb(to)),
            Self::Messages(from, to, _) => format!("messages of {} to {} KB", kb(from), kb(to)),
        }
    }
}

/// When the bottleneck of [`Question::Follow`] changes, in seconds.
pub const CHANGES_S: [u64; 2] = [100, 200];
/// When the packet of [`Question::SingleLoss`] is lost.
pub const SINGLE_S: u64 = 60;

impl Question {
    /// As a heading, and what the figures in its table are.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Peaks => (
                "The mean of the peaks",
                "Furthest the estimate is, at any second after 100 samples, from the mean share of the kernel's peaks over the \
                 whole five minutes. Asked: 15 %.",
            ),
            Self::Follow => (
                "A bottleneck that halves and doubles",
                "Off the new share 60 s after the bottleneck halved / doubled. The new share is the mean share of the kernel's \
                 peaks from 15 s after the change to the next. Asked: 15 %.",
            ),
            Self::SingleLoss => (
                "One random loss",
                "Furthest that the sample of one lost packet moves the estimate, against the same series without it. With \
                 messages that stay in slow start the packet gives no sample; there one is put in, at half of the window of \
                 the end before. Asked: 5 %.",
            ),
            Self::AppLimited => (
                "Applications that send little",
                "Furthest from the mean of all window samples by the kernel's own windows, from 30 s on. Asked by us: 25 %.",
            ),
            Self::Advised => (
                "Starts on advice",
                "Ten of twelve clients' transfers start at a window of 8, 20 or 44 segments whatever the estimate says (an \
                 open loop: the recording cannot follow each rule). Furthest from the kernel's peaks, from 30 s on / drift \
                 from there to the end. Asked by us: 50 %.",
            ),
            Self::Nat => (
                "Unlike clients behind one address",
                "Two long flows on a fast path and six clients with short transfers on a slow one, all shown as one address. \
                 Furthest from the mean of the clients' means, from 30 s on / largest estimate against the smallest. Asked by \
                 us: 50 %.",
            ),
            Self::Liar => (
                "A receiver that lies",
                "Eight honest clients, and one address whose acknowledgements never show a loss (connections without a \
                 bottleneck stand for it: to a gateway, optimistic acknowledgements look the same). Furthest that it moves \
                 the estimate, against the same series without it, from 30 s on. Asked by us: 25 %.",
            ),
        }
    }

    /// Which of a recording's figures stand in its table.
    pub const fn columns(self) -> &'static [usize] {
        match self {
            Self::Follow | Self::Advised => &[0, 2],
            Self::Nat => &[0, 3],
            _ => &[0],
        }
    }
}

impl Site {
    fn new(mbit: u64, rtt_ms: u64, queue: u32, groups: &[Group]) -> Self {
        Self {
            mbit: Some(mbit),
            rtt_ms,
            queue,
            changes: &[],
            single_loss: None,
            loss: 0.0,
            groups: groups.to_vec(),
            one_address: false,
        }
    }

    /// Its path.
    pub fn path(&self, seed: u64) -> PathConfig {
        let rate = |mbit: u64| BytesPerSecond(mbit * 125_000);
        let delay = Duration::from_micros(self.rtt_ms * 500);
        let mut path = PathConfig::bottleneck(rate(self.mbit.unwrap_or(1)), delay, Queue::Packets(self.queue));
        path.down.hop.rate = self.mbit.map(rate);
        let mut changes = [None; CHANGES_MAX];
        for (change, (after, mbit)) in changes.iter_mut().zip(self.changes) {
            *change = Some(RateChange { after: Duration::from_secs(*after), rate: rate(*mbit) });
        }
        path.down.hop.changes = changes;
        let single = self.single_loss.map(Duration::from_secs);
        path.down.impairments = Impairments { loss: self.loss, single, ..Impairments::default() };
        path.seed = seed;
        path
    }

    fn words(&self) -> String {
        let mut text = self.mbit.map_or("no bottleneck".to_owned(), |mbit| format!("{mbit} Mbit/s"));
        for (after, mbit) in self.changes {
            write!(text, " ({mbit} from {after} s on)").ok();
        }
        write!(text, ", {} ms, {} packets", self.rtt_ms, self.queue).ok();
        if self.loss > 0.0 {
            write!(text, ", {} % random loss", self.loss * 100.0).ok();
        }
        for group in &self.groups {
            write!(text, ", {} x {}", group.clients, group.work.words()).ok();
            text += if group.advised { " (advised)" } else { "" };
        }
        text
    }

    /// Clients in all.
    pub fn clients(&self) -> u8 {
        self.groups.iter().map(|group| group.clients).sum()
    }

    /// The group of the `n`th client.
    pub fn group(&self, n: u8) -> Option<Group> {
        let mut first = 0;
        self.groups.iter().copied().find(|group| {
            first += group.clients;
            n < first
        })
    }
}

const fn group(clients: u8, work: Work) -> Group {
    Group { clients, work, advised: false }
}

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for cc in ["reno", "cubic"] {
        let mut add = |name: &str, question, seconds, sites: Vec<Site>, start| {
            all.push(Scenario { name: format!("{name}-{cc}"), question, cc, seconds, sites, start });
        };
        let mixed = [group(4, Work::Bulk), group(8, Work::Transfers(30_000, 300_000, 3_000))];
        add("peaks-4", Question::Peaks, 300, vec![Site::new(10, 40, 33, &[group(4, Work::Bulk)])], None);
        add("peaks-16", Question::Peaks, 300, vec![Site::new(10, 100, 166, &[group(16, Work::Bulk)])], None);
        add("peaks-16-shallow", Question::Peaks, 300, vec![Site::new(20, 80, 66, &[group(16, Work::Bulk)])], None);
        add("peaks-mixed", Question::Peaks, 300, vec![Site::new(10, 60, 50, &mixed)], None);
        let random = Site { loss: 0.0005, ..Site::new(10, 60, 100, &[group(8, Work::Bulk)]) };
        add("peaks-random", Question::Peaks, 300, vec![random], None);
        for (name, groups) in [
            ("step-4", &[group(4, Work::Bulk)][..]),
            ("step-16", &[group(16, Work::Bulk)][..]),
            ("step-mixed", &mixed[..]),
        ] {
            let site = Site { changes: &[(CHANGES_S[0], 8), (CHANGES_S[1], 16)], ..Site::new(16, 60, 40, groups) };
            add(name, Question::Follow, 290, vec![site], None);
        }
        let messages = group(8, Work::Messages(40_000, 150_000, 600));
        let single = Site { single_loss: Some(SINGLE_S), ..Site::new(20, 60, 600, &[messages]) };
        add("single-messages", Question::SingleLoss, 100, vec![single], None);
        let bulk = Site { single_loss: Some(SINGLE_S), ..Site::new(10, 60, 50, &[group(3, Work::Bulk)]) };
        add("single-bulk", Question::SingleLoss, 100, vec![bulk], None);
        let little = group(16, Work::Messages(3_000, 300_000, 1_000));
        add("app-16", Question::AppLimited, 90, vec![Site::new(20, 40, 33, &[little])], None);
        for (name, start) in [("advised-low", 8), ("advised-right", 20), ("advised-high", 44)] {
            let advised = Group { advised: true, ..group(10, Work::Transfers(20_000, 150_000, 1_500)) };
            let control = group(2, Work::Transfers(20_000, 2_000_000, 1_500));
            let site = Site::new(10, 80, 66, &[advised, control]);
            add(name, Question::Advised, 120, vec![site], Some(start));
        }
        let few = Site { one_address: true, ..Site::new(10, 40, 40, &[group(2, Work::Bulk)]) };
        let many =
            Site { one_address: true, ..Site::new(2, 40, 20, &[group(6, Work::Transfers(30_000, 90_000, 500))]) };
        add("nat", Question::Nat, 120, vec![few, many], None);
        let honest = Site::new(10, 60, 50, &[group(8, Work::Transfers(30_000, 1_000_000, 1_000))]);
        let liar = Site {
            mbit: None,
            one_address: true,
            ..Site::new(1, 60, 1, &[group(4, Work::Transfers(300_000, 1_500_000, 1_000))])
        };
        add("liar", Question::Liar, 120, vec![honest, liar], None);
    }
    all
}
