// SPDX-License-Identifier: MIT OR Apache-2.0
// How long the first packet of a connection waits for its answer.

#pragma once

#include "tables.h"

// RFC 6298 2.2 with the network's round trip for the first measurement: SRTT + 4 * RTTVAR = 3 * R, and never less than a
// delayed acknowledgement's 200 ms above it. The kernel's own where nothing is known.
INLINE void initial_timeout(struct bpf_sock_ops *skops)
{
	struct settings *settings = all_settings();
	if (!settings || !settings->initial_timeout || !settings->ticks_per_s || is_foreign(skops, settings))
		return;
	struct prefix prefix = {};
	if (skops->family == AF_INET) {
		u32 address = skops->remote_ip4;
		prefix.address[10] = 0xff;
		prefix.address[11] = 0xff;
		__builtin_memcpy(prefix.address + 12, &address, 4);
	} else {
		// The context is read word by word: two that the compiler joined into one load are refused.
		const volatile u32 *from = skops->remote_ip6;
		u32 words[4] = { from[0], from[1], from[2], from[3] };
		__builtin_memcpy(prefix.address, words, 16);
	}
	keyed_by(&prefix);
	struct network *network = bpf_map_lookup_elem(&networks, &prefix);
	if (!network || is_paused(settings, network) || network->refusal || !network->rtt_us || network->expires_ns <= bpf_ktime_get_boot_ns())
		return;
	u64 rtt_us = network->rtt_us, timeout_us = 3 * rtt_us;
	if (timeout_us < rtt_us + 200000)
		timeout_us = rtt_us + 200000;
	// Above three seconds (the initial value of RFC 1122) an estimate is no measure of this connection.
	if (timeout_us > 3000000)
		timeout_us = 3000000;
	skops->reply = (timeout_us * settings->ticks_per_s + 999999) / 1000000;
}
