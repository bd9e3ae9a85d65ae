// SPDX-License-Identifier: MIT OR Apache-2.0
// The sender's window and round trip in a TCP option of its segments (TCP/SPAND 5.2.2, the second method of collecting): kind 254
// with an experiment identifier (RFC 6994), then the congestion window in bytes and the smoothed round trip in microseconds,
// both 32 bits in network order. The gateway reads it with traffic.read_window_option.

#pragma once

#include "connection.h"

#define OPTION_KIND 254
#define OPTION_BYTES 12

// The flag of a socket may be another program's, or of an agent that wrote options before this one.
INLINE int writes_option(struct bpf_sock_ops *skops)
{
	struct settings *settings = all_settings();
	return settings && settings->write_option && !is_foreign(skops, settings);
}

// For every segment and for the segment size as well, so that both agree.
INLINE void reserve_option(struct bpf_sock_ops *skops)
{
	if (writes_option(skops))
		bpf_reserve_hdr_opt(skops, OPTION_BYTES, 0);
}

INLINE void write_option(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	if (!tp || !writes_option(skops))
		return;
	struct {
		u8 kind;
		u8 length;
		u8 experiment[2];
		u32 window_bytes;
		u32 rtt_us;
	} option = {
		.kind = OPTION_KIND,
		.length = OPTION_BYTES,
		.experiment = { 0x53, 0x50 },
		// `mss_cache` does not know of the option.
		.window_bytes = __builtin_bswap32(tp->snd_cwnd * (tp->mss_cache - OPTION_BYTES)),
		.rtt_us = __builtin_bswap32(tp->srtt_us >> 3),
	};
	bpf_store_hdr_opt(skops, &option, sizeof(option), 0);
}
