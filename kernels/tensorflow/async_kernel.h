// What every async kernel does around its work: keep done() alive, own tensors, report failures.
//
// TF_NewAsyncKernelBuilder hands compute a pointer to a std::function<void()> on its caller's
// stack, which is gone when compute returns. A copy of it may be called later, from any thread.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "tensorflow/api.h"

namespace tnt::tf {

struct DeleteStatus {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using StatusOwner = std::unique_ptr<TF_Status, DeleteStatus>;
using TensorOwner = std::unique_ptr<TF_Tensor, DeleteTensor>;

inline StatusOwner new_status() { return StatusOwner(TF_NewStatus()); }

// Throws std::runtime_error with TensorFlow's message.
inline void check(const StatusOwner& status) {
  if (TF_GetCode(status.get()) != TF_OK) throw std::runtime_error(TF_Message(status.get()));
}

// A copy of the callback. Throws std::runtime_error if it is not the std::function that it has
// been in every TensorFlow so far.
std::function<void()> copy_done(TF_AsyncOpKernelDoneCallback* done);

inline void fail(TF_OpKernelContext* context, Code code, const std::string& message) {
  const StatusOwner status = new_status();
  TF_SetStatus(status.get(), code, message.c_str());
  TF_OpKernelContext_Failure(context, status.get());
}

inline TensorOwner input(TF_OpKernelContext* context, int index) {
  TF_Tensor* tensor = nullptr;
  const StatusOwner status = new_status();
  TF_GetInput(context, index, &tensor, status.get());
  check(status);
  return TensorOwner(tensor);
}

}  // namespace tnt::tf
