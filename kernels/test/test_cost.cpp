// The cost model tells algorithms apart as measurements do.
#include <cmath>
#include <stdexcept>

#include "check.h"
#include "checker/check.h"
#include "checker/cost.h"
#include "tasks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

double seconds(const char* name, const Task& task, const Costs& costs = {}) {
  return test::seconds(algorithm(task.collective, name), task, costs);
}

Task allreduce(int size, std::size_t bytes) {
  return make_task(Collective::allreduce, size, bytes / 4, {}, true);
}

void check_near(double value, double expected) {
  CHECK(std::abs(value - expected) <= 1e-6 * expected);
}

// Nothing but messages costs anything.
Costs only_messages() {
  Costs costs;
  costs.reduce_s_per_byte = costs.copy_s_per_byte = costs.port_s_per_byte = 0;
  return costs;
}

}  // namespace

TEST(a_message_takes_its_latency_and_its_bytes) {
  Task task = make_task(Collective::broadcast, 2, 1000, {}, true);
  task.root = 0;
  Costs costs = only_messages();
  costs.network = {1e-6, 1e-9};
  const auto finished =
      predict(schedules_of_all(algorithm(Collective::broadcast, "binomial"), task), task, costs);
  check_near(finished[0], 1e-6 + 4000e-9);
  check_near(finished[1], 1e-6 + 4000e-9);
}

TEST(copies_and_sums_take_time_by_byte) {
  Task task = make_task(Collective::allreduce, 1, 1000);
  Costs costs;
  costs.copy_s_per_byte = 2e-9;
  check_near(seconds("ring", task, costs), 4000 * 2e-9);
}

TEST(recursive_doubling_takes_a_logarithm_of_latencies) {
  Costs costs = only_messages();
  costs.network = {1e-6, 0};
  check_near(seconds("recursive_doubling", allreduce(64, 4), costs), 6e-6);
}

TEST(the_ring_takes_twice_the_bytes_whatever_the_ranks) {
  Costs costs = only_messages();
  costs.network = {0, 1e-9};
  check_near(seconds("ring", allreduce(4, 4 << 20), costs), 1.5 * (4 << 20) * 1e-9);
  check_near(seconds("ring", allreduce(8, 4 << 20), costs), 1.75 * (4 << 20) * 1e-9);
}

TEST(the_ring_beats_recursive_doubling_on_many_bytes_and_loses_on_few) {
  for (const int size : {4, 8, 16, 32}) {
    const Task few = allreduce(size, 1 << 10), many = allreduce(size, 16 << 20);
    CHECK(seconds("recursive_doubling", few) < seconds("ring", few));
    CHECK(seconds("ring", many) < seconds("recursive_doubling", many));
  }
}

TEST(sums_go_on_beside_messages) {
  Costs costs;
  costs.network = {1e-6, 1e-9};
  costs.reduce_s_per_byte = 0.9e-9;
  const Task task = allreduce(4, 64 << 20);
  const double sums = seconds("ring", task, costs);
  costs.reduce_s_per_byte = 0;
  CHECK(sums < 1.02 * seconds("ring", task, costs));
}

TEST(ranks_of_a_node_share_its_slow_port) {
  Costs costs;
  costs.network = {5e-6, 1e-9};
  costs.port_s_per_byte = 1e-9;
  for (const std::size_t bytes :
       {std::size_t{1} << 16, std::size_t{1} << 20, std::size_t{16} << 20}) {
    Task task = allreduce(16, bytes);
    task.node = nodes_of(16, 4);
    CHECK(seconds("hierarchical", task, costs) < 0.9 * seconds("ring", task, costs));
    CHECK(seconds("hierarchical", task, costs) < 0.4 * seconds("rabenseifner", task, costs));
  }
}

TEST(a_port_that_all_ranks_of_a_node_need_is_no_faster_than_one_for_each) {
  Costs costs = only_messages();
  costs.network = {0, 1e-9};
  Task task = allreduce(16, 4 << 20);
  task.node = nodes_of(16, 8);
  const double apart = seconds("rabenseifner", task, costs);
  costs.port_s_per_byte = 1e-9 / 8;
  check_near(seconds("rabenseifner", task, costs), apart);
  costs.port_s_per_byte = 1e-9;
  CHECK(seconds("rabenseifner", task, costs) > 4 * apart);
}

// Or a ring would cross the network at each step.
TEST(it_does_not_matter_how_ranks_are_dealt_to_nodes) {
  Task task = allreduce(16, 16 << 20);
  for (const char* name : {"ring", "double_tree", "hierarchical"}) {
    task.node = nodes_of(16, 4);
    const double in_a_row = seconds(name, task);
    task.node = dealt_nodes(16, 4);
    CHECK(seconds(name, task) < 1.01 * in_a_row);
  }
}

TEST(schedules_that_do_not_end_have_no_cost) {
  const Task task = allreduce(2, 4);
  auto schedules = schedules_of_all(algorithm(Collective::allreduce, "ring"), task);
  schedules[0].steps.clear();
  CHECK_THROWS(predict(schedules, task, {}), std::invalid_argument);
}
