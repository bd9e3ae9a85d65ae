// SPDX-License-Identifier: MIT OR Apache-2.0
// A program of somebody else's on the same sockets: it asks for callbacks, and counts those that come.

#include "kernel.h"

enum { ROUND_TRIPS, ENDS, KINDS };

struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[KINDS];
	u32 *key;
	u64 *value;
} came SEC(".maps");

INLINE void count(u32 kind)
{
	u64 *number = bpf_map_lookup_elem(&came, &kind);
	if (number)
		__sync_fetch_and_add(number, 1);
}

SEC("sockops")
int beside(struct bpf_sock_ops *skops)
{
	switch (skops->op) {
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG |
							 BPF_SOCK_OPS_STATE_CB_FLAG);
		break;
	case BPF_SOCK_OPS_RTT_CB: count(ROUND_TRIPS); break;
	case BPF_SOCK_OPS_STATE_CB:
		if (skops->args[1] == BPF_TCP_CLOSE)
			count(ENDS);
	}
	return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
