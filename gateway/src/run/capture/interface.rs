//! State and addresses of a captured interface, for the gateway and the doctor. Nothing here reads packets.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// The kernel's entries for an interface: one for each address, and one for the link. An interface that is not there has none.
fn entries(interface: &str) -> impl Iterator<Item = InterfaceAddress> {
    getifaddrs().into_iter().flatten().filter(move |entry| entry.interface_name == interface)
}

/// Names an interface that is down or has no carrier; `None` also for one that is not there.
pub(crate) fn fault_of(interface: &str) -> Option<String> {
    let flags = entries(interface).next()?.flags;
    match (flags.contains(InterfaceFlags::IFF_UP), flags.contains(InterfaceFlags::IFF_RUNNING)) {
        (false, _) => Some(format!("interface {interface} is down")),
        (true, false) => {
            Some(format!("interface {interface} is up but has no carrier: check its cable and the other end"))
        }
        (true, true) => None,
    }
}

/// Whether an interface has no IP address but link-local ones, like a mirror port. `any` stands for the interfaces of a host, and is none.
pub(crate) fn is_mirror(interface: &str) -> bool {
    let own = |entry: InterfaceAddress| {
        entry.address.is_some_and(|address| {
            let v6 = address.as_sockaddr_in6().is_some_and(|address| !address.ip().is_unicast_link_local());
            v6 || address.as_sockaddr_in().is_some()
        })
    };
    interface != "any" && !entries(interface).any(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_with_an_address_is_no_mirror_port_and_one_that_is_up_has_no_fault() {
        assert_eq!((is_mirror("lo"), is_mirror("any"), is_mirror("not-there")), (false, false, true));
        assert_eq!((fault_of("lo"), fault_of("not-there")), (None, None));
    }
}
