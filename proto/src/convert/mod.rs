//! Between values and the messages of [`crate::v1`].
//!
//! Towards the wire nothing can fail. From the wire everything is checked, and what is wrong is named by its field.
//! Times become ages on the wire and times of the receiver's clock on arrival, so the two clocks need not agree;
//! network delay is not counted.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::contract::{NotAHostName, UnsupportedVersion};
use crate::estimate::NotARule;
use crate::network::NotANetwork;
use crate::units::{Micros, NotAWindow, Segments};

mod estimate;
mod push;
mod query;
mod report;
mod start;
#[cfg(test)]
mod tests {
    mod refused;
    mod round_trip;
}

pub use query::{answers_from_wire, answers_to_wire};

/// What is wrong with a message, by field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WireError {
    /// A field that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A text that is no address.
    #[error("{field}: `{text}` is not an address: write it as 192.0.2.1 or 2001:db8::1, without a port")]
    Address {
        /// The field.
        field: &'static str,
        /// The text, cut to what fits a line.
        text: String,
    },
    /// A text that is no network.
    #[error("{field}: {source}")]
    Network {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: NotANetwork,
    },
    /// A number that is no window.
    #[error("{field}: {source}")]
    Window {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: NotAWindow,
    },
    /// A name that is no estimation rule.
    #[error("{field}: {source}")]
    Rule {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: NotARule,
    },
    /// A text that is no host name.
    #[error("{field}: {source}")]
    HostName {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: NotAHostName,
    },
    /// A number outside its range.
    #[error("{field} is {value}: give {allowed}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The number.
        value: String,
        /// What would do.
        allowed: &'static str,
    },
    /// An enumeration's value that is not known here.
    #[error("{field} has the value {value}, which is not known here: is the peer of a newer release?")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its number.
        value: i32,
    },
    /// A list that is empty or too long.
    #[error("{field} has {count} entries: give {least} to {most}")]
    Count {
        /// The list.
        field: &'static str,
        /// Its entries.
        count: usize,
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// One entry of a list is wrong.
    #[error("{field}[{index}].{source}")]
    Entry {
        /// The list.
        field: &'static str,
        /// The entry, from 0.
        index: usize,
        /// What is wrong with it.
        source: Box<Self>,
    },
    /// A contract version that is not spoken here.
    #[error("contract_version: {0}")]
    Version(#[from] UnsupportedVersion),
}

/// Longest part of a wrong text that is repeated in an error, in characters.
const QUOTED_CHARS: usize = 64;

/// The start of a wrong text.
fn quote(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(QUOTED_CHARS).collect()
}

/// What must be there.
fn required<T>(value: Option<T>, field: &'static str) -> Result<T, WireError> {
    value.ok_or(WireError::Missing { field })
}

/// An address; an IPv4-mapped IPv6 one as the IPv4 address it stands for.
fn address(text: &str, field: &'static str) -> Result<IpAddr, WireError> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_canonical()),
        Err(_) => Err(WireError::Address { field, text: quote(text) }),
    }
}

/// A port that a connection can have.
fn port(number: u32, field: &'static str) -> Result<u16, WireError> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(out_of_range(&number, field, "1 to 65535")),
    }
}

/// One end of a connection.
fn socket(ip: &str, ip_field: &'static str, number: u32, port_field: &'static str) -> Result<SocketAddr, WireError> {
    Ok(SocketAddr::new(address(ip, ip_field)?, port(number, port_field)?))
}

/// A round-trip time that was measured.
fn rtt(us: Option<u64>, field: &'static str) -> Result<Option<Micros>, WireError> {
    match us {
        Some(0) => Err(out_of_range(&0, field, "at least 1, or leave it out where it was not measured")),
        us => Ok(us.map(Micros)),
    }
}

/// A window or a count of segments that is not zero.
fn segments(count: u32, field: &'static str) -> Result<Segments, WireError> {
    if count == 0 { Err(out_of_range(&count, field, "at least 1")) } else { Ok(Segments(count)) }
}

/// A lifetime in whole milliseconds, at most 49 days.
fn millis(lifetime: Micros) -> u32 {
    u32::try_from(lifetime.0 / 1_000).unwrap_or(u32::MAX)
}

/// Every entry of a list, or the first that is wrong with its place.
fn entries<W, T>(
    list: Vec<W>,
    field: &'static str,
    convert: impl Fn(W) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let place = |index| move |source| WireError::Entry { field, index, source: Box::new(source) };
    list.into_iter().enumerate().map(|(index, entry)| convert(entry).map_err(place(index))).collect()
}

/// Refuses a list outside its limits before anything is converted.
fn counted<W>(list: &[W], field: &'static str, least: usize, most: usize) -> Result<(), WireError> {
    let count = list.len();
    if (least..=most).contains(&count) { Ok(()) } else { Err(WireError::Count { field, count, least, most }) }
}

fn out_of_range(value: &dyn fmt::Display, field: &'static str, allowed: &'static str) -> WireError {
    WireError::OutOfRange { field, value: value.to_string(), allowed }
}

/// Conversions of an enumeration whose variants have the same names on both sides; `Unspecified` stands for none.
macro_rules! same_names {
    ($value:ty, $wire:ty, $($variant:ident),+ $(,)?) => {
        impl $value {
            /// Its number on the wire.
            pub(crate) fn to_wire(self) -> i32 {
                match self {
                    $(Self::$variant => <$wire>::$variant as i32,)+
                }
            }

            /// The value of a number from the wire; `None` where it is unspecified.
            pub(crate) fn from_wire(
                number: i32,
                field: &'static str,
            ) -> Result<Option<Self>, $crate::convert::WireError> {
                match <$wire>::try_from(number) {
                    Ok(<$wire>::Unspecified) => Ok(None),
                    $(Ok(<$wire>::$variant) => Ok(Some(Self::$variant)),)+
                    Err(_) => Err($crate::convert::WireError::Unknown { field, value: number }),
                }
            }
        }
    };
}
use same_names;
