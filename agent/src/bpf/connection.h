// SPDX-License-Identifier: MIT OR Apache-2.0
// One connection's start: its network, its size, what it is granted, and the first flight's end.

#pragma once

#include "budget.h"

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

// What counts as one client: an IPv4 address, an IPv6 /64.
INLINE u64 client_of(const struct tcp_sock *tp)
{
	const struct sock_common *common = common_of(tp);
	if (common->skc_family == AF_INET)
		return common->skc_daddr;
	const struct in6_addr *address = &common->skc_v6_daddr;
	u64 prefix = (u64)address->in6_u.u6_addr32[0] << 32 | address->in6_u.u6_addr32[1];
	// Of an IPv4-mapped address the first 64 bits are zero.
	return prefix ? prefix : address->in6_u.u6_addr32[3];
}

INLINE struct network *network_of(const struct tcp_sock *tp)
{
	struct prefix prefix = {};
	put_remote(prefix.address, tp);
	keyed_by(&prefix);
	return bpf_map_lookup_elem(&networks, &prefix);
}

// The usual size of what this service sends, if the gateway advertised one; else 0.
INLINE u64 service_size(const struct tcp_sock *tp)
{
	struct service service = { .port = common_of(tp)->skc_num };
	put_local(service.address, tp);
	u64 *bytes = bpf_map_lookup_elem(&services, &service);
	return bytes ? *bytes : 0;
}

INLINE struct connection *known(struct sock *sk)
{
	return bpf_sk_storage_get(&connections, sk, 0, 0);
}

// The size that the application stated for the transfer that begins, or for the last one where that did not begin in earnest.
INLINE u64 next_size(struct sock *sk, struct connection *connection)
{
	struct stated *stated = bpf_sk_storage_get(&sizes, sk, 0, 0);
	if (stated && stated->bytes) {
		connection->stated_bytes = stated->bytes;
		stated->bytes = 0;
	}
	return connection->stated_bytes;
}

// A round of this many bytes is judged once `end` is acknowledged (check.h).
INLINE void begin_round(struct connection *connection, u32 end, u32 bytes)
{
	connection->round_end = end;
	connection->round_bytes = bytes;
	connection->queued_us = 0;
}

// Decides a start, and takes from the budget what is granted above the default. Returns 0 if there is none. `share`, where it is not null, gets
// the network's share in segments; only a fraction and the network's own cap reduce it.
INLINE int plan(const struct tcp_sock *tp, struct connection *connection, u64 stated_bytes, int first,
		struct start *start, u32 *share)
{
	struct settings *settings = all_settings();
	struct network *network = network_of(tp);
	if (!settings || !network) {
		count(COUNT_NO_ESTIMATE);
		return 0;
	}
	// Also where a connection that was established before begins, or restarts after an idle time.
	if (is_paused(settings, network)) {
		count(COUNT_PAUSED);
		return 0;
	}
	u64 now = bpf_ktime_get_boot_ns();
	if (network->expires_ns <= now) {
		count(COUNT_EXPIRED);
		return 0;
	}
	if (network->refusal) {
		connection->refusal = network->refusal;
		count(COUNT_REFUSED);
		return 0;
	}
	struct budget *budget = bpf_map_lookup_elem(&budgets, &network->slot);
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
		.usual = !stated_bytes,
		.now_ns = now,
		.shape = network->shape,
		// A route that locks `cwnd` bounds the socket (tcp_init_metrics), and so may another program: a cap that the administrator named.
		.most = tp->snd_cwnd_clamp,
	};
	// As the rate is computed (decide).
	u64 rtt_us = transfer.rtt_us > network->rtt_us ? transfer.rtt_us : network->rtt_us;
	u32 held_back = 0, cap = smaller(network->cap, tp->snd_cwnd_clamp);
	transfer.budget_left = budget_left(budget, network, client_of(tp), now, rtt_us * 2000, &held_back);
	if (held_back) {
		// The host's own window, on a path that just lost most of several first flights: slow start beyond it would lose again. After
		// an idle time no more than the kernel leaves.
		count(COUNT_RETREATED);
		__builtin_memset(start, 0, sizeof(*start));
		start->cwnd = smaller(transfer.initial_window, cap);
		if (!first)
			start->cwnd = smaller(start->cwnd, tp->snd_cwnd);
		start->ssthresh = start->cwnd;
	} else {
		decide(network, &transfer, &settings->policy, start);
	}
	connection->refusal = start->refusal;
	if (start->refusal) {
		count(start->refusal == REFUSED_RTT_MISMATCH ? COUNT_RTT_MISMATCH :
		      start->refusal == REFUSED_NO_OPENING   ? COUNT_NO_OPENING :
							       COUNT_NO_RTT);
		return 0;
	}
	if (start->clipped_by == LIMIT_PEER_WINDOW)
		count(COUNT_CLIPPED_PEER);
	if (start->clipped_by == LIMIT_BUDGET)
		count(COUNT_CLIPPED_BUDGET);
	if (stated_bytes)
		count(COUNT_STATED_SIZE);
	if (start->overdue)
		count(COUNT_LOSS_OVERDUE);
	connection->slot = network->slot;
	connection->era = network->era;
	connection->extra = 0;
	if (transfer.budget_left != NO_LIMIT && start->cwnd > transfer.initial_window)
		connection->extra = start->cwnd - transfer.initial_window;
	if (connection->extra)
		reserve(budget, connection, now, rtt_us * 2000);
	connection->flight_ns = now;
	connection->flight_rtt_ns = rtt_us * 1000;
	connection->flight_start = tp->snd_nxt;
	connection->flight_bytes = start->cwnd * transfer.mss;
	connection->arrived_bytes = 0;
	connection->cut = 0;
	connection->drained = 0;
	connection->rate = start->rate ? start->rate + (u64)transfer.unpaced * transfer.mss * 1000000 / (rtt_us | !rtt_us) : 0;
	if (first) {
		// Of account for congestion controls of ours only.
		connection->measures = (network->shape == SHAPE_OWN_THRESHOLD || network->shape == SHAPE_OWN_PACED) ? MEASURES_FIRST : MEASURES_NOT;
		connection->half = network->shape == SHAPE_OWN_PACED ? HALF_WAITING : HALF_NOT;
		connection->first_granted = start->cwnd;
		connection->first_end = connection->flight_start + connection->flight_bytes;
	}
	// A start without a threshold needs no check. Only a connection's first start sends segments unpaced.
	connection->checked = CHECKED_NOT;
	if (settings->check && network->shape == SHAPE_PACED && !held_back && start->ssthresh != NO_THRESHOLD)
		connection->checked = first && start->cwnd >= UNPACED ? CHECKED_BY_TRAIN : CHECKED_BY_QUEUE;
	connection->measured_pipe = 0;
	connection->set_ssthresh = start->ssthresh;
	begin_round(connection, connection->flight_start + connection->flight_bytes, connection->flight_bytes);
	connection->phase = PHASE_FLIGHT;
	if (share && held_back) {
		*share = start->cwnd;
	} else if (share) {
		u64 part = rounded(network->share_half_bytes, transfer.mss);
		if (settings->policy.fraction_ppm != NO_LIMIT)
			part = part * settings->policy.fraction_ppm / 1000000;
		*share = smaller(part, cap);
	}
	return 1;
}

// What a flight must be larger than to say anything of a start: any host sends its default window.
INLINE u32 default_bytes(const struct tcp_sock *tp, const struct connection *connection)
{
	return connection->initial_window * tp->mss_cache;
}

INLINE u32 whole_segments(u32 bytes, u32 mss)
{
	return mss ? bytes / mss + !!(bytes % mss) : 0;
}

// True if more than half of the first flight was lost (FirstFlightLoss::is_most in spand_proto::report).
INLINE int lost_most(const struct tcp_sock *tp, const struct connection *connection)
{
	u32 mss = tp->mss_cache;
	return 2 * whole_segments(connection->first_lost, mss) > whole_segments(connection->first_sent, mss);
}

// Counts a retransmission of the first flight, each segment once. Recovery goes through the segments in their order.
INLINE void count_lost(const struct tcp_sock *tp, struct connection *connection, u32 from, u32 segments)
{
	u32 mss = tp->mss_cache, end = connection->first_end, to = from + segments * mss;
	if ((int)(tp->snd_nxt - end) < 0)
		end = tp->snd_nxt;
	if ((int)(to - end) > 0)
		to = end;
	connection->first_sent = end - connection->flight_start;
	if (connection->first_loss && (int)(from - connection->first_lost_end) < 0) {
		// Sent again after a timeout, and not for the first time: what the kernel takes for lost is not merely late. It may also
		// lose what is sent again, and then no more than this segment leaves.
		u32 lost = smaller(tp->lost_out * mss, end - tp->snd_una);
		if (BITS(&tp->inet_conn, icsk_ca_state) == CA_LOSS && lost > connection->first_sent / 2)
			connection->first_lost = lost;
		from = connection->first_lost_end;
	}
	if ((int)(to - from) <= 0)
		return;
	connection->first_lost += to - from;
	connection->first_lost_end = to;
}

// Looks what of the first flight arrived. It is over where as much as was granted did, and not where nothing more was written
// yet: a TLS server's first words are few, and its window leaves a round trip later. `resumes`: whether we are asked where
// nothing is in flight (resume); where not, two round trips end it. Its part of the budget is given back after those in any case.
INLINE void watch_flight(const struct tcp_sock *tp, struct connection *connection, int resumes)
{
	u32 arrived = tp->snd_una - connection->flight_start;
	int all = tp->snd_una == tp->write_seq;
	// The clock costs as much as all the rest.
	int late = (connection->extra || !resumes) &&
		   bpf_ktime_get_boot_ns() - connection->flight_ns >= 2 * connection->flight_rtt_ns;
	if (arrived > connection->arrived_bytes)
		connection->arrived_bytes = arrived;
	int filled = connection->arrived_bytes >= connection->flight_bytes;
	if (BITS(&tp->inet_conn, icsk_ca_state) >= CA_RECOVERY)
		connection->cut = 1;
	if (filled || late || (all && resumes))
		release(connection);
	if (all)
		connection->drained = 1;
	if (filled || all) {
		int confirmed = arrived > default_bytes(tp, connection);
		// A flight no larger than any host's is no evidence, though its last acknowledgement may cover more.
		if (confirmed && connection->flight_bytes > default_bytes(tp, connection) && !lost_most(tp, connection))
			clear_losses(connection, client_of(tp));
		if (confirmed || arrived >= connection->stated_bytes)
			connection->stated_bytes = 0;
	}
	if (filled || (all && (resumes ? connection->cut : late)))
		connection->phase = PHASE_OPEN;
}

// All that was written has arrived, and a start's window was not filled: what leaves now is its flight as well, against the budget and
// paced. What has been in flight already needs neither. The window that is left of the start; 0: the flight is over.
INLINE u32 resume(const struct tcp_sock *tp, struct connection *connection)
{
	u32 mss = tp->mss_cache, window = tp->snd_cwnd;
	u32 proven = mss ? connection->arrived_bytes / mss : 0, granted = mss ? connection->flight_bytes / mss : 0;
	if (proven < connection->initial_window)
		proven = connection->initial_window;
	// It may have grown by what arrived, or have been cut by the kernel for lack of use.
	if (window < granted)
		granted = window;
	release(connection);
	connection->phase = PHASE_OPEN;
	if (connection->cut || granted <= proven)
		return 0;
	struct settings *settings = all_settings();
	struct network *network = network_of(tp);
	struct budget *budget = bpf_map_lookup_elem(&budgets, &connection->slot);
	u64 now = bpf_ktime_get_boot_ns();
	u32 held_back = 0, left = 0, why_less = COUNT_EXPIRED;
	// What it was granted on may have ended since.
	if (network && budget && !network->refusal && network->expires_ns > now && network->era == connection->era) {
		left = budget_left(budget, network, client_of(tp), now, 2 * connection->flight_rtt_ns, &held_back);
		why_less = COUNT_CLIPPED_BUDGET;
	}
	if (held_back) {
		left = 0;
		why_less = COUNT_RETREATED;
	}
	if (settings && settings->pauses & 1) {
		left = 0;
		why_less = COUNT_PAUSED;
	}
	u32 extra = smaller(granted - proven, left);
	if (extra < granted - proven) {
		count(why_less);
		if (window == granted)
			window = proven + extra;
	}
	if (!extra)
		return window;
	if (left != NO_LIMIT) {
		connection->extra = extra;
		reserve(budget, connection, now, 2 * connection->flight_rtt_ns);
	}
	// If more than the default arrived, the first flight is judged already.
	int first = connection->first_end == connection->flight_start + connection->flight_bytes &&
		    connection->arrived_bytes <= default_bytes(tp, connection);
	connection->drained = 0;
	connection->flight_ns = now;
	connection->flight_start = tp->snd_nxt;
	connection->flight_bytes = (proven + extra) * mss;
	if (first)
		connection->first_end = connection->flight_start + connection->flight_bytes;
	begin_round(connection, connection->flight_start + connection->flight_bytes, connection->flight_bytes);
	connection->phase = PHASE_FLIGHT;
	return window;
}
