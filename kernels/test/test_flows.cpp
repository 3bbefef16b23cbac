// Alltoallv on real engines: flows between ranks, from tensors that lie in pieces.
#include "check.h"
#include "ranks.h"
#include "tasks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

// What rank `from` gives in its flow number `flow`: element i of it.
float given(int from, std::size_t flow, std::size_t i) {
  return static_cast<float>(from * 1000 + static_cast<int>(flow) * 100) +
         static_cast<float>(i % 97);
}

// The tensor of a rank's end of its flows, flow after flow.
std::vector<float> joined(const std::vector<Flow>& flows, int rank, int Flow::* own) {
  std::vector<float> values;
  for (std::size_t flow = 0; flow < flows.size(); ++flow)
    if (flows[flow].*own == rank)
      for (std::size_t i = 0; i < flows[flow].count; ++i)
        values.push_back(given(flows[flow].from, flow, i));
  return values;
}

// In pieces of several lengths, each in memory of its own kind: that of the vector, cut.
template <class Pointer, class Vector>
void add_in_pieces(Tensors<Pointer>& tensors, Vector& values) {
  const std::size_t lengths[] = {1, 7, 300};
  for (std::size_t begin = 0, i = 0; begin < values.size(); ++i) {
    const std::size_t count = std::min(lengths[i % 3], values.size() - begin);
    tensors.add(reinterpret_cast<Pointer>(values.data() + begin), count);
    begin += count;
  }
}

void exchange(Engine& engine, const std::vector<Flow>& flows, Way way) {
  const auto input = joined(flows, engine.rank(), &Flow::from);
  const auto expected = joined(flows, engine.rank(), &Flow::to);
  std::vector<float> output(expected.size(), -1);
  const auto fill = [&](Request& request) {
    request.collective = Collective::alltoallv;
    request.flows = flows;
    for (const Flow& flow : flows) request.count += flow.count;
    request.label = "exchange";
    add_in_pieces(request.inputs, input);
    add_in_pieces(request.outputs, output);
  };
  CHECK_EQUAL(call(engine, 3, fill, way), "");
  CHECK(output == expected);
}

}  // namespace

TEST(every_rank_gets_what_the_others_give_it_again_and_again) {
  for (int size = 1; size <= 5; ++size)
    on_ranks_of_each_kind(size, [size](Engine& engine) {
      for (const Way way : {Way::started, Way::helped, Way::waited})
        for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{1000},
                                        std::size_t{1000}, std::size_t{400'000}})
          exchange(engine, uneven_flows(size, count), way);
    });
}

TEST(ranks_that_mean_other_flows_are_told) {
  for (const Joined joined_by : {Joined::by_messages, Joined::by_memory}) {
    Ranks ranks(2, 60, joined_by);
    ranks.run([](Engine& engine) {
      const std::size_t count = engine.rank() == 0 ? 4 : 5;
      std::vector<float> input(count), output(count);
      const auto fill = [&](Request& request) {
        request.collective = Collective::alltoallv;
        request.flows = {{0, 1, count}, {1, 0, count}};
        request.count = 2 * count;
        request.label = "halo of conv";
        give(request, input);
        take(request, output);
      };
      const std::string failure = call(engine, 0, fill);
      CHECK_CONTAINS(failure, "is in another operation: here halo of conv (alltoallv of ");
      CHECK_CONTAINS(failure, "All ranks must make the same calls in the same order");
    });
  }
}
