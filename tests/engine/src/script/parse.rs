//! The text of a script, line by line.

use std::iter::Peekable;
use std::str::SplitWhitespace;

use super::Fault;

/// A part of a script, which is one test.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it shows, from its heading.
    pub name: String,
    /// Its lines, with their numbers.
    pub lines: Vec<(usize, Line)>,
}

/// A line of a script.
#[derive(Clone, Debug)]
pub enum Line {
    /// A setting of the engine, before everything else.
    Config(Vec<String>),
    /// A connection opens, with its handshake.
    Connection(Opening),
    /// Segments.
    Packet(Packet),
    /// Bursts of segments at an even pace, each acknowledged a round trip later.
    Bursts(Bursts),
    /// Time passes without frames, until these microseconds.
    Time(u64),
    /// The input is over.
    Finish(u64),
    /// The part of the starts that is followed from here on, in 256ths.
    Keep(u16),
    /// Other prefixes or listeners from here on.
    Set(Vec<String>),
    /// The client's host was advised to start.
    Advised,
    /// Lines that come several times.
    Repeat(Repetition),
    /// The expected values so far: a subject, and pairs of name and value.
    Expect(Subject, Vec<(String, String)>),
}

/// Lines that repeat, each time at a later offset.
#[derive(Clone, Debug)]
pub struct Repetition {
    pub(super) count: u64,
    pub(super) every_us: u64,
    pub(super) lines: Vec<(usize, Line)>,
}

/// A sender's pace.
#[derive(Clone, Debug)]
pub struct Bursts {
    pub(super) connection: String,
    pub(super) segments: u64,
    pub(super) every_us: u64,
    pub(super) for_us: u64,
    pub(super) rtt_us: u64,
    /// The sender's clock does not follow the pace: it shows when windows of this length began.
    pub(super) clock_us: u64,
}

/// The subject of an expectation.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Counters, connections and networks of the engine.
    Engine,
    /// The direction from a connection's server, or that to it.
    Direction {
        /// The connection's name.
        connection: String,
        /// From the server.
        sent: bool,
    },
    /// What is known of the network of an address or prefix.
    Network(Option<String>),
    /// What is known of the transfers of a service inside.
    Service(String),
    /// The events since those last expected.
    Events(Vec<String>),
}

/// How a connection opens.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "words of a script, in any combination")]
pub struct Opening {
    pub(super) name: String,
    pub(super) client: Option<String>,
    pub(super) server: Option<String>,
    pub(super) at_us: u64,
    pub(super) rtt_us: u64,
    pub(super) mss: u32,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
    pub(super) ecn: bool,
    pub(super) scale: Option<u8>,
    pub(super) isn: [u32; 2],
    /// No packet of the handshake is seen.
    pub(super) silent: bool,
}

/// Segments of one side of a connection.
#[derive(Clone, Debug)]
pub struct Packet {
    pub(super) connection: String,
    pub(super) at: Moment,
    pub(super) from_server: bool,
    pub(super) flags: String,
    pub(super) range: Option<Range>,
    pub(super) ack: Option<Number>,
    pub(super) sack: Vec<(u64, u64)>,
    pub(super) value: Option<u32>,
    pub(super) echo: Option<u32>,
    pub(super) window: Option<u16>,
    pub(super) mss: Option<u16>,
    pub(super) scale: Option<u8>,
    pub(super) sack_permitted: bool,
    pub(super) id: Option<u16>,
    pub(super) ecn: u8,
    pub(super) each_us: u64,
    /// Without the timestamps that were agreed upon.
    pub(super) bare: bool,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    From(u64, u64),
    Next(u64),
}

/// An acknowledgement number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Is(u64),
    /// So much beyond the last one.
    Beyond(u64),
    /// All that the other side sent.
    All,
}

/// A time of a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// Microseconds since its beginning.
    At(u64),
    /// After the line before.
    Later(u64),
}

impl Packet {
    /// An acknowledgement without anything.
    pub(super) fn new(connection: String, at: Moment, from_server: bool) -> Self {
        Self {
            connection,
            at,
            from_server,
            flags: ".".to_owned(),
            range: None,
            ack: None,
            sack: Vec::new(),
            value: None,
            echo: None,
            window: None,
            mss: None,
            scale: None,
            sack_permitted: false,
            id: None,
            ecn: 0,
            each_us: 0,
            bare: false,
        }
    }
}

type Words<'a> = Peekable<SplitWhitespace<'a>>;

/// The parts of a script.
///
/// # Errors
/// The first line that means nothing.
pub fn parts(text: &str) -> Result<Vec<Part>, Fault> {
    let mut parts: Vec<Part> = Vec::new();
    // Lines of `repeat` that is not over yet.
    let mut open: Option<(usize, Repetition)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let fault = |what: String| Fault { line: number, what };
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("== ") {
            parts.push(Part { name: name.trim().replace(' ', "_"), lines: Vec::new() });
            continue;
        }
        let mut words = line.split_whitespace().peekable();
        let Some(first) = words.peek().copied() else { continue };
        let part = parts.last_mut().ok_or_else(|| fault("lines come after a heading: == what it shows".to_owned()))?;
        match first {
            "repeat" => {
                let [_, count, _, every] = four(&mut words).map_err(fault)?;
                let count = number_of(count).map_err(fault)?;
                let every_us = time(every).map_err(fault)?;
                open = Some((number, Repetition { count, every_us, lines: Vec::new() }));
            }
            "end" => {
                let (number, repetition) = open.take().ok_or_else(|| fault("nothing repeats".to_owned()))?;
                part.lines.push((number, Line::Repeat(repetition)));
            }
            _ => {
                let line = parse(first, &mut words).map_err(fault)?;
                open.as_mut().map_or(&mut part.lines, |(_, repetition)| &mut repetition.lines).push((number, line));
            }
        }
    }
    match open {
        Some((line, ..)) => Err(Fault { line, what: "`repeat` has no `end`".to_owned() }),
        None => Ok(parts),
    }
}

fn four<'a>(words: &mut Words<'a>) -> Result<[&'a str; 4], String> {
    let all: Vec<_> = words.collect();
    all.try_into().map_err(|_| "write: repeat N every TIME".to_owned())
}

fn parse(first: &str, words: &mut Words<'_>) -> Result<Line, String> {
    let rest = |words: &mut Words<'_>| {
        words.next();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    Ok(match first {
        "config" => Line::Config(rest(words)),
        "connection" => Line::Connection(opening(words)?),
        "bursts" => Line::Bursts(bursts(words)?),
        "time" => Line::Time(only_time(words)?),
        "finish" => Line::Finish(only_time(words)?),
        "keep" => Line::Keep(number_of(rest(words).first().map_or("", String::as_str))?),
        "advised" => Line::Advised,
        "set" => Line::Set(rest(words)),
        "starts" => starts(words)?,
        "expect" => expectation(words)?,
        _ => Line::Packet(packet(words)?),
    })
}

fn only_time(words: &mut Words<'_>) -> Result<u64, String> {
    words.next();
    time(words.next().unwrap_or_default())
}

/// Milliseconds without a unit; us and s with one.
fn time(word: &str) -> Result<u64, String> {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = word.strip_suffix(unit).and_then(|n| n.parse().ok()).ok_or(format!("{word} is no time"))?;
    let scale = match unit {
        "" | "ms" => 1e3,
        "us" => 1.0,
        "s" => 1e6,
        _ => return Err(format!("{word} has no unit of time: us, ms (or none) or s")),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a script's time, without a sign")]
    Ok((number * scale).round() as u64)
}

fn number_of<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word} is no number that fits here"))
}

/// Two numbers with a colon between them.
fn pair(word: &str) -> Option<(u64, u64)> {
    let (left, right) = word.split_once(':')?;
    Some((left.parse().ok()?, right.parse().ok()?))
}

/// `starts N every TIME`, and what follows as of `connection`: opens N, and sends a segment on each.
fn starts(words: &mut Words<'_>) -> Result<Line, String> {
    let [_, count, _] = [words.next(), words.next(), words.next()];
    let count = number_of(count.unwrap_or_default())?;
    let every_us = time(words.peek().copied().unwrap_or_default())?;
    let opening = opening(words)?;
    let sent = ["+1 > +1000", "+1 < ack all"].map(|text| format!("{} {text}", opening.name));
    let [data, ack] = sent.map(|text| packet(&mut text.split_whitespace().peekable()));
    let lines = [Line::Connection(opening), Line::Packet(data?), Line::Packet(ack?)];
    Ok(Line::Repeat(Repetition { count, every_us, lines: lines.into_iter().map(|line| (0, line)).collect() }))
}

fn opening(words: &mut Words<'_>) -> Result<Opening, String> {
    let mut opening = Opening {
        name: String::new(),
        client: None,
        server: None,
        at_us: 0,
        rtt_us: 100_000,
        mss: 1_000,
        sack: true,
        timestamps: true,
        ecn: false,
        scale: None,
        isn: [5_000_000, 1_000_000],
        silent: false,
    };
    words.next();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} has no value"));
        match word {
            "from" => opening.client = Some(value()?.to_owned()),
            "to" => opening.server = Some(value()?.to_owned()),
            "at" => opening.at_us = time(value()?)?,
            "rtt" => opening.rtt_us = time(value()?)?,
            "mss" => opening.mss = number_of(value()?)?,
            "wscale" => opening.scale = Some(number_of(value()?)?),
            "isn" => opening.isn = [number_of(value()?)?, number_of(value()?)?],
            "nosack" => opening.sack = false,
            "nots" => opening.timestamps = false,
            "ecn" => opening.ecn = true,
            "midstream" => opening.silent = true,
            name if opening.name.is_empty() && name.starts_with(char::is_uppercase) => {
                name.clone_into(&mut opening.name);
            }
            _ => return Err(format!("a connection has no {word}")),
        }
    }
    Ok(opening)
}

fn bursts(words: &mut Words<'_>) -> Result<Bursts, String> {
    words.next();
    let connection = words.next_if(|word| word.starts_with(char::is_uppercase)).unwrap_or_default().to_owned();
    let segments = number_of(words.next().unwrap_or_default())?;
    let mut bursts = Bursts { connection, segments, every_us: 0, for_us: 0, rtt_us: 100_000, clock_us: 1_000 };
    while let Some(word) = words.next() {
        let value = time(words.next().ok_or(format!("{word} has no value"))?)?;
        match word {
            "every" => bursts.every_us = value,
            "for" => bursts.for_us = value,
            "rtt" => bursts.rtt_us = value,
            "clock" => bursts.clock_us = value,
            _ => return Err(format!("bursts have no {word}")),
        }
    }
    if bursts.every_us == 0 || bursts.clock_us == 0 { Err("bursts come every so often".to_owned()) } else { Ok(bursts) }
}

fn packet(words: &mut Words<'_>) -> Result<Packet, String> {
    let mut connection = String::new();
    let mut word = words.next().unwrap_or_default();
    if word.starts_with(char::is_uppercase) {
        word.clone_into(&mut connection);
        word = words.next().unwrap_or_default();
    }
    let at = match word.strip_prefix('+') {
        Some(later) => Moment::Later(time(later)?),
        None => Moment::At(time(word)?),
    };
    let from_server = match words.next() {
        Some(">") => true,
        Some("<") => false,
        other => {
            return Err(format!(
                "after the time comes > (sent by the server) or <, not {}",
                other.unwrap_or("nothing")
            ));
        }
    };
    let mut packet = Packet::new(connection, at, from_server);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} has no value"));
        match word {
            "ack" => {
                let number = value()?;
                packet.ack = Some(match number.strip_prefix('+') {
                    Some(beyond) => Number::Beyond(number_of(beyond)?),
                    None if number == "all" => Number::All,
                    None => Number::Is(number_of(number)?),
                });
            }
            "sack" => {
                let blocks = value()?.split(',').map(|block| pair(block).ok_or(format!("{block} is no SACK block")));
                packet.sack = blocks.collect::<Result<_, _>>()?;
            }
            "val" => packet.value = Some(number_of(value()?)?),
            "ecr" => packet.echo = Some(number_of(value()?)?),
            "win" => packet.window = Some(number_of(value()?)?),
            "mss" => packet.mss = Some(number_of(value()?)?),
            "wscale" => packet.scale = Some(number_of(value()?)?),
            "sackOK" => packet.sack_permitted = true,
            "id" => packet.id = Some(number_of(value()?)?),
            "each" => packet.each_us = time(value()?)?,
            "nots" => packet.bare = true,
            "ect1" => packet.ecn = 1,
            "ect0" => packet.ecn = 2,
            "ce" => packet.ecn = 3,
            flags if flags.chars().all(|flag| "SFRP.EW".contains(flag)) => flags.clone_into(&mut packet.flags),
            range => {
                let next = range.strip_prefix('+').and_then(|len| len.parse().ok()).map(Range::Next);
                let range = next.or_else(|| pair(range).map(|(left, right)| Range::From(left, right)));
                packet.range = Some(range.ok_or(format!("a packet has no {word}"))?);
            }
        }
    }
    Ok(packet)
}

fn expectation(words: &mut Words<'_>) -> Result<Line, String> {
    words.next();
    let subject = match words.peek().copied() {
        Some(direction @ ("sent" | "received")) => {
            words.next();
            let connection = words.next_if(|word| word.starts_with(char::is_uppercase)).unwrap_or_default().to_owned();
            Subject::Direction { connection, sent: direction == "sent" }
        }
        Some("network") => {
            words.next();
            let address = words.next_if(|word| word.contains(['.', ':']));
            Subject::Network(address.map(str::to_owned))
        }
        Some("service") => {
            words.next();
            Subject::Service(words.next().unwrap_or_default().to_owned())
        }
        Some("events") => {
            words.next();
            let text = words.collect::<Vec<_>>().join(" ");
            let events = text.split(';').map(str::trim).filter(|event| !event.is_empty()).map(str::to_owned);
            return Ok(Line::Expect(Subject::Events(events.collect()), Vec::new()));
        }
        _ => Subject::Engine,
    };
    let mut pairs = Vec::new();
    while let Some(name) = words.next() {
        // A list of samples takes the rest of the line.
        let value = match name {
            "outcomes" | "explained" => words.collect::<Vec<_>>().join(" "),
            "samples" if matches!(subject, Subject::Direction { .. }) => words.collect::<Vec<_>>().join(" "),
            _ => words.next().ok_or(format!("{name} has no value"))?.to_owned(),
        };
        pairs.push((name.to_owned(), value));
    }
    Ok(Line::Expect(subject, pairs))
}
