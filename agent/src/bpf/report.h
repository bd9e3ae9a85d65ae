// SPDX-License-Identifier: MIT OR Apache-2.0
// The agent's event about a connection.

#pragma once

#include "connection.h"

// Time with data to send or unacknowledged: what an application waits for, by the kernel's own account.
INLINE u64 busy_us(const struct tcp_sock *tp, u64 ticks_per_s)
{
	u32 ticks = tp->chrono_stat[0] + tp->chrono_stat[1] + tp->chrono_stat[2];
	if (BITS(tp, chrono_type))
		ticks += (u32)bpf_jiffies64() - tp->chrono_start;
	return ticks_per_s ? (u64)ticks * 1000000 / ticks_per_s : 0;
}

INLINE void report(const struct tcp_sock *tp, struct connection *connection, u32 kind)
{
	struct settings *settings = all_settings();
	struct event *event = settings ? bpf_ringbuf_reserve(&events, sizeof(*event), 0) : 0;
	if (!event) {
		count(COUNT_EVENT_LOST);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->busy_us = busy_us(tp, settings->ticks_per_s);
	event->bytes = tp->bytes_acked;
	event->cwnd = tp->snd_cwnd;
	event->mss = tp->mss_cache;
	event->srtt_us = tp->srtt_us >> 3;
	event->rtt_min_us = tp->rtt_min.s[0].v;
	event->retransmitted = tp->total_retrans;
	event->granted = connection->first_granted;
	event->first_sent = whole_segments(connection->first_sent, tp->mss_cache);
	event->first_lost = whole_segments(connection->first_lost, tp->mss_cache);
	event->local_port = common_of(tp)->skc_num;
	event->remote_port = __builtin_bswap16(common_of(tp)->skc_dport);
	event->arm = connection->arm;
	event->refusal = connection->refusal;
	event->first_loss = connection->first_loss;
	event->window_limited = BITS(tp, is_cwnd_limited);
	// The same for both arms: one that was established or ended during a pause, or before one and after it.
	event->paused = settings->pauses & 1 || settings->pauses != connection->pauses;
	event->careful = connection->careful.ended_in;
	put_local(event->local, tp);
	put_remote(event->remote, tp);
	int wake = kind == EVENT_FIRST_FLIGHT_LOSS || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > EVENTS_TO_WAKE;
	bpf_ringbuf_submit(event, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}
