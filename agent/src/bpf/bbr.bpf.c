// SPDX-License-Identifier: MIT OR Apache-2.0
// The congestion control for BBR hosts. It calls the kernel's own BBR functions, and sets BBR's estimate at the start of a connection's
// first transfer (bbr.h). It hands the socket to the kernel's own BBR after at most 20 round trips, with everything that BBR has
// measured. It does nothing after an idle time, since BBR keeps its estimate.
//
// This is an object of its own that shares the tables of spand.bpf.c. A kernel without these functions, or with another BBR, loads the
// other programs all the same.

#include "kernel.h"
#include "start.h"
#include "tables.h"
#include "connection.h"
#include "bbr.h"

// net/ipv4/tcp_bbr.c, for BPF congestion controls. `bbr_main` has four arguments since Linux 6.10, and no kernel has both events.
extern void bbr_init(struct sock *sk) KFUNC;
extern void bbr_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *sample) KFUNC WEAK;
extern void bbr_main___two(struct sock *sk, const struct rate_sample *sample) KFUNC WEAK;
extern u32 bbr_sndbuf_expand(struct sock *sk) KFUNC;
extern u32 bbr_undo_cwnd(struct sock *sk) KFUNC;
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) KFUNC WEAK; // before Linux 7.1
extern void bbr_cwnd_event_tx_start(struct sock *sk) KFUNC WEAK; // since then
extern u32 bbr_ssthresh(struct sock *sk) KFUNC;
extern u32 bbr_min_tso_segs(struct sock *sk) KFUNC;
extern void bbr_set_state(struct sock *sk, u8 state) KFUNC;

// Hands the socket to the kernel's own BBR. BBR's `init` clears its state, so the state is saved and put back.
static __attribute__((noinline)) int hand_over(struct sock *sk, int with_state)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u64 *own = tp->inet_conn.icsk_ca_priv, state[CA_PRIV];
	u64 rate = sk->sk_pacing_rate;
	u32 window = tp->snd_cwnd, threshold = tp->snd_ssthresh;
	char name[] = "bbr";
#pragma unroll
	for (int n = 0; n < CA_PRIV; n++)
		state[n] = own[n];
	if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
		count(COUNT_NOT_SET);
		return 0;
	}
	if (!with_state)
		return 0;
#pragma unroll
	for (int n = 0; n < CA_PRIV; n++)
		own[n] = state[n];
	tp->snd_cwnd = window;
	tp->snd_ssthresh = threshold;
	sk->sk_pacing_rate = rate;
	count(COUNT_BBR_HANDED_OVER);
	return 0;
}

// The connection's first data is about to leave. Sets the window, and returns 0 if the connection gets no start.
static __attribute__((noinline)) int begin(struct sock *sk, struct connection *connection)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct seeded *seeded = bpf_sk_storage_get(&seeds, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	connection->phase = PHASE_OPEN;
	if (!seeded) {
		count(COUNT_NO_ROOM);
		return 0;
	}
	struct start start = {};
	u32 share = 0;
	if (!plan(tp, connection, next_size(sk, connection), 1, &start, &share)) {
		connection->stated_bytes = 0;
		return 0;
	}
	tp->snd_cwnd = start.cwnd;
	seed(sk, seeded, share);
	count(COUNT_STARTED);
	return 1;
}

// More of a start's window, where it was not filled before: within what is left of the budget.
static __attribute__((noinline)) int go_on(struct sock *sk, struct connection *connection)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	watch_flight(tp, connection, 1);
	if (tp->packets_out || connection->phase != PHASE_FLIGHT || !connection->drained)
		return 0;
	u32 window = resume(tp, connection);
	if (window && window < tp->snd_cwnd)
		tp->snd_cwnd = window;
	return 0;
}

// A segment is about to leave, and nothing is in flight. Returns 0 if the connection does not stay here: its start is refused, or its socket
// was connected before.
INLINE int starts(struct sock *sk)
{
	struct connection *connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!connection || connection->phase == PHASE_PLAIN)
		return 0;
	if (connection->phase == PHASE_WAITING)
		return begin(sk, connection);
	if (connection->phase == PHASE_FLIGHT)
		go_on(sk, connection);
	return 1;
}

INLINE void acknowledged(struct sock *sk, const struct rate_sample *sample)
{
	struct connection *connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct seeded *seeded = bpf_sk_storage_get(&seeds, sk, 0, 0);
	if (!connection || !seeded || seeded->check == CHECK_HANDED_OVER)
		return;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	if (connection->phase == PHASE_FLIGHT)
		watch_flight(tp, connection, 1);
	check_start(sk, seeded, sample);
	// The kernel's `undo_cwnd` needs what its `init` forgets, so not while it may be called.
	if (seeded->check != CHECK_OVER || BITS(&tp->inet_conn, icsk_ca_state) >= CA_CWR)
		return;
	// Nobody watches the flight after this.
	if (connection->phase == PHASE_FLIGHT) {
		if (bbr_of(sk)->rtt_cnt <= MOST_ROUNDS)
			return;
		release(connection);
		connection->phase = PHASE_OPEN;
	}
	seeded->check = CHECK_HANDED_OVER;
	hand_over(sk, 1);
}

SEC("struct_ops")
void on_bbr_init(u64 *arguments)
{
	bbr_init((struct sock *)arguments[0]);
}

SEC("struct_ops")
void on_bbr_control(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	const struct rate_sample *sample = (const struct rate_sample *)arguments[3];
	bbr_main(sk, arguments[1], arguments[2], sample);
	acknowledged(sk, sample);
}

SEC("struct_ops")
void on_bbr_control_old(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	const struct rate_sample *sample = (const struct rate_sample *)arguments[1];
	bbr_main___two(sk, sample);
	acknowledged(sk, sample);
}

SEC("struct_ops")
void on_bbr_event(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	bbr_cwnd_event(sk, arguments[1]);
	if (arguments[1] != CA_EVENT_TX_START || starts(sk))
		return;
	hand_over(sk, 0);
	bbr_cwnd_event(sk, arguments[1]);
}

SEC("struct_ops")
void on_bbr_tx_start(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	bbr_cwnd_event_tx_start(sk);
	if (starts(sk))
		return;
	hand_over(sk, 0);
	bbr_cwnd_event_tx_start(sk);
}

SEC("struct_ops")
u32 on_bbr_sndbuf(u64 *arguments)
{
	return bbr_sndbuf_expand((struct sock *)arguments[0]);
}

SEC("struct_ops")
u32 on_bbr_undo(u64 *arguments)
{
	return bbr_undo_cwnd((struct sock *)arguments[0]);
}

SEC("struct_ops")
u32 on_bbr_ssthresh(u64 *arguments)
{
	return bbr_ssthresh((struct sock *)arguments[0]);
}

SEC("struct_ops")
u32 on_bbr_tso(u64 *arguments)
{
	return bbr_min_tso_segs((struct sock *)arguments[0]);
}

SEC("struct_ops")
void on_bbr_state(u64 *arguments)
{
	bbr_set_state((struct sock *)arguments[0], arguments[1]);
}

#define ON_BBR                                                                                                         \
	.init = (void *)on_bbr_init, .sndbuf_expand = (void *)on_bbr_sndbuf, .undo_cwnd = (void *)on_bbr_undo,         \
	.ssthresh = (void *)on_bbr_ssthresh, .min_tso_segs = (void *)on_bbr_tso, .set_state = (void *)on_bbr_state

// The agent creates the one whose functions the kernel has, and sets its name.
SEC(".struct_ops.link")
struct tcp_congestion_ops on_bbr = {
	ON_BBR,
	.cong_control = (void *)on_bbr_control,
	.cwnd_event = (void *)on_bbr_event,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops on_bbr_tx = {
	ON_BBR,
	.cong_control = (void *)on_bbr_control,
	.cwnd_event_tx_start = (void *)on_bbr_tx_start,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops on_bbr_old = {
	ON_BBR,
	.cong_control = (void *)on_bbr_control_old,
	.cwnd_event = (void *)on_bbr_event,
};

char _license[] SEC("license") = "Dual MIT/GPL";
