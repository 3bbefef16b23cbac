#include "checker/check.h"

#include <algorithm>

#include "checker/memories.h"
#include "checker/order.h"
#include "checker/replay.h"
#include "checker/symbols.h"

namespace tnt {
namespace {

class SymbolicRun : public Observer {
 public:
  SymbolicRun(const std::vector<Schedule>& schedules, const Task& task)
      : schedules_(schedules),
        task_(task),
        operations_(schedules.front().alternates ? 3 : 2),
        order_(schedules.size(), !task.node.empty() || task.collective == Collective::barrier),
        memories_(schedules, task, order_),
        results_(static_cast<std::size_t>(operations_)) {}

  std::string run() {
    try {
      // Who waits for ever is more telling than a result that lacks the message.
      const std::string fault = replay(schedules_, operations_, *this);
      return fault.empty() ? wrong_result_ : fault;
    } catch (const Fault& fault) {
      return wrong_result_.empty() ? fault.what() : wrong_result_;
    }
  }

 private:
  void operation_begins(int rank, int operation) override {
    memories_.begin_operation(rank, operation);
  }

  void message_starts(const Moment& moment, const Step& step) override {
    if (step.action == Action::send) order_.send(moment.rank, moment.step);
    if (step.count == 0) return;
    const Place& place = step.action == Action::send ? step.from : step.to;
    if (place.memory == Memory::input || place.memory == Memory::output || place.rank != here)
      memories_.fail(moment, "a message goes from and to the own data and scratch memory only");
    if (step.action == Action::send)
      memories_.read(moment, place, step.count, read_);
    else
      memories_.write(moment, place, step.count, {{0, step.count, {}}});
  }

  Completion message_moves(const Moment& send, const Moment& receive, double now) override {
    if (memories_.step_of(send).count != 0) memories_.move(send, receive);
    order_.receive({send.rank, send.step, memories_.clock(send)}, receive.rank, receive.end);
    memories_.greet(receive, send.rank);
    return {now, now};
  }

  void messages_end(int rank, int, std::size_t step) override { order_.end_messages(rank, step); }

  double local_step(const Moment& moment, const Step& step, double now) override {
    if (step.count == 0) return now;
    const bool reduces = step.action == Action::reduce;
    if (step.to.memory == Memory::input) memories_.fail(moment, "writes to the input");
    check_operand(moment, step, step.from);
    memories_.read(moment, step.from, step.count, read_);
    if (reduces) {
      check_operand(moment, step, step.with);
      memories_.read(moment, step.with, step.count, added_);
      add(moment);
    }
    memories_.write(moment, step.to, step.count, read_);
    return now;
  }

  void check_operand(const Moment& moment, const Step& step, const Place& operand) const {
    const bool same_memory = operand.memory == step.to.memory && operand.rank == step.to.rank;
    const bool same = same_memory && operand.begin == step.to.begin;
    if (operand.memory == Memory::output && step.action != Action::reduce)
      memories_.fail(moment, "output is read by reduces only");
    if (same_memory && !same && operand.begin < step.to.begin + step.count &&
        step.to.begin < operand.begin + step.count)
      memories_.fail(moment, "reads and writes ranges that overlap, and are not the same");
  }

  // read_ += added_, element by element.
  void add(const Moment& moment) {
    sum_.clear();
    for (auto a = read_.begin(), b = added_.begin(); a != read_.end();) {
      const std::size_t begin = std::max(a->begin, b->begin), end = std::min(a->end, b->end);
      const Content left = a->content.after(begin - a->begin);
      const Content right = b->content.after(begin - b->begin);
      if (left.first != right.first)
        memories_.fail(moment, "adds elements " + std::to_string(left.first) + " and " +
                                   std::to_string(right.first) + " of the vector");
      append(sum_, {begin, end, sum(left, right)});
      if (a->end == end) ++a;
      if (b->end == end) ++b;
    }
    read_.swap(sum_);
  }

  void operation_ends(int rank, int operation, double) override {
    const auto& result = memories_.end_operation(rank, operation);
    task_.rank = rank;
    try {
      check_end(result, operation);
    } catch (const Fault& fault) {
      if (wrong_result_.empty()) wrong_result_ = fault.what();
    }
  }

  void check_end(const std::vector<Piece>& result, int operation) {
    const int rank = task_.rank;
    check_result(result, operation);
    if (task_.collective == Collective::allreduce) check_shapes(result, operation);
    const bool shared = schedules_.front().shared;
    const bool is_barrier = task_.collective == Collective::barrier;
    for (int other = 0; other < task_.size && (shared || is_barrier); ++other)
      if (is_barrier || share_memory(task_, rank, other))
        if (other != rank && order_.knows(rank, other) <= memories_.entry(other, operation))
          fail_at_end(operation, "ends before rank " + std::to_string(other) + " has begun");
  }

  // Both lists are ascending and without gaps.
  void check_result(const std::vector<Piece>& result, int operation) const {
    auto piece = result.begin();
    for (const Piece& expected : expected_result(task_, operation))
      for (std::size_t at = expected.begin; at < expected.end;) {
        const Content held = piece->content.after(at - piece->begin);
        const Content wanted = expected.content.after(at - expected.begin);
        if (held.first != wanted.first || held.sum != wanted.sum)
          fail_at_end(operation, "element " + std::to_string(at) + " of the result " +
                                     difference(held, wanted, operation));
        at = std::min(piece->end, expected.end);
        if (at == piece->end) ++piece;
      }
  }

  std::string difference(const Content& held, const Content& wanted, int operation) const {
    if (!held.defined()) return "was not written";
    if (held.first != wanted.first)
      return "is element " + std::to_string(held.first) + " of the vector, not " +
             std::to_string(wanted.first);
    for (int rank = 0; rank < task_.size; ++rank) {
      const std::uint64_t number = contribution(operation, rank).sum;
      if (held.sum + number == wanted.sum)
        return "lacks what rank " + std::to_string(rank) + " gave";
      if (held.sum == wanted.sum + number)
        return "holds twice what rank " + std::to_string(rank) + " gave";
    }
    return "is not made of what the ranks gave";
  }

  // The result is added up in the same way as on the first rank that came here.
  void check_shapes(const std::vector<Piece>& result, int operation) {
    std::vector<Piece> merged;
    for (const Piece& piece : result)
      if (!merged.empty() && merged.back().content.shape == piece.content.shape)
        merged.back().end = piece.end;
      else
        merged.push_back(piece);
    auto& first = results_[operation];
    if (first.empty()) first = merged;
    const auto same = [](const Piece& a, const Piece& b) {
      return a.begin == b.begin && a.content.shape == b.content.shape;
    };
    if (!std::equal(merged.begin(), merged.end(), first.begin(), first.end(), same))
      fail_at_end(operation, "the result is added up in another order than on another rank");
  }

  [[noreturn]] void fail_at_end(int operation, const std::string& what) const {
    const std::size_t end = schedules_[task_.rank].steps.size();
    memories_.fail({task_.rank, operation, end, end}, what);
  }

  const std::vector<Schedule>& schedules_;
  Task task_;
  const int operations_;
  Order order_;
  Memories memories_;
  std::vector<std::vector<Piece>> results_;  // of each operation, on the rank that ended it first
  std::vector<Piece> read_, added_, sum_;
  std::string wrong_result_;
};

}  // namespace

std::string check(const Algorithm& algorithm, const Task& task) {
  const std::string name = name_of(task.collective) + (std::string(" ") + algorithm.name) + " of " +
                           std::to_string(task.size) + " ranks: ";
  if (algorithm.collective != task.collective) return name + "is for another collective";
  if (!algorithm.fits(task)) return name + "does not fit these ranks and nodes";
  const std::string fault = check_schedules(schedules_of_all(algorithm, task), task);
  return fault.empty() ? fault : name + fault;
}

std::string check(const std::function<Schedule(const Task&)>& make, Task task) {
  std::vector<Schedule> schedules;
  for (task.rank = 0; task.rank < task.size; ++task.rank) schedules.push_back(make(task));
  task.rank = 0;
  return check_schedules(schedules, task);
}

std::string check_schedules(const std::vector<Schedule>& schedules, const Task& task) {
  if (schedules.empty() || schedules.size() != static_cast<std::size_t>(task.size))
    return "there are schedules for " + std::to_string(schedules.size()) + " ranks";
  for (const Schedule& schedule : schedules)
    if (schedule.alternates != schedules.front().alternates ||
        schedule.shared != schedules.front().shared)
      return "schedules are shared, or alternate, on some ranks only";
  return SymbolicRun(schedules, task).run();
}

}  // namespace tnt
