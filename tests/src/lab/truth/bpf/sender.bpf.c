// SPDX-License-Identifier: MIT OR Apache-2.0
// What the kernel knows of a sender at each of its segments, in and out: cgroup_skb programs that copy a few fields of
// the socket into a ring buffer. They see every state and every congestion control, and never drop anything.
//
// Inwards the values are those before the segment is processed; outwards those before it is counted as sent.

#include "kernel.h"

struct event {
	u64 time_ns;
	u64 pacing_rate;
	u64 bytes_acked;
	u32 cwnd;
	u32 ssthresh;
	u32 srtt_eighth_us;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 total_retrans;
	u32 app_limited;
	u32 delivered;
	u32 snd_wnd;
	u32 snd_nxt;
	u32 snd_una;
	u32 write_seq;
	u32 mss;
	u32 data_segs_out;
	u16 local_port;
	u16 remote_port_be;
	u8 family;
	u8 ca_state;
	u8 state;
	u8 outwards;
	u8 chrono_type;
	u8 cwnd_limited;
	u8 unused[6];
	u8 local[16];
	u8 remote[16];
};

struct {
	int (*type)[BPF_MAP_TYPE_RINGBUF];
	int (*max_entries)[1 << 24];
} events SEC(".maps");

// Events that found no room.
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	u32 *key;
	u64 *value;
} lost SEC(".maps");

// The senders' port, set before the program is loaded.
const volatile u16 sender_port = 0;

INLINE void look(struct __sk_buff *skb, u8 outwards)
{
	void *sk = skb->sk;
	if (!sk)
		return;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	const struct sock_common *common = &tp->inet_conn.icsk_inet.sk.__sk_common;
	if (common->skc_num != sender_port)
		return;
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(struct event), 0);
	if (!event) {
		u32 zero = 0;
		u64 *count = bpf_map_lookup_elem(&lost, &zero);
		if (count)
			__sync_fetch_and_add(count, 1);
		return;
	}
	event->time_ns = bpf_ktime_get_ns();
	event->pacing_rate = tp->inet_conn.icsk_inet.sk.sk_pacing_rate;
	event->bytes_acked = tp->bytes_acked;
	event->cwnd = tp->snd_cwnd;
	event->ssthresh = tp->snd_ssthresh;
	event->srtt_eighth_us = tp->srtt_us;
	event->packets_out = tp->packets_out;
	event->sacked_out = tp->sacked_out;
	event->lost_out = tp->lost_out;
	event->retrans_out = tp->retrans_out;
	event->total_retrans = tp->total_retrans;
	event->app_limited = tp->app_limited;
	event->delivered = tp->delivered;
	event->snd_wnd = tp->snd_wnd;
	event->snd_nxt = tp->snd_nxt;
	event->snd_una = tp->snd_una;
	event->write_seq = tp->write_seq;
	event->mss = tp->mss_cache;
	event->data_segs_out = tp->data_segs_out;
	event->chrono_type = BITS(tp, chrono_type);
	event->cwnd_limited = BITS(tp, is_cwnd_limited);
	event->ca_state = BITS(&tp->inet_conn, icsk_ca_state);
	event->state = common->skc_state;
	event->outwards = outwards;
	event->local_port = common->skc_num;
	event->remote_port_be = common->skc_dport;
	event->family = common->skc_family;
	__builtin_memset(event->unused, 0, sizeof(event->unused));
	__builtin_memset(event->local, 0, sizeof(event->local));
	__builtin_memset(event->remote, 0, sizeof(event->remote));
	if (common->skc_family == 2) {
		*(u32 *)event->local = common->skc_rcv_saddr;
		*(u32 *)event->remote = common->skc_daddr;
	} else {
#pragma unroll
		for (int n = 0; n < 16; n++) {
			event->local[n] = common->skc_v6_rcv_saddr.in6_u.u6_addr8[n];
			event->remote[n] = common->skc_v6_daddr.in6_u.u6_addr8[n];
		}
	}
	bpf_ringbuf_submit(event, 0);
}

SEC("cgroup_skb/ingress")
int inwards(struct __sk_buff *skb)
{
	look(skb, 0);
	return 1;
}

SEC("cgroup_skb/egress")
int outwards(struct __sk_buff *skb)
{
	look(skb, 1);
	return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
