// The loops behind element.h: a table of them for each instruction set. They rely on the CPU's
// default floating-point modes, which element.cpp sees to.
#pragma once

#include <cstddef>
#include <vector>

#include "elements/element.h"

namespace tnt {

struct ElementKernels {
  using Reduce = void (*)(void* to, const void* a, const void* b, std::size_t count);
  using ReduceBoth = void (*)(void* a, void* b, std::size_t count);
  using Convert = void (*)(void* to, const void* from, double scale, std::size_t count);
  using Copy = void (*)(void* to, const void* from, std::size_t bytes);

  const char* instruction_set;
  // By Type and Reduction. What is streamed is visible to others after a store fence.
  Reduce reduce[7][4], reduce_streaming[7][4];
  ReduceBoth reduce_both[7][4];
  // By the Types to and from, which are floats.
  Convert convert[4][4], convert_streaming[4][4];
  Copy copy_streaming;
};

// Those that this CPU can run: the fastest first, the portable ones last.
const std::vector<ElementKernels>& element_kernels();

}  // namespace tnt
