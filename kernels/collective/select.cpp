#include "collective/select.h"

#include <stdexcept>

#include "collective/layout.h"

namespace tnt {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

Rule rule(Collective collective, std::string algorithm, std::size_t up_to_bytes = SIZE_MAX,
          int min_ranks = 1) {
  Rule rule;
  rule.collective = collective;
  rule.algorithm = std::move(algorithm);
  rule.up_to_bytes = up_to_bytes;
  rule.min_ranks = min_ranks;
  return rule;
}

Rule on(Rule::Nodes nodes, Rule rule) {
  rule.nodes = nodes;
  return rule;
}

}  // namespace

// Where the costs of cost.h, by default, make one algorithm slower than the next; between numbers
// of ranks that are powers of two and those that are not.
const std::vector<Rule>& default_rules() {
  using C = Collective;
  using N = Rule::Nodes;
  static const std::vector<Rule> rules{
      // Ranks of a node that are many spend more time on telling each other than on few bytes.
      on(N::one, rule(C::allreduce, "recursive_doubling", 2 * KiB, 9)),
      on(N::one, rule(C::allreduce, "rabenseifner", 16 * KiB, 9)),
      on(N::one, rule(C::allreduce, "direct")),
      on(N::many, rule(C::allreduce, "recursive_doubling", 2 * KiB)),
      on(N::many, rule(C::allreduce, "hierarchical")),
      rule(C::allreduce, "recursive_doubling", 16 * KiB),
      rule(C::allreduce, "rabenseifner", 2 * MiB, 128),
      rule(C::allreduce, "double_tree", 32 * MiB, 256),
      rule(C::allreduce, "rabenseifner", 4 * MiB, 64),
      rule(C::allreduce, "rabenseifner", 2 * MiB, 32),
      rule(C::allreduce, "rabenseifner", 1 * MiB, 16),
      rule(C::allreduce, "rabenseifner", 256 * KiB, 8),
      rule(C::allreduce, "rabenseifner", 64 * KiB, 4),
      rule(C::allreduce, "ring"),

      on(N::one, rule(C::broadcast, "binomial", 4 * KiB, 9)),
      on(N::one, rule(C::broadcast, "direct")),
      rule(C::broadcast, "binomial", 512 * KiB, 128),
      rule(C::broadcast, "binomial", 256 * KiB, 32),
      rule(C::broadcast, "binomial", 64 * KiB),
      rule(C::broadcast, "chain"),

      on(N::one, rule(C::reduce, "binomial", 4 * KiB, 9)),
      on(N::one, rule(C::reduce, "direct")),
      rule(C::reduce, "binomial", 512 * KiB, 128),
      rule(C::reduce, "binomial", 256 * KiB, 32),
      rule(C::reduce, "binomial", 64 * KiB),
      rule(C::reduce, "chain"),

      on(N::one, rule(C::reduce_scatter, "ring", 8 * KiB, 9)),
      on(N::one, rule(C::reduce_scatter, "direct")),
      rule(C::reduce_scatter, "ring"),

      on(N::one, rule(C::allgather, "bruck", 16 * KiB, 9)),
      on(N::one, rule(C::allgather, "direct")),
      rule(C::allgather, "bruck", 1 * MiB),
      rule(C::allgather, "ring"),

      on(N::one, rule(C::alltoall, "pairwise", 16 * KiB, 9)),
      on(N::one, rule(C::alltoall, "direct")),
      rule(C::alltoall, "pairwise"),

      rule(C::barrier, "dissemination"),
  };
  return rules;
}

bool matches(const Rule& rule, const Task& task) {
  if (rule.collective != task.collective) return false;
  if (task.size < rule.min_ranks || task.size > rule.max_ranks) return false;
  if (rule.in_place && *rule.in_place != task.in_place) return false;
  if (rule.nodes != Rule::Nodes::any && (rule.nodes == Rule::Nodes::one) != on_one_node(task))
    return false;
  return whole_count(task) * task.element_bytes <= rule.up_to_bytes;
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
