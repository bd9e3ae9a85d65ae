// SPDX-License-Identifier: MIT OR Apache-2.0
// What programs use of the kernel, the agent's and the lab's: helpers by number, and the fields of its sockets by name. Fields
// are found in the running kernel's type information, so their order here means nothing and a field that is not named is not
// needed.

#pragma once

#include <linux/bpf.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define READ_THROUGH __attribute__((preserve_access_index))
// A function of the kernel. One that a kernel lacks is weak, and only in programs that are not loaded there.
#define KFUNC __attribute__((section(".ksyms")))
#define WEAK __attribute__((weak))

struct sock;
struct tcp_sock;

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)BPF_FUNC_ktime_get_boot_ns;
static u64 (*const bpf_jiffies64)(void) = (void *)BPF_FUNC_jiffies64;
static u64 (*const bpf_get_socket_cookie)(void *context) = (void *)BPF_FUNC_get_socket_cookie;
static u64 (*const bpf_get_netns_cookie)(void *context) = (void *)BPF_FUNC_get_netns_cookie;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)BPF_FUNC_get_current_task_btf;
static long (*const bpf_setsockopt)(void *socket, int level, int name, void *value, int length) = (void *)BPF_FUNC_setsockopt;
static long (*const bpf_sock_ops_cb_flags_set)(struct bpf_sock_ops *socket, int flags) =
	(void *)BPF_FUNC_sock_ops_cb_flags_set;
static long (*const bpf_reserve_hdr_opt)(struct bpf_sock_ops *socket, u32 length, u64 flags) =
	(void *)BPF_FUNC_reserve_hdr_opt;
static long (*const bpf_store_hdr_opt)(struct bpf_sock_ops *socket, const void *from, u32 length, u64 flags) =
	(void *)BPF_FUNC_store_hdr_opt;
static void *(*const bpf_sk_storage_get)(void *map, void *socket, void *value, u64 flags) = (void *)BPF_FUNC_sk_storage_get;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *socket) = (void *)BPF_FUNC_skc_to_tcp_sock;
static void *(*const bpf_ringbuf_reserve)(void *buffer, u64 size, u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static u64 (*const bpf_ringbuf_query)(void *buffer, u64 what) = (void *)BPF_FUNC_ringbuf_query;
static void (*const bpf_ringbuf_submit)(void *data, u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static long (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_lock;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_unlock;

// include/linux/socket.h, include/uapi/linux/tcp.h, include/uapi/asm-generic/socket.h.
enum { AF_INET = 2, AF_INET6 = 10 };
enum { SOL_SOCKET = 1, SOL_TCP = 6, SO_MAX_PACING_RATE = 47, TCP_CONGESTION = 13 };

// include/net/tcp.h.
enum tcp_ca_event { CA_EVENT_TX_START = 0, CA_EVENT_COMPLETE_CWR = 2, CA_EVENT_LOSS = 3 };

// include/uapi/linux/tcp.h: enum tcp_ca_state.
enum { CA_CWR = 2, CA_RECOVERY = 3, CA_LOSS = 4 };

// sk_max_pacing_rate where nobody set it.
#define NO_RATE (~0ul)

// include/net/sock.h: enum sk_pacing.
enum { SK_PACING_NONE = 0, SK_PACING_NEEDED = 1 };

struct net {
	u64 net_cookie;
} READ_THROUGH;

struct nsproxy {
	struct net *net_ns;
} READ_THROUGH;

struct task_struct {
	struct nsproxy *nsproxy;
} READ_THROUGH;

struct in6_addr {
	union {
		u8 u6_addr8[16];
		u32 u6_addr32[4];
	} in6_u;
} READ_THROUGH;

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	u8 skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} READ_THROUGH;

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
} READ_THROUGH;

struct inet_sock {
	struct sock sk;
} READ_THROUGH;

// As far as sockets' own are read; those of ours are written below.
struct tcp_congestion_ops___in_use {
	char name[16];
} READ_THROUGH;

// u64 icsk_ca_priv[], what a congestion control remembers of a connection.
#define CA_PRIV 13

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops___in_use *icsk_ca_ops;
	u32 icsk_rto;
	u8 icsk_ca_state : 5;
	u8 icsk_ca_setsockopt : 1;
	u8 icsk_ca_dst_locked : 1;
	u64 icsk_ca_priv[CA_PRIV];
} READ_THROUGH;

struct minmax_sample {
	u32 t;
	u32 v;
} READ_THROUGH;

struct minmax {
	struct minmax_sample s[3];
} READ_THROUGH;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 prior_cwnd;
	u32 snd_ssthresh;
	u32 srtt_us;
	u32 packets_out;
	u32 max_packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 total_retrans;
	u32 app_limited;
	u32 delivered;
	u32 data_segs_out;
	u32 snd_wnd;
	u32 snd_nxt;
	u32 snd_una;
	u32 write_seq;
	u32 mss_cache;
	u32 lsndtime;
	u32 snd_cwnd_stamp;
	u32 chrono_start;
	u32 chrono_stat[3];
	u64 bytes_acked;
	u64 tcp_mstamp;
	struct minmax rtt_min;
	u8 is_mptcp;
	u8 chrono_type : 2;
	u8 is_cwnd_limited : 1;
} READ_THROUGH;

struct ack_sample {
	u32 pkts_acked;
	int rtt_us;
} READ_THROUGH;

struct rate_sample {
	int delivered;
	long interval_us;
	long rtt_us;
	u8 is_app_limited;
} READ_THROUGH;

// Only what a congestion control of ours sets; the loader looks members up by name.
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*cwnd_event_tx_start)(struct sock *sk); // since Linux 7.1, and CA_EVENT_TX_START is no event of `cwnd_event` there
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *sample);
	u32 (*sndbuf_expand)(struct sock *sk);
	u32 (*min_tso_segs)(struct sock *sk);
	char name[16];
};

// net/ipv4/tcp_cubic.c and tcp_cong.c, exported to BPF congestion controls. A kernel may be built without CUBIC, and none has both of
// CUBIC's events.
extern void cubictcp_init(struct sock *sk) KFUNC WEAK;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) KFUNC WEAK;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked) KFUNC WEAK;
extern void cubictcp_state(struct sock *sk, u8 state) KFUNC WEAK;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) KFUNC WEAK; // before Linux 7.1
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) KFUNC WEAK; // since then
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) KFUNC WEAK;
extern u32 tcp_reno_ssthresh(struct sock *sk) KFUNC WEAK;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) KFUNC WEAK;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) KFUNC WEAK;

// A bit field cannot be addressed: the bytes that hold it are read and masked by its type information.
#define BITS(from, field)                                                                                              \
	({                                                                                                             \
		const u8 *at = (const u8 *)(from) + __builtin_preserve_field_info((from)->field, 0);                   \
		/* The offset must not be folded into the load, which would be adjusted as a whole field. */           \
		asm volatile("" : "+r"(at));                                                                           \
		u64 value = 0;                                                                                         \
		switch (__builtin_preserve_field_info((from)->field, 1)) {                                             \
		case 1: value = *at; break;                                                                            \
		case 2: value = *(const u16 *)at; break;                                                               \
		case 4: value = *(const u32 *)at; break;                                                               \
		case 8: value = *(const u64 *)at; break;                                                               \
		}                                                                                                      \
		value <<= __builtin_preserve_field_info((from)->field, 4);                                             \
		value >> __builtin_preserve_field_info((from)->field, 5);                                              \
	})

// Nor can it be written alone: the bytes that hold it are read, and written with its bits replaced.
#define SET_BITS(to, field, bits)                                                                                      \
	({                                                                                                             \
		u8 *at = (u8 *)(to) + __builtin_preserve_field_info((to)->field, 0);                                   \
		u32 bytes = __builtin_preserve_field_info((to)->field, 1);                                             \
		u32 left = __builtin_preserve_field_info((to)->field, 4);                                              \
		u32 right = __builtin_preserve_field_info((to)->field, 5);                                             \
		u64 mask = (~0ull << right) >> left, value = (u64)(bits) << (right - left);                            \
		asm volatile("" : "+r"(at));                                                                           \
		switch (bytes) {                                                                                       \
		case 1: *at = (*at & ~mask) | (value & mask); break;                                                   \
		case 2: *(u16 *)at = (*(u16 *)at & ~mask) | (value & mask); break;                                     \
		case 4: *(u32 *)at = (*(u32 *)at & ~mask) | (value & mask); break;                                     \
		case 8: *(u64 *)at = (*(u64 *)at & ~mask) | (value & mask); break;                                     \
		}                                                                                                      \
	})
