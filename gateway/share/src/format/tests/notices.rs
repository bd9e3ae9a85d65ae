//! Notices as bytes.

use super::*;

fn notice() -> impl Strategy<Value = Notice> {
    let held =
        (any_network(), window(), any::<u64>(), any::<Option<u64>>()).prop_map(|(network, cap, halved, withdrawn)| {
            let (halved, withdrawn) = (Timestamp(halved), withdrawn.map(Timestamp));
            Notice::HeldBack(HeldBack { network, cap, halved, withdrawn })
        });
    let triggers = prop::sample::select(vec![Trigger::PassiveOpen, Trigger::ActiveOpen, Trigger::Idle]);
    let host = || any::<IpAddr>().prop_map(|host| host.to_canonical());
    let start = (host(), any_network(), triggers, any::<u64>()).prop_map(|(host, network, trigger, at)| {
        Notice::Start(StartSeen { host, network, trigger, at: Timestamp(at) })
    });
    let established = |(host, network)| Notice::Established { host, network };
    prop_oneof![
        held,
        (host(), any::<bool>()).prop_map(|(host, here)| Notice::Seat { host, here }),
        start,
        (host(), any_network()).prop_map(established),
        (any_network(), any::<(u32, u64)>())
            .prop_map(|(network, (segments, as_of))| { Notice::Lease { network, segments, as_of: Timestamp(as_of) } }),
        (any_network(), any::<u64>()).prop_map(|(network, as_of)| Notice::Settled { network, as_of: Timestamp(as_of) }),
    ]
}

fn notices() -> impl Strategy<Value = Notices> {
    (any::<u64>(), prop::collection::vec(notice(), 0..20)).prop_map(|(number, notices)| Notices { number, notices })
}

#[test]
fn a_message_has_room_for_the_notices_that_it_may_hold() {
    let network = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128".parse().unwrap();
    let (halved, withdrawn) = (Timestamp(u64::MAX), Some(Timestamp(u64::MAX)));
    let longest = Notice::HeldBack(HeldBack { network, cap: Window::from_bytes(1e300).unwrap(), halved, withdrawn });
    let mut notices = Notices { number: u64::MAX, notices: vec![longest; NOTICES_AT_ONCE] };
    let message = write_notices(&notices);
    assert!(message.len() <= MESSAGE_BYTES, "{}", message.len());
    assert_eq!(read_notices(&message).as_ref(), Ok(&notices));
    notices.notices.push(notices.notices[0].clone());
    assert_eq!(read_notices(&write_notices(&notices)).unwrap().notices.len(), NOTICES_AT_ONCE);
}

#[test]
fn a_host_is_read_in_canonical_form() {
    let seat =
        |host: &str| Notices { number: 1, notices: vec![Notice::Seat { host: host.parse().unwrap(), here: true }] };
    assert_eq!(read_notices(&write_notices(&seat("::ffff:192.0.2.1"))), Ok(seat("192.0.2.1")));
}

proptest! {
    #[test]
    fn any_notices_come_back(notices in notices()) {
        let message = write_notices(&notices);
        prop_assert_eq!(kind_of_message(&message), Some(Kind::Notices));
        prop_assert_eq!(read_batch(&message), Err(FormatError::Misplaced));
        prop_assert_eq!(read_notices(&message), Ok(notices));
        for cut in 0..message.len() {
            prop_assert!(read_notices(&message[..cut]).is_err());
        }
    }
}
