// SPDX-License-Identifier: MIT OR Apache-2.0
// setsockopt(fd, 0x5350, 1, &bytes, 8): an application states the size of its next transfer, an unsigned 64-bit number in
// the machine's order. 0 takes it back. On a listening socket it holds for the first transfer of what it accepts.

#pragma once

#include "tables.h"

#define SPAND_LEVEL 0x5350
#define SPAND_TRANSFER_BYTES 1

// Longest value that a program may look at.
#define MOST_VALUE 4096

SEC("cgroup/setsockopt")
int on_setsockopt(struct bpf_sockopt *option)
{
	struct settings *settings = all_settings();
	if (option->level != SPAND_LEVEL || !settings || is_foreign(option, settings)) {
		// State the length, or the kernel would truncate a longer value.
		if (option->optlen > MOST_VALUE)
			option->optlen = 0;
		return 1;
	}
	u64 *value = option->optval, *end = option->optval_end;
	struct bpf_sock *sk = option->sk;
	// -1: another agent of this machine took it before.
	if (option->optname != SPAND_TRANSFER_BYTES || (option->optlen != sizeof(u64) && option->optlen != -1) ||
	    value + 1 > end || !sk)
		return 0; // EPERM: no such option, or not eight bytes
	struct stated *stated = bpf_sk_storage_get(&sizes, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!stated) {
		count(COUNT_NO_ROOM);
		return 0;
	}
	stated->bytes = *value;
	struct connection *connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (connection && !*value)
		connection->stated_bytes = 0;
	option->optlen = -1; // done: the kernel itself does not know the level
	return 1;
}
