// Waiting for other ranks: a few pauses, then the core is given away, then sleep, so that a rank
// that waits does not steal the time of one that computes on the same core.
#pragma once

#include <sched.h>

#include "transport/transport.h"

namespace tnt {

class Backoff {
 public:
  void reset() { idle_ = 0; }

  // Waits a little longer than the last time; `look()` is a last look before sleeping: true if
  // there is something to do after all.
  template <class Look>
  void wait(Transport& transport, Look&& look) {
    ++idle_;
    if (idle_ <= pauses) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (idle_ <= yields) {
      sched_yield();
    } else {
      Doorbell& bell = transport.doorbell();
      const std::uint32_t seen = bell.enter();
      if (!look()) bell.sleep(seen, nap(transport));
      bell.leave();
    }
  }

 private:
  static constexpr int pauses = 20, yields = 200, short_naps = 2000;

  std::chrono::nanoseconds nap(const Transport& transport) const {
    using std::chrono::microseconds;
    if (!transport.must_poll()) return microseconds(2000);
    return microseconds(idle_ <= short_naps ? 20 : 100);
  }

  int idle_ = 0;
};

}  // namespace tnt
