// Floats as a few bits each.
//
// In buckets of bucket_elements, each a header of floats and then its codes, lowest bits first:
//
//   1 bit    the mean of the elements below 0, and that of the others; whether it is one of these
//            (Seide et al., 1-bit stochastic gradient descent, Interspeech 2014)
//   2, 4, 8  the largest magnitude; the level, of 2^(bits - 1) - 1 each way, rounded by chance, so
//            that its mean is the value (Alistarh et al., QSGD, NIPS 2017, with the maximum norm)
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnt {

constexpr std::size_t bucket_elements = 512;

constexpr bool is_code_width(std::int64_t bits) {
  return bits == 1 || bits == 2 || bits == 4 || bits == 8;
}

// Bytes of so many encoded elements.
std::size_t encoded_bytes(std::size_t count, int bits);

// Chance is that of the seed, the same on every machine.
void encode(const float* values, std::size_t count, int bits, std::uint32_t seed, std::byte* codes);

// Adds what codes stand for to so many elements.
void decode_and_add(const std::byte* codes, std::size_t count, int bits, float* sums);

}  // namespace tnt
