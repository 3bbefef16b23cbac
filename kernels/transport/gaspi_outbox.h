// Messages that go to one peer in parts. Notices overtake the messages of channels.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "transport/gaspi_inbox.h"

namespace tnt::gaspi {

// Of notices, which have no receives.
constexpr std::uint32_t notice_channel = ~std::uint32_t{0};

class Outbox {
 public:
  // The data must stay, and `sent` where it is, until that has become true.
  void post(std::uint32_t channel, const Heading& heading, const void* data, std::size_t bytes,
            bool* sent) {
    messages_.push_back(
        {channel, heading, static_cast<const std::byte*>(data), bytes, 0, sent, {}});
  }
  void post_notice(std::uint32_t kind, std::string payload) {
    const std::size_t bytes = payload.size();
    notices_.push_back({notice_channel, {kind, 0}, nullptr, bytes, 0, nullptr, std::move(payload)});
  }

  bool empty() const { return messages_.empty() && notices_.empty(); }

  // The part that is next, if not empty().
  Part next(std::size_t most_bytes) const {
    const Message& message = queue().front();
    const std::byte* const data = message.data != nullptr
                                      ? message.data
                                      : reinterpret_cast<const std::byte*>(message.own.data());
    return {message.channel, message.heading,   message.bytes,
            message.at,      data + message.at, std::min(most_bytes, message.bytes - message.at)};
  }

  // That part is on its way.
  void pass(const Part& part) {
    std::deque<Message>& from = part.channel == notice_channel ? notices_ : messages_;
    Message& message = from.front();
    message.at += part.bytes;
    if (message.at != message.bytes) return;
    if (message.sent != nullptr) *message.sent = true;
    from.pop_front();
  }

 private:
  struct Message {
    std::uint32_t channel;
    Heading heading;
    const std::byte* data;  // null: it is `own`
    std::size_t bytes, at;  // at: where the next part begins
    bool* sent;
    std::string own;
  };

  const std::deque<Message>& queue() const { return notices_.empty() ? messages_ : notices_; }

  std::deque<Message> messages_, notices_;
};

}  // namespace tnt::gaspi
