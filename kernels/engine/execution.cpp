#include "engine/execution.h"

#include <algorithm>
#include <cstring>

#include "engine/heading.h"

namespace tnt {
namespace {

// Elements that are converted on the way to or from a reduction go through a block of this size.
constexpr std::size_t block_bytes = 8192;
struct alignas(64) Block {
  std::byte bytes[block_bytes];
};

// Outputs that together are larger than the caches are written around them.
constexpr std::size_t streaming_bytes = std::size_t{8} << 20;
// But not in pieces smaller than this, each of which ends with a fence.
constexpr std::size_t streaming_piece_bytes = std::size_t{32} << 10;

// How often a wait looks whether the peer is still alive.
constexpr std::uint64_t look_every_ns = 100'000'000;

// Whether elements are there as they travel.
bool is_wire(const Place& place) {
  return place.memory == Memory::data || place.memory == Memory::scratch;
}

}  // namespace

void Execution::begin(const Request& request, const Schedule& schedule, const Heading& heading,
                      std::uint32_t channel, int algorithm, std::byte* window, std::byte* scratch,
                      Transport& transport, Trace& trace) {
  request_ = &request;
  schedule_ = &schedule;
  transport_ = &transport;
  trace_ = &trace;
  heading_ = heading;
  channel_ = channel;
  algorithm_ = algorithm;
  window_ = window;
  scratch_ = scratch;
  wire_bytes_ = size_of(request.wire);
  tensor_bytes_ = size_of(request.type);
  streaming_ = request.outputs.count() * tensor_bytes_ >= streaming_bytes;
  finished_ = false;
  next_ = 0;
  waiting_.clear();
  sent_bytes_ = 0;
  first_message_ns_ = 0;
  begin_ns_ = last_message_ns_ = now_ns();
  transport.expose(channel, window);
}

bool Execution::advance(double timeout_s) {
  bool progressed = false;
  while (!finished_) {
    const std::size_t before = waiting_.size();
    try {
      for (std::size_t i = 0; i < waiting_.size();) {
        if (transport_->done(waiting_[i].ticket)) {
          waiting_[i] = waiting_.back();
          waiting_.pop_back();
        } else {
          ++i;
        }
      }
    } catch (const Mismatch& found) {
      mismatch(found);
    }
    progressed |= waiting_.size() != before;
    if (must_wait()) {
      if (waiting_.size() == before) check_waiting(timeout_s);
      return progressed;
    }
    if (before != 0) last_message_ns_ = now_ns();
    progressed = true;
    if (next_ == schedule_->steps.size()) {
      record_end();
      finished_ = true;
    } else {
      run_round();
    }
  }
  return progressed;
}

bool Execution::must_wait() const {
  if (waiting_.empty()) return false;
  if (next_ == schedule_->steps.size()) return true;
  const std::uint64_t round = schedule_->steps[next_].round;
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& waiting) { return waiting.until <= round; });
}

void Execution::run_round() {
  const auto& steps = schedule_->steps;
  const std::uint32_t round = steps[next_].round;
  waiting_since_ns_ = looked_ns_ = 0;
  for (; next_ < steps.size() && steps[next_].round == round; ++next_) {
    const Step& step = steps[next_];
    if (step.count == 0 && !step.is_message()) continue;  // there may be no memory of no elements
    switch (step.action) {
      case Action::send:
      case Action::receive: start(step); break;
      case Action::copy: copy(step); break;
      case Action::reduce:
        if (next_ + 1 < steps.size() && reduces_to_both(step, steps[next_ + 1])) {
          reduce_both(request_->wire, request_->reduction, at(step.from), at(step.with),
                      step.count);
          ++next_;
        } else {
          reduce(step);
        }
        break;
    }
  }
}

// a = a (op) b, then b = a: in one pass.
bool Execution::reduces_to_both(const Step& step, const Step& next) {
  const auto same = [](const Place& a, const Place& b) {
    return a.memory == b.memory && a.rank == b.rank && a.begin == b.begin;
  };
  return next.action == Action::copy && next.round == step.round && next.count == step.count &&
         is_wire(step.to) && is_wire(step.with) && same(step.to, step.from) &&
         same(next.from, step.to) && same(next.to, step.with);
}

void Execution::start(const Step& step) {
  if (first_message_ns_ == 0) first_message_ns_ = now_ns();
  const int peer = rank_of(step.peer);
  const std::size_t bytes = step.count * wire_bytes_;
  const std::uint64_t until = std::uint64_t{step.round} + step.span;
  Ticket ticket = 0;
  if (step.action == Action::send) {
    sent_bytes_ += bytes;
    ticket = transport_->send(peer, channel_, heading_, at(step.from), bytes);
  } else {
    ticket = transport_->receive(peer, channel_, heading_, at(step.to), bytes);
  }
  waiting_.push_back({ticket, peer, until});
}

void Execution::copy(const Step& step) {
  const bool from_input = step.from.memory == Memory::input;
  const bool to_output = step.to.memory == Memory::output;
  if (from_input && to_output)
    copy_input_to_output(step.to.begin, step.from.begin, step.count);
  else if (from_input)
    convert_from_input(at(step.to), step.from.begin, step.count);
  else if (to_output)
    convert_to_output(step.to.begin, at(step.from), step.count);
  else
    convert(request_->wire, at(step.to), request_->wire, at(step.from), 1, step.count);
}

// Elements are taken from inputs and brought to outputs in blocks, unless they can be used in
// place.
void Execution::reduce(const Step& step) {
  const Request& request = *request_;
  if (is_wire(step.to) && is_wire(step.from) && is_wire(step.with))
    return tnt::reduce(request.wire, request.reduction, at(step.to), at(step.from), at(step.with),
                       step.count);
  const bool same_type = request.type == request.wire;
  const bool accumulates = step.from.memory == Memory::output && step.from.begin == step.to.begin;
  if (same_type && step.to.memory == Memory::output && is_wire(step.with) &&
      (is_wire(step.from) || accumulates))
    return reduce_to_output(step, accumulates);
  Block from, with, result;
  const std::size_t block = block_bytes / std::max(wire_bytes_, tensor_bytes_);
  for (std::size_t done = 0; done < step.count; done += block) {
    const std::size_t count = std::min(block, step.count - done);
    const std::byte* a = operand(step.from, done, count, from.bytes);
    const std::byte* b = operand(step.with, done, count, with.bytes);
    const bool to_output = step.to.memory == Memory::output;
    std::byte* to = to_output ? result.bytes : at(step.to) + done * wire_bytes_;
    tnt::reduce(request.wire, request.reduction, to, a, b, count);
    if (to_output) convert_to_output(step.to.begin + done, to, count);
  }
}

void Execution::reduce_to_output(const Step& step, bool accumulates) {
  const std::byte* a = accumulates ? nullptr : at(step.from);
  const std::byte* b = at(step.with);
  request_->outputs.pieces(
      step.to.begin, step.count, [&](std::byte* tensor, std::size_t first, std::size_t count) {
        std::byte* to = tensor + first * tensor_bytes_;
        tnt::reduce(request_->wire, request_->reduction, to, accumulates ? to : a, b, count,
                    !accumulates && streams(count));
        if (!accumulates) a += count * wire_bytes_;
        b += count * wire_bytes_;
      });
}

// Elements [done, done + count) of a step's operand, in `space` if they must be converted.
const std::byte* Execution::operand(const Place& place, std::size_t done, std::size_t count,
                                    std::byte* space) {
  if (is_wire(place)) return at(place) + done * wire_bytes_;
  if (place.memory == Memory::input) {
    if (const std::byte* tensor = input_as_it_is(place.begin + done)) return tensor;
    convert_from_input(space, place.begin + done, count);
    return space;
  }
  std::byte* to = space;
  request_->outputs.pieces(
      place.begin + done, count, [&](std::byte* tensor, std::size_t first, std::size_t n) {
        convert(request_->wire, to, request_->type, tensor + first * tensor_bytes_, 1, n);
        to += n * wire_bytes_;
      });
  return space;
}

// Where an element of the input lies, if what follows it can be used without conversion; else null.
const std::byte* Execution::input_as_it_is(std::size_t element) const {
  const bool same = request_->type == request_->wire && request_->scale == 1;
  const std::byte* tensor = same ? request_->inputs.only() : nullptr;
  return tensor == nullptr ? nullptr : tensor + element * tensor_bytes_;
}

void Execution::convert_from_input(std::byte* to, std::size_t begin, std::size_t count) {
  request_->inputs.pieces(begin, count,
                          [&](const std::byte* tensor, std::size_t first, std::size_t n) {
                            convert(request_->wire, to, request_->type,
                                    tensor + first * tensor_bytes_, request_->scale, n);
                            to += n * wire_bytes_;
                          });
}

void Execution::convert_to_output(std::size_t begin, const std::byte* from, std::size_t count) {
  request_->outputs.pieces(begin, count, [&](std::byte* tensor, std::size_t first, std::size_t n) {
    convert(request_->type, tensor + first * tensor_bytes_, request_->wire, from, 1, n, streams(n));
    from += n * wire_bytes_;
  });
}

// Input and output may be cut into tensors differently.
void Execution::copy_input_to_output(std::size_t to, std::size_t from, std::size_t count) {
  const Request& request = *request_;
  request.outputs.pieces(to, count, [&](std::byte* output, std::size_t first, std::size_t n) {
    output += first * tensor_bytes_;
    request.inputs.pieces(from, n, [&](const std::byte* input, std::size_t start, std::size_t m) {
      convert(request.type, output, request.type, input + start * tensor_bytes_, request.scale, m);
      output += m * tensor_bytes_;
    });
    from += n;
  });
}

void Execution::check_waiting(double timeout_s) {
  const std::uint64_t now = now_ns();
  if (waiting_since_ns_ == 0) waiting_since_ns_ = looked_ns_ = now;
  if (now - looked_ns_ >= look_every_ns) {
    looked_ns_ = now;
    try {
      for (const Waiting& waiting : waiting_) transport_->check_alive(waiting.peer);
    } catch (const PeerDied& death) {
      throw PeerDied(death.peer, ", which was waited for in " + request_->label);
    } catch (const TransportError& error) {
      throw TransportError(error.what() + (", which was waited for in " + request_->label));
    }
  }
  const Patience* patience = request_->patience;
  const std::uint64_t since = patience == nullptr ? waiting_since_ns_ : patience->missed_since_ns();
  if (since == 0 || now < since) return;
  const double waited_s = 1e-9 * static_cast<double>(now - since);
  if (waited_s < timeout_s) return;
  throw Stalled("waited " + std::to_string(static_cast<long>(waited_s)) + " s for " + awaited() +
                "; is that rank stuck, or not in this call?");
}

std::string Execution::awaited() const {
  if (waiting_.empty()) return {};
  return "rank " + std::to_string(waiting_.front().peer) + " in " + request_->label;
}

void Execution::mismatch(const Mismatch& found) const {
  const std::string theirs = describe(found.heading), ours = describe(heading_);
  std::string text = "rank " + std::to_string(found.peer) + " is in another operation: here " +
                     request_->label + " (" + ours + "), there " + theirs;
  if (theirs == ours)
    text += found.heading == heading_
                ? " with a message of " + std::to_string(found.bytes) + " bytes"
            : request_->schedule != nullptr ? " that another function makes"
                                            : " of tensors of other sizes";
  throw TransportError(text + ". All ranks must make the same calls in the same order");
}

void Execution::record_end() {
  if (request_->patience != nullptr) return;
  const std::uint64_t end = now_ns();
  if (request_->is_transfer) {
    const bool sends = request_->root != request_->peer;
    trace_->record(sends ? EventKind::send : EventKind::receive, channel_, begin_ns_, end,
                   request_->count * tensor_bytes_, rank_of(request_->peer));
    return;
  }
  const std::uint64_t first = first_message_ns_ == 0 ? end : first_message_ns_;
  const std::uint64_t last = std::max(first, last_message_ns_);
  trace_->record(EventKind::copy_in, channel_, begin_ns_, first,
                 request_->inputs.count() * tensor_bytes_);
  trace_->record(EventKind::exchange, channel_, first, last, sent_bytes_, algorithm_);
  trace_->record(EventKind::copy_out, channel_, last, end,
                 request_->outputs.count() * tensor_bytes_);
}

bool Execution::streams(std::size_t count) const {
  return streaming_ && count * tensor_bytes_ >= streaming_piece_bytes;
}

std::byte* Execution::at(const Place& place) const {
  std::byte* memory = place.memory == Memory::scratch ? scratch_ : window_;
  if (place.rank != here) {
    memory = transport_->window(rank_of(place.rank), channel_);
    if (memory == nullptr)
      throw TransportError("the memory of rank " + std::to_string(rank_of(place.rank)) +
                           " cannot be reached in " + request_->label);
  }
  return memory + place.begin * wire_bytes_;
}

}  // namespace tnt
