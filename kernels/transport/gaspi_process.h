// GASPI in this process: it starts once and lasts until the process ends. Transports borrow one of
// its segments each.
//
// Segments are never deleted: what a peer still writes for a transport that is gone must not hit
// memory that has become something else. Nor is GASPI ended, as gaspi_proc_term() waits for all
// peers without a limit: sockets and memory go with the process.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/gaspi.h"
#include "transport/gaspi_library.h"
#include "transport/gaspi_segment.h"

namespace tnt::gaspi {

class Process {
 public:
  static Process& get();

  bool ports_are_free(const GaspiOptions& options);
  GaspiUse use();

  // Starts GASPI if need be; waits for the members. They have the segment until it is given back.
  Segment borrow(const GaspiOptions& options);
  void give_back(int segment);

 private:
  static constexpr std::size_t segment_count = 32;  // transports that are alive at once

  struct Memory {
    bool busy = false;
    std::byte* data = nullptr;     // null: not yet allocated
    std::vector<bool> registered;  // by rank: it knows this segment, and its own is known here
  };

  Process() = default;
  void load(const GaspiOptions& options);
  void start(const GaspiOptions& options);
  void allocate(SegmentId id);
  void join(SegmentId id, const std::vector<int>& members, double timeout_s);
  void check(Return code, const char* what, int rank) const;

  std::mutex mutex_;  // of what follows
  std::unique_ptr<const Library> library_;
  std::string failure_;  // why GASPI did not start
  bool started_ = false;
  int rank_ = 0;
  std::vector<std::string> hosts_;
  Limits limits_;
  std::uint32_t last_epoch_ = 0;
  std::array<Memory, segment_count> memory_;
};

}  // namespace tnt::gaspi
