// TntClock   what time it is when the op runs; writes down in the trace what lay between.
#include <cstring>

#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

struct Clock {
  Address address;
  int kind;  // of the event; negative: none

  explicit Clock(TF_OpKernelConstruction* construction)
      : address(construction), kind(static_cast<int>(int_attribute(construction, "kind"))) {}
};

void compute_clock(void* state, TF_OpKernelContext* context,
                   TF_AsyncOpKernelDoneCallback* callback) {
  guarded(context, callback, [&](const std::function<void()>& done) {
    const auto& kernel = *static_cast<const Clock*>(state);
    std::uint64_t begin = 0;
    const std::uint64_t now = now_ns();
    std::memcpy(&begin, TF_TensorData(input(context, 0).get()), sizeof begin);
    const StatusOwner status = new_status();
    const TensorOwner output(
        TF_AllocateOutput(context, 0, TF_INT64, nullptr, 0, sizeof now, status.get()));
    check(status);
    std::memcpy(TF_TensorData(output.get()), &now, sizeof now);
    if (kernel.kind >= 0)
      kernel.address.engine()->trace().record(static_cast<EventKind>(kernel.kind),
                                              kernel.address.channel, begin, now);
    done();
  });
}

}  // namespace

void define_clock() {
  define({"TntClock",
          {"begin: int64"},
          {"now: int64"},
          with_address({"kind: int"}),
          unknown_shape,
          create<Clock>,
          compute_clock,
          destroy<Clock>});
}

}  // namespace tnt::tf
