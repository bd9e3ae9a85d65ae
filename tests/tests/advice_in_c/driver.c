// SPDX-License-Identifier: MIT OR Apache-2.0
// The client in C under the commands of its test, one a line on standard input, each answered with one line. Argument: the socket.
#include "spand_advice.h"

static struct spand_outcome all_fields(const struct sockaddr *local)
{
	struct spand_outcome outcome = { 0 };
	outcome.local = local;
	outcome.acknowledged_bytes = UINT64_MAX;
	outcome.duration_us = 2;
	outcome.end_window_bytes = 3;
	outcome.loss_window_bytes = 4;
	outcome.congestion_events = 5;
	outcome.lost_segments = UINT32_MAX;
	outcome.mss_bytes = 7;
	outcome.srtt_us = 8;
	outcome.rtt_min_us = 9;
	outcome.first_flight_sent_segments = 10;
	outcome.first_flight_lost_segments = 11;
	outcome.limited_by = SPAND_LIMIT_RECEIVER;
	outcome.ended_in_slow_start = SPAND_SLOW_START_NO;
	return outcome;
}

int main(int count, char **arguments)
{
	struct spand_advice advice;
	struct spand_start start = { 0 };
	struct sockaddr_in ipv4 = { 0 };
	struct sockaddr_in6 ipv6 = { 0 };
	char line[256], address[64];
	uint64_t bytes, rtt_us, mss_bytes;
	uint32_t sent, lost;

	ipv4.sin_family = AF_INET;
	ipv6.sin6_family = AF_INET6;
	ipv4.sin_port = ipv6.sin6_port = htons(443);
	if (count < 2)
		return 2;
	printf("%d\n", spand_advice_open(&advice, arguments[1], "in \"C\""));
	for (fflush(stdout); fgets(line, sizeof line, stdin); fflush(stdout)) {
		if (sscanf(line, "start %63s %" SCNu64 " %" SCNu64 " %" SCNu64, address, &bytes, &rtt_us, &mss_bytes) == 4) {
			const struct sockaddr *to = (struct sockaddr *)&ipv6;
			if (inet_pton(AF_INET, address, &ipv4.sin_addr) == 1)
				to = (struct sockaddr *)&ipv4;
			else if (inet_pton(AF_INET6, address, &ipv6.sin6_addr) != 1)
				to = NULL;
			uint64_t began_us = spand_now_us();
			bool is_advised = spand_advice_start(&advice, to, bytes, rtt_us, mss_bytes, &start);
			printf("%d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %" PRIu64 "\n",
			       is_advised && start.is_advised, start.window_bytes, start.threshold_bytes, start.burst_bytes,
			       start.rate_bytes_per_s, start.lifetime_us, start.reason[0] ? start.reason : "-",
			       spand_now_us() - began_us);
		} else if (sscanf(line, "flight %" SCNu32 " %" SCNu32, &sent, &lost) == 2) {
			printf("%d\n", spand_advice_first_flight(&advice, &start, sent, lost));
		} else if (sscanf(line, "patience %" SCNu32, &advice.patience_us) == 1) {
			printf("1\n");
		} else if (!strncmp(line, "report", 6)) {
			struct spand_outcome outcome = all_fields((struct sockaddr *)&ipv4);
			printf("%d\n", spand_advice_report(&advice, &start, &outcome));
		} else {
			printf("%d\n", spand_advice_read(&advice));
		}
	}
	spand_advice_close(&advice);
	return 0;
}
