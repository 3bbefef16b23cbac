#include "python/schedules.h"

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

namespace nb = nanobind;
using namespace nb::literals;

namespace tnt {
namespace {

// (memory, rank, begin)
using PlaceTuple = std::tuple<int, int, std::size_t>;
// (round, action, peer, count, to, from, with, span)
using StepTuple = std::tuple<std::uint32_t, int, int, std::size_t, PlaceTuple, PlaceTuple,
                             PlaceTuple, std::uint32_t>;

Place place_of(const PlaceTuple& tuple) {
  const auto& [memory, rank, begin] = tuple;
  return {static_cast<Memory>(memory), rank, begin};
}

PlaceTuple tuple_of(const Place& place) {
  return {static_cast<int>(place.memory), place.rank, place.begin};
}

std::shared_ptr<Schedule> schedule_of(const std::vector<StepTuple>& steps, std::size_t data_count,
                                      std::size_t scratch_count, bool shared, bool alternates) {
  auto schedule = std::make_shared<Schedule>();
  for (const auto& [round, action, peer, count, to, from, with, span] : steps)
    schedule->steps.push_back({round, static_cast<Action>(action), peer, count, place_of(to),
                               place_of(from), place_of(with), span});
  schedule->data_count = data_count;
  schedule->scratch_count = scratch_count;
  schedule->shared = shared;
  schedule->alternates = alternates;
  return schedule;
}

std::vector<StepTuple> steps_of(const Schedule& schedule) {
  std::vector<StepTuple> steps;
  for (const Step& step : schedule.steps)
    steps.emplace_back(step.round, static_cast<int>(step.action), step.peer, step.count,
                       tuple_of(step.to), tuple_of(step.from), tuple_of(step.with), step.span);
  return steps;
}

Task task_of(int collective, int rank, int size, std::size_t count, std::size_t element_bytes,
             std::vector<std::size_t> offsets, int root, std::vector<int> node, bool in_place) {
  Task task;
  task.collective = static_cast<Collective>(collective);
  task.rank = rank;
  task.size = size;
  task.count = count;
  task.element_bytes = element_bytes;
  task.offsets = std::move(offsets);
  task.root = root;
  task.node = std::move(node);
  task.in_place = in_place;
  return task;
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

// Where a rule has no limit, Python has None.
template <typename T>
std::optional<T> unless(T value, T none) {
  return value == none ? std::nullopt : std::optional<T>(value);
}

void make_rule(Rule* self, int collective, std::string algorithm,
               std::optional<std::size_t> up_to_bytes, const std::string& nodes, int min_ranks,
               std::optional<int> max_ranks, std::optional<bool> in_place) {
  const auto word = std::find(std::begin(node_words), std::end(node_words), nodes);
  if (word == std::end(node_words)) throw nb::value_error("nodes is any, one or many");
  Rule rule;
  rule.collective = static_cast<Collective>(collective);
  rule.algorithm = std::move(algorithm);
  rule.up_to_bytes = up_to_bytes.value_or(SIZE_MAX);
  rule.nodes = static_cast<Rule::Nodes>(word - std::begin(node_words));
  rule.min_ranks = min_ranks;
  rule.max_ranks = max_ranks.value_or(INT_MAX);
  rule.in_place = in_place;
  new (self) Rule(std::move(rule));
}

}  // namespace

void bind_schedules(nb::module_& m) {
  nb::class_<Schedule>(m, "Schedule")
      .def_prop_ro("steps", &steps_of)
      .def_ro("data_count", &Schedule::data_count)
      .def_ro("scratch_count", &Schedule::scratch_count)
      .def_ro("shared", &Schedule::shared)
      .def_ro("alternates", &Schedule::alternates);
  nb::class_<Task>(m, "Task")
      .def_prop_ro("collective", [](const Task& task) { return static_cast<int>(task.collective); })
      .def_rw("rank", &Task::rank)
      .def_ro("size", &Task::size)
      .def_ro("count", &Task::count)
      .def_ro("element_bytes", &Task::element_bytes)
      .def_ro("offsets", &Task::offsets)
      .def_ro("root", &Task::root)
      .def_ro("node", &Task::node)
      .def_ro("in_place", &Task::in_place);
  nb::class_<Rule>(m, "Rule")
      .def("__init__", &make_rule, "collective"_a, "algorithm"_a, "up_to_bytes"_a.none(), "nodes"_a,
           "min_ranks"_a, "max_ranks"_a.none(), "in_place"_a.none())
      .def_prop_ro("collective", [](const Rule& rule) { return static_cast<int>(rule.collective); })
      .def_ro("algorithm", &Rule::algorithm)
      .def_prop_ro("up_to_bytes",
                   [](const Rule& rule) { return unless(rule.up_to_bytes, SIZE_MAX); })
      .def_prop_ro("nodes",
                   [](const Rule& rule) { return node_words[static_cast<int>(rule.nodes)]; })
      .def_ro("min_ranks", &Rule::min_ranks)
      .def_prop_ro("max_ranks", [](const Rule& rule) { return unless(rule.max_ranks, INT_MAX); })
      .def_ro("in_place", &Rule::in_place);

  m.def("schedule", &schedule_of, "steps"_a, "data_count"_a, "scratch_count"_a, "shared"_a,
        "alternates"_a);
  m.def("task", &task_of, "collective"_a, "rank"_a, "size"_a, "count"_a, "element_bytes"_a,
        "offsets"_a, "root"_a, "node"_a, "in_place"_a);
  m.def("algorithms", [] {
    std::vector<std::tuple<int, std::string>> names;
    for (const Algorithm& algorithm : algorithms())
      names.emplace_back(static_cast<int>(algorithm.collective), algorithm.name);
    return names;
  });
  m.def("fits", [](const std::string& name, const Task& task) {
    return named(task.collective, name).fits(task);
  });
  m.def("default_rules", &default_rules);
  m.def("choose", [](const Task& task, const std::vector<Rule>& rules) {
    return std::string(choose(task, rules).name);
  });
  m.def("make", [](const std::string& name, const Task& task) {
    return std::make_shared<Schedule>(named(task.collective, name).make(task));
  });
  m.def("check", [](const std::string& name, const Task& task) {
    return check(named(task.collective, name), task);
  });
  m.def("check_function",
        [](const std::function<std::shared_ptr<Schedule>(const Task&)>& make, const Task& task) {
          return check([&](const Task& of_rank) { return *make(of_rank); }, task);
        });
  // (latency in s, s per byte) of the node and of the network, then s per byte to reduce and copy.
  m.def("predict", [](const std::string& name, const Task& task, std::tuple<double, double> node,
                      std::tuple<double, double> network, double reduce, double copy) {
    const Costs costs{{std::get<0>(node), std::get<1>(node)},
                      {std::get<0>(network), std::get<1>(network)},
                      reduce,
                      copy};
    return predict(schedules_of_all(named(task.collective, name), task), task, costs);
  });
}

}  // namespace tnt
