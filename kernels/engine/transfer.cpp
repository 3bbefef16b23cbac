#include "engine/transfer.h"

namespace tnt {
namespace {

Step message(std::uint32_t round, Action action, int peer, std::size_t count) {
  Step step;
  step.round = round;
  step.action = action;
  step.peer = peer;
  step.count = count;
  return step;
}

Step copy(std::uint32_t round, Place to, Place from, std::size_t count) {
  Step step;
  step.round = round;
  step.count = count;
  step.to = to;
  step.from = from;
  return step;
}

}  // namespace

std::shared_ptr<const Schedule> transfer(const Engine& engine, int from, int to,
                                         std::size_t count) {
  const auto& node = engine.world().node;
  const bool near = node[static_cast<std::size_t>(from)] == node[static_cast<std::size_t>(to)];
  const Place input{Memory::input}, output{Memory::output}, data{Memory::data};
  auto schedule = std::make_shared<Schedule>();
  auto& steps = schedule->steps;
  if (engine.rank() == from) {
    steps.push_back(copy(0, data, input, count));
    // The receiver takes it from here itself, and says when it has.
    steps.push_back(message(1, Action::send, to, near ? 0 : count));
    if (near) steps.push_back(message(1, Action::receive, to, 0));
    schedule->data_count = count;
  } else if (near) {
    steps.push_back(message(0, Action::receive, from, 0));
    steps.push_back(copy(1, output, Place{Memory::data, from}, count));
    steps.push_back(message(1, Action::send, from, 0));
  } else {
    steps.push_back(message(0, Action::receive, from, count));
    steps.push_back(copy(1, output, data, count));
    schedule->data_count = count;
  }
  return schedule;
}

}  // namespace tnt
