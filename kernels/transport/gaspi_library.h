// The part of GASPI that the transport uses, as the specification has it (GASPI 17.1) and GPI-2
// extends it, looked up in a library that is loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tnt::gaspi {

using Return = int;
constexpr Return success = 0, timed_out = 1;

using Timeout = unsigned long;  // ms
constexpr Timeout test = 0;     // do not wait

using Number = unsigned int;
using NotificationId = unsigned int;
using Offset = unsigned long;
using Pointer = void*;
using Queue = unsigned char;
using Rank = unsigned short;
using SegmentId = unsigned char;
using Size = unsigned long;
using Value = unsigned int;  // of a notification; never 0
using State = int;
constexpr State healthy = 0;
constexpr int uninitialized_memory = 0;

// What is found under gaspi_..., with its arguments.
#define TNT_GASPI_FUNCTIONS(F)                                                                 \
  F(proc_init, (Timeout))                                                                      \
  F(proc_rank, (Rank*))                                                                        \
  F(proc_num, (Rank*))                                                                         \
  F(proc_ping, (Rank, Timeout))                                                                \
  F(config_get, (void*))                                                                       \
  F(state_vec_get, (State*))                                                                   \
  F(print_error, (Return, char**))                                                             \
  F(segment_alloc, (SegmentId, Size, int))                                                     \
  F(segment_register, (SegmentId, Rank, Timeout))                                              \
  F(segment_size, (SegmentId, Rank, Size*))                                                    \
  F(segment_ptr, (SegmentId, Pointer*))                                                        \
  F(write_notify,                                                                              \
    (SegmentId, Offset, Rank, SegmentId, Offset, Size, NotificationId, Value, Queue, Timeout)) \
  F(notify_waitsome, (SegmentId, NotificationId, Number, NotificationId*, Timeout))            \
  F(notify_reset, (SegmentId, NotificationId, Value*))                                         \
  F(notification_num, (Number*))                                                               \
  F(wait, (Queue, Timeout))                                                                    \
  F(queue_num, (Number*))                                                                      \
  F(queue_size, (Queue, Number*))                                                              \
  F(queue_size_max, (Number*))

struct Library {
  explicit Library(const std::string& name);  // throws TransportError

  // "general error (-1)"
  std::string describe(Return code) const;

  void* handle = nullptr;  // never closed: GPI-2's threads run until the process ends

#define TNT_GASPI_DECLARE(NAME, ARGUMENTS) Return(*NAME) ARGUMENTS;
  TNT_GASPI_FUNCTIONS(TNT_GASPI_DECLARE)
#undef TNT_GASPI_DECLARE
};

// The ports that GPI-2 will use on a host, as far as they are known: + local rank.
struct Ports {
  int start = 12121;   // to control the other ranks; the job's start uses them + topology_offset
  int device = 19000;  // data, where the network is Ethernet; else 0
  static constexpr int topology_offset = 256;  // the most ranks that GPI-2 has on a host
};

// GPI-2's configuration before it starts. Its structure differs between versions, and
// gaspi_config_set() leaves the data port alone (1.6.0): so a setting is found in the library's own
// copy by its documented default, which must occur there exactly once.
class Settings {
 public:
  explicit Settings(const Library& library);

  Ports ports() const;
  void set_ports(const Ports& ports);  // throws TransportError if they cannot be changed

 private:
  std::uint32_t* find(std::uint32_t value) const;

  std::uint32_t* words_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace tnt::gaspi
