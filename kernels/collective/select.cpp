#include "collective/select.h"

#include <stdexcept>

namespace tnt {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

}  // namespace

// Where the costs of cost.h, by default, make one algorithm slower than the next; between numbers
// of ranks that are powers of two and those that are not.
const std::vector<Rule>& default_rules() {
  using C = Collective;
  using N = Rule::Nodes;
  static const std::vector<Rule> rules{
      // Ranks of a node that are many spend more time on telling each other than on few bytes.
      {C::allreduce, "recursive_doubling", 2 * KiB, N::one, 9},
      {C::allreduce, "rabenseifner", 16 * KiB, N::one, 9},
      {C::allreduce, "direct", {}, N::one},
      {C::allreduce, "recursive_doubling", 2 * KiB, N::many},
      {C::allreduce, "hierarchical", {}, N::many},
      {C::allreduce, "recursive_doubling", 16 * KiB},
      {C::allreduce, "rabenseifner", 2 * MiB, N::any, 128},
      {C::allreduce, "double_tree", 32 * MiB, N::any, 256},
      {C::allreduce, "rabenseifner", 4 * MiB, N::any, 64},
      {C::allreduce, "rabenseifner", 2 * MiB, N::any, 32},
      {C::allreduce, "rabenseifner", 1 * MiB, N::any, 16},
      {C::allreduce, "rabenseifner", 256 * KiB, N::any, 8},
      {C::allreduce, "rabenseifner", 64 * KiB, N::any, 4},
      {C::allreduce, "ring"},

      {C::broadcast, "binomial", 4 * KiB, N::one, 9},
      {C::broadcast, "direct", {}, N::one},
      {C::broadcast, "binomial", 512 * KiB, N::any, 128},
      {C::broadcast, "binomial", 256 * KiB, N::any, 32},
      {C::broadcast, "binomial", 64 * KiB},
      {C::broadcast, "chain"},

      {C::reduce, "binomial", 4 * KiB, N::one, 9},
      {C::reduce, "direct", {}, N::one},
      {C::reduce, "binomial", 512 * KiB, N::any, 128},
      {C::reduce, "binomial", 256 * KiB, N::any, 32},
      {C::reduce, "binomial", 64 * KiB},
      {C::reduce, "chain"},

      {C::reduce_scatter, "ring", 8 * KiB, N::one, 9},
      {C::reduce_scatter, "direct", {}, N::one},
      {C::reduce_scatter, "ring"},

      {C::allgather, "bruck", 16 * KiB, N::one, 9},
      {C::allgather, "direct", {}, N::one},
      {C::allgather, "bruck", 1 * MiB},
      {C::allgather, "ring"},

      {C::alltoall, "pairwise", 16 * KiB, N::one, 9},
      {C::alltoall, "direct", {}, N::one},
      {C::alltoall, "pairwise"},

      {C::barrier, "dissemination"},

      {C::alltoallv, "direct", {}, N::one},
      {C::alltoallv, "spread"},
  };
  return rules;
}

bool matches(const Rule& rule, const Task& task) {
  if (rule.collective != task.collective) return false;
  if (task.size < rule.min_ranks || (rule.max_ranks && task.size > *rule.max_ranks)) return false;
  if (rule.in_place && *rule.in_place != task.in_place) return false;
  if (rule.nodes != Rule::Nodes::any && (rule.nodes == Rule::Nodes::one) != on_one_node(task))
    return false;
  return !rule.up_to_bytes || whole_count(task) * task.element_bytes <= *rule.up_to_bytes;
}

const Algorithm& choose(const Task& task, const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    if (!matches(rule, task)) continue;
    const Algorithm* algorithm = find_algorithm(task.collective, rule.algorithm);
    if (algorithm != nullptr && algorithm->fits(task)) return *algorithm;
  }
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.collective == task.collective && algorithm.fits(task)) return algorithm;
  throw std::logic_error("no algorithm fits");  // not while each collective has one for all
}

}  // namespace tnt
