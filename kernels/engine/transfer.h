// A message from one rank to another, as a schedule that only these two carry out.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace tnt {

// What this rank, one of the two, does of it: `count` elements of the input of rank `from` become
// the output of rank `to`, both by their index in the group. The request's root must be `from`.
std::shared_ptr<const Schedule> transfer(const Group& group, int from, int to, std::size_t count);

// Starts the request when those posted on the channel before it have ended. done() is called once,
// also with the reason why it could not be started; until then it keeps the memory alive.
void post(const std::shared_ptr<Engine>& engine, std::uint32_t channel, Request request, Done done);

}  // namespace tnt
