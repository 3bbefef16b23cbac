// Element types as the tests see them: made from doubles, read as doubles.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "elements/element.h"
#include "elements/narrow_float.h"

namespace tnt::test {

inline BFloat16 narrow(float value, BFloat16) { return narrow_bfloat16(value); }
inline Float16 narrow(float value, Float16) { return narrow_float16(value); }

template <class T>
T make(double value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return narrow(static_cast<float>(value), T{});
}

template <class T>
double read(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(widen(value));
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Calls visit(type, a value of the C++ type) for every element type.
template <class Visit>
void for_each_type(Visit visit) {
  visit(Type::float32, float{});
  visit(Type::float64, double{});
  visit(Type::bfloat16, BFloat16{});
  visit(Type::float16, Float16{});
  visit(Type::int32, std::int32_t{});
  visit(Type::int64, std::int64_t{});
  visit(Type::uint8, std::uint8_t{});
}

template <class Visit>
void for_each_reduction(Visit visit) {
  for (const Reduction reduction :
       {Reduction::sum, Reduction::min, Reduction::max, Reduction::product})
    visit(reduction);
}

}  // namespace tnt::test
