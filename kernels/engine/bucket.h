// What a channel keeps between operations: memory, schedules, the operation under way. It is the
// engine's, so that messages under way never point into memory that a failed caller has freed.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/execution.h"
#include "engine/request.h"
#include "transport/transport.h"

namespace tnt {

// Memory of a transport that grows and is reused.
class Buffer {
 public:
  // At least so many bytes, uninitialised; what was there is lost when it has to grow.
  std::byte* reserve(Transport& transport, std::size_t bytes) {
    if (bytes > bytes_) {
      release();
      memory_ = transport.allocate(bytes);
      transport_ = &transport;
      bytes_ = bytes;
    }
    return memory_;
  }
  std::byte* memory() const { return memory_; }
  void release() {
    if (memory_ != nullptr) transport_->free(memory_);
    memory_ = nullptr;
    bytes_ = 0;
  }

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

 private:
  Transport* transport_ = nullptr;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

// A schedule, and what it was made for.
struct Plan {
  Task task;
  std::shared_ptr<const Group> group;
  std::string asked;  // the algorithm's name, or empty
  std::shared_ptr<const Schedule> schedule;
  int algorithm = 0;         // its number
  std::uint64_t blocks = 0;  // a hash of the offsets or flows; 0 without any
};

struct Bucket {
  // Who looks after the operation that has been started.
  enum class State : int { idle, helped, alone, ended };

  std::uint32_t channel = 0;
  bool busy = false;                                 // guarded by the engine
  std::deque<std::function<void(Bucket*)>> waiting;  // for their turn; guarded by the engine
  std::atomic<State> state{State::idle};
  Request request;
  Done done;
  Failure failure;  // of the last operation, from State::ended on

  Buffer fixed;           // of operations in place
  Buffer private_data;    // of schedules whose data nobody else reaches
  Buffer shared_data[2];  // of the others, in turns: see Schedule::shared
  int turn = 0;
  std::shared_ptr<const Schedule> last_shared;
  Buffer scratch;
  Buffer* window = nullptr;  // of the operation under way: one of the above
  std::vector<Plan> plans;   // the latest first
  Execution execution;

  Buffer& data_for(const std::shared_ptr<const Schedule>& schedule, bool in_place) {
    if (in_place) return fixed;
    if (!schedule->shared) return private_data;
    if (schedule->alternates || schedule != last_shared) turn ^= 1;
    last_shared = schedule;
    return shared_data[turn];
  }
};

}  // namespace tnt
