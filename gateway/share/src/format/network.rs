//! A network as bytes: family, prefix length, and as many bytes of the address as the prefix reaches into.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use spand_proto::network::Network;

use spand_core::encoding::numbers::{Malformed, Reader, Writer};

/// Fewest bytes of a network.
pub(super) const LEAST: usize = 2;

pub(super) fn write_network(network: Network, out: &mut Writer) {
    let prefix = network.prefix();
    let len = prefix.prefix_len();
    out.byte(if prefix.addr().is_ipv4() { 4 } else { 6 });
    out.byte(len);
    let before = out.bytes.len();
    out.address(prefix.addr());
    out.bytes.truncate(before + significant(len));
}

pub(super) fn read_network(input: &mut Reader<'_>) -> Result<Network, Malformed> {
    let (family, len) = (input.byte()?, input.byte()?);
    let address = match family {
        4 => Ipv4Addr::from(read_address::<4>(len, input)?).into(),
        6 => Ipv6Addr::from(read_address::<16>(len, input)?).into(),
        _ => return Err(Malformed::Nonsense),
    };
    let prefix = IpNet::new(address, len).map_err(|_| Malformed::Nonsense)?;
    let network = Network::new(prefix);
    // Each network is written in one way.
    if network.prefix() == prefix { Ok(network) } else { Err(Malformed::Nonsense) }
}

/// An address of which only the significant bytes were written.
fn read_address<const N: usize>(len: u8, input: &mut Reader<'_>) -> Result<[u8; N], Malformed> {
    let mut address = [0; N];
    let written = address.get_mut(..significant(len)).ok_or(Malformed::Nonsense)?;
    written.copy_from_slice(input.bytes(written.len())?);
    Ok(address)
}

/// Bytes of an address that a prefix of this length reaches into.
fn significant(len: u8) -> usize {
    usize::from(len).div_ceil(8)
}
