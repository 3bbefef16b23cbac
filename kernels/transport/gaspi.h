// Messages between any processes, over GPI-2's one-sided writes with notifications.
//
// Each rank owns a segment of memory that the others write into. In it every other rank has a ring
// of slots; a message goes as fragments, each a slot of the sender's staging ring copied into the
// same slot here, with a notification that says so. How many slots the receiver has emptied goes
// back with its own fragments, or alone when it has none to send.
//
//   sender's segment                          receiver's segment
//   [staging ring for rank 0]                 [ring of rank 0]
//   [staging ring for rank 1] -- fragment --> [ring of the sender] -> buffer of the receive, or
//                             <--- emptied --                         memory until it is posted
//
// GPI-2 is not needed to build: it is loaded at run time where it is installed.
//
// A dead peer is noticed within a second (InfiniBand: not tried), but over libfabric GPI-2 1.6 may
// itself wait for it for ever; and it does while a transport opens if a peer is stopped, not dead.
//
// GPI-2 listens on the ports below on all interfaces of the host, asks for no password and encrypts
// nothing; whoever reaches them can write into the memory of the process. Use it on a private
// network only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tnt {

struct GaspiOptions {
  std::string library = "libGPI2.so";  // name or path

  // The job: all processes that start GASPI together; the same for every transport of a process.
  int rank = 0;                    // of this process
  std::vector<std::string> hosts;  // the host of each rank, as the others resolve it (IPv4)
  int port_base = 0;               // see gaspi_ports_are_free(); 0: GPI-2's own
  int slots = 8;                   // of each ring: a power of two; less where ranks are many
  std::size_t slot_bytes = 65536;  // of a message in a slot; less where ranks are many

  // The transport. Its members agree on an epoch that is new, and a segment that is free, on all of
  // them, see gaspi_use().
  std::vector<int> members;  // ranks of the job that it joins, this one among them; empty: all
  std::uint32_t epoch = 0;
  int segment = 0;
  double timeout_s = 60;  // for GASPI to start, and for each opening of a transport
};

// Collective over the members; the first one of a process, over the whole job. Throws
// TransportError: no GPI-2; ports in use; a rank that does not come. GASPI starts once in a process
// and ends with it: if that fails, processes have to be restarted.
std::unique_ptr<Transport> make_gaspi_transport(const GaspiOptions& options);

// The epoch tells a transport from earlier ones, whose messages may still be under way. It grows.
// A segment is used again once its transport is gone on all ranks.
struct GaspiUse {
  std::uint32_t last_epoch = 0;
  std::vector<int> free_segments;
};
GaspiUse gaspi_use();  // in this process

// Whether this rank can open its ports, of the gaspi_ports from port_base on. Jobs that share a
// host need different ports: GPI-2 does not notice whose they are. Ask before the first transport,
// on all ranks.
constexpr int gaspi_ports = 768;
bool gaspi_ports_are_free(const GaspiOptions& options);

}  // namespace tnt
