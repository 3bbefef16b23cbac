// The plan of an operation: the schedule that its algorithm makes, and the memory it takes.
#include <stdexcept>
#include <string>

#include "collective/algorithms.h"
#include "engine/engine.h"
#include "engine/heading.h"

namespace tnt {
namespace {

// Schedules that a channel keeps.
constexpr std::size_t most_plans = 8;

// What cannot be carried out, before anything is.
void check_request(const Request& request) {
  const auto is_integer = [](Type type) {
    return type == Type::int32 || type == Type::int64 || type == Type::uint8;
  };
  if (is_integer(request.type) && request.scale != 0 && request.scale != 1)
    throw std::invalid_argument(std::string(name_of(request.type)) +
                                " takes a scale of 0 or 1 only, not " +
                                std::to_string(request.scale));
  if (request.type != request.wire && (is_integer(request.type) || is_integer(request.wire)))
    throw std::invalid_argument(std::string(name_of(request.type)) + " cannot be exchanged as " +
                                name_of(request.wire));
}

}  // namespace

void Engine::set_rules(std::vector<Rule> rules) {
  std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
  for (auto& [channel, bucket] : buckets_)
    if (!bucket->busy) bucket->plans.clear();
}

// Chooses the schedule and sizes the memory.
void Engine::prepare(Bucket& bucket) {
  try {
    check_request(bucket.request);
    const Plan& chosen = plan(bucket);
    const Request& request = bucket.request;
    const std::size_t element_bytes = size_of(request.wire);
    Transport& transport = *lane_of(bucket).transport;
    bucket.window = &bucket.data_for(chosen.schedule, request.in_place);
    bucket.window->reserve(transport, chosen.schedule->data_count * element_bytes);
    bucket.scratch.reserve(transport, chosen.schedule->scratch_count * element_bytes);
    if (request.scale != 1 && request.in_place)
      convert(request.wire, bucket.window->memory(), request.wire, bucket.window->memory(),
              request.scale, request.count);
  } catch (...) {
    release(bucket);
    throw;
  }
}

// The plan that fits the request, moved to the front of the channel's plans.
const Plan& Engine::plan(Bucket& bucket) {
  const Request& request = bucket.request;
  const std::size_t element_bytes = size_of(request.wire);
  auto& plans = bucket.plans;
  const auto fits = [&](const Plan& plan) {
    if (request.schedule != nullptr) return plan.schedule == request.schedule;
    const Task& task = plan.task;
    return task.collective == request.collective && task.count == request.count &&
           task.element_bytes == element_bytes && task.root == request.root &&
           task.in_place == request.in_place && plan.group == request.group &&
           task.offsets == request.offsets && task.flows == request.flows &&
           plan.asked == request.algorithm;
  };
  const auto found = std::find_if(plans.begin(), plans.end(), fits);
  if (found != plans.end()) {
    if (found != plans.begin()) std::rotate(plans.begin(), found, found + 1);
    return plans.front();
  }
  const Group& group = request.group == nullptr ? *world_ : *request.group;
  const Task task{request.collective, group.index,  group.size(), request.count,    element_bytes,
                  request.offsets,    request.root, group.node,   request.in_place, request.flows};
  Plan plan{task, request.group, request.algorithm, request.schedule,
            static_cast<int>(algorithms().size())};
  for (const std::size_t offset : request.offsets) plan.blocks = hash_of(offset, plan.blocks);
  for (const Flow& flow : request.flows)
    for (const std::size_t number : {std::size_t(flow.from), std::size_t(flow.to), flow.count})
      plan.blocks = hash_of(number, plan.blocks);
  if (plan.schedule == nullptr) {
    const Algorithm* algorithm = nullptr;
    if (request.algorithm.empty()) {
      algorithm = &choose(task, rules_);
    } else {
      algorithm = find_algorithm(request.collective, request.algorithm);
      if (algorithm == nullptr || !algorithm->fits(task))
        throw std::invalid_argument(std::string(name_of(request.collective)) + " by \"" +
                                    request.algorithm + "\" is not possible among these ranks");
    }
    plan.algorithm = static_cast<int>(algorithm - algorithms().data());
    plan.schedule = std::make_shared<const Schedule>(algorithm->make(task));
  }
  if (plans.size() == most_plans) plans.pop_back();
  plans.insert(plans.begin(), std::move(plan));
  return plans.front();
}

}  // namespace tnt
