// SPDX-License-Identifier: MIT OR Apache-2.0
// The congestion controls of ours: the kernel's Reno and CUBIC, except for the start of a transfer, first or after an idle time.
// It begins at the network's share, in congestion avoidance, paced. Slow start follows another rule if the administrator chose
// one (growth.h), or ends at a threshold that the connection measures (measure.h). Careful Resume jumps in the middle of it (jump.h).
//
// Without `cong_control`, so that the kernel's own recovery, pacing and restart go on; without `min_tso_segs`, with which
// some first windows leave as bursts of twenty.

#pragma once

#include "check.h"
#include "jump.h"
#include "measure.h"

// Whether it has begun to pace a connection that was not paced.
INLINE int set(struct tcp_sock *tp, const struct start *start)
{
	if (!start->keeps_window)
		tp->snd_cwnd = start->cwnd;
	// Where none is to be set, a connection keeps the threshold of its own losses before an idle time.
	if (start->ssthresh != NO_THRESHOLD)
		tp->snd_ssthresh = start->ssthresh;
	return start->rate ? pace((struct sock *)tp, start->rate) : 0;
}

// More of a start's window, where it was not filled before.
INLINE void go_on(struct tcp_sock *tp, struct connection *connection)
{
	// Where segments wait for their pace, what leaves now is part of the same flight.
	if (connection->phase != PHASE_FLIGHT || !connection->drained)
		return;
	u32 window = resume(tp, connection);
	if (window && window < tp->snd_cwnd)
		tp->snd_cwnd = window;
	if (connection->phase == PHASE_FLIGHT && connection->rate)
		connection->paced |= pace((struct sock *)tp, connection->rate);
	else if (connection->paced)
		end_pacing((struct sock *)tp, connection);
}

// A segment is about to leave, and nothing is in flight: a transfer begins, or the kernel takes all that is in flight for lost.
static __attribute__((noinline)) int begin(struct sock *sk)
{
	struct connection *connection = known(sk);
	if (!connection || connection->phase == PHASE_PLAIN)
		return 0;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	int first = connection->phase == PHASE_WAITING;
	if (!first) {
		if (connection->careful.phase > CAREFUL_RECONNAISSANCE)
			after_jump(sk, connection);
		if (connection->phase == PHASE_FLIGHT)
			watch_flight(tp, connection, 1);
		if (tp->packets_out)
			return 0;
		// `lsndtime` still is the last transfer's.
		u32 idle = (u32)bpf_jiffies64() - tp->lsndtime;
		if (idle <= tp->inet_conn.icsk_rto) {
			go_on(tp, connection);
			return 0;
		}
		// Where windows do not last over idle times, the kernel has just cut this one (tcp_cwnd_restart).
		if ((u32)bpf_jiffies64() - tp->snd_cwnd_stamp > 1) {
			count(COUNT_KEPT_WINDOW);
			go_on(tp, connection);
			return 0;
		}
		release(connection);
	}
	connection->phase = PHASE_OPEN;
	struct start start = {};
	if (!plan(tp, connection, next_size(sk, connection), first, &start, 0)) {
		connection->stated_bytes = 0;
		return 0;
	}
	connection->paced |= set(tp, &start);
	// Nothing is lost yet on a new connection; what a loss ended stays ended.
	if (first) {
		connection->growth = growth_of(tp);
		begin_careful(tp, connection, start.jump);
	}
	connection->grown = 0;
	count(first ? COUNT_STARTED : COUNT_RESTARTED);
	return 0;
}

INLINE void on_event(struct sock *sk, int event)
{
	if (event == CA_EVENT_TX_START)
		begin(sk);
	else if (growths.in_use & CAREFUL_IN_USE && (event == CA_EVENT_LOSS || event == CA_EVENT_COMPLETE_CWR))
		careful_event(sk, event);
}

// The kernel takes a loss, or a mark, for congestion, and asks for a threshold; that of the congestion control is `own`. Slow start's own
// rule ends with the first one.
static __attribute__((noinline)) u32 threshold_after(struct sock *sk, u32 own)
{
	struct connection *connection = known(sk);
	if (!connection)
		return own;
	connection->growth = 0;
	return connection->careful.phase ? careful_threshold(sk, connection, own) : own;
}

// A loss that was none gives the window back, except to a retreat.
static __attribute__((noinline)) int keeps_retreat(struct sock *sk)
{
	struct connection *connection = known(sk);
	return connection && connection->careful.phase == CAREFUL_SAFE_RETREAT;
}

// Flights up to which a transfer is short: it ends before its window depends on the path.
#define SHORT_FLIGHTS 4

// Whether all of a short transfer's flight has left. What follows answers acknowledgements, which have their distances from the path, and
// would else leave at the kernel's rate for slow start. A long one's slow start ends too early where its second flight is a burst:
// HyStart then sees one train of acknowledgements.
INLINE int has_left(const struct tcp_sock *tp, const struct connection *connection)
{
	return connection->stated_bytes && connection->stated_bytes <= (u64)SHORT_FLIGHTS * connection->flight_bytes &&
	       tp->snd_nxt - connection->flight_start >= connection->flight_bytes;
}

// The first threshold is known: half of it at once, paced. The kernel computes its own rate for the window once the acknowledgement is
// processed, in the place of the one that was measured.
INLINE void send_half(struct tcp_sock *tp, struct connection *connection, const struct settings *settings, u32 threshold,
		      u32 rtt_us)
{
	struct network *network = network_of(tp);
	connection->half = HALF_NOT;
	if (!network)
		return;
	// Limits that the administrator named hold here as well.
	u32 window = smaller(smaller(tp->snd_ssthresh / 2, settings->policy.cap), network->cap);
	window = smaller(window, tp->snd_cwnd_clamp);
	if (window <= tp->snd_cwnd)
		return;
	tp->snd_cwnd = window;
	connection->paced |= pace((struct sock *)tp, rate_of(threshold, tp->mss_cache, rtt_us));
	connection->half = HALF_PACED;
}

// In slow start, before the first loss: a smaller threshold by this acknowledgement. HyStart's stays where it is lower.
static __attribute__((noinline)) int measure_own(struct sock *sk, struct connection *connection,
						 const struct ack_sample *sample)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 now_us = tp->tcp_mstamp, rtt_us = tp->srtt_us >> 3;
	if (connection->half == HALF_PACED && now_us - connection->measured.estimated >= rtt_us) {
		connection->half = HALF_NOT;
		if (connection->paced)
			end_pacing(sk, connection);
	}
	struct settings *settings = all_settings();
	if (!settings || settings->pauses & 1 || BITS(&tp->inet_conn, icsk_ca_state) >= CA_CWR ||
	    tp->snd_cwnd >= tp->snd_ssthresh) {
		connection->measures = MEASURES_NOT;
		if (connection->half == HALF_WAITING)
			connection->half = HALF_NOT;
		return 0;
	}
	if (connection->measures == MEASURES_NOT || !sample->pkts_acked)
		return 0;
	u32 threshold = measure(&connection->measured, &connection->measures, now_us, sample->pkts_acked, rtt_us);
	if (!threshold)
		return 0;
	threshold = smaller(threshold, MOST_SEGMENTS);
	if (threshold < 2)
		threshold = 2;
	if (threshold < tp->snd_ssthresh)
		tp->snd_ssthresh = threshold;
	if (connection->half == HALF_WAITING)
		send_half(tp, connection, settings, threshold, rtt_us);
	return 0;
}

// A kernel that skips a program takes what lies on its stack for the answer: a threshold at a loss, a window at an undo. A window
// that grew had half of it in flight (tcp_is_cwnd_limited).
INLINE void bound_answers(struct tcp_sock *tp)
{
	u32 prior = tp->prior_cwnd, flight = tp->max_packets_out;
	if (!prior)
		return;
	u64 most = 4ull * (prior > flight ? prior : flight);
	if (most < MOST_SEGMENTS)
		most = MOST_SEGMENTS;
	if (tp->snd_cwnd > most)
		tp->snd_cwnd = prior;
	if (tp->snd_ssthresh > most && tp->snd_ssthresh != NO_THRESHOLD)
		tp->snd_ssthresh = prior / 2;
}

INLINE void on_acknowledged(struct sock *sk, const struct ack_sample *sample)
{
	struct connection *connection = known(sk);
	if (!connection)
		return;
	bound_answers((struct tcp_sock *)sk);
	if (connection->careful.phase)
		careful_acknowledged(sk, connection);
	if (connection->measures | connection->half)
		measure_own(sk, connection, sample);
	if (connection->checked)
		check_start(sk, connection, sample);
	if (connection->phase != PHASE_FLIGHT)
		return;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	watch_flight(tp, connection, 1);
	if (connection->paced && (connection->phase == PHASE_OPEN || has_left(tp, connection)))
		end_pacing(sk, connection);
}

SEC("struct_ops")
void cubic_init(u64 *arguments)
{
	cubictcp_init((struct sock *)arguments[0]);
}

SEC("struct_ops")
u32 cubic_ssthresh(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	u32 own = cubictcp_recalc_ssthresh(sk);
	return growths.in_use ? threshold_after(sk, own) : own;
}

SEC("struct_ops")
void cubic_cong_avoid(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	u32 window = growths.in_use ? next_window(sk, arguments[2]) : 0;
	// Some kernels begin HyStart's rounds here: without segments that is all that it does in slow start.
	cubictcp_cong_avoid(sk, arguments[1], window ? 0 : arguments[2]);
	if (window)
		((struct tcp_sock *)sk)->snd_cwnd = window;
}

SEC("struct_ops")
void cubic_set_state(u64 *arguments)
{
	cubictcp_state((struct sock *)arguments[0], arguments[1]);
}

SEC("struct_ops")
void cubic_cwnd_event(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	cubictcp_cwnd_event(sk, arguments[1]);
	on_event(sk, arguments[1]);
}

SEC("struct_ops")
void cubic_tx_start(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	cubictcp_cwnd_event_tx_start(sk);
	begin(sk);
}

SEC("struct_ops")
void cubic_pkts_acked(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	const struct ack_sample *sample = (const struct ack_sample *)arguments[1];
	cubictcp_acked(sk, sample);
	on_acknowledged(sk, sample);
}

SEC("struct_ops")
u32 reno_ssthresh(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	u32 own = tcp_reno_ssthresh(sk);
	return growths.in_use ? threshold_after(sk, own) : own;
}

SEC("struct_ops")
void reno_cong_avoid(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	u32 window = growths.in_use ? next_window(sk, arguments[2]) : 0;
	if (window)
		((struct tcp_sock *)sk)->snd_cwnd = window;
	else
		tcp_reno_cong_avoid(sk, arguments[1], arguments[2]);
}

SEC("struct_ops")
void reno_cwnd_event(u64 *arguments)
{
	on_event((struct sock *)arguments[0], arguments[1]);
}

SEC("struct_ops")
void reno_tx_start(u64 *arguments)
{
	begin((struct sock *)arguments[0]);
}

SEC("struct_ops")
void reno_pkts_acked(u64 *arguments)
{
	on_acknowledged((struct sock *)arguments[0], (const struct ack_sample *)arguments[1]);
}

SEC("struct_ops")
u32 undo_cwnd(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	if (growths.in_use & CAREFUL_IN_USE && keeps_retreat(sk))
		return ((struct tcp_sock *)sk)->snd_cwnd;
	return tcp_reno_undo_cwnd(sk);
}

// Of the hand-over: the window is set at once, and the host's own congestion control comes next.
SEC("struct_ops")
void start_init(u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct connection *connection = known(sk);
	if (!connection || connection->phase != PHASE_WAITING)
		return;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	connection->phase = PHASE_OPEN;
	struct start start = {};
	if (!plan(tp, connection, next_size(sk, connection), 1, &start, 0))
		return;
	// After the hand-over check.h does not run, and cannot raise a threshold that is too low.
	start.ssthresh = NO_THRESHOLD;
	connection->paced |= set(tp, &start);
	count(COUNT_STARTED);
}

// `_tx` is for kernels with `cwnd_event_tx_start`, whose CUBIC leaves the other events alone. The agent creates those that fit the kernel,
// and gives each its name before.
#define ON_CUBIC                                                                                                       \
	.init = (void *)cubic_init, .ssthresh = (void *)cubic_ssthresh, .cong_avoid = (void *)cubic_cong_avoid,        \
	.set_state = (void *)cubic_set_state, .pkts_acked = (void *)cubic_pkts_acked, .undo_cwnd = (void *)undo_cwnd
#define ON_RENO                                                                                                        \
	.ssthresh = (void *)reno_ssthresh, .cong_avoid = (void *)reno_cong_avoid, .cwnd_event = (void *)reno_cwnd_event, \
	.pkts_acked = (void *)reno_pkts_acked, .undo_cwnd = (void *)undo_cwnd

SEC(".struct_ops.link")
struct tcp_congestion_ops on_cubic = { ON_CUBIC, .cwnd_event = (void *)cubic_cwnd_event };

SEC(".struct_ops.link")
struct tcp_congestion_ops on_cubic_tx = {
	ON_CUBIC,
	.cwnd_event = (void *)reno_cwnd_event,
	.cwnd_event_tx_start = (void *)cubic_tx_start,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops on_reno = { ON_RENO };

SEC(".struct_ops.link")
struct tcp_congestion_ops on_reno_tx = { ON_RENO, .cwnd_event_tx_start = (void *)reno_tx_start };

SEC(".struct_ops.link")
struct tcp_congestion_ops at_start = {
	.init = (void *)start_init,
	.ssthresh = (void *)reno_ssthresh,
	.cong_avoid = (void *)reno_cong_avoid,
	.undo_cwnd = (void *)undo_cwnd,
};
