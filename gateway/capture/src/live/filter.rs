//! Filter expressions as programs for the kernel.
//!
//! libpcap compiles them on a live capture of the interface itself. Only there does its compiler know that the kernel has
//! taken VLAN tags out of the packets, and look for them where they then are (`SKF_AD_VLAN_TAG`).

use std::num::NonZeroU32;

use pcap::{Capture, Linktype};

use super::libpcap::{explain, message};
use super::{LiveError, LiveOptions};
use crate::LinkType;

/// Kernel memory for the capture that only compiles.
const COMPILER_BUFFER_BYTES: i32 = 1 << 20;

/// What a mirrored packet begins with. A filter may name what only one of them has.
const LIKELY: [Linktype; 3] = [Linktype::ETHERNET, Linktype::RAW, Linktype::LINUX_SLL2];

/// Whether a filter is one at all: without an interface, which may refuse it all the same.
pub fn check_filter(expression: &str) -> Result<(), LiveError> {
    let compile = |link_type| Capture::dead(link_type)?.compile(expression, true).map(drop);
    let [first, others @ ..] = LIKELY;
    compile(first).or_else(|error| {
        if others.into_iter().any(|link_type| compile(link_type).is_ok()) {
            return Ok(());
        }
        let interface = "any interface".to_owned();
        Err(LiveError::BadFilter { interface, filter: expression.to_owned(), message: message(error) })
    })
}

/// The program of the options' filter: it lets `snap_len` bytes of a packet through, or nothing.
pub(super) fn compile(options: &LiveOptions, link_type: LinkType) -> Result<Vec<libc::sock_filter>, LiveError> {
    let Some(expression) = &options.filter else { return Ok(vec![take(options.snap_len)]) };
    let interface = options.interface.as_str();
    let refused = |message| LiveError::Refused { interface: interface.to_owned(), message };
    let compiler = Capture::from_device(interface)
        .and_then(|inactive| inactive.buffer_size(COMPILER_BUFFER_BYTES).timeout(1).open())
        .map_err(|error| explain(interface, message(error)))?;
    let offsets = u16::try_from(compiler.get_datalink().0).unwrap_or(u16::MAX);
    if LinkType::from_wire(offsets) != link_type {
        return Err(refused(format!("libpcap compiles its filter for link type {offsets}; capture without a filter")));
    }
    let program = compiler.compile(expression, true).map_err(|error| LiveError::BadFilter {
        interface: interface.to_owned(),
        filter: expression.clone(),
        message: message(error),
    })?;
    let instructions: Option<Vec<_>> = program
        .get_instructions()
        .iter()
        .map(|instruction| read(&instruction.to_string()).map(|read| with_snap_len(read, options.snap_len)))
        .collect();
    instructions.ok_or_else(|| refused("libpcap's compiled filter cannot be read; capture without a filter".to_owned()))
}

/// An instruction as the binding prints it: code, both jumps and the operand, in decimal.
fn read(printed: &str) -> Option<libc::sock_filter> {
    let mut numbers = printed.split(' ');
    let instruction = libc::sock_filter {
        code: numbers.next()?.parse().ok()?,
        jt: numbers.next()?.parse().ok()?,
        jf: numbers.next()?.parse().ok()?,
        k: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(instruction)
}

#[expect(clippy::cast_possible_truncation, reason = "codes have 16 bits")]
const RETURN_CONSTANT: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A filter returns how many bytes the kernel keeps, 0 to drop the packet.
fn with_snap_len(instruction: libc::sock_filter, snap_len: NonZeroU32) -> libc::sock_filter {
    if instruction.code == RETURN_CONSTANT && instruction.k > 0 { take(snap_len) } else { instruction }
}

fn take(snap_len: NonZeroU32) -> libc::sock_filter {
    libc::sock_filter { code: RETURN_CONSTANT, jt: 0, jf: 0, k: snap_len.get() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_interface_takes_is_no_filter() {
        for filter in
            ["", "tcp port 443", "vlan and tcp", "inbound", "ether host 02:00:00:00:00:01", "not net 10.0.0.0/8"]
        {
            check_filter(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
        }
        for wrong in ["tpc", "tcp port", "host 10.0.0.300", "port 443 and ("] {
            let error = check_filter(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("pcap-filter(7)"), "{error}");
        }
    }

    #[test]
    fn instructions_are_read_as_they_are_printed() {
        let snap_len = NonZeroU32::new(96).unwrap();
        let load = read("40 0 0 12").unwrap();
        assert_eq!((load.code, load.k), (40, 12));
        assert_eq!(with_snap_len(load, snap_len).k, 12);
        let (accept, reject) = (read("6 0 0 262144").unwrap(), read("6 0 0 0").unwrap());
        assert_eq!(with_snap_len(accept, snap_len).k, 96);
        assert_eq!(with_snap_len(reject, snap_len).k, 0);
        for wrong in ["", "6 0 0", "6 0 0 1 1", "6 300 0 1", "(000) ret #1"] {
            assert!(read(wrong).is_none(), "{wrong}");
        }
    }
}
