// Finds the engine of a world by number: TensorFlow ops carry the number as an attribute, and the
// engine behind it changes when communication starts afresh after a failure.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace tnt {

void register_engine(int world, std::shared_ptr<Engine> engine);  // null: forget

// Null if there is none.
std::shared_ptr<Engine> find_engine(int world);

}  // namespace tnt
