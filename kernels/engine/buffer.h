// Memory that grows and is reused; cache-line aligned, never shrinks.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace tnt {

class Buffer {
 public:
  // At least so many bytes, uninitialised; what was there is lost when it has to grow.
  std::byte* reserve(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    if (bytes > bytes_) {
      const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
      void* memory = std::aligned_alloc(alignment, rounded);
      if (memory == nullptr) throw std::bad_alloc();
      memory_.reset(static_cast<std::byte*>(memory));
      bytes_ = rounded;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace tnt
