// Memory that the processes of a node share: each has one segment, and maps those of the others.
//
// A segment is a file without a name (memfd), opened by the others through /proc. So it needs no
// space in /dev/shm, no other user can open it, and it is gone with the last process that maps it,
// however that ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "transport/transport.h"

namespace tnt {

// What another process has to know to map a segment.
struct SegmentAddress {
  std::string host;  // the same for processes that may share memory
  std::int64_t pid = 0;
  std::int32_t file = -1;
  std::uint64_t bytes = 0;
  std::uint64_t key = 0;  // found at the segment's begin
};

class Segment {
 public:
  // Address space for `bytes`; memory is taken when it is allocated. Throws TransportError.
  explicit Segment(std::size_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  static constexpr std::size_t key_bytes = 64;  // at the begin; the rest is the users'

  SegmentAddress address() const;
  std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  bool holds(const void* memory) const { return memory >= begin_ && memory < begin_ + bytes_; }

  // What is below is not for allocate().
  void set_heap_begin(std::size_t offset);

  // Page-aligned; zeroed. Throws std::bad_alloc if the machine has no memory left.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* memory);  // and gives the memory back to the machine

 private:
  const std::size_t bytes_;
  int file_ = -1;
  std::byte* begin_ = nullptr;
  std::uint64_t key_ = 0;
  std::map<std::size_t, std::size_t> holes_;   // offset, bytes: what is free
  std::map<std::size_t, std::size_t> blocks_;  // offset, bytes: what is allocated
};

// Another process's segment (or another one of this process), mapped here.
class MappedSegment {
 public:
  // Throws TransportError with the reason if it cannot be had.
  MappedSegment(const SegmentAddress& address, const Segment& own);
  ~MappedSegment();
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  std::byte* begin() const { return begin_; }

  // False once its process has ended.
  bool alive() const;

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
  int process_ = -1;  // a pidfd
};

}  // namespace tnt
