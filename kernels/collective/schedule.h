// A collective as data: what one rank does, round after round.
//
//   round 0   receive scratch[0:4) from rank 2 | send data[0:4) to rank 1
//             then  reduce data[4:8) += scratch[0:4)
//   round 1   ...
//
// In a round all sends and receives are under way together; when the last has completed, the
// round's reduces and copies run, in order. The next round begins after that. The same lists are
// executed by the engine and checked by the tests, for any number of ranks, without hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tnt {

enum class Action : std::uint8_t { send, receive, reduce, copy };
enum class Memory : std::uint8_t { data, scratch };

// A range of elements in one of the two memories of a collective.
struct Range {
  Memory memory = Memory::data;
  std::size_t begin = 0;
  std::size_t count = 0;
};

struct Step {
  std::uint32_t round = 0;
  Action action = Action::copy;
  int peer = -1;  // of a send or receive
  Range from;     // of a send, reduce, copy
  Range to;       // of a receive, reduce, copy
};

struct Schedule {
  std::vector<Step> steps;  // rounds ascending
  std::size_t scratch_count = 0;
};

}  // namespace tnt
