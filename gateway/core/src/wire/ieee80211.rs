//! Wireless frames: radiotap and the 802.11 data frame.

use super::Layer;
use super::capture_header::PacketBytes;
use crate::counters::Ignored;

type Next<'a> = Result<(Layer, PacketBytes<'a>), Ignored>;

/// Radiotap header (<https://www.radiotap.org>): its length says where the MAC header starts.
pub(super) fn radiotap(bytes: PacketBytes<'_>) -> Next<'_> {
    let [version, _, len0, len1] = *bytes.head::<4>()?;
    if version != 0 {
        return Err(Ignored::Malformed);
    }
    Ok((Layer::Ieee80211, bytes.skip(usize::from(u16::from_le_bytes([len0, len1])))?))
}

/// A data frame (IEEE 802.11 clause 9.3.2), of an aggregate (A-MSDU) its first part. Encrypted ones cannot be parsed.
pub(super) fn data_frame(bytes: PacketBytes<'_>) -> Next<'_> {
    const DATA: u8 = 2;
    const NO_DATA: u8 = 0x4;
    const QOS: u8 = 0x8;
    const TO_AND_FROM_DS: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const ORDER: u8 = 0x80;
    const AGGREGATE: u8 = 0x80;

    let [control, flags] = *bytes.head::<2>()?;
    let subtype = control >> 4;
    if (control >> 2) & 3 != DATA || subtype & NO_DATA != 0 || flags & PROTECTED != 0 {
        return Err(Ignored::NotIp);
    }
    let addresses = if flags & TO_AND_FROM_DS == TO_AND_FROM_DS { 30 } else { 24 };
    let mut bytes = bytes.skip(addresses)?;
    if subtype & QOS != 0 {
        let [qos, _] = *bytes.head::<2>()?;
        bytes = bytes.skip(if flags & ORDER == 0 { 2 } else { 6 })?;
        if qos & AGGREGATE != 0 {
            // Two addresses and a length before each part.
            bytes = bytes.skip(14)?;
        }
    }
    Ok((Layer::Llc, bytes))
}
