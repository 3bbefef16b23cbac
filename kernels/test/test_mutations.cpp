// Good schedules that are changed in one place: each time it is found.
#include "check.h"
#include "checker/check.h"
#include "tasks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

#ifdef TNT_SANITIZED
constexpr int stride = 5;  // of the steps that are changed
#else
constexpr int stride = 1;
#endif

using Schedules = std::vector<Schedule>;

// A step of schedules that may be changed.
struct Chosen {
  Schedules& schedules;
  const Task& task;
  int rank;
  std::size_t index;

  Schedule& schedule() const { return schedules[rank]; }
  Step& step() const { return schedule().steps[index]; }
  void erase() const {
    schedule().steps.erase(schedule().steps.begin() + static_cast<std::ptrdiff_t>(index));
  }
};

// Tasks in which each algorithm has several chunks, parts and rounds.
std::vector<Task> tasks_for(const Algorithm& algorithm) {
  std::vector<Task> tasks;
  const bool by_node = std::string(algorithm.name) == "hierarchical";  // here of two ranks each
  for (const int size : by_node ? std::vector<int>{4, 6} : std::vector<int>{3, 5})
    for (const bool in_place : {false, true}) {
      Task task = make_task(algorithm.collective, size, 40, {}, in_place);
      for (std::size_t rank = 0; rank < task.offsets.size(); ++rank) task.offsets[rank] = 8 * rank;
      task.element_bytes = 16384;
      for (const auto& node : {std::vector<int>{}, one_node(size), nodes_of(size, 2)}) {
        task.node = node;
        if (!algorithm.fits(task)) continue;
        tasks.push_back(task);
        break;
      }
    }
  return tasks;
}

// Calls change(chosen) for every step of every rank of every algorithm, each time on good
// schedules; where it says that it changed something, that must be found.
void check_found(const char* what, bool (*change)(Chosen)) {
  int changes = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Task& task : tasks_for(algorithm)) {
      const Schedules good = schedules_of_all(algorithm, task);
      CHECK_EQUAL(check_schedules(good, task), "");
      for (int rank = 0; rank < task.size; ++rank)
        for (std::size_t step = 0; step < good[rank].steps.size(); step += stride) {
          Schedules bad = good;
          if (!change({bad, task, rank, step})) continue;
          ++changes;
          if (!check_schedules(bad, task).empty()) continue;
          throw CheckFailed(std::string(name_of(task.collective)) + " " + algorithm.name + " of " +
                            std::to_string(task.size) + " ranks" +
                            (task.in_place ? " in place, " : ", ") + what + " on rank " +
                            std::to_string(rank) + ", step " + std::to_string(step) +
                            " was not found");
        }
    }
  CHECK(changes > 100 / stride);
}

}  // namespace

TEST(a_step_that_is_missing_is_found) {
  check_found("a missing step", [](Chosen chosen) {
    chosen.erase();
    return true;
  });
  check_found("a missing empty message", [](Chosen chosen) {
    const Step send = chosen.step();
    if (send.action != Action::send || send.count != 0) return false;
    // That all have begun, a broadcast may also tell by way of the root.
    const Task& task = chosen.task;
    if (task.collective == Collective::broadcast && send.round == 0 && chosen.rank != task.root)
      return false;
    std::size_t earlier = 0;  // messages to that peer
    const auto& steps = chosen.schedule().steps;
    for (std::size_t i = 0; i < chosen.index; ++i)
      if (steps[i].action == Action::send && steps[i].peer == send.peer) ++earlier;
    chosen.erase();
    auto& peers = chosen.schedules[send.peer].steps;
    for (auto other = peers.begin(); other != peers.end(); ++other)
      if (other->action == Action::receive && other->peer == chosen.rank && earlier-- == 0) {
        peers.erase(other);
        break;
      }
    return true;
  });
}

TEST(a_message_to_another_rank_or_of_another_length_or_duration_is_found) {
  check_found("another peer", [](Chosen chosen) {
    if (!chosen.step().is_message()) return false;
    int& peer = chosen.step().peer;
    do peer = (peer + 1) % chosen.task.size;
    while (peer == chosen.rank);
    return true;
  });
  check_found("another count", [](Chosen chosen) {
    ++chosen.step().count;
    return chosen.step().is_message();
  });
  check_found("a longer span", [](Chosen chosen) {
    Step& step = chosen.step();
    ++step.span;
    return step.action == Action::receive && step.to.memory == Memory::scratch && step.count != 0;
  });
}

TEST(a_copy_or_sum_of_less_or_of_another_rank_is_found) {
  check_found("a smaller count", [](Chosen chosen) {
    --chosen.step().count;
    return !chosen.step().is_message();
  });
  check_found("data of the next rank", [](Chosen chosen) {
    Step& step = chosen.step();
    if (step.is_message() || step.from.memory != Memory::data) return false;
    if (step.to.rank != here) return false;  // there it has the same elements already
    const int source = step.from.rank == here ? chosen.rank : step.from.rank;
    step.from.rank = (source + 1) % chosen.task.size;
    return step.from.rank != chosen.rank;
  });
}

TEST(a_range_that_is_shifted_is_found) {
  check_found("a shifted source", [](Chosen chosen) {
    ++chosen.step().from.begin;
    return chosen.step().count != 0 && chosen.step().action != Action::receive;
  });
  check_found("a shifted target", [](Chosen chosen) {
    ++chosen.step().to.begin;
    return chosen.step().count != 0 && chosen.step().action != Action::send;
  });
}

TEST(memory_that_is_too_small_is_found) {
  check_found("too little data memory", [](Chosen chosen) {
    const bool changes = chosen.index == 0 && chosen.schedule().data_count != 0;
    chosen.schedule().data_count /= 2;
    return changes;
  });
  check_found("too little scratch memory", [](Chosen chosen) {
    const bool changes = chosen.index == 0 && chosen.schedule().scratch_count != 0;
    --chosen.schedule().scratch_count;
    return changes;
  });
}

TEST(one_data_memory_where_two_are_needed_is_found) {
  int alternating = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const int size : {2, 3, 5}) {
      const Task task = make_task(algorithm.collective, size, 12, one_node(size));
      if (!algorithm.fits(task)) continue;
      Schedules schedules = schedules_of_all(algorithm, task);
      if (!schedules.front().alternates) continue;
      ++alternating;
      for (Schedule& schedule : schedules) schedule.alternates = false;
      CHECK_CONTAINS(check_schedules(schedules, task), "operation 2");
      CHECK_CONTAINS(check_schedules(schedules, task), "may still be reading");
    }
  CHECK(alternating >= 6);
}

TEST(a_schedule_that_is_shared_but_does_not_say_so_is_found) {
  for (const Algorithm& algorithm : algorithms())
    for (const Task& task : tasks_for(algorithm)) {
      Schedules schedules = schedules_of_all(algorithm, task);
      if (!schedules.front().shared) continue;
      schedules.back().shared = false;
      CHECK_CONTAINS(check_schedules(schedules, task), "on some ranks only");
      for (Schedule& schedule : schedules) schedule.shared = false;
      CHECK_CONTAINS(check_schedules(schedules, task), "is not `shared`");
    }
}

TEST(rounds_that_are_one_are_found) {
  for (const Algorithm& algorithm : algorithms())
    for (const Task& task : tasks_for(algorithm)) {
      if (task.size == 3) continue;  // where they may be one
      Schedules schedules = schedules_of_all(algorithm, task);
      for (Schedule& schedule : schedules)
        for (Step& step : schedule.steps) step.round = 0;
      CHECK(!check_schedules(schedules, task).empty());
    }
}
