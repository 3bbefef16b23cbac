#include "elements/largest.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

namespace tnt {
namespace {

// Of floats without their sign the order is that of their bits.
std::uint32_t magnitude(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fffffff;
}

// Eight steps in each power of two.
constexpr int step_bits = 20;
constexpr std::size_t steps = 1u << (31 - step_bits);

// How many elements there are in each step. Counted in turn in four tables: the same counter twice
// in a row would wait for memory.
std::array<std::size_t, steps> count_by_step(const float* values, std::size_t count) {
  constexpr std::size_t tables = 4;
  std::vector<std::uint32_t> counts(tables * steps);
  for (std::size_t i = 0; i < count; ++i)
    ++counts[i % tables * steps + (magnitude(values[i]) >> step_bits)];
  std::array<std::size_t, steps> result{};
  for (std::size_t i = 0; i < counts.size(); ++i) result[i % steps] += counts[i];
  return result;
}

}  // namespace

// All that lie above the step in which the last one is, and the largest of that step.
void largest(const float* values, std::size_t count, std::size_t most, std::int32_t* places) {
  if (most == count) return std::iota(places, places + count, 0);
  const auto counts = count_by_step(values, count);
  std::size_t last = steps - 1, above = 0;
  while (above + counts[last] < most) above += counts[last--];
  std::vector<std::int32_t> within(counts[last] + 1), all_above(above + 1);
  std::size_t n = 0, m = 0;
  for (std::size_t i = 0; i < count; ++i) {
    // Without branches, which could not be foreseen.
    const std::size_t step = magnitude(values[i]) >> step_bits;
    all_above[n] = within[m] = static_cast<std::int32_t>(i);
    n += step > last;
    m += step == last;
  }
  const auto chosen = within.begin() + static_cast<std::ptrdiff_t>(most - above);
  std::nth_element(within.begin(), chosen, within.end() - 1, [&](std::int32_t a, std::int32_t b) {
    const std::uint32_t of_a = magnitude(values[a]), of_b = magnitude(values[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  std::copy(all_above.begin(), all_above.end() - 1, places);
  std::copy(within.begin(), chosen, places + above);
}

}  // namespace tnt
