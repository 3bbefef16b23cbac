// The elements of largest magnitude.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnt {

// Where the `most` elements of largest magnitude are among `count`, which is as many at least; of
// those that are equal the first. NaN is larger than all. In no particular order, but the same one
// on every machine.
void largest(const float* values, std::size_t count, std::size_t most, std::int32_t* places);

}  // namespace tnt
