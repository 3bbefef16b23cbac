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
#include "engine/group.h"

namespace tnt {

// Empty: it worked. Otherwise a sentence that says what failed, and where.
using Failure = std::string;
using Done = std::function<void(const Failure&)>;

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

struct Request {
  Collective collective = Collective::allreduce;
  Type type = Type::float32;  // of inputs and outputs
  Type wire = Type::float32;  // of what is exchanged and reduced
  Reduction reduction = Reduction::sum;
  // The input counts as scale * input; a scale of 0 stands for zeros whatever the memory holds.
  double scale = 1;
  std::size_t count = 0;
  std::vector<std::size_t> offsets;  // see Task
  int root = 0;                      // index in the group
  bool in_place = false;             // on the bucket's own memory
  Tensors<const std::byte*> inputs;
  Tensors<std::byte*> outputs;
  std::shared_ptr<const Group> group;        // null: all ranks
  std::string algorithm;                     // empty: chosen by size and topology
  std::shared_ptr<const Schedule> schedule;  // instead of an algorithm: the caller's own
  std::string label;                         // for errors: "allreduce of bucket 3 (dense/kernel)"
  std::uint64_t agreed = 0;  // a number that all ranks must have, such as a hash of shapes; or 0
  bool is_transfer = false;  // from the root to one other rank
  int peer = 0;              // of a transfer: the other rank's index in the group

  // As new, but for memory that is reused.
  void reset() {
    collective = Collective::allreduce;
    type = wire = Type::float32;
    reduction = Reduction::sum;
    scale = 1;
    count = 0;
    offsets.clear();
    root = 0;
    in_place = false;
    inputs.clear();
    outputs.clear();
    group.reset();
    algorithm.clear();
    schedule.reset();
    label.clear();
    agreed = 0;
    is_transfer = false;
    peer = 0;
  }
};

}  // namespace tnt
