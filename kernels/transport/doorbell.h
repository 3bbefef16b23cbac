// How a thread that waits for other threads or processes sleeps: a futex, which may lie in shared
// memory. Whoever changes what is waited for rings; while nobody sleeps that costs one fence.
//
//   sleeper:  seen = enter();  look once more;  sleep(seen, limit);  leave();
//   ringer:   change;  ring();
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace tnt {

class Doorbell {
 public:
  void ring() {
    // Either this sees the sleeper, or the sleeper's second look sees the change.
    if (sleepers_.fetch_add(0, std::memory_order_seq_cst) == 0) return;
    rings_.fetch_add(1, std::memory_order_seq_cst);
    futex(FUTEX_WAKE, INT_MAX, nullptr);
  }

  std::uint32_t enter() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    return rings_.load(std::memory_order_seq_cst);
  }
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) {
    const timespec time{static_cast<time_t>(limit.count() / 1'000'000'000),
                        static_cast<long>(limit.count() % 1'000'000'000)};
    futex(FUTEX_WAIT, seen, &time);
  }
  void leave() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  void futex(int operation, std::uint32_t value, const timespec* limit) {
    static_assert(sizeof rings_ == sizeof(std::uint32_t));
    syscall(SYS_futex, &rings_, operation, value, limit, nullptr, 0);
  }

  std::atomic<std::uint32_t> rings_{0}, sleepers_{0};
};

}  // namespace tnt
