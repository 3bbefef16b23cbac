// Messages that go and come in parts, without GPI-2.
#include <string>
#include <vector>

#include "check.h"
#include "transport/gaspi_inbox.h"
#include "transport/gaspi_outbox.h"

using namespace tnt;
using namespace tnt::test;
using namespace tnt::gaspi;

namespace {

constexpr Heading heading{7, 11};
constexpr std::size_t most = 4;  // bytes in a part

Receive receive_of(std::uint32_t channel, std::string& target) {
  Receive receive;
  receive.channel = channel;
  receive.heading = heading;
  receive.target = reinterpret_cast<std::byte*>(target.data());
  receive.bytes = target.size();
  return receive;
}

// From one rank to another.
struct Link {
  Outbox outbox;
  Inbox inbox;
  bool sent = false;  // the last message

  void post(std::uint32_t channel, const std::string& message, const Heading& with = heading) {
    outbox.post(channel, with, message.data(), message.size(), &sent);
  }

  // Moves parts, all without a number; gives what the inbox said of the last one.
  Inbox::Taken move(int parts = 1000) {
    Inbox::Taken taken = Inbox::Taken::part;
    for (; parts != 0 && !outbox.empty(); --parts) {
      const Part part = outbox.next(most);
      taken = inbox.take(part);
      outbox.pass(part);
    }
    return taken;
  }
};

}  // namespace

TEST(parts_become_the_message_wherever_the_receive_comes) {
  const std::string message = "ten bytes.";
  for (int before = 0; before <= 4; ++before) {
    Link link;
    std::string target(message.size(), '-');
    Receive receive = receive_of(3, target);
    link.post(3, message);
    link.move(before);
    link.inbox.post(receive);
    CHECK_EQUAL(link.inbox.waits(), before < 3);
    CHECK_EQUAL(link.sent, before >= 3);
    link.move();
    CHECK(link.sent);
    CHECK(receive.state == Receive::State::complete);
    CHECK(!link.inbox.waits());
    CHECK_EQUAL(target, message);
  }
}

TEST(messages_of_a_channel_keep_their_order_and_others_do_not_wait) {
  const std::vector<std::string> messages{"first one", "", "third"};
  Link link;
  for (const std::string& message : messages) link.post(1, message);
  link.post(2, messages[0]);
  std::string other(messages[0].size(), '-');
  Receive on_other = receive_of(2, other);
  link.inbox.post(on_other);
  link.move();
  CHECK_EQUAL(other, messages[0]);
  for (const std::string& message : messages) {
    std::string target(message.size(), '-');
    Receive receive = receive_of(1, target);
    link.inbox.post(receive);
    CHECK(receive.state == Receive::State::complete);
    CHECK_EQUAL(target, message);
  }
}

TEST(a_notice_overtakes_a_message_between_its_parts) {
  const std::string message = "a long message";
  Link link;
  std::string target(message.size(), '-');
  Receive receive = receive_of(1, target);
  link.inbox.post(receive);
  link.post(1, message);
  link.move(1);
  link.outbox.post_notice(5, "notice");
  CHECK_EQUAL(link.outbox.next(most).channel, notice_channel);
  CHECK_EQUAL(link.outbox.next(most).heading.operation, 5U);
  CHECK(link.move(2) == Inbox::Taken::whole_message);
  CHECK_EQUAL(link.inbox.take_message(notice_channel), "notice");
  CHECK(!link.sent);
  link.move();
  CHECK_EQUAL(target, message);
}

TEST(what_does_not_match_is_told_at_its_first_part_and_then_dropped) {
  const std::string message = "ten bytes.";
  for (const std::size_t bytes : {9, 10, 11}) {
    Link link;
    std::string target(bytes, '-');
    Receive receive = receive_of(1, target);
    link.inbox.post(receive);
    const Heading theirs{7, bytes == 10 ? 12U : 11U};
    link.post(1, message, theirs);
    link.move(1);
    CHECK(receive.state == Receive::State::mismatched);
    CHECK(receive.its_heading == theirs);
    CHECK_EQUAL(receive.its_bytes, message.size());
    CHECK(link.move() == Inbox::Taken::whole_message);
    CHECK_EQUAL(target, std::string(bytes, '-'));
  }
}

TEST(nothing_is_written_after_a_receive_was_given_up) {
  const std::string message = "ten bytes.";
  Link link;
  std::string target(message.size(), '-');
  Receive amid = receive_of(1, target), unclaimed = receive_of(1, target);
  link.inbox.post(amid);
  link.inbox.post(unclaimed);
  link.post(1, message);
  link.move(1);
  link.inbox.cancel(amid);
  link.inbox.cancel(unclaimed);
  CHECK(!link.inbox.waits());
  link.move();
  CHECK_EQUAL(target, "ten ------");
}

TEST(parts_that_make_no_sense_are_refused) {
  const std::byte data[8] = {};
  const auto part = [&](std::size_t offset, std::size_t bytes) {
    return Part{1, heading, 6, offset, data, bytes};
  };
  const auto nonsense = Inbox::Taken::nonsense;
  CHECK(Inbox().take(part(4, 2)) == nonsense);
  CHECK(Inbox().take(part(0, 7)) == nonsense);
  Inbox inbox;
  CHECK(inbox.take(part(0, 4)) == Inbox::Taken::part);
  CHECK(inbox.take(part(3, 2)) == nonsense);
  CHECK(inbox.take(part(4, 3)) == nonsense);
  CHECK(inbox.take(part(0, 4)) == nonsense);
  CHECK(inbox.take(part(4, 2)) == Inbox::Taken::whole_message);
}
