// TensorFlow ops over the engine, registered when tf.load_op_library loads this library.
//
//   TntClock   what time it is when the op runs; writes down in the trace what lay between.
//   TntCheck   completes from another thread: proves that done() may be kept (see Python).
#include <cstring>
#include <thread>

#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

struct Clock {
  Address address;
  int kind;  // of the event; negative: none

  explicit Clock(TF_OpKernelConstruction* construction)
      : address(construction), kind(static_cast<int>(int_attribute(construction, "kind"))) {}
};

void tell_time(Clock& kernel, TF_OpKernelContext* context) {
  std::uint64_t begin = 0;
  const std::uint64_t now = now_ns();
  std::memcpy(&begin, TF_TensorData(input(context, 0).get()), sizeof begin);
  put(context, 0, static_cast<std::int64_t>(now));
  if (kernel.kind >= 0)
    kernel.address.engine()->trace().record(static_cast<EventKind>(kernel.kind),
                                            kernel.address.channel, begin, now);
}

void answer(Nothing&, TF_OpKernelContext* context, const Callback& done) {
  std::thread([context, done] {
    const std::int64_t shape = 1;
    const StatusOwner status = new_status();
    const TensorOwner output(
        TF_AllocateOutput(context, 0, TF_INT32, &shape, 1, sizeof(std::int32_t), status.get()));
    if (TF_GetCode(status.get()) == TF_OK) {
      const std::int32_t answer = 1;
      std::memcpy(TF_TensorData(output.get()), &answer, sizeof answer);
    } else {
      TF_OpKernelContext_Failure(context, status.get());
    }
    done();
  }).detach();
}

std::string load_error;

__attribute__((constructor)) void define_all() {
  if (const char* missing = resolve(); missing != nullptr) {
    load_error = std::string("TensorFlow's C API lacks ") + missing;
    return;
  }
  try {
    define_codes();
    define_collectives();
    define_moves();
    define_servers();
    define_transfers();
    const Words begin{"begin: int64"}, now{"now: int64"};
    define_at_once<Clock, tell_time>({"TntClock", begin, now, with_address({"kind: int"})});
    define<Nothing, answer>({"TntCheck", {}, Words{"answer: int32"}, {}});
  } catch (const std::exception& error) {
    load_error = error.what();
  }
}

}  // namespace
}  // namespace tnt::tf

// Empty if all ops are registered.
extern "C" const char* tnt_load_error() { return tnt::tf::load_error.c_str(); }
