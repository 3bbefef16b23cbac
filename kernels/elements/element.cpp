#include "elements/element.h"

#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

#include "elements/element_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace tnt {
namespace {

// The default floating-point modes for as long as it lives. TensorFlow's threads flush subnormal
// numbers to zero; results must not depend on the thread.
#if defined(__x86_64__)
class DefaultModes {
 public:
  DefaultModes() : modes_(_mm_getcsr()) {
    if (changed()) _mm_setcsr(defaults);
  }
  ~DefaultModes() {
    if (changed()) _mm_setcsr(modes_);
  }

 private:
  static constexpr unsigned defaults = 0x1f80, sticky_flags = 0x3f;
  bool changed() const { return (modes_ & ~sticky_flags) != defaults; }
  const unsigned modes_;
};
#else
class DefaultModes {
 public:
  DefaultModes() {
    std::fegetenv(&modes_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultModes() { std::fesetenv(&modes_); }

 private:
  std::fenv_t modes_;
};
#endif

// Streaming stores are not ordered: others shall not see less of them than of what is stored next.
void store_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

const ElementKernels& fastest() {
  static const ElementKernels& kernels = element_kernels().front();
  return kernels;
}

template <class Enum>
std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

bool is_float(Type type) { return type <= Type::float16; }

// By Type and by Reduction.
constexpr struct {
  const char* name;
  std::size_t bytes;
} types[] = {{"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float16", 2},
             {"int32", 4},   {"int64", 8},   {"uint8", 1}};
constexpr const char* reductions[] = {"sum", "min", "max", "product"};

void copy(void* to, const void* from, std::size_t bytes, bool streaming) {
  if (to == from || bytes == 0) return;
  if (streaming) {
    fastest().copy_streaming(to, from, bytes);
    store_fence();
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

std::size_t size_of(Type type) {
  if (index(type) >= std::size(types)) throw std::invalid_argument("unknown element type");
  return types[index(type)].bytes;
}

const char* name_of(Type type) {
  return index(type) < std::size(types) ? types[index(type)].name : "unknown";
}

const char* name_of(Reduction reduction) {
  return index(reduction) < std::size(reductions) ? reductions[index(reduction)] : "unknown";
}

void reduce(Type type, Reduction reduction, void* to, const void* a, const void* b,
            std::size_t count, bool streaming) {
  const DefaultModes modes;
  if (streaming) {
    fastest().reduce_streaming[index(type)][index(reduction)](to, a, b, count);
    store_fence();
  } else {
    fastest().reduce[index(type)][index(reduction)](to, a, b, count);
  }
}

void reduce_both(Type type, Reduction reduction, void* a, void* b, std::size_t count) {
  const DefaultModes modes;
  fastest().reduce_both[index(type)][index(reduction)](a, b, count);
}

void convert(Type to_type, void* to, Type from_type, const void* from, double scale,
             std::size_t count, bool streaming) {
  const bool floats = is_float(to_type) && is_float(from_type);
  if (!floats && to_type != from_type)
    throw std::invalid_argument(std::string(name_of(from_type)) + " is not converted to " +
                                name_of(to_type));
  if (!floats && scale != 0.0 && scale != 1.0)
    throw std::invalid_argument(std::string(name_of(from_type)) + " is not scaled");

  const std::size_t bytes = count * size_of(to_type);
  if (count == 0) return;
  if (scale == 0.0) {
    std::memset(to, 0, bytes);
  } else if (scale == 1.0 && to_type == from_type) {
    copy(to, from, bytes, streaming);
  } else {
    const DefaultModes modes;
    if (streaming) {
      fastest().convert_streaming[index(to_type)][index(from_type)](to, from, scale, count);
      store_fence();
    } else {
      fastest().convert[index(to_type)][index(from_type)](to, from, scale, count);
    }
  }
}

}  // namespace tnt
