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

bool is_message(const Step& step) {
  return step.action == Action::send || step.action == Action::receive;
}

Step& step_of(Schedules& schedules, int rank, std::size_t step) {
  return schedules[static_cast<std::size_t>(rank)].steps[step];
}

// Tasks in which each algorithm has several chunks, parts and rounds.
std::vector<Task> tasks_for(const Algorithm& algorithm) {
  std::vector<Task> tasks;
  const bool by_node = std::string(algorithm.name) == "hierarchical";  // here of two ranks each
  for (const int size : by_node ? std::vector<int>{4, 6} : std::vector<int>{3, 5})
    for (const bool in_place : {false, true}) {
      Task task = make_task(algorithm.collective, size, 40);
      if (!task.offsets.empty())
        for (int rank = 0; rank <= size; ++rank)
          task.offsets[static_cast<std::size_t>(rank)] = static_cast<std::size_t>(8 * rank);
      task.element_bytes = 16384;
      task.in_place = in_place;
      for (const auto& node : {std::vector<int>{}, one_node(size), nodes_of(size, 2)}) {
        task.node = node;
        if (!algorithm.fits(task)) continue;
        tasks.push_back(task);
        break;
      }
    }
  return tasks;
}

// Calls change(schedules, task, rank, step) for every step of every rank of every algorithm, each
// time on good schedules; where it says that it changed something, that must be found.
template <class Change>
void check_found(const char* what, Change change) {
  int changes = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Task& task : tasks_for(algorithm)) {
      const Schedules good = schedules_of_all(algorithm, task);
      CHECK_EQUAL(check_schedules(good, task), "");
      for (int rank = 0; rank < task.size; ++rank)
        for (std::size_t step = 0; step < good[static_cast<std::size_t>(rank)].steps.size();
             step += stride) {
          Schedules bad = good;
          if (!change(bad, task, rank, step)) continue;
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
  check_found("a missing step", [](Schedules& schedules, const Task&, int rank, std::size_t step) {
    auto& steps = schedules[static_cast<std::size_t>(rank)].steps;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(step));
    return true;
  });
}

TEST(an_empty_message_that_is_missing_is_found) {
  check_found("a missing empty message", [](Schedules& schedules, const Task& task, int rank,
                                            std::size_t step) {
    const Step send = step_of(schedules, rank, step);
    if (send.action != Action::send || send.count != 0) return false;
    // That all have begun, a broadcast may also tell by way of the root.
    if (task.collective == Collective::broadcast && send.round == 0 && rank != task.root)
      return false;
    std::size_t earlier = 0;  // messages to that peer
    auto& steps = schedules[static_cast<std::size_t>(rank)].steps;
    for (std::size_t i = 0; i < step; ++i)
      if (steps[i].action == Action::send && steps[i].peer == send.peer) ++earlier;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(step));
    auto& peers = schedules[static_cast<std::size_t>(send.peer)].steps;
    for (auto other = peers.begin(); other != peers.end(); ++other)
      if (other->action == Action::receive && other->peer == rank && earlier-- == 0) {
        peers.erase(other);
        break;
      }
    return true;
  });
}

TEST(a_message_to_another_rank_is_found) {
  check_found("another peer", [](Schedules& schedules, const Task&, int rank, std::size_t step) {
    Step& changed = step_of(schedules, rank, step);
    if (!is_message(changed)) return false;
    const int size = static_cast<int>(schedules.size());
    changed.peer =
        (changed.peer + 1) % size == rank ? (changed.peer + 2) % size : (changed.peer + 1) % size;
    return true;
  });
}

TEST(a_message_of_another_length_is_found) {
  check_found("another count", [](Schedules& schedules, const Task&, int rank, std::size_t step) {
    Step& changed = step_of(schedules, rank, step);
    ++changed.count;
    return is_message(changed);
  });
}

TEST(a_shorter_copy_or_sum_is_found) {
  check_found("a smaller count", [](Schedules& schedules, const Task&, int rank, std::size_t step) {
    Step& changed = step_of(schedules, rank, step);
    if (is_message(changed)) return false;
    --changed.count;
    return true;
  });
}

TEST(a_range_that_is_shifted_is_found) {
  check_found("a shifted source",
              [](Schedules& schedules, const Task&, int rank, std::size_t step) {
                Step& changed = step_of(schedules, rank, step);
                ++changed.from.begin;
                return changed.count != 0 && changed.action != Action::receive;
              });
  check_found("a shifted target",
              [](Schedules& schedules, const Task&, int rank, std::size_t step) {
                Step& changed = step_of(schedules, rank, step);
                ++changed.to.begin;
                return changed.count != 0 && changed.action != Action::send;
              });
}

TEST(a_message_that_takes_longer_is_found) {
  check_found("a longer span", [](Schedules& schedules, const Task&, int rank, std::size_t step) {
    Step& changed = step_of(schedules, rank, step);
    ++changed.span;
    return changed.action == Action::receive && changed.to.memory == Memory::scratch &&
           changed.count != 0;
  });
}

TEST(data_of_another_rank_is_found) {
  check_found("data of the next rank",
              [](Schedules& schedules, const Task&, int rank, std::size_t step) {
                Step& changed = step_of(schedules, rank, step);
                if (is_message(changed) || changed.from.memory != Memory::data) return false;
                if (changed.to.rank != here)
                  return false;  // there it has the same elements already
                const int source = changed.from.rank == here ? rank : changed.from.rank;
                changed.from.rank = (source + 1) % static_cast<int>(schedules.size());
                return changed.from.rank != rank;
              });
}

TEST(memory_that_is_too_small_is_found) {
  check_found("too little data memory",
              [](Schedules& schedules, const Task&, int rank, std::size_t step) {
                auto& changed = schedules[static_cast<std::size_t>(rank)];
                if (step != 0 || changed.data_count == 0) return false;
                changed.data_count /= 2;
                return true;
              });
  check_found("too little scratch memory",
              [](Schedules& schedules, const Task&, int rank, std::size_t step) {
                auto& changed = schedules[static_cast<std::size_t>(rank)];
                if (step != 0 || changed.scratch_count == 0) return false;
                --changed.scratch_count;
                return true;
              });
}

TEST(one_data_memory_where_two_are_needed_is_found) {
  int alternating = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const int size : {2, 3, 5}) {
      Task task = make_task(algorithm.collective, size, 12);
      task.node = one_node(size);
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
