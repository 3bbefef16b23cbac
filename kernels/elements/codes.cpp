#include "elements/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tnt {
namespace {

std::size_t header_floats(int bits) { return bits == 1 ? 2 : 1; }

std::size_t packed_bytes(std::size_t count, int bits) { return (count * bits + 7) / 8; }

// The loops below are written so that the compiler makes vectors of them: no calls, no order of
// additions, and integers in the place of comparisons of floats.

// A number from 0 to below 1 for each element: the finalizer of MurmurHash3.
float chance(std::uint32_t element, std::uint32_t seed) {
  std::uint32_t x = element * 0x9e3779b9u + seed;
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return static_cast<float>(static_cast<std::int32_t>(x >> 8)) * 0x1p-24f;
}

template <int bits>
void pack(const std::uint8_t* codes, std::size_t count, std::byte* to) {
  constexpr std::size_t in_byte = 8 / bits;
  const auto byte_of = [](const std::uint8_t* from, std::size_t n) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < n; ++j) byte |= static_cast<unsigned>(from[j]) << (j * bits);
    return static_cast<std::byte>(byte);
  };
  const std::size_t whole = count / in_byte;
  for (std::size_t i = 0; i < whole; ++i) to[i] = byte_of(codes + i * in_byte, in_byte);
  if (count % in_byte != 0) to[whole] = byte_of(codes + whole * in_byte, count % in_byte);
}

template <int bits>
void unpack(const std::byte* from, std::size_t count, std::uint8_t* codes) {
  constexpr std::size_t in_byte = 8 / bits;
  constexpr unsigned mask = (1u << bits) - 1;
  const auto part = [](std::byte byte, std::size_t j) {
    return static_cast<std::uint8_t>(static_cast<unsigned>(byte) >> (j * bits) & mask);
  };
  const std::size_t whole = count / in_byte;
  for (std::size_t i = 0; i < whole; ++i)
    for (std::size_t j = 0; j < in_byte; ++j) codes[i * in_byte + j] = part(from[i], j);
  for (std::size_t i = whole * in_byte; i < count; ++i) codes[i] = part(from[whole], i % in_byte);
}

// The largest magnitude: of floats without their sign the order is that of their bits. NaN, if
// there is one.
float largest_of(const float* values, std::size_t count) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t magnitude;
    std::memcpy(&magnitude, values + i, sizeof magnitude);
    magnitude &= 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  float result;
  std::memcpy(&result, &largest, sizeof result);
  return result;
}

// In as many partial sums as lanes.
float sum_of(const float* values, std::size_t count) {
  constexpr std::size_t lanes = 16;
  float sums[lanes] = {};
  const std::size_t whole = count - count % lanes;
  for (std::size_t i = 0; i < whole; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += values[i + lane];
  for (std::size_t i = whole; i < count; ++i) sums[i - whole] += values[i];
  for (std::size_t lane = 1; lane < lanes; ++lane) sums[0] += sums[lane];
  return sums[0];
}

void encode_signs(const float* values, std::size_t count, float* header, std::uint8_t* codes) {
  float below[bucket_elements], above[bucket_elements];
  std::int32_t ones = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_below = values[i] < 0;
    below[i] = is_below ? values[i] : 0;
    above[i] = is_below ? 0 : values[i];
  }
  for (std::size_t i = 0; i < count; ++i) codes[i] = values[i] < 0 ? 0 : 1;
  for (std::size_t i = 0; i < count; ++i) ones += codes[i];
  const auto zeros = static_cast<std::int32_t>(count) - ones;
  header[0] = zeros ? sum_of(below, count) / static_cast<float>(zeros) : 0;
  header[1] = ones ? sum_of(above, count) / static_cast<float>(ones) : 0;
}

void encode_levels(const float* values, std::size_t first, std::size_t count, int bits,
                   std::uint32_t seed, float* header, std::uint8_t* codes) {
  const std::int32_t levels = (1 << (bits - 1)) - 1;
  const auto most = static_cast<float>(levels);
  const float largest = header[0] = largest_of(values, count);
  const float in_levels = largest > 0 ? most / largest : 0;
  std::int32_t found[bucket_elements];
  for (std::size_t i = 0; i < count; ++i) {
    const float u = chance(static_cast<std::uint32_t>(first + i), seed);
    const float scaled = std::fabs(values[i]) * in_levels + u;
    const auto level = static_cast<std::int32_t>(scaled < most ? scaled : most);
    found[i] = levels + (values[i] < 0 ? -level : level);
  }
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(found[i]);
}

template <int bits>
void encode_all(const float* values, std::size_t count, std::uint32_t seed, std::byte* codes) {
  std::uint8_t unpacked[bucket_elements];
  float header[2];
  for (std::size_t first = 0; first < count; first += bucket_elements) {
    const std::size_t here = std::min(bucket_elements, count - first);
    if constexpr (bits == 1)
      encode_signs(values + first, here, header, unpacked);
    else
      encode_levels(values + first, first, here, bits, seed, header, unpacked);
    const std::size_t header_bytes = header_floats(bits) * sizeof(float);
    std::memcpy(codes, header, header_bytes);
    pack<bits>(unpacked, here, codes + header_bytes);
    codes += header_bytes + packed_bytes(here, bits);
  }
}

template <int bits>
void decode_all(const std::byte* codes, std::size_t count, float* sums) {
  std::uint8_t unpacked[bucket_elements];
  float header[2] = {0, 0};
  const auto levels = static_cast<float>((1 << (bits - 1)) - 1);
  for (std::size_t first = 0; first < count; first += bucket_elements, sums += bucket_elements) {
    const std::size_t here = std::min(bucket_elements, count - first);
    const std::size_t header_bytes = header_floats(bits) * sizeof(float);
    std::memcpy(header, codes, header_bytes);
    unpack<bits>(codes + header_bytes, here, unpacked);
    if constexpr (bits == 1) {
      const float below = header[0], above = header[1];
      for (std::size_t i = 0; i < here; ++i) sums[i] += unpacked[i] ? above : below;
    } else {
      const float a_level = header[0] / levels;
      for (std::size_t i = 0; i < here; ++i)
        sums[i] += (static_cast<float>(unpacked[i]) - levels) * a_level;
    }
    codes += header_bytes + packed_bytes(here, bits);
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
  switch (bits) {
    case 1: return encode_all<1>(values, count, seed, codes);
    case 2: return encode_all<2>(values, count, seed, codes);
    case 4: return encode_all<4>(values, count, seed, codes);
    default: return encode_all<8>(values, count, seed, codes);
  }
}

void decode_and_add(const std::byte* codes, std::size_t count, int bits, float* sums) {
  switch (bits) {
    case 1: return decode_all<1>(codes, count, sums);
    case 2: return decode_all<2>(codes, count, sums);
    case 4: return decode_all<4>(codes, count, sums);
    default: return decode_all<8>(codes, count, sums);
  }
}

}  // namespace tnt
