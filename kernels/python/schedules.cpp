#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>

#include "checker/check.h"
#include "checker/cost.h"
#include "collective/algorithms.h"
#include "collective/schedule.h"
#include "collective/select.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tnt {
namespace {

// Schedules and tasks in Python are the dataclasses of tnt_notebook/comm/schedules.py.

template <class T>
T field(nb::handle object, const char* name) {
  const nb::object value = object.attr(name);
  T result{};
  if (!nb::try_cast(value, result))
    throw nb::value_error((std::string(name) + " cannot be " + nb::repr(value).c_str()).c_str());
  return result;
}

// The value of an enum by its word.
template <class Enum, std::size_t n>
Enum word(nb::handle object, const char* name, const char* const (&words)[n]) {
  const auto given = field<std::string>(object, name);
  std::string known;
  for (std::size_t i = 0; i < n; ++i) {
    if (given == words[i]) return static_cast<Enum>(i);
    known += (i == 0 ? "" : ", ") + std::string(words[i]);
  }
  throw nb::value_error((std::string(name) + " '" + given + "' is not one of " + known).c_str());
}

Place place_of(nb::handle place) {
  return {word<Memory>(place, "memory", memory_names), field<std::int32_t>(place, "rank"),
          field<std::size_t>(place, "begin")};
}

std::shared_ptr<Schedule> schedule_of(nb::handle given) {
  auto schedule = std::make_shared<Schedule>();
  for (const nb::handle step : given.attr("steps"))
    schedule->steps.push_back({field<std::uint32_t>(step, "round"),
                               word<Action>(step, "action", action_names),
                               field<std::int32_t>(step, "peer"), field<std::size_t>(step, "count"),
                               place_of(step.attr("to")), place_of(step.attr("from_")),
                               place_of(step.attr("with_")), field<std::uint32_t>(step, "span")});
  schedule->data_count = field<std::size_t>(given, "data_count");
  schedule->scratch_count = field<std::size_t>(given, "scratch_count");
  schedule->shared = field<bool>(given, "shared");
  schedule->alternates = field<bool>(given, "alternates");
  return schedule;
}

Task task_of(nb::handle given) {
  Task task;
  task.collective = word<Collective>(given, "collective", collective_names);
  task.rank = field<int>(given, "rank");
  task.size = field<int>(given, "size");
  task.count = field<std::size_t>(given, "count");
  task.element_bytes = field<std::size_t>(given, "element_bytes");
  task.offsets = field<std::vector<std::size_t>>(given, "offsets");
  task.root = field<int>(given, "root");
  task.node = field<std::vector<int>>(given, "node");
  task.in_place = field<bool>(given, "in_place");
  for (const auto& [from, to, count] :
       field<std::vector<std::tuple<int, int, std::size_t>>>(given, "flows"))
    task.flows.push_back({from, to, count});
  return task;
}

Costs costs_of(nb::handle rates) {
  const auto by_byte = [&](const char* name) { return 1 / field<double>(rates, name); };
  Costs costs;
  costs.node = {field<double>(rates, "node_latency_s"), by_byte("node_bytes_per_s")};
  costs.network = {field<double>(rates, "latency_s"), by_byte("bytes_per_s")};
  costs.port_s_per_byte = by_byte("port_bytes_per_s");
  costs.reduce_s_per_byte = by_byte("reduced_bytes_per_s");
  costs.copy_s_per_byte = by_byte("copied_bytes_per_s");
  return costs;
}

const Algorithm& named(Collective collective, const std::string& name) {
  const Algorithm* found = find_algorithm(collective, name);
  if (found == nullptr)
    throw nb::value_error(
        (std::string("there is no ") + name_of(collective) + " by " + name).c_str());
  return *found;
}

// The words for Rule::Nodes, in its order.
constexpr const char* node_words[] = {"any", "one", "many"};

void make_rule(Rule* self, int collective, std::string algorithm,
               std::optional<std::size_t> up_to_bytes, const std::string& nodes, int min_ranks,
               std::optional<int> max_ranks, std::optional<bool> in_place) {
  const auto word = std::find(std::begin(node_words), std::end(node_words), nodes);
  if (word == std::end(node_words)) throw nb::value_error("nodes is any, one or many");
  new (self) Rule{static_cast<Collective>(collective),
                  std::move(algorithm),
                  up_to_bytes,
                  static_cast<Rule::Nodes>(word - std::begin(node_words)),
                  min_ranks,
                  max_ranks,
                  in_place};
}

}  // namespace

void bind_schedules(nb::module_& m) {
  nb::class_<Schedule>(m, "Schedule");
  nb::class_<Rule>(m, "Rule")
      .def("__init__", &make_rule, "collective"_a, "algorithm"_a, "up_to_bytes"_a.none(), "nodes"_a,
           "min_ranks"_a, "max_ranks"_a.none(), "in_place"_a.none())
      .def_prop_ro("collective", [](const Rule& rule) { return static_cast<int>(rule.collective); })
      .def_ro("algorithm", &Rule::algorithm)
      .def_ro("up_to_bytes", &Rule::up_to_bytes)
      .def_prop_ro("nodes",
                   [](const Rule& rule) { return node_words[static_cast<int>(rule.nodes)]; })
      .def_ro("min_ranks", &Rule::min_ranks)
      .def_ro("max_ranks", &Rule::max_ranks)
      .def_ro("in_place", &Rule::in_place);

  m.def("schedule", &schedule_of, "schedule"_a);
  m.def("algorithms", [] {
    std::vector<std::tuple<int, std::string>> names;
    for (const Algorithm& algorithm : algorithms())
      names.emplace_back(static_cast<int>(algorithm.collective), algorithm.name);
    return names;
  });
  m.def("default_rules", &default_rules);
  m.def(
      "fits",
      [](const std::string& name, nb::handle given) {
        const Task task = task_of(given);
        return named(task.collective, name).fits(task);
      },
      "algorithm"_a, "task"_a);
  m.def(
      "choose",
      [](nb::handle task, const std::vector<Rule>& rules) {
        return std::string(choose(task_of(task), rules).name);
      },
      "task"_a, "rules"_a);
  m.def(
      "check",
      [](const std::string& name, nb::handle given) {
        const Task task = task_of(given);
        return check(named(task.collective, name), task);
      },
      "algorithm"_a, "task"_a);
  m.def(
      "check_function",
      [](const std::function<nb::object(int)>& make, nb::handle task) {
        return check([&](const Task& of) { return *schedule_of(make(of.rank)); }, task_of(task));
      },
      "schedule_of_rank"_a, "task"_a);
  m.def(
      "predict",
      [](const std::string& name, nb::handle given, nb::handle rates) {
        const Task task = task_of(given);
        return predict(schedules_of_all(named(task.collective, name), task), task, costs_of(rates));
      },
      "algorithm"_a, "task"_a, "rates"_a);
}

}  // namespace tnt
