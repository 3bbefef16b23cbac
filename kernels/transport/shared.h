// Messages between processes of one node, through memory that they share.
//
// For each channel and pair of ranks there is a ring of lines in the receiver's segment. A message
// is one line: written by the sender, its number last. A small message lies in the line itself; of
// a larger one the line says where in the sender's segment it is, and the receiver copies it from
// there. The receiver acknowledges by number.
//
//   sender's segment                      receiver's segment
//   [bucket memory] <----- offset ------- [line 0 | line 1 | ... | line 7 | acknowledged]
//
// A line also tells where the sender's window (its bucket) is: collectives reduce straight from it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/segment.h"
#include "transport/transport.h"

namespace tnt {

// The segments of the ranks of one node, as one of them sees them.
class SharedNode {
 public:
  static constexpr int max_lanes = 8;

  // ranks[i] of the world has addresses[i]; `rank` is among them. Throws TransportError that names
  // the rank whose memory cannot be mapped.
  SharedNode(std::unique_ptr<Segment> own, int rank, std::vector<int> ranks,
             const std::vector<SegmentAddress>& addresses);

  const std::vector<int>& ranks() const { return ranks_; }
  int index() const { return index_; }  // of this rank in ranks()
  int index_of(int rank) const;         // -1: it is on another node

  std::byte* allocate(std::size_t bytes);
  void free(std::byte* memory);
  bool holds(const void* memory) const { return own_->holds(memory); }
  std::byte* begin(int index) const { return begins_[index]; }
  void check_alive(int index) const;

 private:
  std::unique_ptr<Segment> own_;
  const std::vector<int> ranks_;
  int index_ = 0;
  std::vector<std::byte*> begins_;
  std::vector<std::unique_ptr<MappedSegment>> peers_;
  std::mutex mutex_;  // of the segment's heap
};

// Only for peers on the node. Notices are not carried. `lane` numbers the transports of a process
// over one node; channels must not be shared between lanes.
std::unique_ptr<Transport> make_shared_transport(std::shared_ptr<SharedNode> node, int lane,
                                                 int rank, int size);

}  // namespace tnt
