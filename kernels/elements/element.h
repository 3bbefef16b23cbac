// Element types, and what is done to arrays of them: reduce, scale, convert, copy. By the widest
// vector instructions of the CPU; the bits of a result are the same with all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnt {

enum class Type : std::uint8_t { float32, float64, bfloat16, float16, int32, int64, uint8 };
enum class Reduction : std::uint8_t { sum, min, max, product };

std::size_t size_of(Type type);
const char* name_of(Type type);
const char* name_of(Reduction reduction);

// to[i] = a[i] (op) b[i]. `to` may be a or b or both; otherwise the three do not overlap.
//
// bfloat16 and float16 are reduced in float32 and rounded to nearest even. A NaN in either operand
// gives the type's one quiet NaN, and min and max of zeros give +0: the bits do not depend on the
// order of the operands, which differs between ranks. Sums and products of integers wrap.
//
// streaming: `to` will not be read soon, and is written around the cache where the CPU can. Worth
// it only where `to` is neither a nor b, and from 32 KiB on: a call waits some 100 ns for its
// writes.
void reduce(Type type, Reduction reduction, void* to, const void* a, const void* b,
            std::size_t count, bool streaming = false);

// a[i] = b[i] = a[i] (op) b[i], as reduce.
void reduce_both(Type type, Reduction reduction, void* a, void* b, std::size_t count);

// to[i] = scale * from[i], rounded to nearest even; `to` may be `from` if the types are equal.
//
// The product is computed in float64 if either type is float64, else in float32; any NaN becomes
// the one quiet NaN. A scale of 0 gives 0 whatever the source holds (NaN too): a rank without data
// has no gradient. A scale of 1 between equal types copies the bits. Integers convert to their own
// type only, with a scale of 0 or 1, or std::invalid_argument is thrown.
void convert(Type to_type, void* to, Type from_type, const void* from, double scale,
             std::size_t count, bool streaming = false);

}  // namespace tnt
