// TensorFlow ops over the engine, registered when tf.load_op_library loads this library.
//
//   TntCheck   completes from another thread: proves that done() may be kept (see Python).
#include <cstring>
#include <thread>

#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

void compute_check(void*, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  guarded(context, callback, [&](const std::function<void()>& done) {
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
  });
}

std::string load_error;

__attribute__((constructor)) void define_all() {
  if (const char* missing = resolve(); missing != nullptr) {
    load_error = std::string("TensorFlow's C API lacks ") + missing;
    return;
  }
  try {
    define_collectives();
    define_transfers();
    define_clock();
    define({"TntCheck",
            {},
            {"answer: int32"},
            {},
            unknown_shape,
            create<Nothing>,
            compute_check,
            destroy<Nothing>});
  } catch (const std::exception& error) {
    load_error = error.what();
  }
}

}  // namespace
}  // namespace tnt::tf

// Empty if all ops are registered.
extern "C" const char* tnt_load_error() { return tnt::tf::load_error.c_str(); }
