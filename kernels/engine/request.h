// What a caller wants done: one collective, the memory it reads and writes, and its element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/schedule.h"
#include "collective/task.h"
#include "elements/element.h"

namespace tnt {

// What ended an operation; empty: it worked.
struct Failure {
  std::string reason;    // a sentence: what failed, and where
  bool stalled = false;  // a message was waited for too long, on this rank or on another

  bool empty() const { return reason.empty(); }
};
using Done = std::function<void(const Failure&)>;

// Ranks that take part in a collective: all of the world, or some of them.
struct Group {
  std::vector<int> ranks;  // of the world, ascending
  int index = 0;           // of this rank in `ranks`
  std::vector<int> node;   // node[i]: number of the node of ranks[i]

  int size() const { return static_cast<int>(ranks.size()); }
};

// Elements that lie in several tensors, numbered through.
template <class Pointer>
class Tensors {
 public:
  void clear() {
    memory_.clear();
    begins_.assign(1, 0);
  }
  void add(Pointer memory, std::size_t count) {
    memory_.push_back(memory);
    begins_.push_back(begins_.back() + count);
  }
  std::size_t count() const { return begins_.back(); }

  // The memory of the tensor, if there is one.
  Pointer only() const { return memory_.size() == 1 ? memory_.front() : nullptr; }

  // Calls visit(pointer to the bytes of tensor, its first element in the tensor, count) for the
  // pieces that make up elements [begin, begin + count).
  template <class Visit>
  void pieces(std::size_t begin, std::size_t count, Visit&& visit) const {
    std::size_t tensor = 0;
    if (memory_.size() > 1) {  // the last that begins at or before `begin`
      std::size_t high = memory_.size();
      while (high - tensor > 1) {
        const std::size_t middle = (tensor + high) / 2;
        (begins_[middle] <= begin ? tensor : high) = middle;
      }
    }
    while (count != 0) {
      const std::size_t here =
          begins_[tensor + 1] - begin < count ? begins_[tensor + 1] - begin : count;
      if (here != 0) visit(memory_[tensor], begin - begins_[tensor], here);
      begin += here;
      count -= here;
      ++tensor;
    }
  }

 private:
  std::vector<Pointer> memory_;
  std::vector<std::size_t> begins_ = {0};  // where tensor i begins, and the end
};

// Of a message that comes when its sender has it, and not because this rank has asked for it.
class Patience {
 public:
  // Since when somebody waits for it, in nanoseconds of now_ns(); 0: nobody does.
  virtual std::uint64_t missed_since_ns() const = 0;

 protected:
  ~Patience() = default;
};

// The part of a request that keeps no memory.
struct RequestFacts {
  Collective collective = Collective::allreduce;
  Type type = Type::float32;  // of inputs and outputs
  Type wire = Type::float32;  // of what is exchanged and reduced
  Reduction reduction = Reduction::sum;
  // The input counts as scale * input; a scale of 0 stands for zeros whatever the memory holds.
  double scale = 1;
  std::size_t count = 0;
  int root = 0;              // index in the group
  bool in_place = false;     // on the bucket's own memory
  std::uint64_t agreed = 0;  // a number that all ranks must have, such as a hash of shapes; or 0
  bool is_transfer = false;  // from the root to one other rank
  int peer = 0;              // of a transfer: the other rank's index in the group
  const Patience* patience = nullptr;  // null: it is missed from its begin on; else untraced
};

struct Request : RequestFacts {
  std::vector<std::size_t> offsets;  // see Task
  std::vector<Flow> flows;           // see Task
  Tensors<const std::byte*> inputs;
  Tensors<std::byte*> outputs;
  std::shared_ptr<const Group> group;        // null: all ranks
  std::string algorithm;                     // empty: chosen by size and topology
  std::shared_ptr<const Schedule> schedule;  // instead of an algorithm: the caller's own
  std::string label;                         // for errors: "allreduce of bucket 3 (dense/kernel)"

  // As new, but for memory that is reused.
  void reset() {
    static_cast<RequestFacts&>(*this) = {};
    offsets.clear();
    flows.clear();
    inputs.clear();
    outputs.clear();
    group.reset();
    algorithm.clear();
    schedule.reset();
    label.clear();
  }
};

}  // namespace tnt
