// What two ranks must agree on when they exchange messages on a channel, in 16 bytes and in words.
#pragma once

#include <string>

#include "collective/task.h"
#include "elements/element.h"
#include "transport/transport.h"

namespace tnt {

struct OperationFacts {
  Collective collective = Collective::allreduce;
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  int algorithm = 0;  // its number in algorithms(); the last number: a caller's own schedule
  int root = 0;
  std::size_t count = 0;  // see Task; the sum of all blocks of a reduce-scatter or allgather
};

// `agreed`: any number that all ranks must have as well, 0 for none.
Heading heading_of(const OperationFacts& facts, std::uint64_t agreed);

// "allreduce (sum) of 8192 float32 by ring"
std::string describe(const Heading& heading);

// A hash of numbers, one after the other: hash_of(b, hash_of(a, 0)).
std::uint64_t hash_of(std::uint64_t number, std::uint64_t before);

}  // namespace tnt
