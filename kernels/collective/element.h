// Element types, and what is done to elements: add, compare, scale, copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tnt {

enum class Type : std::uint8_t { float32, float64, bfloat16, float16, int32, int64, uint8 };
enum class Reduction : std::uint8_t { sum, min, max };

std::size_t size_of(Type type);
const char* name_of(Type type);

// target[i] = target[i] (+, min, max) source[i]. bfloat16 and float16 are summed in float32 and
// rounded to nearest even. A NaN in either operand gives NaN, always with the same bits.
void reduce(Type type, Reduction reduction, void* target, const void* source, std::size_t count);

// target[i] = scale * source[i]. A scale of 0 gives 0 whatever the source holds (NaN too): a rank
// without data has no gradient. Integers are copied, or zeroed by 0.
void scaled_copy(Type type, void* target, const void* source, double scale, std::size_t count);

}  // namespace tnt
