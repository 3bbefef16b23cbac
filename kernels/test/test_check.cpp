// What is wrong with a schedule is found, and said.
#include "check.h"
#include "checker/check.h"
#include "tasks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

using Schedules = std::vector<Schedule>;

// Two ranks that share a node, with data memory of 4 elements and scratch memory of 4.
Task two_ranks() { return make_task(Collective::allreduce, 2, 4, one_node(2), true); }

// What is wrong with the steps that these two take.
std::string fault_of(std::vector<Step> first, std::vector<Step> second,
                     const Task& task = two_ranks()) {
  return check_schedules({{std::move(first), 4, 4, true}, {std::move(second), 4, 4, true}}, task);
}

Step message(std::uint32_t round, Action action, int peer, std::size_t count, Place place = {}) {
  const bool sends = action == Action::send;
  return {round, action, peer, count, sends ? Place{} : place, sends ? place : Place{}, {}};
}

Step local(std::uint32_t round, Action action, std::size_t count, Place to, Place from,
           Place with = {}) {
  return {round, action, here, count, to, from, with};
}

Place data(std::size_t begin, int rank = here) { return {Memory::data, rank, begin}; }
Place scratch(std::size_t begin) { return {Memory::scratch, here, begin}; }

}  // namespace

TEST(a_rank_that_waits_for_ever_is_named) {
  const auto send = message(0, Action::send, 1, 4, data(0));
  CHECK_EQUAL(fault_of({send}, {}),
              "rank 0, round 0, step 0 (send): waits for ever for rank 1, which has ended");
  const auto receive = message(0, Action::receive, 1, 2, scratch(0));
  const auto other = message(0, Action::receive, 0, 2, scratch(0));
  CHECK_CONTAINS(
      fault_of({receive}, {other}),
      "rank 0, round 0, step 0 (receive): waits for ever for rank 1, which waits in round 0");
}

TEST(a_message_of_two_lengths_is_named) {
  const auto send = message(0, Action::send, 1, 4, data(0));
  const auto receive = message(0, Action::receive, 0, 3, scratch(0));
  CHECK_EQUAL(fault_of({send}, {receive}),
              "rank 0, round 0, step 0 (send): sends 4 elements, but rank 1, round 0, step 0 "
              "(receive) takes 3");
}

TEST(a_step_on_what_a_message_moves_is_found) {
  const auto receive = message(0, Action::receive, 1, 2, data(0));
  const auto send = message(0, Action::send, 1, 2, data(1));
  const auto peer_send = message(0, Action::send, 0, 2, data(0));
  const auto peer_receive = message(0, Action::receive, 0, 2, scratch(0));
  CHECK_CONTAINS(fault_of({receive, send}, {peer_send, peer_receive}),
                 "rank 0, round 0, step 1 (send) reads data[1:2) while rank 0, round 0, step 1");
  const auto overwrite = local(0, Action::copy, 1, data(2), data(3));
  CHECK_CONTAINS(fault_of({send, overwrite}, {peer_receive}),
                 "rank 0, round 0, step 1 (copy) writes data[2:3)");
  // Before the message starts, it may.
  CHECK_CONTAINS(fault_of({overwrite, send}, {peer_receive}), "of the result");
}

TEST(a_step_on_what_a_longer_message_still_moves_is_found) {
  auto receive = message(0, Action::receive, 1, 4, scratch(0));
  const auto send = message(0, Action::send, 0, 4, data(0));
  const auto copy = [](std::uint32_t round) {
    return local(round, Action::copy, 4, data(0), scratch(0));
  };
  CHECK_CONTAINS(fault_of({receive, copy(1)}, {send}), "of the result");
  receive.span = 2;
  CHECK_CONTAINS(fault_of({receive, copy(1)}, {send}),
                 "rank 0, round 1, step 1 (copy) reads scratch[0:4)");
  CHECK_CONTAINS(fault_of({receive, copy(2)}, {send}), "of the result");
  receive.span = 0;
  CHECK_CONTAINS(fault_of({receive}, {send}), "spans no round");
}

TEST(a_read_of_what_nobody_wrote_is_found) {
  const auto copy = local(0, Action::copy, 2, data(0), scratch(1));
  CHECK_EQUAL(fault_of({copy}, {}),
              "rank 0, round 0, step 0 (copy): reads scratch[1:3), where nothing was written");
}

TEST(a_range_beyond_the_memory_is_found) {
  const auto copy = local(0, Action::copy, 3, scratch(2), data(0));
  CHECK_CONTAINS(fault_of({copy}, {}), "touches scratch[2:5), but that memory has 4 elements");
}

TEST(a_race_of_two_ranks_is_found) {
  // Each adds the data of the other to its own, which the other is reading.
  const Place sum = data(0), other = data(0, 1);
  const auto ready = message(0, Action::send, 0, 0), hears = message(0, Action::receive, 0, 0);
  const auto tell = message(0, Action::send, 1, 0), waits = message(0, Action::receive, 1, 0);
  const auto add = local(1, Action::reduce, 4, sum, sum, other);
  const auto other_add = local(1, Action::reduce, 4, sum, sum, data(0, 0));
  CHECK_EQUAL(fault_of({waits, tell, add}, {hears, ready, other_add}),
              "rank 0, round 1, step 2 (reduce) reads data[0:4) of rank 1 while rank 1, round 1, "
              "step 2 (reduce) may still be writing it");
}

TEST(data_of_another_rank_is_out_of_reach_until_it_has_said_a_word) {
  const Place sum = data(0), other = data(0, 1);
  const auto ready = message(0, Action::send, 0, 0), waits = message(0, Action::receive, 1, 0);
  const auto early = local(0, Action::reduce, 4, sum, sum, other);
  for (const auto& steps : {std::vector<Step>{early, waits}, std::vector<Step>{waits, early}})
    CHECK_CONTAINS(fault_of(steps, {ready}),
                   "reaches for data of rank 1 before a message has come from there");
}

TEST(a_rank_that_ends_before_another_begins_is_found_where_they_share_memory) {
  Task task = make_task(Collective::broadcast, 3, 1, one_node(3), true);
  task.root = 0;
  const auto make = [](const Task& of) {
    Schedule schedule = algorithm(Collective::broadcast, "binomial").make(of);
    schedule.shared = true;
    return schedule;
  };
  CHECK_CONTAINS(check(make, task), "has begun");
  CHECK_EQUAL(check(algorithm(Collective::broadcast, "binomial"), task), "");
}

TEST(rounds_that_descend_are_found) {
  const auto late = local(1, Action::copy, 1, scratch(0), data(0));
  const auto early = local(0, Action::copy, 1, scratch(1), data(1));
  CHECK_EQUAL(fault_of({late, early}, {}),
              "rank 0, round 0, step 1 (copy): is of an earlier round than the step before it");
}

TEST(memory_of_another_node_is_out_of_reach) {
  Task task = two_ranks();
  task.node = {0, 1};
  const auto add = local(0, Action::reduce, 4, data(0), data(0), data(0, 1));
  CHECK_CONTAINS(fault_of({add}, {}, task), "which is on another node");
  const auto own = local(0, Action::reduce, 4, data(0), data(0), data(0, 0));
  CHECK_CONTAINS(fault_of({own}, {}), "which is called `here`");
  auto remote_scratch = add;
  remote_scratch.with.memory = Memory::scratch;
  CHECK_CONTAINS(fault_of({remote_scratch}, {}), "other than data memory");
}

TEST(what_a_result_lacks_is_named) {
  CHECK_EQUAL(fault_of({}, {}),
              "rank 0, at the end: element 0 of the result lacks what rank 1 gave");
}

TEST(input_is_not_read_after_output_was_written_there) {
  Task task = make_task(Collective::allreduce, 1, 4);
  Schedule schedule;
  schedule.scratch_count = 4;
  const Place input{Memory::input, here, 0}, output{Memory::output, here, 0};
  schedule.steps = {local(0, Action::copy, 4, output, input)};
  CHECK_EQUAL(check_schedules({schedule}, task), "");
  schedule.steps.push_back(local(0, Action::copy, 4, scratch(0), input));
  CHECK_CONTAINS(check_schedules({schedule}, task), "where output was written");
}

TEST(sums_in_another_order_are_found) {
  // Rank 0 adds (0 + 1) + 2, and rank 1 and 2 add 0 + (1 + 2).
  const Task task = make_task(Collective::allreduce, 3, 1, {}, true);
  Schedules schedules;
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<Step> steps;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      steps.push_back(message(0, Action::receive, peer, 1, scratch(peer)));
      steps.push_back(message(0, Action::send, peer, 1, data(0)));
    }
    const std::size_t last = rank == 0 ? 2 : 0;
    steps.push_back(local(1, Action::copy, 1, scratch(rank), data(0)));
    steps.push_back(local(1, Action::reduce, 1, data(0), scratch(1), scratch(2 - last)));
    steps.push_back(local(1, Action::reduce, 1, data(0), data(0), scratch(last)));
    schedules.push_back({steps, 1, 3});
  }
  CHECK_CONTAINS(check_schedules(schedules, task), "added up in another order");
}

TEST(a_function_of_one_s_own_is_checked_like_any_other) {
  const auto nothing = [](const Task&) { return Schedule{}; };
  Task task = make_task(Collective::barrier, 2, 0);
  CHECK_CONTAINS(check(nothing, task), "ends before rank 1 has begun");
  task.size = 1;
  CHECK_EQUAL(check(nothing, task), "");
}

TEST(an_algorithm_that_does_not_fit_is_named) {
  const Task task = make_task(Collective::allreduce, 2, 4);
  CHECK_EQUAL(check(algorithm(Collective::allreduce, "direct"), task),
              "allreduce direct of 2 ranks: does not fit these ranks and nodes");
}
