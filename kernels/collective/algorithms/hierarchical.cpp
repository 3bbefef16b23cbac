// Allreduce where several ranks share a node: they add up in memory, one sum a node goes over the
// network, and each of the ranks drives a part of it.
//
// Source: A. R. Mamidala, R. Kumar, D. De, D. K. Panda, "MPI collectives on modern multicore
// clusters: performance optimizations and communication characteristics", CCGrid 2008, and
// M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda, "Scalable reduction collectives
// with data partitioning-based multi-leader design", SC 2017.
//
// Two nodes with 3 and 2 ranks: the vector has two slices, as many as the smallest node has ranks.
//
//            slice 0   slice 1               1. drivers add up their slice on the node
//   node 0   rank 0    rank 1    (rank 2)    2. drivers of a slice (a column) allreduce it
//               |         |                  3. the sums are copied to all ranks of the node
//   node 1   rank 3    rank 4
//
// Chunks of the vector follow each other, so that memory and network work at the same time:
//
//   stage      0    1    2    3    4    5
//   copy in    0    1    2                     not in place
//   add up          0    1    2
//   network              0    1    2
//   copy                      0    1    2
#include "collective/algorithms/direct.h"
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

constexpr std::size_t most_bytes_by_doubling = 16 * 1024;
constexpr std::size_t most_chunks = 128;

bool fits(const Task& task) {
  const auto nodes = ranks_by_node(task);
  return nodes.size() > 1 && nodes.size() < static_cast<std::size_t>(task.size);
}

struct Shape {
  Members node;    // the ranks of the own node
  Members column;  // the drivers of the own slice, one a node; none if the rank drives no slice
  std::size_t nodes = 0;
  int slices = 0;

  bool drives() const { return node.me < slices; }
};

Shape shape_of(const Task& task) {
  const auto nodes = ranks_by_node(task);
  Shape shape;
  shape.nodes = nodes.size();
  shape.slices = task.size;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    shape.slices = std::min(shape.slices, static_cast<int>(nodes[i].size()));
    const auto place = std::find(nodes[i].begin(), nodes[i].end(), task.rank);
    if (place == nodes[i].end()) continue;
    shape.node = {nodes[i], static_cast<int>(place - nodes[i].begin())};
    shape.column.me = static_cast<int>(i);
  }
  if (shape.drives())
    for (const auto& ranks : nodes) shape.column.ranks.push_back(ranks[shape.node.me]);
  return shape;
}

class Hierarchy {
 public:
  explicit Hierarchy(const Task& task)
      : task_(task), shape_(shape_of(task)), writer_(task), chunks_(count_chunks()) {}

  Schedule write() {
    writer_.share();
    for (std::size_t stage = 0; stage < chunks_ + 3; ++stage) {
      Writer work(task_);
      if (stage >= 3) share(work, chunk(stage - 3));
      if (stage >= 1 && stage - 1 < chunks_) reduce(work, chunk(stage - 1));
      if (stage < chunks_) work.copy_in(chunk(stage));
      const bool goes_over_network = stage >= 2 && stage - 2 < chunks_ && shape_.drives();
      if (goes_over_network) {
        const Range slice = slice_of(chunk(stage - 2), shape_.node.me);
        writer_.go_beside(work.finish(), rounds_of(slice));
        allreduce_column(slice);
      } else {
        writer_.go_beside(work.finish(), 1);
      }
      writer_.finish_beside();
      if (others_wait_for(stage)) synchronise_round(writer_, shape_.node);
    }
    return writer_.finish();
  }

 private:
  // A stage costs the start of all messages of an allreduce, and the first and the last three have
  // little to do: so there are about sqrt(bytes / messages) of them.
  std::size_t count_chunks() const {
    const std::size_t messages = 2 * (shape_.nodes - 1);
    const std::size_t bytes = task_.count * task_.element_bytes;
    return std::min(pipelined_blocks(bytes / messages, 3), most_chunks);
  }

  Range chunk(std::size_t i) const { return part({0, task_.count}, chunks_, i, line_of(task_)); }
  Range slice_of(Range chunk, int driver) const {
    return part(chunk, shape_.slices, driver, line_of(task_));
  }

  void reduce(Writer& work, Range chunk) const {
    if (!shape_.drives()) return;
    const Range slice = slice_of(chunk, shape_.node.me);
    const std::size_t blocks =
        blocks_in_cache(slice, task_.element_bytes, shape_.node.size() * chunks_);
    for (std::size_t i = 0; i < blocks; ++i)
      reduce_from_others(work, shape_.node, part(slice, blocks, i, line_of(task_)));
  }

  // The driver stores a sum with all ranks of the node; or they take it where the output is theirs.
  void share(Writer& work, Range chunk) const {
    if (task_.in_place) {
      if (shape_.drives()) copy_to_others(work, shape_.node, slice_of(chunk, shape_.node.me));
      return;
    }
    for (int driver = 0; driver < shape_.slices; ++driver) {
      const Range slice = slice_of(chunk, driver);
      work.copy(output_at(slice.begin), work.data_of(shape_.node.rank(driver), slice.begin),
                slice.count);
    }
  }

  bool by_doubling(Range slice) const {
    return slice.count * task_.element_bytes <= most_bytes_by_doubling;
  }
  std::size_t rounds_of(Range slice) const {
    if (!by_doubling(slice)) return 2 * (shape_.nodes - 1);
    std::size_t rounds = 1;
    for (std::size_t reached = 2; reached < shape_.nodes; reached *= 2) ++rounds;
    return rounds;
  }
  void allreduce_column(Range slice) {
    if (by_doubling(slice))
      write_recursive_doubling(writer_, shape_.column, slice, Ends::data);
    else
      write_ring_allreduce(writer_, shape_.column, slice, task_.element_bytes, Ends::data);
  }

  // In place, the data of all is there from the first stage on, and the sums must be at the end.
  // Else a stage takes what was copied in, or summed up, in the one before; and after the last, the
  // next operation begins with another chunk than the last, if there is another.
  bool others_wait_for(std::size_t stage) const {
    const bool is_first = stage == 0, is_last = stage == chunks_ + 2;
    if (task_.in_place) return is_first || is_last;
    if (chunks_ == 1) return stage != 1;
    return !is_last;
  }

  const Task& task_;
  const Shape shape_;
  Writer writer_;
  const std::size_t chunks_;
};

Schedule make(const Task& task) { return Hierarchy(task).write(); }

}  // namespace

std::vector<Algorithm> hierarchical_algorithms() {
  return {{"hierarchical", Collective::allreduce, fits, make}};
}

}  // namespace tnt
