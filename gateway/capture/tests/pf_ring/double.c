/* A double of libpfring.so for tests: the functions that the gateway calls, with the answers of the real library (as read
 * and measured at PF_RING 8.9), and devices that show one behaviour each. */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>

#define CHUNK_MODE (1u << 11)
#define NOT_ENABLED (-12)
#define NOT_SUPPORTED (-7)
/* As which version the library was built; tests build others. */
#ifndef VERSION
#define VERSION 0x080900
#endif

struct header {
  struct timeval ts;
  uint32_t caplen, len;
  uint64_t timestamp_ns;
  uint8_t rest[177];
} __attribute__((packed));
_Static_assert(sizeof(struct header) == 209, "struct pfring_pkthdr");

typedef struct { uint64_t recv, drop, shunt; } statistics;
typedef struct { uint32_t length; int type; } chunk_info;

typedef struct {
  char device[64], filter[64], name[32];
  uint32_t caplen, flags;
  unsigned cluster, cluster_type;
  int enabled, is_pcap, given, polls;
  /* Devices "changing" and "chunks-changing": what plays the adapter, which writes whenever it likes. */
  pthread_t adapter;
  int adapter_runs;
  atomic_int adapter_stops;
  /* As long as a header could make believe. */
  uint8_t slot[65536];
  uint32_t chunk[64];
} ring;

static int is(const ring *r, const char *device) { return strcmp(r->device, device) == 0; }

void pfring_version_noring(uint32_t *version) { *version = VERSION; }

/* Rewrites the packet continuously, and the length in its record. */
static void *write_always(void *arg) {
  ring *r = arg;
  for (unsigned turn = 0; !atomic_load(&r->adapter_stops); turn++) {
    for (unsigned i = 0; i < 60; i++) ((volatile uint8_t *)r->slot)[i] = (uint8_t)turn;
    ((volatile uint32_t *)r->chunk)[2] = turn % 2 ? 8 : 0xfffffff0u;
  }
  return NULL;
}

static void start_adapter(ring *r) {
  if (!r->adapter_runs) r->adapter_runs = pthread_create(&r->adapter, NULL, write_always, r) == 0;
}

ring *pfring_open(const char *device, uint32_t caplen, uint32_t flags) {
  if (strcmp(device, "eth-without-module") == 0) { errno = EAFNOSUPPORT; return NULL; }
  if (strcmp(device, "closed") == 0) { errno = EPERM; return NULL; }
  if (strcmp(device, "missing") == 0) { errno = ENODEV; return NULL; }
  ring *r = calloc(1, sizeof *r);
  snprintf(r->device, sizeof r->device, "%s", device);
  r->caplen = caplen;
  r->flags = flags;
  r->is_pcap = strncmp(device, "pcap:", 5) == 0;
  return r;
}

void pfring_close(ring *r) {
  atomic_store(&r->adapter_stops, 1);
  if (r->adapter_runs) pthread_join(r->adapter, NULL);
  /* A use of the ring after this reads garbage. */
  memset(r, 0xee, sizeof *r);
  free(r);
}

int pfring_enable_ring(ring *r) {
  if (is(r, "busy")) return -1;
  r->enabled = 1;
  return 0;
}

int pfring_set_cluster(ring *r, unsigned id, int type) {
  if (r->is_pcap) return NOT_SUPPORTED;
  r->cluster = id;
  r->cluster_type = type;
  return 0;
}

int pfring_set_bpf_filter(ring *r, const char *filter) {
  if (strstr(filter, "prot ")) return -1;
  snprintf(r->filter, sizeof r->filter, "%s", filter);
  return 0;
}

int pfring_set_application_name(ring *r, char *name) {
  snprintf(r->name, sizeof r->name, "%s", name);
  return 0;
}

int pfring_recv(ring *r, u_char **buffer, u_int buffer_len, struct header *h, uint8_t wait) {
  (void)wait;
  if (!r->enabled) return NOT_ENABLED;
  if (is(r, "broken") && r->given == 1) { errno = EIO; return -1; }
  int packets = is(r, "echo") ? 1 : is(r, "changing") ? 2000 : 3;
  if (r->given == packets) return r->is_pcap ? -2 : 0;
  memset(h, 0, sizeof *h);
  r->given++;
  /* One slot for all, as the kernel reuses its slots. */
  if (is(r, "changing")) start_adapter(r);
  else memset(r->slot, r->given, sizeof r->slot);
  /* A later version of the library may know more fields than the caller. */
  if (is(r, "more-fields")) memset(h + 1, 0xff, 128);
  h->ts.tv_sec = 1000 + r->given;
  h->ts.tv_usec = 5;
  h->len = h->caplen = 60;
  if (is(r, "echo"))
    h->caplen = h->len = snprintf((char *)r->slot, sizeof r->slot, "caplen %u flags %x cluster %u type %u filter %s name %s",
                         r->caplen, r->flags, r->cluster, r->cluster_type, r->filter, r->name);
  if (is(r, "hardware-clock")) h->timestamp_ns = 7000000000ull + r->given;
  if (is(r, "no-clock")) h->ts.tv_sec = h->ts.tv_usec = 0;
  if (is(r, "long")) h->caplen = h->len = sizeof r->slot;
  if (buffer_len > 0) { /* The packet comes, and the answer is that none did. */
    memcpy(*buffer, r->slot, h->caplen < buffer_len ? h->caplen : buffer_len);
    return 0;
  }
  *buffer = r->slot;
  return 1;
}

static uint32_t *record(uint32_t *at, uint32_t seconds, uint32_t ticks, uint32_t len) {
  uint32_t numbers[4] = {seconds, ticks, len, len + 4};
  memcpy(at, numbers, sizeof numbers);
  memset(at + 4, (int)seconds, len);
  return at + 4 + len / 4;
}

int pfring_recv_chunk(ring *r, void **chunk, chunk_info *info, uint8_t wait) {
  (void)wait;
  if (strncmp(r->device, "chunks", 6) != 0 || !(r->flags & CHUNK_MODE)) return NOT_SUPPORTED;
  if (!r->enabled) return NOT_ENABLED;
  uint32_t *end = r->chunk;
  if (is(r, "chunks-changing")) {
    if (r->given++ % 2000 == 0) return 0;
    if (!r->adapter_runs) record(end, 1, 5, 8);
    start_adapter(r);
    *chunk = r->chunk;
    *info = (chunk_info){.length = 24, .type = 0};
    return 1;
  }
  switch (r->given++) {
    case 0:
      return 0;
    case 1:
      end = record(record(end, 1, 5, 8), 2, 5, 12);
      info->type = is(r, "chunks-odd") ? 2 : 0;
      break;
    case 2:
      end = record(record(end, 3, 5, 8), 4, 5, 16) - 1; /* one number short */
      info->type = 1;
      break;
    default:
      return 0;
  }
  *chunk = r->chunk;
  info->length = (uint32_t)((char *)end - (char *)r->chunk);
  return 1;
}

int pfring_poll(ring *r, u_int duration) {
  /* The pcap: module would wait seconds. */
  if (r->is_pcap && duration > 1) return -1;
  r->polls++;
  return r->is_pcap ? r->polls != 1 : 0;
}

int pfring_stats(ring *r, statistics *s) {
  if (r->is_pcap) return NOT_SUPPORTED;
  *s = (statistics){.recv = r->given, .drop = 2};
  return 0;
}
