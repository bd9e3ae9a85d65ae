//! Messages byte for byte.

use super::*;

#[test]
fn messages_with_other_bytes_have_another_format() {
    let mut writer = writer();
    assert!(writer.add(network(), &cell_to(pseudonym([192, 0, 2, 1]))));
    let (host, network, at) = (IpAddr::from([192, 0, 2, 2]), network(), Timestamp(300));
    let trigger = Trigger::Idle;
    let cap = Window::from_bytes(9_000.0).unwrap();
    let notices = vec![
        Notice::HeldBack(HeldBack { network, cap, halved: at, withdrawn: Some(at) }),
        Notice::Seat { host, here: true },
        Notice::Start(StartSeen { host, network, trigger, at }),
        Notice::Lease { network, segments: 5, as_of: at },
        Notice::Settled { network, as_of: at },
        Notice::Established { host, network },
    ];
    let digests = vec![(5, Digest { cells: 6, hash: 7 })];
    let member = Member { name: "gateway-1".to_owned(), digests, address: Some("a:1".to_owned()), ..plain_member() };
    let messages =
        [writer.finish(), write_member(&member), write_notices(&Notices { number: 4, notices }), write_again(&[INDEX])];
    let hash = messages.concat().iter().fold(0u64, |hash, byte| hash.rotate_left(5) ^ u64::from(*byte));
    assert_eq!((FORMAT, messages.map(|message| message.len()), hash), (4, [140, 35, 77, 7], 343_434_676_695_988_897));
}
