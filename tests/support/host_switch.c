// An Ethernet switch in user space, whose links have a delay, and those to the hosts a rate.
//
//   host_switch RATE DELAY PID...    bits a second (0: no limit), nanoseconds one way
//
// Each PID is a process in the network namespace of a host, which gets an interface eth0, a tap;
// this end of it is a port of the switch. Says "ready" on standard output, and ends, the interfaces
// with it, when standard input does.
//
//   eth0 of host 1 ─ tap ─┐   a frame occupies the link from the switch at RATE, and arrives DELAY
//   eth0 of host 2 ─ tap ─┼─ after its last bit. What finds more than QUEUE bytes before it is
//   lost. eth0 of host 3 ─ tap ─┘
//
// The way to the switch is for the hosts to limit, by the qdisc of eth0: what waits there still
// counts as unsent for TCP, which then keeps its queue short. What is in a tap does not.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef int64_t nanoseconds;
typedef struct virtio_net_hdr header;  // precedes every frame on a tap

enum { PORTS = 64, HEADER = sizeof(header), LONGEST = HEADER + 65536 + 64, QUEUE = 1 << 20 };
enum { MAC = 6 };

typedef struct frame {
  struct frame* next;
  nanoseconds due;
  int length;
  unsigned char bytes[];
} frame;

typedef struct {
  int tap;
  nanoseconds free;     // when the last bit of what is under way has passed
  frame *first, *last;  // what will be delivered here
  int queued;
} port;

static port ports[PORTS];
static int port_count;
static double rate;
static nanoseconds delay;

static nanoseconds now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static nanoseconds later(nanoseconds a, nanoseconds b) { return a > b ? a : b; }

// The kernel hands over up to 64 KB at once; on the wire they would be segments, each with headers.
static nanoseconds time_on_wire(const unsigned char* bytes, int length) {
  header h;
  memcpy(&h, bytes, sizeof h);
  int frame_length = length - HEADER, segments = 1;
  if (h.gso_type != VIRTIO_NET_HDR_GSO_NONE && h.gso_size && frame_length > h.hdr_len)
    segments = (frame_length - h.hdr_len + h.gso_size - 1) / h.gso_size;
  double on_wire = frame_length + (segments - 1) * (double)h.hdr_len;
  return rate > 0 ? (nanoseconds)(8e9 * on_wire / rate) : 0;
}

static void forward(port* to, const unsigned char* bytes, int length) {
  if (to->queued + length > QUEUE) return;
  frame* f = malloc(sizeof *f + (size_t)length);
  if (!f) return;
  to->free = later(now(), to->free) + time_on_wire(bytes, length);
  *f = (frame){0, to->free + delay, length};
  memcpy(f->bytes, bytes, (size_t)length);
  if (to->last)
    to->last->next = f;
  else
    to->first = f;
  to->last = f;
  to->queued += length;
}

// Addresses end with the number of the port: there is nothing to learn. All else is for everybody.
static void receive(port* from) {
  static unsigned char bytes[LONGEST];
  for (int k = 0; k < 16; ++k) {
    ssize_t length = read(from->tap, bytes, sizeof bytes);
    if (length < HEADER + 2 * MAC) return;
    const unsigned char* to = bytes + HEADER;
    int is_group = to[0] & 1, number = to[MAC - 1] - 1;
    for (int p = 0; p < port_count; ++p)
      if (&ports[p] != from && (is_group || p == number)) forward(&ports[p], bytes, (int)length);
  }
}

// Gives the time when something is to be delivered next, or 0.
static nanoseconds deliver(port* to) {
  while (to->first && to->first->due <= now()) {
    frame* f = to->first;
    if (write(to->tap, f->bytes, (size_t)f->length) < 0) {
      // The host is not ready for it: lost, as on a wire.
    }
    to->first = f->next;
    if (!to->first) to->last = 0;
    to->queued -= f->length;
    free(f);
  }
  return to->first ? to->first->due : 0;
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static int tap_of(const char* pid, int number) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
  int space = open(path, O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET)) fail(path);
  close(space);
  int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
  strcpy(request.ifr_name, "eth0");
  if (tap < 0 || ioctl(tap, TUNSETIFF, &request)) fail("/dev/net/tun");
  if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) fail("TUNSETOFFLOAD");
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  memcpy(request.ifr_hwaddr.sa_data, (unsigned char[MAC]){2, 0, 0, 0, 0, (unsigned char)number},
         MAC);
  if (ioctl(tap, SIOCSIFHWADDR, &request)) fail("SIOCSIFHWADDR");
  return tap;
}

int main(int count, char** words) {
  if (count < 4 || count - 3 > PORTS) return 2;
  rate = atof(words[1]);
  delay = atoll(words[2]);
  for (int k = 3; k < count; ++k, ++port_count) ports[port_count].tap = tap_of(words[k], k - 2);
  // It has to be on time while ranks spin on all cores; if it may not, it is a bit less on time.
  prctl(PR_SET_TIMERSLACK, 1);
  sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
  puts("ready");
  fflush(stdout);
  for (;;) {
    struct pollfd polled[PORTS + 1];
    nanoseconds next = 0;
    for (int p = 0; p < port_count; ++p) {
      nanoseconds due = deliver(&ports[p]);
      if (due && (!next || due < next)) next = due;
      polled[p] = (struct pollfd){ports[p].tap, POLLIN, 0};
    }
    polled[port_count] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    nanoseconds wait = next ? later(next - now(), 0) : 0;
    struct timespec timeout = {wait / 1000000000, wait % 1000000000};
    if (ppoll(polled, (nfds_t)port_count + 1, next ? &timeout : 0, 0) <= 0) continue;
    if (polled[port_count].revents) return 0;
    for (int p = 0; p < port_count; ++p)
      if (polled[p].revents & POLLIN) receive(&ports[p]);
  }
}
