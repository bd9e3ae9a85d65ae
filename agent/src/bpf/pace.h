// SPDX-License-Identifier: MIT OR Apache-2.0
// Pacing of a connection that was not paced, and its end.

#pragma once

#include "connection.h"

// At this rate, but for an application's own limit. Whether it has begun to pace a connection that was not paced.
INLINE int pace(struct sock *sk, u64 rate)
{
	u64 most = sk->sk_max_pacing_rate;
	sk->sk_pacing_rate = rate < most ? rate : most;
	if (sk->sk_pacing_status != SK_PACING_NONE)
		return 0;
	sk->sk_pacing_status = SK_PACING_NEEDED;
	return 1;
}

// Only the flight of a start is paced where the connection was not: CUBIC's HyStart waits twice as long for a train of
// acknowledgements on paced connections, and slow start then overruns queues that it would have seen.
INLINE void end_pacing(struct sock *sk, struct connection *connection)
{
	// Paced for a round trip from its own threshold on, or until what Careful Resume sent is validated, whatever becomes of the flight before.
	if (connection->half == HALF_PACED || connection->careful.phase > CAREFUL_RECONNAISSANCE)
		return;
	connection->paced = 0;
	if (sk->sk_pacing_status == SK_PACING_NEEDED && sk->sk_max_pacing_rate == NO_RATE)
		sk->sk_pacing_status = SK_PACING_NONE;
}
