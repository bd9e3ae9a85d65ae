// SPDX-License-Identifier: MIT OR Apache-2.0
// How a window grows in slow start where the administrator chose another rule than the kernel's own: the contract's
// `Growth::grow` (spand_proto::growth) in the same whole numbers. A test runs it in the kernel against that function.

#pragma once

#include "connection.h"

// A window is counted in 2^-20 segments.
#define FRACTION_BITS 20
#define ONE_SEGMENT (1ull << FRACTION_BITS)

// Where Burst TCP ends, and the most segments that one acknowledgement counts for.
#define MICE_SEGMENTS 32
#define MOST_ACKED 1024

// A rule is one number: its kind above 16 bits of its parameter, `dmax` or `f`, which is never 0. 0: the kernel's own.
#define GROWTH_KIND_SHIFT 16
enum growth_kind { GROWTH_STANDARD = 0, GROWTH_DBC = 1, GROWTH_BURST = 2 };

// The first one is the agent's. The second is set with the first connection by Careful Resume, and stays.
enum in_use { GROWTHS_IN_USE = 1, CAREFUL_IN_USE = 2 };

// Written by the agent. While no rule but the kernel's own is in force, this flag is all that an acknowledgement asks for.
struct growths {
	u32 in_use; // bits of enum in_use
	u32 by_default; // for connections that no prefix and no service names
};

struct growths growths SEC(".data.growths");

#define MOST_GROWTHS 1024 // `config/start.rs` has the same number

struct {
	int (*type)[BPF_MAP_TYPE_LPM_TRIE];
	int (*max_entries)[MOST_GROWTHS];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	struct prefix *key;
	u32 *value;
} growth_prefixes SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[MOST_GROWTHS];
	struct service *key;
	u32 *value;
} growth_services SEC(".maps");

// The window after `acked` segments were acknowledged, never beyond `ssthresh`; 0 where the kernel's own rule holds.
__attribute__((noinline)) u64 grow(u32 growth, u64 window, u32 ssthresh, u32 acked)
{
	u64 whole = window >> FRACTION_BITS, parameter = growth & 0xffff, step, grown;
	if (whole == 0 || whole >= smaller(ssthresh, MOST_SEGMENTS))
		return 0;
	acked = smaller(acked, MOST_ACKED);
	if (growth >> GROWTH_KIND_SHIFT == GROWTH_DBC) {
		if (ssthresh >= NO_THRESHOLD)
			return 0;
		// Both sides of the division times `ssthresh - 1`.
		u64 threshold = smaller(ssthresh, MOST_SEGMENTS), span = (threshold - 1) << FRACTION_BITS;
		u64 below = (threshold << FRACTION_BITS) - window;
		if (below > span)
			below = span;
		u64 divisor = parameter * span - (parameter - 1) * below;
		step = divisor ? (span << FRACTION_BITS) / divisor : 0;
	} else if (growth >> GROWTH_KIND_SHIFT == GROWTH_BURST) {
		if (window >= MICE_SEGMENTS * ONE_SEGMENT || !parameter)
			return 0;
		u64 increment = ((MICE_SEGMENTS * ONE_SEGMENT - window) / parameter) >> FRACTION_BITS;
		increment += !increment;
		step = (increment << 2 * FRACTION_BITS) / window;
	} else {
		return 0;
	}
	grown = window + step * acked;
	u64 most = (u64)ssthresh << FRACTION_BITS;
	return grown < most ? grown : most;
}

// The rule for a connection: the longest prefix that covers the peer, then the service, then the default.
static __attribute__((noinline)) u32 growth_of(const struct tcp_sock *tp)
{
	if (!(growths.in_use & GROWTHS_IN_USE))
		return 0;
	struct prefix prefix = {};
	put_remote(prefix.address, tp);
	keyed_by(&prefix);
	u32 *chosen = bpf_map_lookup_elem(&growth_prefixes, &prefix);
	if (!chosen) {
		struct service service = { .port = common_of(tp)->skc_num };
		put_local(service.address, tp);
		chosen = bpf_map_lookup_elem(&growth_services, &service);
	}
	return chosen ? *chosen : growths.by_default;
}

// As the kernel has it (tcp_is_cwnd_limited): in slow start a window may become twice what was in flight.
INLINE int limits_the_sender(const struct tcp_sock *tp)
{
	return BITS(tp, is_cwnd_limited) || tp->snd_cwnd < 2 * tp->max_packets_out;
}

// The next window in segments by a connection's own rule; 0 where the kernel's holds. Asked once for each acknowledgement that may
// raise the window.
static __attribute__((noinline)) u32 next_window(struct sock *sk, u32 acked)
{
	struct connection *connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!connection)
		return 0;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	// Two phases of Careful Resume keep their window.
	u8 phase = connection->careful.phase;
	if (phase == CAREFUL_UNVALIDATED || phase == CAREFUL_SAFE_RETREAT)
		return tp->snd_cwnd;
	if (!connection->growth)
		return 0;
	if (tp->snd_cwnd >= tp->snd_ssthresh || !limits_the_sender(tp))
		return 0;
	// The part of a segment is that of the window that it was computed with.
	u64 fraction = connection->grown == tp->snd_cwnd ? connection->fraction : 0;
	u64 grown = grow(connection->growth, (u64)tp->snd_cwnd << FRACTION_BITS | fraction, tp->snd_ssthresh, acked);
	// Burst TCP ends with its last window, and does not come back when that shrinks.
	if (connection->growth >> GROWTH_KIND_SHIFT == GROWTH_BURST &&
	    (grown ? grown >> FRACTION_BITS : tp->snd_cwnd) >= MICE_SEGMENTS)
		connection->growth = 0;
	if (!grown)
		return 0;
	u32 window = smaller(grown >> FRACTION_BITS, tp->snd_cwnd_clamp);
	connection->grown = window;
	connection->fraction = grown & (ONE_SEGMENT - 1);
	return window;
}
