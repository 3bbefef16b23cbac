// A collective as data: what one rank does, round after round.
//
//   round 0   copy data[0:8) = input[0:8) | receive scratch[0:4) from rank 2 | send data[4:8) to 1
//   round 1   reduce data[0:4) = data[0:4) + scratch[0:4) | send data[0:4) to 1 | ...
//
// The steps of a round start in the order of the list. A copy or reduce is done before the next
// step starts; sends and receives go on beside them, and the next round starts when all of them
// have completed. So a round reads what earlier rounds have received, while its own messages
// travel. A message that may take longer has a greater span, in rounds: while one is under way on a
// link, the next is announced.
//
// Ranks of one node reach each other's data memory: a copy or reduce may read and write it, as far
// as messages order the accesses, and after a message from that rank itself in the same operation,
// which also tells where the memory is. A message of no elements is such an order and nothing else,
// and costs one cache line. The same lists are executed by the engine, and proved and timed by
// the checker for any number of ranks, without hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tnt {

enum class Action : std::uint8_t { send, receive, reduce, copy };
inline constexpr const char* action_names[] = {"send", "receive", "reduce", "copy"};

enum class Memory : std::uint8_t {
  input,    // what the caller gives; reading it applies the caller's weight and type
  output,   // where the caller wants the result; may be the same memory as the input
  data,     // the bucket, which other ranks of the node can reach
  scratch,  // for what has been received and not yet been reduced
};
inline constexpr const char* memory_names[] = {"input", "output", "data", "scratch"};

constexpr std::int32_t here = -1;

// Where a range of elements begins. `rank` is `here`, or a member of the group that shares memory
// with this one: then `memory` is data.
struct Place {
  Memory memory = Memory::data;
  std::int32_t rank = here;
  std::size_t begin = 0;
};

struct Step {
  std::uint32_t round = 0;
  Action action = Action::copy;
  std::int32_t peer = here;  // of a send or receive
  std::size_t count = 0;     // elements
  Place to;                  // of a receive, reduce, copy
  Place from;                // of a send, reduce, copy
  Place with;                // of a reduce: to = from (op) with, both may be `to`
  std::uint32_t span = 1;    // of a send or receive: it has completed when round + span starts

  bool is_message() const { return action == Action::send || action == Action::receive; }
};

struct Schedule {
  std::vector<Step> steps;        // rounds ascending
  std::size_t data_count = 0;     // elements of data memory that the steps touch
  std::size_t scratch_count = 0;  // and of scratch memory
  // Some rank reaches into the data memory of another. Peers may then still read this rank's data
  // when it has finished, but not the part that the same schedule, begun at once, would write
  // first; if also that, it alternates. An operation by another schedule, or by one that
  // alternates, gets another data memory, and the one after that this one again: so in a shared
  // schedule no rank may finish before all have begun.
  bool shared = false;
  bool alternates = false;
};

}  // namespace tnt
