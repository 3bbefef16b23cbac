// bfloat16 and float16: what they are worth, and the nearest one to a float.
//
// By integer arithmetic, so that the result is the same on every machine. A NaN becomes the type's
// one quiet NaN: which of two NaNs an addition passes on depends on the order of its operands, and
// all ranks shall have the same bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace tnt {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

inline float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t as_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float widen(BFloat16 value) {
  return as_float(static_cast<std::uint32_t>(value.bits) << 16);
}

// Rounded to nearest, ties to even.
inline BFloat16 narrow_bfloat16(float value) {
  const std::uint32_t bits = as_bits(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  constexpr std::uint32_t quiet_nan = 0x7fc0;
  return {static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded)};
}

// Without branches, so that loops over it are vectorised.
inline float widen(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7fff) << 13;
  // Shifted into float32's fields the exponent is 112 too small; a multiplication by 2^112 is
  // exact, and turns subnormals into normal numbers as well.
  const std::uint32_t finite = as_bits(as_float(magnitude) * as_float(0x77800000));
  return as_float(sign | (magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite));
}

// Rounded to nearest, ties to even. Without branches.
inline Float16 narrow_float16(float value) {
  const std::uint32_t bits = as_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Adding 0.5 leaves a small value's multiples of 2^-24, rounded, in the low bits.
  const std::uint32_t subnormal = as_bits(as_float(magnitude) + 0.5F) - 0x3f000000;
  const std::uint32_t finite = sign | (magnitude < 0x38800000 ? subnormal : normal);
  const std::uint32_t infinite = magnitude > 0x7f800000 ? 0x7e00 : sign | 0x7c00;
  return {static_cast<std::uint16_t>(magnitude >= 0x477ff000 ? infinite : finite)};
}

}  // namespace tnt
