// Alltoallv on one node: ranks read what they get from the data memory of those who give it, and
// messages only say when. What goes to others passes through staging memory in chunks (see
// pass_chunks), of which each has a piece of each flow; what stays is copied while the first
// messages travel.
//
// Source: S. Jain, R. Kaleem, M. G. Balmana, A. Langer, D. Durnov, A. Sannikov, M. Garzaran,
// "Framework for scalable intra-node collective operations using shared memory", SC 2018.
#include "collective/algorithms/direct.h"
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

bool fits(const Task& task) { return on_one_node(task) && !task.in_place; }

// Where the flows of all ranks lie.
class Flows {
 public:
  explicit Flows(const Task& task)
      : flows_(task.flows), line_(line_of(task)), slot_counts_(task.size) {
    std::vector<std::size_t> given(task.size), got(task.size), leaving(task.size);
    std::size_t most = 0;
    for (const Flow& flow : flows_)
      if (flow.from != flow.to) most = std::max(most, leaving[flow.from] += flow.count);
    travels_ = most != 0;
    chunks_ = chunks_of(most * task.element_bytes, task.size);
    for (const Flow& flow : flows_) {
      auto& staged = slot_counts_[flow.from];
      places_.push_back({given[flow.from], got[flow.to], staged});
      given[flow.from] += flow.count;
      got[flow.to] += flow.count;
      if (flow.from != flow.to) staged += part({0, flow.count}, chunks_, 0, line_).count;
    }
  }

  // Calls visit(flow, where it begins in the input and in the output).
  template <class Visit>
  void stay(int rank, Visit visit) const {
    for (std::size_t i = 0; i < flows_.size(); ++i)
      if (flows_[i].from == rank && flows_[i].to == rank)
        visit(flows_[i], places_[i].input, places_[i].output);
  }

  // Calls visit(flow, piece of the input, of the output, where it is staged) for those of a chunk
  // that leave this rank, or come here.
  template <class Visit>
  void pieces(int rank, int Flow::* own, std::size_t chunk, std::size_t slot, Visit visit) const {
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      const Flow& flow = flows_[i];
      if (flow.*own != rank || flow.from == flow.to) continue;
      const Range piece = part({0, flow.count}, chunks_, chunk, line_);
      visit(flow, Range{places_[i].input + piece.begin, piece.count},
            Range{places_[i].output + piece.begin, piece.count},
            slot * slot_counts_[flow.from] + places_[i].staged);
    }
  }

  bool travels() const { return travels_; }
  std::size_t chunks() const { return chunks_; }

 private:
  struct Begins {
    std::size_t input, output, staged;
  };
  const std::vector<Flow>& flows_;
  std::size_t line_, chunks_ = 1;
  bool travels_ = false;
  std::vector<std::size_t> slot_counts_;  // of each rank, elements of a slot of its data memory
  std::vector<Begins> places_;
};

Schedule make(const Task& task) {
  const Flows flows(task);
  Writer writer(task), staying(task);
  flows.stay(task.rank, [&](const Flow& flow, std::size_t input, std::size_t output) {
    staying.copy(output_at(output), input_at(input), flow.count);
  });
  if (!flows.travels()) return staying.finish();
  const auto give = [&](std::size_t chunk, std::size_t slot) {
    flows.pieces(task.rank, &Flow::from, chunk, slot,
                 [&](const Flow&, Range input, Range, std::size_t staged) {
                   writer.copy(data_at(staged), input_at(input.begin), input.count);
                 });
  };
  const auto take = [&](std::size_t chunk, std::size_t slot) {
    flows.pieces(task.rank, &Flow::to, chunk, slot,
                 [&](const Flow& flow, Range, Range output, std::size_t staged) {
                   writer.copy(output_at(output.begin), writer.data_of(flow.from, staged),
                               output.count);
                 });
  };
  writer.share();
  writer.go_beside(staying.finish(), 1);
  pass_chunks(writer, all_ranks(task), flows.chunks(), give, take);
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> direct_flow_algorithms() {
  return {{"direct", Collective::alltoallv, fits, make}};
}

}  // namespace tnt
