// Which algorithm a collective uses.
#include <algorithm>

#include "check.h"
#include "checker/check.h"
#include "collective/select.h"
#include "tasks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr Collective all_collectives[] = {
    Collective::allreduce, Collective::reduce_scatter, Collective::allgather, Collective::broadcast,
    Collective::reduce,    Collective::alltoall,       Collective::barrier};

std::string chosen(const Task& task, const std::vector<Rule>& rules = default_rules()) {
  return choose(task, rules).name;
}

Rule rule(const char* algorithm) { return {Collective::allreduce, algorithm}; }

}  // namespace

TEST(the_first_rule_that_matches_decides) {
  const Task task = make_task(Collective::allreduce, 8, 100);
  CHECK_EQUAL(chosen(task, {rule("rabenseifner"), rule("ring")}), "rabenseifner");
}

TEST(a_rule_holds_for_its_collective_ranks_bytes_nodes_and_place_only) {
  Task task = make_task(Collective::allreduce, 8, 100, {}, true);  // 400 bytes
  const auto holds = [&](auto change) {
    Rule changed = rule("rabenseifner");
    change(changed);
    return matches(changed, task);
  };
  CHECK(holds([](Rule&) {}));
  CHECK(!holds([](Rule& r) { r.collective = Collective::reduce; }));
  CHECK(holds([](Rule& r) { r.min_ranks = 8, r.max_ranks = 8; }));
  CHECK(!holds([](Rule& r) { r.min_ranks = 9; }));
  CHECK(!holds([](Rule& r) { r.max_ranks = 7; }));
  CHECK(holds([](Rule& r) { r.up_to_bytes = 400; }));
  CHECK(!holds([](Rule& r) { r.up_to_bytes = 399; }));
  CHECK(holds([](Rule& r) { r.nodes = Rule::Nodes::many; }));
  CHECK(!holds([](Rule& r) { r.nodes = Rule::Nodes::one; }));
  CHECK(holds([](Rule& r) { r.in_place = true; }));
  CHECK(!holds([](Rule& r) { r.in_place = false; }));
  task.node = one_node(8);
  CHECK(holds([](Rule& r) { r.nodes = Rule::Nodes::one; }));
}

TEST(bytes_are_those_of_the_whole_vector) {
  const Task gather = make_task(Collective::allgather, 4, 100);
  CHECK(!matches({Collective::allgather, "ring", 399}, gather));
  CHECK(matches({Collective::allgather, "ring", 400}, gather));
}

TEST(an_algorithm_that_does_not_fit_or_is_unknown_is_passed_over) {
  const Task task = make_task(Collective::allreduce, 8, 100);
  CHECK_EQUAL(chosen(task, {rule("direct"), rule("of my own"), rule("double_tree")}),
              "double_tree");
  for (const Collective collective : all_collectives)
    CHECK(choose(make_task(collective, 3, 100), {}).fits(task));
}

TEST(what_is_chosen_fits_and_is_right) {
  for (const Collective collective : all_collectives)
    for (const int size : {1, 2, 3, 4, 9, 17, 130})
      for (const std::size_t count : {0, 100, 10'000, 1'000'000, 10'000'000})
        for (const auto& node : {std::vector<int>{}, one_node(size), nodes_of(size, 4)}) {
          if (size > 20 && (count > 10'000 || collective == Collective::alltoall)) continue;
          const Task task = make_task(collective, size, count, node);
          CHECK_EQUAL(check(choose(task), task), "");
        }
}

TEST(on_one_node_a_bucket_is_reduced_in_memory_and_between_nodes_by_levels) {
  Task task = make_task(Collective::allreduce, 8, 1 << 20);
  task.node = one_node(8);
  CHECK_EQUAL(chosen(task), "direct");
  task.node = nodes_of(8, 4);
  CHECK_EQUAL(chosen(task), "hierarchical");
  task.node = nodes_of(8, 1);
  CHECK_EQUAL(chosen(task), "ring");
  task.count = 100;
  CHECK_EQUAL(chosen(task), "recursive_doubling");
}

// By the model whose costs the rules come from.
TEST(what_is_chosen_is_seldom_much_slower_than_the_best) {
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::reduce, Collective::allgather})
    for (const int size : {2, 4, 6, 8, 16, 24, 64})
      for (std::size_t count = 64; count <= (4 << 20); count *= 8) {
        const Task task = make_task(collective, size, count);
        double best = 1e9;
        for (const Algorithm& algorithm : algorithms())
          if (algorithm.collective == collective && algorithm.fits(task))
            best = std::min(best, seconds(algorithm, task));
        CHECK(seconds(choose(task), task) <= 2 * best);
      }
}
