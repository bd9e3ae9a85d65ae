// SPDX-License-Identifier: MIT OR Apache-2.0
// What happens to sockets of the cgroup: which of them get a start of ours, and what became of each.

#pragma once

#include "congestion.h"
#include "option.h"
#include "report.h"
#include "timeout.h"

// splitmix64's finaliser: the arm depends on nothing but the seed and the socket.
INLINE u32 draw(u64 seed, u64 cookie)
{
	u64 mixed = cookie + seed * 0x9e3779b97f4a7c15ull + 0x9e3779b97f4a7c15ull;
	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
	return (mixed ^ (mixed >> 31)) >> 32;
}

// Whether the socket is to be left alone whatever is known of its network; counted.
INLINE int exempt(const struct tcp_sock *tp)
{
	if (tp->is_mptcp) {
		count(COUNT_MPTCP);
		return 1;
	}
	// By the application, or by a route that locks it.
	if (BITS(&tp->inet_conn, icsk_ca_setsockopt) || BITS(&tp->inet_conn, icsk_ca_dst_locked)) {
		count(COUNT_OWN_CONGESTION_CONTROL);
		return 1;
	}
	if (tp->total_retrans) {
		count(COUNT_RETRANSMITTED_SYN);
		return 1;
	}
	return 0;
}

INLINE int is_cubic(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] == 'b' && name[3] == 'i' && name[4] == 'c' && !name[5];
}

INLINE int is_reno(const char *name)
{
	return name[0] == 'r' && name[1] == 'e' && name[2] == 'n' && name[3] == 'o' && !name[4];
}

INLINE int is_bbr(const char *name)
{
	return name[0] == 'b' && name[1] == 'b' && name[2] == 'r' && !name[3];
}

// Initial window and rate by the socket's own options: no threshold, and no second start.
INLINE void start_by_options(struct bpf_sock_ops *skops, struct bpf_sock *sk, struct tcp_sock *tp,
			     struct connection *connection, int with_window)
{
	if (with_window) {
		struct start start = {};
		struct stated *stated = bpf_sk_storage_get(&sizes, sk, 0, 0);
		connection->phase = PHASE_OPEN;
		if (!plan(tp, connection, stated ? stated->bytes : 0, 1, &start, 0))
			return;
		int window = start.cwnd;
		if (bpf_setsockopt(skops, SOL_TCP, TCP_BPF_IW, &window, sizeof(window))) {
			count(COUNT_NOT_SET);
			return;
		}
		count(COUNT_STARTED);
	}
	if (connection->phase != PHASE_FLIGHT)
		return;
	// A limit would stay where nobody lives to lift it. One that is lifted at once leaves the socket paced, at the rate that the
	// kernel computes from window and round trip. An application's own limit is not ours to change, and paces as well.
	if (connection->rate && tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate == NO_RATE) {
		u32 rate = connection->rate < NO_LIMIT ? connection->rate : NO_LIMIT - 1, none = NO_LIMIT;
		if (bpf_setsockopt(skops, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)) ||
		    bpf_setsockopt(skops, SOL_SOCKET, SO_MAX_PACING_RATE, &none, sizeof(none)))
			count(COUNT_NOT_SET);
	}
	// The flags are the socket's, and other programs may have set them: only our own is taken back, and only this one, which costs
	// something with every acknowledgement.
	connection->asks_rtt = !(skops->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_RTT_CB_FLAG);
	bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
}

// Where no congestion control of ours sees the acknowledgements.
INLINE void acknowledged(struct bpf_sock_ops *skops, const struct tcp_sock *tp, struct connection *connection)
{
	if (connection->phase != PHASE_FLIGHT)
		return;
	watch_flight(tp, connection, 0);
	if (connection->phase == PHASE_OPEN && connection->asks_rtt)
		bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_RTT_CB_FLAG);
}

INLINE void choose(struct bpf_sock_ops *skops, struct bpf_sock *sk, struct tcp_sock *tp, struct connection *connection,
		   const struct settings *settings, u32 shape)
{
	u32 variant = settings->variant;
	char name[NAME_LENGTH], ours[NAME_LENGTH];
	// Five times as fast as asking for it.
	const struct tcp_congestion_ops___in_use *in_use = tp->inet_conn.icsk_ca_ops;
#pragma unroll
	for (int n = 0; n < NAME_LENGTH; n++)
		name[n] = in_use->name[n];
	int cubic = is_cubic(name), reno = is_reno(name);
	// BBR goes on from a share alone: the other shapes have thresholds, which it does not keep.
	if (settings->on_bbr[0] && shape == SHAPE_PACED && is_bbr(name)) {
		connection->phase = PHASE_WAITING;
		__builtin_memcpy(ours, settings->on_bbr, NAME_LENGTH);
		if (!bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, ours, sizeof(ours)))
			return;
		count(COUNT_NOT_SET);
	}
	if (variant == VARIANT_SOCKOPS || !(cubic || reno)) {
		if (variant != VARIANT_SOCKOPS)
			count(COUNT_OTHER_CONGESTION_CONTROL);
		start_by_options(skops, sk, tp, connection, 1);
		return;
	}
	connection->phase = PHASE_WAITING;
	if (variant == VARIANT_HAND_OVER) {
		__builtin_memcpy(ours, settings->at_start, NAME_LENGTH);
		if (bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, ours, sizeof(ours))) {
			connection->phase = PHASE_PLAIN;
			count(COUNT_NOT_SET);
			return;
		}
		// The host's own may be on its way out of the kernel, and is ours no longer to hold. Reno is part of every kernel: nobody
		// stays on what is there for a start only, and what was granted is watched in any case.
		if (bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
			char plain[] = "reno";
			count(COUNT_NOT_SET);
			bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, plain, sizeof(plain));
		}
		start_by_options(skops, sk, tp, connection, 0);
		return;
	}
	__builtin_memcpy(ours, cubic ? settings->on_cubic : settings->on_reno, NAME_LENGTH);
	if (bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, ours, sizeof(ours))) {
		connection->phase = PHASE_PLAIN;
		count(COUNT_NOT_SET);
	}
}

INLINE void established(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;
	struct settings *settings = all_settings();
	// Until the agent has written the settings, whose sockets these are is not known.
	if (!sk || !settings || !settings->ticks_per_s)
		return;
	// Before all else, so that such a connection has no record, and nothing is done to it later.
	if (is_foreign(skops, settings)) {
		count(COUNT_OTHER_NAMESPACE);
		return;
	}
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	// All connections report, including those to networks without an estimate.
	if (settings->write_option)
		bpf_sock_ops_cb_flags_set(skops,
					  skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	struct connection *connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (connection) {
		// The socket was connected before (connect(2) to AF_UNSPEC ends that), and its record is of that connection. Left
		// alone in both groups: an advised one still has a congestion control that we chose, which does not show whether the
		// application would choose one.
		release(connection);
		__builtin_memset(connection, 0, sizeof(*connection));
		count(COUNT_RECONNECTED);
		return;
	}
	struct network *network = network_of(tp);
	if (!network) {
		count(COUNT_NO_ESTIMATE);
		return;
	}
	// The agent compares these with the starts that were announced to it.
	if (!tp->is_mptcp)
		count(skops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB ? COUNT_SEEN_ACCEPTED : COUNT_SEEN_OPENED);
	if (network->expires_ns <= bpf_ktime_get_boot_ns()) {
		count(COUNT_EXPIRED);
		return;
	}
	connection = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!connection) {
		count(COUNT_NO_ROOM);
		return;
	}
	// Before anything can refuse: the comparison is by assignment.
	u32 drawn = draw(settings->arm_seed, bpf_get_socket_cookie(skops));
	connection->arm = drawn < settings->control_limit ? ARM_CONTROL : ARM_ADVISED;
	connection->pauses = settings->pauses;
	connection->initial_window = tp->snd_cwnd;
	// What a control's first flight would be; an advised one writes its own over it.
	connection->first_end = tp->snd_nxt + tp->snd_cwnd * tp->mss_cache;
	if (exempt(tp))
		return;
	connection->compared = 1;
	bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG |
						 BPF_SOCK_OPS_RETRANS_CB_FLAG);
	if (is_paused(settings, network)) {
		count(COUNT_PAUSED);
		return;
	}
	if (connection->arm == ARM_CONTROL) {
		count(COUNT_CONTROL);
		return;
	}
	// Reported at its end, for the comparison, and not changed.
	if (network->refusal) {
		connection->refusal = network->refusal;
		count(COUNT_REFUSED);
		return;
	}
	choose(skops, sk, tp, connection, settings, network->shape);
}

// Reported once: when the last data is acknowledged after the application closed, or with the socket.
INLINE void state_changed(struct bpf_sock_ops *skops, const struct tcp_sock *tp, struct connection *connection)
{
	u32 state = skops->args[1];
	int closing = state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_LAST_ACK;
	if (closing && tp->snd_una != tp->write_seq)
		return;
	if (!closing && state != BPF_TCP_FIN_WAIT2 && state != BPF_TCP_CLOSING && state != BPF_TCP_CLOSE)
		return;
	if (state == BPF_TCP_CLOSE && connection->claimed_ns)
		let_others_jump(connection);
	if (state == BPF_TCP_CLOSE && connection->phase == PHASE_FLIGHT) {
		release(connection);
		connection->phase = PHASE_OPEN;
	}
	if (!connection->compared || connection->reported)
		return;
	connection->reported = 1;
	report(tp, connection, EVENT_ENDED);
}

INLINE void retransmitted(struct bpf_sock_ops *skops, const struct tcp_sock *tp, struct connection *connection)
{
	// A tail loss probe before any loss is known is no sign of one.
	if (BITS(&tp->inet_conn, icsk_ca_state) < CA_RECOVERY)
		return;
	// Sequences come round, and no first flight is as long as this.
	if (tp->bytes_acked >> 30)
		return;
	// args[0] and args[1]: sequence of the first byte retransmitted, and how many segments are.
	u32 from = skops->args[0], segments = skops->args[1];
	if ((int)(from - connection->first_end) >= 0 || lost_most(tp, connection))
		return;
	// The few first words of a server say nothing of its window, lost or not.
	if (connection->first_granted && tp->write_seq - connection->flight_start <= default_bytes(tp, connection))
		return;
	if (!connection->first_granted) {
		connection->first_loss = 1;
		return;
	}
	// Nor does one of a start that is no larger than any host's.
	int is_evidence = connection->first_granted > connection->initial_window;
	if (is_evidence && !connection->first_loss)
		count(COUNT_FIRST_FLIGHT_LOSS);
	count_lost(tp, connection, from, segments);
	connection->first_loss = 1;
	if (!is_evidence || !lost_most(tp, connection))
		return;
	record_loss(connection, client_of(tp));
	report(tp, connection, EVENT_FIRST_FLIGHT_LOSS);
}

// What happens to a connection that is remembered.
INLINE void of_known(struct bpf_sock_ops *skops)
{
	struct bpf_sock *sk = skops->sk;
	if (!sk)
		return;
	struct connection *connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	if (!connection || !tp)
		return;
	switch (skops->op) {
	case BPF_SOCK_OPS_RTT_CB: acknowledged(skops, tp, connection); break;
	case BPF_SOCK_OPS_RETRANS_CB: retransmitted(skops, tp, connection); break;
	case BPF_SOCK_OPS_STATE_CB: state_changed(skops, tp, connection); break;
	}
}

SEC("sockops")
int on_socket(struct bpf_sock_ops *skops)
{
	// The reply shares its place with the first argument, and may already be another program's.
	switch (skops->op) {
	case BPF_SOCK_OPS_TIMEOUT_INIT: initial_timeout(skops); break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB: established(skops); break;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_RETRANS_CB:
	case BPF_SOCK_OPS_STATE_CB: of_known(skops); break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB: reserve_option(skops); break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB: write_option(skops); break;
	}
	return 1;
}
