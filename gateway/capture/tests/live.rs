//! Live capture on the loopback interface with each backend, and the sentences for what stands in its way.
//!
//! Without the privilege to capture the tests that need packets check nothing, and say so on standard error even where
//! the test runner keeps output to itself.

use std::net::UdpSocket;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use spand_capture::{Backend, LinkType, LiveCapture, LiveError, LiveOptions, Next, PacketSource, SourceStats};
use spand_needs::{Need, lacks};
use spand_proto::units::{Bytes, Micros, Timestamp};

/// Empty reads before a packet that was sent counts as lost: 10 s of time-outs and as many empty rings.
const PATIENCE: usize = 2_000;

fn open(options: &LiveOptions) -> Option<LiveCapture> {
    match LiveCapture::open(options) {
        Ok(capture) => Some(capture),
        Err(error @ LiveError::NoPrivilege { .. }) => {
            lacks(Need::Root, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const BACKENDS: [Option<Backend>; 2] = [Some(Backend::AfPacket), Some(Backend::Libpcap)];

/// On loopback the kernel shows every packet twice, and libpcap drops the outgoing copy only after it was counted; a
/// filter that says `inbound` makes the counters those of the packets.
fn loopback() -> LiveOptions {
    LiveOptions { promiscuous: false, ..LiveOptions::new("lo") }
}

/// Loopback with each backend, and with each both at once and in blocks.
fn ways() -> impl Iterator<Item = LiveOptions> {
    let both = |backend| [false, true].map(|immediate| LiveOptions { backend, immediate, ..loopback() });
    BACKENDS.into_iter().flat_map(both)
}

fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set");
    Timestamp(u64::try_from(since_1970.as_nanos()).expect("a year before 2554"))
}

/// Captured bytes and lengths on the wire of the next `count` packets, which were captured after `start`.
fn take(capture: &mut LiveCapture, count: usize, start: Timestamp) -> Vec<(Vec<u8>, u32)> {
    let mut packets = Vec::new();
    let mut idle = 0;
    while packets.len() < count {
        match capture.next_packet().expect("the interface stays") {
            Next::Packet(packet) => {
                assert!((start..=now()).contains(&packet.timestamp), "in nanoseconds by the host's clock");
                packets.push((packet.data.to_vec(), packet.wire_len));
            }
            Next::Idle => {
                idle += 1;
                assert!(idle < PATIENCE, "{} of {count} packets came", packets.len());
            }
            Next::End => panic!("a live capture does not end"),
        }
    }
    packets
}

/// Sends until packets arrive, then takes all of them, and returns the counters to count from.
///
/// libpcap filters what may be in the ring from before the filter again by itself, and there `inbound` takes nothing:
/// the first block is lost.
fn settle(capture: &mut LiveCapture, send: impl Fn()) -> SourceStats {
    let mut idle = 0;
    while idle < 5 || capture.stats().packets == 0 {
        assert!(idle < PATIENCE, "nothing comes");
        if capture.stats().packets == 0 {
            send();
        }
        idle = if capture.next_packet().expect("the interface stays") == Next::Idle { idle + 1 } else { 0 };
    }
    capture.stats()
}

#[test]
fn packets_pass_the_filter_cut_to_the_snap_length() {
    for way in ways() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        let filter = Some(format!("inbound and udp dst port {port} and greater 80"));
        let options = LiveOptions { filter, snap_len: NonZeroU32::new(60).unwrap(), ..way.clone() };
        let Some(mut capture) = open(&options) else { return };
        assert_eq!(capture.link_type(), LinkType::ETHERNET);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = |fill, len| sender.send_to(&vec![fill; len], ("127.0.0.1", port)).unwrap();
        let before = settle(&mut capture, || {
            send(0, 100);
        });
        let start = now();
        for fill in 0..5 {
            send(fill, 10);
            send(fill, 100);
        }
        for (fill, (data, wire_len)) in (0..5).zip(take(&mut capture, 5, start)) {
            assert_eq!((data.len(), wire_len), (60, 14 + 20 + 8 + 100));
            assert_eq!(data[42..], [fill; 18]);
        }
        // The first finds nothing, the second has waited: then the kernel's counters are fresh.
        while capture.next_packet().unwrap() != Next::Idle {}
        while capture.next_packet().unwrap() != Next::Idle {}
        let stats = capture.stats();
        assert_eq!((stats.packets - before.packets, stats.bytes - before.bytes), (5, 300));
        assert_eq!(stats.received.unwrap() - before.received.unwrap(), 5);
        assert_eq!((stats.dropped_by_kernel, stats.dropped_by_interface), (Some(0), Some(0)));
    }
}

#[test]
fn a_full_buffer_is_counted_as_the_kernels_drops() {
    const SENT: u64 = 20_000;
    for backend in BACKENDS {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        let filter = Some(format!("inbound and udp dst port {port}"));
        let options = LiveOptions { filter, backend, buffer: Bytes(1 << 18), ..loopback() };
        let Some(mut capture) = open(&options) else { return };
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = || {
            sender.send_to(&[0; 1_000], ("127.0.0.1", port)).unwrap();
        };
        let before = settle(&mut capture, send);
        (0..SENT).for_each(|_| send());
        let mut idle = 0;
        while idle < 5 {
            idle = if capture.next_packet().unwrap() == Next::Idle { idle + 1 } else { 0 };
        }
        let stats = capture.stats();
        let dropped = stats.dropped_by_kernel.unwrap();
        assert!(dropped > 0, "{backend:?}: {stats:?}");
        assert_eq!(stats.received.unwrap() - before.received.unwrap(), SENT, "{backend:?}");
        assert_eq!(stats.packets - before.packets + dropped, SENT, "{backend:?}");
    }
}

#[test]
fn without_a_filter_a_packet_on_loopback_comes_once() {
    for way in ways() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let Some(mut capture) = open(&way) else { return };
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..100_u8 {
            sender.send_to(&[number; 20], to).unwrap();
        }
        let mut came = Vec::new();
        let mut idle = 0;
        // Other tests send on loopback too: silence alone does not end it.
        while idle < 5 || came.len() < 100 {
            assert!(idle < PATIENCE, "{} of 100 came", came.len());
            match capture.next_packet().unwrap() {
                Next::Packet(packet) if packet.data.get(36..38) == Some(&to.port().to_be_bytes()) => {
                    came.push(packet.data[42]);
                }
                Next::Packet(_) => {}
                _ => idle += 1,
            }
        }
        assert_eq!(came, (0..100).collect::<Vec<_>>(), "{way:?}");
    }
}

#[test]
fn a_silent_interface_is_idle_and_does_not_block() {
    for backend in BACKENDS {
        let filter = Some("udp dst port 9 and udp src port 9".to_owned());
        let Some(mut capture) = open(&LiveOptions { filter, backend, ..loopback() }) else { return };
        for _ in 0..5 {
            assert_eq!(capture.next_packet().unwrap(), Next::Idle);
        }
        assert!(capture.progress().is_none());
        assert_eq!(Some(capture.backend()), backend);
    }
}

#[test]
fn an_unknown_interface_is_named_beside_those_there_are() {
    for backend in BACKENDS {
        let options = LiveOptions { backend, ..LiveOptions::new("no-such-if0") };
        let error = LiveCapture::open(&options).unwrap_err();
        let expected = if may_capture() { "there is no interface no-such-if0 here; there are " } else { "no-such-if0" };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_bad_filter_is_quoted() {
    for backend in BACKENDS {
        let options = LiveOptions { filter: Some("tcp prot 80".to_owned()), backend, ..loopback() };
        match LiveCapture::open(&options).unwrap_err() {
            error @ LiveError::BadFilter { .. } => {
                let expected = "the capture filter `tcp prot 80` does not work on lo: ";
                assert!(error.to_string().starts_with(expected), "{error}");
            }
            error => {
                assert!(!may_capture(), "{error}");
                lacks(Need::Root, error);
            }
        }
    }
}

#[test]
fn options_out_of_range_are_refused_before_anything_is_opened() {
    let wrong = [
        LiveOptions { buffer: Bytes(1 << 31), ..loopback() },
        LiveOptions { buffer: Bytes(1 << 17), ..loopback() },
        LiveOptions { block: Bytes(3 << 16), ..loopback() },
        LiveOptions { block: Bytes(1 << 11), ..loopback() },
        LiveOptions { read_timeout: Micros(999), ..loopback() },
        LiveOptions { read_timeout: Micros::from_secs(61), ..loopback() },
        LiveOptions { snap_len: NonZeroU32::MAX, ..loopback() },
    ];
    for options in wrong {
        assert!(matches!(LiveCapture::open(&options), Err(LiveError::BadOption { .. })), "{options:?}");
    }
}

#[test]
fn all_interfaces_together_are_libpcaps() {
    let any = LiveOptions { backend: Some(Backend::AfPacket), ..LiveOptions::new("any") };
    let error = LiveCapture::open(&any).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the capture backend af_packet cannot read any: it is no single interface; the backend libpcap can"
    );
    let Some(chosen) = open(&LiveOptions { backend: None, ..any }) else { return };
    assert_eq!(chosen.backend(), Backend::Libpcap);
    let Some(chosen) = open(&loopback()) else { return };
    assert_eq!(chosen.backend(), Backend::AfPacket);
}

#[test]
fn without_privilege_the_way_out_is_named() {
    if !may_capture() {
        for backend in BACKENDS {
            let error = LiveCapture::open(&LiveOptions { backend, ..loopback() }).unwrap_err();
            assert!(matches!(error, LiveError::NoPrivilege { .. }), "{error}");
            assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
        }
        return;
    }
    // Once more as nobody.
    let myself = std::env::current_exe().unwrap();
    let name = "without_privilege_the_way_out_is_named";
    match Command::new(myself).args(["--exact", name]).uid(65_534).gid(65_534).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => lacks(Need::Root, error),
    }
}

/// Root, in practice; for a root without the capability the first capture fails.
fn may_capture() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
