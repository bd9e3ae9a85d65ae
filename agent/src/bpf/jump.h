// SPDX-License-Identifier: MIT OR Apache-2.0
// Careful Resume (careful.h) on connections with our CUBIC or Reno: what they show, and what a phase makes of their window, threshold and
// pace. What is saved is the network's share and round trip, as long as its advice lasts.

#pragma once

#include "careful.h"
#include "growth.h"
#include "pace.h"

INLINE void observe(const struct tcp_sock *tp, struct connection *connection, struct careful_ack *ack)
{
	ack->now_us = tp->tcp_mstamp;
	ack->acked = tp->delivered - connection->delivered;
	ack->newest = tp->snd_una;
	ack->sent = tp->snd_nxt;
	ack->flight = tp->packets_out + tp->retrans_out - tp->sacked_out - tp->lost_out;
	ack->rtt_us = tp->srtt_us >> 3;
	ack->min_rtt_us = tp->rtt_min.s[0].v;
	ack->recovering = BITS(&tp->inet_conn, icsk_ca_state) >= CA_CWR;
	connection->delivered = tp->delivered;
}

// A connection's first data leaves.
INLINE void begin_careful(const struct tcp_sock *tp, struct connection *connection, u32 jump)
{
	u32 initial_window = connection->initial_window;
	if (jump <= initial_window)
		return;
	connection->careful.initial_window = initial_window;
	connection->careful.boundary = tp->snd_nxt + initial_window * tp->mss_cache;
	connection->delivered = tp->delivered;
	careful_enter(&connection->careful, CAREFUL_RECONNAISSANCE);
	count(COUNT_RESUME_RECONNAISSANCE);
}

// The jump's reservation is free again, and so is the claim.
INLINE void let_others_jump(struct connection *connection)
{
	release(connection);
	end_claim(connection);
}

// A retreat shows that what is saved is wrong: no connection jumps with it any more. The advice may be renewed between the claim and the end of
// the retreat, so the newest end counts.
static __attribute__((noinline)) int forget_saved(const struct tcp_sock *tp, const struct connection *connection)
{
	struct network *network = network_of(tp);
	u64 until = connection->claimed_ns;
	if (network && network->expires_ns > until)
		until = network->expires_ns;
	forbid_jumps(connection, until);
	return 0;
}

static __attribute__((noinline)) int end_careful(struct sock *sk, struct connection *connection)
{
	if (connection->claimed_ns) {
		if (connection->careful.ended_in == CAREFUL_SAFE_RETREAT)
			forget_saved((struct tcp_sock *)sk, connection);
		let_others_jump(connection);
	}
	if (connection->paced)
		end_pacing(sk, connection);
	return 0;
}

// The window of a jump by what is known of the network now, 0 for none; and the round trip that was saved with it.
static __attribute__((noinline)) u32 jump_window(struct tcp_sock *tp, struct connection *connection, u32 rtt_us, u32 *saved_rtt_us)
{
	struct settings *settings = all_settings();
	struct network *network = network_of(tp);
	u64 now = bpf_ktime_get_boot_ns();
	if (!settings || !network || is_paused(settings, network) || network->refusal || network->expires_ns <= now ||
	    network->shape != SHAPE_RFC9959) {
		count(COUNT_RESUME_NO_GAIN);
		return 0;
	}
	struct budget *budget = bpf_map_lookup_elem(&budgets, &network->slot);
	if (!budget)
		return 0;
	u64 half_ns = (u64)(rtt_us > network->rtt_us ? rtt_us : network->rtt_us) * 2000;
	u32 held_back = 0;
	struct transfer transfer = {
		.peer_window = tp->snd_wnd,
		.mss = tp->mss_cache,
		.initial_window = connection->initial_window,
		.shape = SHAPE_RFC9959,
	};
	transfer.budget_left = budget_left(budget, network, client_of(tp), now, half_ns, &held_back);
	*saved_rtt_us = network->rtt_us;
	u32 window = smaller(jump_of(network, &transfer, &settings->policy, network->cap), tp->snd_cwnd_clamp);
	if (held_back || !network->rtt_us || window <= tp->snd_cwnd) {
		count(held_back ? COUNT_RETREATED : COUNT_RESUME_NO_GAIN);
		return 0;
	}
	release(connection);
	connection->slot = network->slot;
	connection->era = network->era;
	if (!claim(budget, connection, now, network->expires_ns)) {
		count(COUNT_RESUME_IN_USE);
		return 0;
	}
	if (transfer.budget_left != NO_LIMIT) {
		connection->extra = window - connection->initial_window;
		reserve(budget, connection, now, half_ns);
	}
	return window;
}

// The path is confirmed, and more waits than the window holds.
static __attribute__((noinline)) int jump(struct sock *sk, struct connection *connection, const struct careful_ack *ack)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 saved_rtt_us = 0, window = jump_window(tp, connection, ack->rtt_us, &saved_rtt_us);
	careful_jump(&connection->careful, ack, window, saved_rtt_us, tp->snd_cwnd);
	if (connection->careful.phase != CAREFUL_UNVALIDATED) {
		if (window)
			count(COUNT_RESUME_RTT_MISMATCH);
		return end_careful(sk, connection);
	}
	count(COUNT_RESUME_UNVALIDATED);
	// The kernel computes its own rate for the window with each acknowledgement: 1.2 times the window in a round trip, where the window is
	// above half of the threshold.
	connection->threshold = tp->snd_ssthresh;
	tp->snd_cwnd = window;
	tp->snd_ssthresh = window + 1;
	connection->paced |= pace(sk, rate_of(window, tp->mss_cache, ack->rtt_us));
	connection->phase = PHASE_OPEN;
	return 0;
}

// A phase has begun after the jump. `held`: the threshold until then, where nothing else set one.
INLINE void in_phase(struct sock *sk, struct connection *connection, u8 before, u32 held)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	const struct careful *careful = &connection->careful;
	u8 phase = careful->phase;
	if (before == CAREFUL_UNVALIDATED && phase != CAREFUL_SAFE_RETREAT) {
		tp->snd_cwnd = careful->window;
		// CUBIC's HyStart may have found one meanwhile.
		if (tp->snd_ssthresh == held)
			tp->snd_ssthresh = connection->threshold;
	}
	if (phase == CAREFUL_VALIDATING)
		count(COUNT_RESUME_VALIDATING);
	if (phase == CAREFUL_SAFE_RETREAT) {
		count(COUNT_RESUME_SAFE_RETREAT);
		forget_saved(tp, connection);
		tp->snd_cwnd = careful->window;
		tp->snd_ssthresh = careful->window;
	}
	if (phase != CAREFUL_NORMAL)
		return;
	if (before == CAREFUL_SAFE_RETREAT) {
		u32 threshold = careful->pipe_size / 2;
		tp->snd_ssthresh = threshold < 2 ? 2 : threshold;
	}
	end_careful(sk, connection);
}

// After the jump: an acknowledgement, or, where nothing is in flight, a segment that is about to leave.
static __attribute__((noinline)) int after_jump(struct sock *sk, struct connection *connection)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct careful *careful = &connection->careful;
	struct careful_ack ack;
	u8 before = careful->phase;
	u32 held = careful->window + 1;
	// A timeout during a recovery makes no call: the kernel keeps the threshold that it has.
	if (BITS(&tp->inet_conn, icsk_ca_state) == CA_LOSS) {
		if (before == CAREFUL_SAFE_RETREAT)
			tp->snd_ssthresh = careful->window;
		careful->phase = CAREFUL_NORMAL;
		return end_careful(sk, connection);
	}
	observe(tp, connection, &ack);
	if (careful_acked(careful, &ack)) {
		in_phase(sk, connection, before, held);
		return 0;
	}
	// The kernel reduces a window in proportion to what arrives (PRR), and ends at the threshold. A path that was overshot drains first:
	// nothing new leaves before the flight fits the window.
	if (before == CAREFUL_SAFE_RETREAT && ack.recovering)
		tp->snd_ssthresh = ack.flight > careful->window ? 1 : careful->window;
	return 0;
}

// An acknowledgement.
static __attribute__((noinline)) int careful_acknowledged(struct sock *sk, struct connection *connection)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	// The agent may have written it since.
	if (!(growths.in_use & CAREFUL_IN_USE))
		growths.in_use |= CAREFUL_IN_USE;
	if (connection->careful.phase != CAREFUL_RECONNAISSANCE)
		return after_jump(sk, connection);
	struct careful_ack ack;
	observe(tp, connection, &ack);
	u32 mss = tp->mss_cache, waiting = whole_segments(tp->write_seq - tp->snd_nxt, mss);
	// Neither after duplicate acknowledgements, which may become a loss.
	if (mss && !BITS(&tp->inet_conn, icsk_ca_state) &&
	    may_jump(&connection->careful, &ack, waiting, tp->snd_cwnd + ack.acked))
		jump(sk, connection, &ack);
	return 0;
}

// The kernel takes a loss, or a mark, for congestion, and asks for a threshold: `own` is that of the congestion control.
INLINE u32 careful_threshold(struct sock *sk, struct connection *connection, u32 own)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	if (!careful_congestion(&connection->careful, tp->snd_nxt))
		return own;
	in_phase(sk, connection, CAREFUL_NORMAL, 0);
	return connection->careful.phase == CAREFUL_SAFE_RETREAT ? connection->careful.window : own;
}

// A retransmission timeout ends it; and the kernel has ended a recovery, with the threshold for the window.
static __attribute__((noinline)) int careful_event(struct sock *sk, int event)
{
	struct connection *connection = known(sk);
	if (!connection || !connection->careful.phase)
		return 0;
	struct careful *careful = &connection->careful;
	if (event == CA_EVENT_LOSS) {
		careful->phase = CAREFUL_NORMAL;
		return end_careful(sk, connection);
	}
	if (careful->phase != CAREFUL_SAFE_RETREAT)
		return 0;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct careful_ack ack;
	tp->snd_cwnd = careful->window;
	tp->snd_ssthresh = careful->window;
	observe(tp, connection, &ack);
	ack.recovering = 0;
	if (careful_acked(careful, &ack))
		in_phase(sk, connection, CAREFUL_SAFE_RETREAT, 0);
	return 0;
}
