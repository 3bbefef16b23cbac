// What two ranks must agree on when they exchange messages on a channel, in 16 bytes and in words.
#pragma once

#include <string>

#include "engine/request.h"
#include "transport/transport.h"

namespace tnt {

// `algorithm`: its number in algorithms(); the last number: a caller's own schedule. `blocks`: a
// hash of the request's offsets or flows, 0 without any.
Heading heading_of(const Request& request, int algorithm, std::uint64_t blocks);

// "allreduce (sum) of 8192 float32 by ring"
std::string describe(const Heading& heading);

// A hash of numbers, one after the other: hash_of(b, hash_of(a, 0)).
std::uint64_t hash_of(std::uint64_t number, std::uint64_t before);

}  // namespace tnt
