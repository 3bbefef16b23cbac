#include "elements/element_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "elements/narrow_float.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TNT_X86
#include <immintrin.h>
#endif

// Of a loop whose iterations do not depend on each other: an array is either another one or the
// very same. Not unrolled, so that a loop over few elements becomes vectors, not as many scalars.
#if defined(__clang__)
#define TNT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TNT_INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

namespace tnt {
namespace {

template <class Enum>
constexpr std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

// The same loops for each instruction set: TNT_TARGET on each function tells the compiler which.

namespace portable {
#define TNT_TARGET
#define TNT_F16_LANES 0
#include "elements/element_loops.h"
}  // namespace portable

#ifdef TNT_X86
namespace avx2 {
#define TNT_TARGET __attribute__((target("avx2,f16c")))
#define TNT_F16_LANES 8
#include "elements/element_loops.h"
}  // namespace avx2

namespace avx512 {
#define TNT_AVX512 "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#if defined(__clang__)
#define TNT_TARGET __attribute__((target(TNT_AVX512)))
#else
#define TNT_TARGET __attribute__((target(TNT_AVX512 ",prefer-vector-width=512")))
#endif
#define TNT_F16_LANES 16
#include "elements/element_loops.h"
}  // namespace avx512
#endif

}  // namespace

const std::vector<ElementKernels>& element_kernels() {
  static const std::vector<ElementKernels> all = [] {
    std::vector<ElementKernels> usable;
#ifdef TNT_X86
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    // Not on CPUs before Ice Lake and Zen 4, which lower their clock for 512-bit vectors.
    if (has_avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2"))
      usable.push_back(avx512::kernels("avx512"));
    if (has_avx2) usable.push_back(avx2::kernels("avx2"));
#endif
    usable.push_back(portable::kernels("portable"));
    return usable;
  }();
  return all;
}

}  // namespace tnt
