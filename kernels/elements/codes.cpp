#include "elements/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tnt {
namespace {

std::size_t header_floats(int bits) { return bits == 1 ? 2 : 1; }

std::size_t packed_bytes(std::size_t count, int bits) { return (count * bits + 7) / 8; }

// A number from 0 to below 1 for each element: the finalizer of MurmurHash3.
float chance(std::uint32_t element, std::uint32_t seed) {
  std::uint32_t x = element * 0x9e3779b9u + seed;
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return static_cast<float>(x >> 8) * 0x1p-24f;
}

void pack(const std::uint8_t* codes, std::size_t count, int bits, std::byte* to) {
  const std::size_t in_byte = 8 / bits;
  for (std::size_t i = 0; i < packed_bytes(count, bits); ++i) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < in_byte && i * in_byte + j < count; ++j)
      byte |= static_cast<unsigned>(codes[i * in_byte + j]) << (j * bits);
    to[i] = static_cast<std::byte>(byte);
  }
}

void unpack(const std::byte* from, std::size_t count, int bits, std::uint8_t* codes) {
  const std::size_t in_byte = 8 / bits;
  const unsigned mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = static_cast<unsigned>(from[i / in_byte]) >> (i % in_byte * bits) & mask;
}

void encode_signs(const float* values, std::size_t count, float* header, std::uint8_t* codes) {
  float sums[2] = {0, 0};
  std::size_t counts[2] = {0, 0};
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = !(values[i] < 0);
    sums[codes[i]] += values[i];
    ++counts[codes[i]];
  }
  for (int i = 0; i < 2; ++i) header[i] = counts[i] ? sums[i] / static_cast<float>(counts[i]) : 0;
}

void encode_levels(const float* values, std::size_t first, std::size_t count, int bits,
                   std::uint32_t seed, float* header, std::uint8_t* codes) {
  const auto levels = static_cast<float>((1 << (bits - 1)) - 1);
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  header[0] = largest;
  const float in_levels = largest > 0 ? levels / largest : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float u = chance(static_cast<std::uint32_t>(first + i), seed);
    const float level = std::min(std::floor(std::fabs(values[i]) * in_levels + u), levels);
    codes[i] = static_cast<std::uint8_t>(levels + (values[i] < 0 ? -level : level));
  }
}

}  // namespace

std::size_t encoded_bytes(std::size_t count, int bits) {
  const std::size_t whole = count / bucket_elements, rest = count % bucket_elements;
  const std::size_t header = header_floats(bits) * sizeof(float);
  return whole * (header + packed_bytes(bucket_elements, bits)) +
         (rest ? header + packed_bytes(rest, bits) : 0);
}

void encode(const float* values, std::size_t count, int bits, std::uint32_t seed,
            std::byte* codes) {
  std::uint8_t unpacked[bucket_elements];
  float header[2];
  for (std::size_t first = 0; first < count; first += bucket_elements) {
    const std::size_t here = std::min(bucket_elements, count - first);
    if (bits == 1)
      encode_signs(values + first, here, header, unpacked);
    else
      encode_levels(values + first, first, here, bits, seed, header, unpacked);
    const std::size_t header_bytes = header_floats(bits) * sizeof(float);
    std::memcpy(codes, header, header_bytes);
    pack(unpacked, here, bits, codes + header_bytes);
    codes += header_bytes + packed_bytes(here, bits);
  }
}

void decode_and_add(const std::byte* codes, std::size_t count, int bits, float* sums) {
  std::uint8_t unpacked[bucket_elements];
  float header[2] = {0, 0};
  const auto levels = static_cast<float>((1 << (bits - 1)) - 1);
  for (std::size_t first = 0; first < count; first += bucket_elements) {
    const std::size_t here = std::min(bucket_elements, count - first);
    const std::size_t header_bytes = header_floats(bits) * sizeof(float);
    std::memcpy(header, codes, header_bytes);
    unpack(codes + header_bytes, here, bits, unpacked);
    if (bits == 1) {
      for (std::size_t i = 0; i < here; ++i) sums[first + i] += unpacked[i] ? header[1] : header[0];
    } else {
      const float a_level = header[0] / levels;
      for (std::size_t i = 0; i < here; ++i)
        sums[first + i] += (static_cast<float>(unpacked[i]) - levels) * a_level;
    }
    codes += header_bytes + packed_bytes(here, bits);
  }
}

}  // namespace tnt
