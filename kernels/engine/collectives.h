// The collectives as callers see them: copy in, run a schedule, copy out.
//
// All return at once. done() is called on the engine's completion thread (on the caller's, where
// there is one rank or the engine has failed), after the results have been written. A call that
// throws has started nothing. Inputs are read before these functions
// return; outputs must live until done(). Each call is named by a channel, which must be the same
// on all ranks and carries one collective at a time.
#pragma once

#include "engine/engine.h"

namespace tnt {

// One tensor of a bucket. `output` may be `input`.
struct Tensor {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements
};

struct Call {
  std::uint32_t channel = 0;
  std::string label;  // for errors and traces: what is exchanged
};

// output = reduction over ranks of (scale * input); a rank with scale 0 contributes zeros whatever
// its inputs hold. A weighted mean is the sum of inputs scaled by weight / sum of weights.
void allreduce(Engine& engine, Call call, Type type, Reduction reduction,
               std::vector<Tensor> tensors, double scale, Done done);

// Blocks of any size, one a rank, put one after another in rank order. `allocate` is given the
// total size and returns where to put it (null: give up, without an error).
void allgather(Engine& engine, Call call, const void* input, std::size_t bytes,
               std::function<void*(std::size_t)> allocate, Done done);

// `memory` of the root goes to `memory` of all.
void broadcast(Engine& engine, Call call, void* memory, std::size_t bytes, int root, Done done);

void barrier(Engine& engine, Call call, Done done);

}  // namespace tnt
