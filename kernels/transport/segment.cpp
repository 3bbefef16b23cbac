#include "transport/segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>

namespace tnt {
namespace {

constexpr std::size_t page = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

[[noreturn]] void fail(const std::string& what) {
  throw TransportError(what + ": " + std::strerror(errno));
}

// Segments of this process by key: threads that are ranks share one mapping, not two.
std::mutex own_mutex;
std::map<std::uint64_t, std::byte*>& own_segments() {
  static auto* instance = new std::map<std::uint64_t, std::byte*>;
  return *instance;
}

// This boot of this machine, and the process ids that are valid in it.
std::string host_name_for_memory() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat process_ids{};
  if (boot.empty() || stat("/proc/self/ns/pid", &process_ids) != 0)
    throw TransportError("/proc does not say which machine this is");
  return boot + "/" + std::to_string(process_ids.st_ino);
}

}  // namespace

Segment::Segment(std::size_t bytes) : bytes_(whole_pages(bytes)) {
  file_ = static_cast<int>(syscall(SYS_memfd_create, "tnt", 1U /* MFD_CLOEXEC */));
  if (file_ < 0) fail("shared memory cannot be made (memfd_create)");
  try {
    if (fchmod(file_, S_IRUSR | S_IWUSR) != 0) fail("shared memory cannot be made private");
    if (ftruncate(file_, static_cast<off_t>(bytes_)) != 0)
      fail("shared memory of " + std::to_string(bytes_ >> 20) + " MiB cannot be made");
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (memory == MAP_FAILED)
      fail("shared memory of " + std::to_string(bytes_ >> 20) + " MiB cannot be mapped");
    begin_ = static_cast<std::byte*>(memory);
    if (getrandom(&key_, sizeof key_, 0) != sizeof key_) fail("no random number");
  } catch (...) {
    if (begin_ != nullptr) munmap(begin_, bytes_);
    close(file_);
    throw;
  }
  std::memcpy(begin_, &key_, sizeof key_);
  set_heap_begin(key_bytes);
  std::lock_guard lock(own_mutex);
  own_segments()[key_] = begin_;
}

Segment::~Segment() {
  {
    std::lock_guard lock(own_mutex);
    own_segments().erase(key_);
  }
  munmap(begin_, bytes_);
  close(file_);
}

SegmentAddress Segment::address() const {
  return {host_name_for_memory(), getpid(), file_, bytes_, key_};
}

void Segment::set_heap_begin(std::size_t offset) {
  const std::size_t begin = whole_pages(offset);
  holes_ = {{begin, bytes_ - begin}};
}

std::byte* Segment::allocate(std::size_t bytes) {
  const std::size_t wanted = whole_pages(bytes == 0 ? 1 : bytes);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [offset, size] = *hole;
    if (size < wanted) continue;
    // Now, and not as a SIGBUS when it is touched.
    if (fallocate(file_, 0, static_cast<off_t>(offset), static_cast<off_t>(wanted)) != 0)
      throw std::bad_alloc();
    madvise(begin_ + offset, wanted, MADV_HUGEPAGE);
    holes_.erase(hole);
    if (size > wanted) holes_[offset + wanted] = size - wanted;
    blocks_[offset] = wanted;
    return begin_ + offset;
  }
  throw std::bad_alloc();
}

void Segment::free(std::byte* memory) {
  const auto block = blocks_.find(static_cast<std::size_t>(memory - begin_));
  if (block == blocks_.end()) throw std::logic_error("this is not a block of the segment");
  auto [offset, size] = *block;
  blocks_.erase(block);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
  const auto after = holes_.lower_bound(offset);
  if (after != holes_.end() && after->first == offset + size) {
    size += after->second;
    holes_.erase(after);
  }
  const auto next = holes_.lower_bound(offset);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  holes_[offset] = size;
}

MappedSegment::MappedSegment(const SegmentAddress& address, const Segment& own)
    : bytes_(address.bytes) {
  if (address.host != own.address().host) throw TransportError("it is on another host");
  if (address.pid == getpid()) {
    std::lock_guard lock(own_mutex);
    const auto found = own_segments().find(address.key);
    if (found == own_segments().end()) throw TransportError("its memory is gone");
    begin_ = found->second;
    return;
  }
  const std::string path =
      "/proc/" + std::to_string(address.pid) + "/fd/" + std::to_string(address.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail("its memory (" + path + ") cannot be opened");
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED) fail("its memory cannot be mapped");
  begin_ = static_cast<std::byte*>(memory);
  mapped_ = true;
  if (std::memcmp(begin_, &address.key, sizeof address.key) != 0) {
    munmap(begin_, bytes_);
    throw TransportError("what " + path + " holds is not its memory");
  }
  // Without pidfd (Linux before 5.3) a peer's end is noticed by its silence only.
  process_ = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(address.pid), 0));
}

MappedSegment::~MappedSegment() {
  if (mapped_) munmap(begin_, bytes_);
  if (process_ >= 0) close(process_);
}

bool MappedSegment::alive() const {
  if (process_ < 0) return true;
  pollfd process{process_, POLLIN, 0};
  return poll(&process, 1, 0) == 0;
}

}  // namespace tnt
