// An allgather of blocks whose sizes the ranks do not know of each other.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"

namespace tnt {

// Blocks of any size, one from each rank of the group (null: all ranks), put one after another in
// rank order. `input` must live until done(); `allocate` is given the total size in bytes and
// returns where to put it (null: give up, without an error of its own).
void gather(std::shared_ptr<Engine> engine, std::shared_ptr<const Group> group,
            std::uint32_t channel, const std::string& label, const void* input, std::size_t bytes,
            std::function<void*(std::size_t)> allocate, Done done);

}  // namespace tnt
