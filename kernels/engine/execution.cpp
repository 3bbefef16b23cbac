#include "engine/execution.h"

namespace tnt {

Execution::Execution(Operation operation, Transport& transport)
    : operation_(std::move(operation)),
      transport_(transport),
      element_bytes_(size_of(operation_.type)) {}

void Execution::begin() {
  begin_ns_ = now_ns();
  begin_round();
}

bool Execution::advance(double timeout_s) {
  bool progressed = false;
  for (std::size_t i = 0; i < waiting_.size();) {
    if (transport_.done(waiting_[i].first)) {
      waiting_[i] = waiting_.back();
      waiting_.pop_back();
      progressed = true;
    } else {
      ++i;
    }
  }
  if (!waiting_.empty()) {
    if (!progressed) check_time(timeout_s);
    return progressed;
  }
  end_round();
  if (next_step_ < operation_.schedule->steps.size()) {
    begin_round();
  } else {
    end_ns_ = now_ns();
    finished_ = true;
  }
  return true;
}

void Execution::record(Trace& trace) const {
  std::size_t sent = 0;
  for (const Step& step : operation_.schedule->steps)
    if (step.action == Action::send) sent += bytes(step.from);
  trace.record(EventKind::exchange, operation_.channel, begin_ns_, end_ns_, sent);
}

void Execution::begin_round() {
  const auto& steps = operation_.schedule->steps;
  round_begin_ = next_step_;
  waiting_since_ns_ = now_ns();
  while (next_step_ < steps.size() && steps[next_step_].round == steps[round_begin_].round) {
    const Step& step = steps[next_step_++];
    if (step.action == Action::send)
      waiting_.emplace_back(
          transport_.send(step.peer, operation_.channel, at(step.from), bytes(step.from)),
          step.peer);
    else if (step.action == Action::receive)
      waiting_.emplace_back(
          transport_.receive(step.peer, operation_.channel, at(step.to), bytes(step.to)),
          step.peer);
  }
}

void Execution::end_round() {
  for (std::size_t i = round_begin_; i < next_step_; ++i) {
    const Step& step = operation_.schedule->steps[i];
    if (step.action == Action::reduce)
      reduce(operation_.type, operation_.reduction, at(step.to), at(step.from), step.to.count);
    else if (step.action == Action::copy)
      scaled_copy(operation_.type, at(step.to), at(step.from), 1.0, step.to.count);
  }
}

void Execution::check_time(double timeout_s) const {
  const double waited_s = 1e-9 * static_cast<double>(now_ns() - waiting_since_ns_);
  if (waited_s < timeout_s) return;
  throw TransportError("waited " + std::to_string(static_cast<long>(waited_s)) + " s for rank " +
                       std::to_string(waiting_.front().second) + " in " + operation_.label +
                       "; is that rank stuck, or not in this call?");
}

std::byte* Execution::at(const Range& range) const {
  std::byte* memory = range.memory == Memory::data ? operation_.data : operation_.scratch;
  return memory + range.begin * element_bytes_;
}

}  // namespace tnt
