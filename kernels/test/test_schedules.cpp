// The schedules of all algorithms, proved for up to 64 ranks (with TNT_THOROUGH=1 for each number
// of them), and for some thousands.
#include <algorithm>

#include "check.h"
#include "checker/check.h"
#include "tasks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

#ifdef TNT_SANITIZED
constexpr int most_ranks = 17;
constexpr int many = 128, very_many = 512;
constexpr std::size_t most_elements = 30'000'000;
#else
constexpr int most_ranks = 64;
constexpr int many = 1024, very_many = 4096;
constexpr std::size_t most_elements = (std::size_t{1} << 30) + 5;
#endif

// All up to two nodes of eight, and those around the powers of two.
std::vector<int> sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= most_ranks; ++size)
    if (thorough() || size <= 17 || (size >= 31 && size <= 33) || size >= 63) sizes.push_back(size);
  return sizes;
}

struct Length {
  std::size_t count, element_bytes;
};

// The last has elements so large that it goes in many chunks.
const std::vector<Length> lengths{{0, 4}, {1, 4}, {3, 4}, {64, 4}, {131, 4}, {131, 16384}};

// Nodes that make a difference to the algorithm.
std::vector<std::vector<int>> layouts_for(const Algorithm& algorithm, int size) {
  std::vector<std::vector<int>> layouts;
  Task task = make_task(algorithm.collective, size, 0);
  for (const auto& node : {std::vector<int>{}, one_node(size), nodes_of(size, 4),
                           dealt_nodes(size, 2), uneven_nodes(size)}) {
    task.node = node;
    const bool plain = node.empty() || node == dealt_nodes(size, 2);
    if (algorithm.fits(task) && (plain || algorithm.fits != algorithms().front().fits))
      layouts.push_back(node);
  }
  return layouts;
}

// Rounds in which the rank waits for messages.
int rounds_of_messages(const Schedule& schedule) {
  int rounds = 0;
  std::int64_t last = -1;
  for (const Step& step : schedule.steps) {
    if (!step.is_message() || step.round == last) continue;
    last = step.round;
    ++rounds;
  }
  return rounds;
}

int logarithm(int size) {
  int rounds = 0;
  while ((1 << rounds) < size) ++rounds;
  return rounds;
}

void check_rounds(Collective collective, const char* name, int (*most)(int size)) {
  for (int size = 1; size <= most_ranks; ++size)
    for (const Schedule& schedule :
         schedules_of_all(algorithm(collective, name), make_task(collective, size, 10)))
      CHECK(rounds_of_messages(schedule) <= most(size));
}

std::size_t most_sent(const char* name, const Task& task) {
  std::size_t most = 0;
  for (const Schedule& schedule : schedules_of_all(algorithm(task.collective, name), task)) {
    std::size_t sent = 0;
    for (const Step& step : schedule.steps)
      if (step.action == Action::send) sent += step.count;
    most = std::max(most, sent);
  }
  return most;
}

}  // namespace

// An allreduce also adds in the same order on all ranks.
TEST(every_algorithm_gives_each_rank_what_its_collective_promises) {
  for (const Algorithm& algorithm : algorithms()) {
    std::size_t proofs = 0;
    for (const int size : sizes())
      for (const Length& length : lengths)
        for (const auto& node : layouts_for(algorithm, size))
          for (const bool in_place : {false, true}) {
            Task task = make_task(algorithm.collective, size, length.count, node, in_place);
            task.element_bytes = length.element_bytes;
            if (in_place && !algorithm.fits(task)) continue;
            CHECK_EQUAL(check(algorithm, task), "");
            ++proofs;
          }
    CHECK(proofs > 0);
  }
}

TEST(every_root_will_do) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::broadcast && algorithm.collective != Collective::reduce)
      continue;
    for (const int size : {2, 5, 8, 13})
      for (int root = 0; root < size; ++root)
        for (const bool in_place : {false, true}) {
          Task task = make_task(algorithm.collective, size, 50, one_node(size), in_place);
          task.element_bytes = 16384;
          task.root = root;
          CHECK_EQUAL(check(algorithm, task), "");
        }
  }
}

// The number of elements costs a proof nothing.
TEST(vectors_of_the_size_of_models_are_reduced_right) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::allreduce) continue;
    for (const std::size_t count : {std::size_t{25'557'032}, most_elements})
      for (const auto& node : {one_node(6), nodes_of(6, 2)})
        for (const bool in_place : {false, true}) {
          const Task task = make_task(Collective::allreduce, 6, count, node, in_place);
          if (algorithm.fits(task)) CHECK_EQUAL(check(algorithm, task), "");
        }
  }
}

TEST(thousands_of_ranks_are_no_problem) {
  for (const Algorithm& algorithm : algorithms()) {
    const std::string name = algorithm.name;
    const bool all_to_all = name == "direct" || algorithm.collective == Collective::alltoall;
    const bool is_ring = name == "ring";
    const int size = all_to_all ? many / 4 : is_ring ? many : very_many;
    Task task = make_task(algorithm.collective, size, 3);
    if (name == "direct") task.node = one_node(size);
    if (name == "hierarchical") task = make_task(algorithm.collective, many, 67, nodes_of(many, 8));
    for (const bool in_place : {false, true}) {
      task.in_place = in_place;
      if (in_place && !algorithm.fits(task)) continue;
      CHECK_EQUAL(check(algorithm, task), "");
    }
  }
}

TEST(where_latency_counts_the_rounds_are_logarithmic) {
  const auto fold = [](int size) { return logarithm(size) + 1; };
  check_rounds(Collective::allreduce, "recursive_doubling", fold);
  check_rounds(Collective::allreduce, "rabenseifner",
               [](int size) { return 2 * logarithm(size) + 1; });
  check_rounds(Collective::allreduce, "double_tree", [](int size) { return 4 * logarithm(size); });
  check_rounds(Collective::broadcast, "binomial", [](int size) { return 1 + logarithm(size); });
  check_rounds(Collective::reduce, "binomial", [](int size) { return 1 + logarithm(size); });
  check_rounds(Collective::allgather, "bruck", logarithm);
  check_rounds(Collective::barrier, "dissemination", logarithm);
}

TEST(where_bandwidth_counts_each_element_is_sent_less_than_twice) {
  constexpr std::size_t count = 6400;
  for (int size = 2; size <= most_ranks; ++size) {
    const std::size_t ranks = size;
    const std::size_t bound = 2 * count * (ranks - 1) / ranks + 2 * ranks;  // unequal parts
    const Task task = make_task(Collective::allreduce, size, count);
    const bool is_power = (size & (size - 1)) == 0;
    CHECK(most_sent("ring", task) <= bound);
    CHECK(most_sent("rabenseifner", task) <= bound + (is_power ? 0 : count + count / 2));
    CHECK(most_sent("double_tree", task) <= 2 * count + 2);
  }
}

TEST(on_a_node_messages_are_empty) {
  for (const Algorithm& algorithm : algorithms()) {
    if (std::string(algorithm.name) != "direct") continue;
    const Task task = make_task(algorithm.collective, 6, 1000, one_node(6));
    CHECK_EQUAL(most_sent("direct", task), 0U);
  }
}

TEST(between_nodes_each_rank_moves_its_share_of_one_vector_a_node) {
  constexpr std::size_t count = 64 << 10;
  const Task task = make_task(Collective::allreduce, 32, count, nodes_of(32, 4));
  const std::size_t slice = count / 4;
  CHECK(most_sent("hierarchical", task) <= 2 * slice * 7 / 8 + 1000);
}

TEST(schedules_are_short_for_long_vectors) {
  for (const int size : {2, 8, 64})
    for (const std::size_t count : {std::size_t{1} << 24, std::size_t{1} << 32}) {
      const Task task = make_task(Collective::allreduce, size, count, one_node(size), true);
      CHECK(algorithm(Collective::allreduce, "direct").make(task).steps.size() < 9000);
    }
}

TEST(staging_memory_does_not_grow_with_the_vector) {
  for (const Algorithm& algorithm : algorithms()) {
    if (std::string(algorithm.name) != "direct") continue;
    const Task task = make_task(algorithm.collective, 4, 16 << 20, one_node(4));
    CHECK(algorithm.make(task).data_count * task.element_bytes <= (1 << 20));
  }
}

TEST(names_of_algorithms_are_unique_in_a_collective) {
  for (const Algorithm& one : algorithms()) CHECK(find_algorithm(one.collective, one.name) == &one);
  CHECK(find_algorithm(Collective::allreduce, "no such thing") == nullptr);
}
