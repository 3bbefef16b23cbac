#include "collective/element.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

// The hot loops are compiled for several instruction sets, chosen when the library is loaded. The
// sanitizers cannot follow that choice.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(TNT_SANITIZED)
#define TNT_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TNT_VECTORISED
#endif

namespace tnt {
namespace {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t as_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float widen(BFloat16 value) {
  return as_float(static_cast<std::uint32_t>(value.bits) << 16);
}

inline BFloat16 narrow_bfloat16(float value) {
  const std::uint32_t bits = as_bits(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40;
  return {static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded)};
}

// IEEE 754 half precision by integer arithmetic: the same on every machine.
inline float widen(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fff;
  if (magnitude >= 0x7c00) return as_float(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
  // Shifted into float32's fields the exponent is 112 too small; a multiplication by 2^112 is
  // exact, and turns subnormals into normal numbers as well.
  return as_float(as_bits(as_float(magnitude << 13) * as_float(0x77800000)) | sign);
}

inline Float16 narrow_float16(float value) {
  const std::uint32_t bits = as_bits(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<std::uint16_t>(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return {static_cast<std::uint16_t>(sign | 0x7c00)};
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves the value's 2^-24 multiples, rounded, in the low bits.
    const float shifted = as_float(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (as_bits(shifted) - 0x3f000000))};
  }
  const std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13))};
}

#define TNT_DEFINE_REDUCTIONS(TYPE)                                                       \
  TNT_VECTORISED void sum(TYPE* __restrict target, const TYPE* __restrict source,         \
                          std::size_t count) {                                            \
    for (std::size_t i = 0; i < count; ++i) target[i] = static_cast<TYPE>(target[i] + source[i]); \
  }                                                                                       \
  TNT_VECTORISED void min(TYPE* __restrict target, const TYPE* __restrict source,         \
                          std::size_t count) {                                            \
    for (std::size_t i = 0; i < count; ++i) target[i] = source[i] < target[i] ? source[i] : target[i]; \
  }                                                                                       \
  TNT_VECTORISED void max(TYPE* __restrict target, const TYPE* __restrict source,         \
                          std::size_t count) {                                            \
    for (std::size_t i = 0; i < count; ++i) target[i] = target[i] < source[i] ? source[i] : target[i]; \
  }
TNT_DEFINE_REDUCTIONS(float)
TNT_DEFINE_REDUCTIONS(double)
TNT_DEFINE_REDUCTIONS(std::int32_t)
TNT_DEFINE_REDUCTIONS(std::int64_t)
TNT_DEFINE_REDUCTIONS(std::uint8_t)
#undef TNT_DEFINE_REDUCTIONS

#define TNT_DEFINE_NARROW_REDUCTIONS(TYPE, NARROW)                                        \
  TNT_VECTORISED void sum(TYPE* __restrict target, const TYPE* __restrict source,         \
                          std::size_t count) {                                            \
    for (std::size_t i = 0; i < count; ++i)                                               \
      target[i] = NARROW(widen(target[i]) + widen(source[i]));                            \
  }                                                                                       \
  TNT_VECTORISED void min(TYPE* __restrict target, const TYPE* __restrict source,         \
                          std::size_t count) {                                            \
    for (std::size_t i = 0; i < count; ++i)                                               \
      if (widen(source[i]) < widen(target[i])) target[i] = source[i];                     \
  }                                                                                       \
  TNT_VECTORISED void max(TYPE* __restrict target, const TYPE* __restrict source,         \
                          std::size_t count) {                                            \
    for (std::size_t i = 0; i < count; ++i)                                               \
      if (widen(target[i]) < widen(source[i])) target[i] = source[i];                     \
  }
TNT_DEFINE_NARROW_REDUCTIONS(BFloat16, narrow_bfloat16)
TNT_DEFINE_NARROW_REDUCTIONS(Float16, narrow_float16)
#undef TNT_DEFINE_NARROW_REDUCTIONS

TNT_VECTORISED void scale_into(float* __restrict target, const float* __restrict source,
                               float scale, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) target[i] = scale * source[i];
}
TNT_VECTORISED void scale_into(double* __restrict target, const double* __restrict source,
                               double scale, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) target[i] = scale * source[i];
}
TNT_VECTORISED void scale_into(BFloat16* __restrict target, const BFloat16* __restrict source,
                               float scale, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) target[i] = narrow_bfloat16(scale * widen(source[i]));
}
TNT_VECTORISED void scale_into(Float16* __restrict target, const Float16* __restrict source,
                               float scale, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) target[i] = narrow_float16(scale * widen(source[i]));
}

// Calls visit with a null pointer of the C++ type that stands for `type`.
template <class Visit>
void with_type(Type type, Visit&& visit) {
  switch (type) {
    case Type::float32: return visit(static_cast<float*>(nullptr));
    case Type::float64: return visit(static_cast<double*>(nullptr));
    case Type::bfloat16: return visit(static_cast<BFloat16*>(nullptr));
    case Type::float16: return visit(static_cast<Float16*>(nullptr));
    case Type::int32: return visit(static_cast<std::int32_t*>(nullptr));
    case Type::int64: return visit(static_cast<std::int64_t*>(nullptr));
    case Type::uint8: return visit(static_cast<std::uint8_t*>(nullptr));
  }
  throw std::invalid_argument("unknown element type");
}

}  // namespace

std::size_t size_of(Type type) {
  std::size_t size = 0;
  with_type(type, [&](auto* element) { size = sizeof *element; });
  return size;
}

const char* name_of(Type type) {
  switch (type) {
    case Type::float32: return "float32";
    case Type::float64: return "float64";
    case Type::bfloat16: return "bfloat16";
    case Type::float16: return "float16";
    case Type::int32: return "int32";
    case Type::int64: return "int64";
    case Type::uint8: return "uint8";
  }
  return "unknown";
}

void reduce(Type type, Reduction reduction, void* target, const void* source, std::size_t count) {
  with_type(type, [&](auto* element) {
    auto* to = static_cast<decltype(element)>(target);
    const auto* from = static_cast<decltype(element)>(const_cast<void*>(source));
    switch (reduction) {
      case Reduction::sum: return sum(to, from, count);
      case Reduction::min: return min(to, from, count);
      case Reduction::max: return max(to, from, count);
    }
  });
}

void scaled_copy(Type type, void* target, const void* source, double scale, std::size_t count) {
  if (count == 0) return;
  const std::size_t bytes = count * size_of(type);
  if (scale == 0.0) {
    std::memset(target, 0, bytes);
  } else if (scale == 1.0) {
    std::memcpy(target, source, bytes);
  } else {
    with_type(type, [&](auto* element) {
      using Element = std::remove_pointer_t<decltype(element)>;
      auto* to = static_cast<Element*>(target);
      const auto* from = static_cast<const Element*>(source);
      if constexpr (std::is_integral_v<Element>)
        throw std::invalid_argument("integers cannot be weighted");
      else if constexpr (std::is_same_v<Element, double>)
        scale_into(to, from, scale, count);
      else
        scale_into(to, from, static_cast<float>(scale), count);
    });
  }
}

}  // namespace tnt
