// Which algorithm a collective uses: rules, a table that measurements may replace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/algorithms.h"

namespace tnt {

struct Rule {
  enum class Nodes { any, one, many };  // on how many nodes the ranks are

  Collective collective = Collective::allreduce;
  std::string algorithm;
  std::optional<std::size_t> up_to_bytes = std::nullopt;  // of the whole vector; none: any
  Nodes nodes = Nodes::any;
  int min_ranks = 1;
  std::optional<int> max_ranks = std::nullopt;
  std::optional<bool> in_place = std::nullopt;  // none: either
};

const std::vector<Rule>& default_rules();

bool matches(const Rule& rule, const Task& task);

// The algorithm of the first rule that matches, if there is one of that name and it fits; else the
// first algorithm of the collective that fits.
const Algorithm& choose(const Task& task, const std::vector<Rule>& rules = default_rules());

}  // namespace tnt
