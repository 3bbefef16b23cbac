#include "collective/element.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "collective/narrow_float.h"

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

// The bits of a result must not depend on the order of the operands, which differs between ranks:
// any NaN becomes the same quiet NaN, and of two zeros min and max give +0.
template <class Float>
inline Float same_nan(Float value) {
  return value == value ? value : std::numeric_limits<Float>::quiet_NaN();
}
template <class Float>
inline Float lesser(Float a, Float b) {
  return same_nan(a == a && b == b ? (a < b ? a : b) + Float{0} : a + b);
}
template <class Float>
inline Float greater(Float a, Float b) {
  return same_nan(a == a && b == b ? (a < b ? b : a) + Float{0} : a + b);
}

// Defines sum, min and max of arrays of TYPE, one element each by the expressions over a and b.
#define TNT_DEFINE_REDUCTIONS(TYPE, SUM, MIN, MAX) \
  TNT_DEFINE_REDUCTION(sum, TYPE, SUM)             \
  TNT_DEFINE_REDUCTION(min, TYPE, MIN)             \
  TNT_DEFINE_REDUCTION(max, TYPE, MAX)
#define TNT_DEFINE_REDUCTION(NAME, TYPE, RESULT)                                   \
  TNT_VECTORISED void NAME(TYPE* __restrict target, const TYPE* __restrict source, \
                           std::size_t count) {                                    \
    for (std::size_t i = 0; i < count; ++i) {                                      \
      const TYPE a = target[i], b = source[i];                                     \
      target[i] = RESULT;                                                          \
    }                                                                              \
  }
#define TNT_DEFINE_FLOAT(TYPE) \
  TNT_DEFINE_REDUCTIONS(TYPE, same_nan(a + b), lesser(a, b), greater(a, b))
#define TNT_DEFINE_INTEGER(TYPE) \
  TNT_DEFINE_REDUCTIONS(TYPE, static_cast<TYPE>(a + b), a < b ? a : b, a < b ? b : a)
#define TNT_DEFINE_NARROW(TYPE, NARROW)                                                        \
  TNT_DEFINE_REDUCTIONS(TYPE, NARROW(widen(a) + widen(b)), NARROW(lesser(widen(a), widen(b))), \
                        NARROW(greater(widen(a), widen(b))))
TNT_DEFINE_FLOAT(float)
TNT_DEFINE_FLOAT(double)
TNT_DEFINE_INTEGER(std::int32_t)
TNT_DEFINE_INTEGER(std::int64_t)
TNT_DEFINE_INTEGER(std::uint8_t)
TNT_DEFINE_NARROW(BFloat16, narrow_bfloat16)
TNT_DEFINE_NARROW(Float16, narrow_float16)
#undef TNT_DEFINE_NARROW
#undef TNT_DEFINE_INTEGER
#undef TNT_DEFINE_FLOAT
#undef TNT_DEFINE_REDUCTION
#undef TNT_DEFINE_REDUCTIONS

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
