// Asks the agent on this host how a connection starts: advice-ask SOCKET ADDRESS:PORT BYTES RTT_US [send]
// With `send` the first window leaves as UDP datagrams to the address, spread as the answer has it.
//
//     cc -O2 -I agent/advice/c -o advice-ask docs/examples/advice.c
#include "spand_advice.h"

#include <stdlib.h>

#define PAYLOAD_BYTES 1200

static struct sockaddr *parse(const char *text, struct sockaddr_storage *address)
{
	struct sockaddr_in *ipv4 = (struct sockaddr_in *)address;
	struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)address;
	char host[INET6_ADDRSTRLEN];
	unsigned port;

	memset(address, 0, sizeof *address);
	if (sscanf(text, "[%45[0-9a-fA-F:.]]:%u", host, &port) == 2 && inet_pton(AF_INET6, host, &ipv6->sin6_addr) == 1) {
		ipv6->sin6_family = AF_INET6;
		ipv6->sin6_port = htons((uint16_t)port);
	} else if (sscanf(text, "%45[0-9.]:%u", host, &port) == 2 && inet_pton(AF_INET, host, &ipv4->sin_addr) == 1) {
		ipv4->sin_family = AF_INET;
		ipv4->sin_port = htons((uint16_t)port);
	} else {
		fprintf(stderr, "advice-ask: %s is no ADDRESS:PORT (IPv6: [ADDRESS]:PORT)\n", text);
		exit(2);
	}
	return (struct sockaddr *)address;
}

// Sends the first window; the bytes that left.
static uint64_t send_first_window(const struct sockaddr *to, uint64_t window_bytes, const struct spand_start *start)
{
	static const char payload[PAYLOAD_BYTES] = { 0 };
	socklen_t length = to->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	int fd = socket(to->sa_family, SOCK_DGRAM, 0);
	uint64_t sent = 0, began_us = spand_now_us();

	while (sent < window_bytes) {
		size_t size = window_bytes - sent < sizeof payload ? (size_t)(window_bytes - sent) : sizeof payload;
		if (start->rate_bytes_per_s && sent >= start->burst_bytes) {
			double due_us = (double)(sent - start->burst_bytes) * 1e6 / (double)start->rate_bytes_per_s;
			uint64_t passed_us = spand_now_us() - began_us;
			if (due_us > (double)passed_us)
				poll(NULL, 0, (int)((due_us - (double)passed_us) / 1000) + 1);
		}
		if (sendto(fd, payload, size, 0, to, length) < 0)
			break;
		sent += size;
	}
	close(fd);
	return sent;
}

int main(int count, char **arguments)
{
	struct spand_advice advice;
	struct spand_start start;
	struct spand_outcome outcome;
	struct sockaddr_storage address;

	if (count < 5) {
		fprintf(stderr, "usage: advice-ask SOCKET ADDRESS:PORT BYTES RTT_US [send]\n");
		return 2;
	}
	struct sockaddr *to = parse(arguments[2], &address);
	uint64_t bytes = strtoull(arguments[3], NULL, 10);
	spand_advice_open(&advice, arguments[1], "advice-ask");
	if (spand_advice_start(&advice, to, bytes, strtoull(arguments[4], NULL, 10), 0, &start))
		printf("window_bytes %" PRIu64 " threshold_bytes %" PRIu64 " burst_bytes %" PRIu64 " rate_bytes_per_s %" PRIu64
		       " lifetime_us %" PRIu64 "\n",
		       start.window_bytes, start.threshold_bytes, start.burst_bytes, start.rate_bytes_per_s, start.lifetime_us);
	else
		printf("plain: %s\n", start.reason);
	if (count > 5) {
		uint64_t window_bytes = start.is_advised ? start.window_bytes : 10 * PAYLOAD_BYTES;
		memset(&outcome, 0, sizeof outcome);
		// A real transport counts what was acknowledged.
		outcome.acknowledged_bytes = send_first_window(to, window_bytes < bytes ? window_bytes : bytes, &start);
		outcome.mss_bytes = PAYLOAD_BYTES;
		spand_advice_report(&advice, &start, &outcome);
	}
	spand_advice_close(&advice);
	return 0;
}
