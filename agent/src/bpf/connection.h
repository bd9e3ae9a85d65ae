// SPDX-License-Identifier: MIT OR Apache-2.0
// One connection's start: its network, its size, its part of the budget, and the first flight's end.

#pragma once

#include "tables.h"

// First flights in a row that must have lost a segment for a network's advice to be halved here, and for how long; withheld
// after twice as many. By then the gateway has said what holds for all hosts.
#define LOSSES_TO_HALVE 6
#define PENALTY_NS 5000000000ull

INLINE const struct sock_common *common_of(const struct tcp_sock *tp)
{
	return &tp->inet_conn.icsk_inet.sk.__sk_common;
}

INLINE void put_address(u8 *to, u16 family, u32 v4, const struct in6_addr *v6)
{
	if (family == AF_INET) {
		__builtin_memset(to, 0, 10);
		to[10] = 0xff;
		to[11] = 0xff;
		__builtin_memcpy(to + 12, &v4, 4);
		return;
	}
#pragma unroll
	for (int n = 0; n < 16; n++)
		to[n] = v6->in6_u.u6_addr8[n];
}

INLINE void put_remote(u8 *to, const struct tcp_sock *tp)
{
	const struct sock_common *common = common_of(tp);
	put_address(to, common->skc_family, common->skc_daddr, &common->skc_v6_daddr);
}

INLINE void put_local(u8 *to, const struct tcp_sock *tp)
{
	const struct sock_common *common = common_of(tp);
	put_address(to, common->skc_family, common->skc_rcv_saddr, &common->skc_v6_rcv_saddr);
}

INLINE struct network *network_of(const struct tcp_sock *tp)
{
	struct prefix prefix = { .bits = 128 };
	put_remote(prefix.address, tp);
	return bpf_map_lookup_elem(&networks, &prefix);
}

// The usual size of what this service sends, where the gateway told it; 0 where it did not.
INLINE u64 service_size(const struct tcp_sock *tp)
{
	struct service service = { .port = common_of(tp)->skc_num };
	put_local(service.address, tp);
	u64 *bytes = bpf_map_lookup_elem(&services, &service);
	return bytes ? *bytes : 0;
}

// Moves a budget's halves on. Halves are two round trips long: a first flight is over by then, whatever became of it.
INLINE void turn(struct budget *budget, u64 now, u64 half_ns)
{
	if (now - budget->turned_ns < half_ns)
		return;
	budget->before = now - budget->turned_ns < 2 * half_ns ? budget->now : 0;
	budget->now = 0;
	budget->turned_ns = now;
}

// What is left of a lease, and how far the network's advice is to be trusted after losses here.
INLINE u32 budget_left(struct budget *budget, u32 lease, u64 now, u64 half_ns, u32 *halvings)
{
	u32 left = NO_LIMIT;
	bpf_spin_lock(&budget->lock);
	*halvings = now - budget->lost_ns < PENALTY_NS ? budget->losses / LOSSES_TO_HALVE : 0;
	if (lease != NO_LIMIT) {
		turn(budget, now, half_ns);
		u64 used = (u64)budget->now + budget->before;
		left = used < lease ? lease - used : 0;
	}
	bpf_spin_unlock(&budget->lock);
	return left;
}

INLINE void take(struct budget *budget, u32 segments)
{
	bpf_spin_lock(&budget->lock);
	budget->now += segments;
	bpf_spin_unlock(&budget->lock);
}

// A first flight arrived whole.
INLINE void forgive(struct connection *connection)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget || !budget->losses)
		return;
	bpf_spin_lock(&budget->lock);
	budget->losses = 0;
	bpf_spin_unlock(&budget->lock);
}

INLINE void give_back(struct connection *connection)
{
	u32 segments = connection->extra;
	if (!segments)
		return;
	connection->extra = 0;
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget)
		return;
	bpf_spin_lock(&budget->lock);
	// From the half that it was taken in; where that has gone by, so has the grant.
	if (connection->flight_ns >= budget->turned_ns)
		budget->now -= smaller(segments, budget->now);
	else
		budget->before -= smaller(segments, budget->before);
	bpf_spin_unlock(&budget->lock);
}

// A segment of an advised first flight was sent again.
INLINE void punish(struct connection *connection)
{
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	if (!budget)
		return;
	u64 now = bpf_ktime_get_ns();
	bpf_spin_lock(&budget->lock);
	budget->losses = now - budget->lost_ns < PENALTY_NS ? budget->losses + 1 : 1;
	budget->lost_ns = now;
	bpf_spin_unlock(&budget->lock);
}

// Decides a start; what is granted above the default is taken from the budget. Whether there is one.
INLINE int plan(const struct tcp_sock *tp, struct connection *connection, u64 stated_bytes, int first,
		struct start *start)
{
	struct settings *settings = all_settings();
	struct network *found = network_of(tp);
	if (!settings || !found) {
		count(COUNT_NO_ESTIMATE);
		return 0;
	}
	struct network network = *found;
	u64 now = bpf_ktime_get_ns();
	if (network.expires_ns <= now) {
		count(COUNT_EXPIRED);
		return 0;
	}
	if (network.refusal) {
		connection->refusal = network.refusal;
		count(COUNT_REFUSED);
		return 0;
	}
	struct budget *budget = bpf_map_lookup_elem(&budgets, &network.slot);
	if (!budget) {
		count(COUNT_NO_ROOM);
		return 0;
	}
	u64 bytes = stated_bytes ? stated_bytes : service_size(tp);
	struct transfer transfer = {
		.bytes = bytes,
		.peer_window = tp->snd_wnd,
		.mss = tp->mss_cache,
		.rtt_us = tp->srtt_us >> 3,
		.initial_window = connection->initial_window,
		// The kernel never paces a connection's first ten segments; after idle nothing is exempt.
		.unpaced = first ? settings->policy.burst : 0,
	};
	u64 rtt_us = transfer.rtt_us ? transfer.rtt_us : network.rtt_us;
	u32 halvings = 0;
	transfer.budget_left = budget_left(budget, network.lease, now, rtt_us * 2000, &halvings);
	if (halvings > 1) {
		count(COUNT_RETREATED);
		return 0;
	}
	if (halvings) {
		network.share_half_bytes >>= 1;
		network.pipe_half_bytes >>= 1;
		// A precaution that no loss backs: not below plain TCP's start, and slow start goes on.
		network.evidence = 0;
	}

	decide(&network, &transfer, &settings->policy, start);
	connection->refusal = start->refusal;
	if (start->refusal) {
		count(start->refusal == REFUSED_RTT_MISMATCH ? COUNT_RTT_MISMATCH : COUNT_NO_RTT);
		return 0;
	}
	if (start->clipped_by == LIMIT_PEER_WINDOW)
		count(COUNT_CLIPPED_PEER);
	if (start->clipped_by == LIMIT_BUDGET)
		count(COUNT_CLIPPED_BUDGET);
	if (stated_bytes)
		count(COUNT_STATED_SIZE);
	connection->slot = network.slot;
	connection->extra = start->cwnd > transfer.initial_window ? start->cwnd - transfer.initial_window : 0;
	if (connection->extra && transfer.budget_left != NO_LIMIT)
		take(budget, connection->extra);
	connection->flight_ns = now;
	connection->flight_rtt_ns = rtt_us * 1000;
	connection->flight_start = tp->snd_nxt;
	connection->flight_bytes = start->cwnd * transfer.mss;
	connection->rate = start->rate;
	if (first) {
		connection->first_granted = start->cwnd;
		connection->first_end = connection->flight_start + connection->flight_bytes;
	}
	connection->phase = PHASE_FLIGHT;
	return 1;
}

// Looks whether the first flight is over. Its part of the budget is given back after two round trips in any case; whether it
// arrived whole is only known at its last acknowledgement.
INLINE void watch_flight(const struct tcp_sock *tp, struct connection *connection)
{
	int over = tp->snd_una - connection->flight_start >= connection->flight_bytes || tp->snd_una == tp->write_seq;
	if (over || bpf_ktime_get_ns() - connection->flight_ns >= 2 * connection->flight_rtt_ns)
		give_back(connection);
	if (!over)
		return;
	if (!connection->first_loss)
		forgive(connection);
	connection->phase = PHASE_OPEN;
}
