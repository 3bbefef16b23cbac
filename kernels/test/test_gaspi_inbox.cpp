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

// Moves parts, all without a number; gives what the inbox said of the last one.
Inbox::Taken move(Outbox& outbox, Inbox& inbox, int parts = 1000) {
  Inbox::Taken taken = Inbox::Taken::part;
  for (; parts != 0 && !outbox.empty(); --parts) {
    const Part part = outbox.next(most);
    taken = inbox.take(part);
    outbox.pass(part);
  }
  return taken;
}

}  // namespace

TEST(parts_become_the_message_wherever_the_receive_comes) {
  const std::string message = "ten bytes.";
  for (int before = 0; before <= 4; ++before) {
    Outbox outbox;
    Inbox inbox;
    bool sent = false;
    std::string target(message.size(), '-');
    Receive receive = receive_of(3, target);
    outbox.post(3, heading, message.data(), message.size(), &sent);
    move(outbox, inbox, before);
    inbox.post(receive);
    CHECK_EQUAL(inbox.waits(), before < 3);
    CHECK_EQUAL(sent, before >= 3);
    move(outbox, inbox);
    CHECK(sent);
    CHECK(receive.state == Receive::State::complete);
    CHECK(!inbox.waits());
    CHECK_EQUAL(target, message);
  }
}

TEST(messages_of_a_channel_keep_their_order_and_others_do_not_wait) {
  const std::vector<std::string> messages{"first one", "", "third"};
  Outbox outbox;
  Inbox inbox;
  bool sent = false;
  for (const std::string& message : messages)
    outbox.post(1, heading, message.data(), message.size(), &sent);
  outbox.post(2, heading, messages[0].data(), messages[0].size(), &sent);
  std::string other(messages[0].size(), '-');
  Receive on_other = receive_of(2, other);
  inbox.post(on_other);
  move(outbox, inbox);
  CHECK_EQUAL(other, messages[0]);
  for (const std::string& message : messages) {
    std::string target(message.size(), '-');
    Receive receive = receive_of(1, target);
    inbox.post(receive);
    CHECK(receive.state == Receive::State::complete);
    CHECK_EQUAL(target, message);
  }
}

TEST(a_notice_overtakes_a_message_between_its_parts) {
  const std::string message = "a long message";
  Outbox outbox;
  Inbox inbox;
  bool sent = false;
  std::string target(message.size(), '-');
  Receive receive = receive_of(1, target);
  inbox.post(receive);
  outbox.post(1, heading, message.data(), message.size(), &sent);
  move(outbox, inbox, 1);
  outbox.post_notice(5, "notice");
  CHECK_EQUAL(outbox.next(most).channel, notice_channel);
  CHECK_EQUAL(outbox.next(most).heading.operation, 5U);
  CHECK(move(outbox, inbox, 2) == Inbox::Taken::whole_message);
  CHECK_EQUAL(inbox.take_message(notice_channel), "notice");
  CHECK(!sent);
  move(outbox, inbox);
  CHECK_EQUAL(target, message);
}

TEST(what_does_not_match_is_told_at_its_first_part_and_then_dropped) {
  const std::string message = "ten bytes.";
  for (const std::size_t bytes : {9, 10, 11}) {
    Outbox outbox;
    Inbox inbox;
    bool sent = false;
    std::string target(bytes, '-');
    Receive receive = receive_of(1, target);
    inbox.post(receive);
    const Heading theirs{7, bytes == 10 ? 12U : 11U};
    outbox.post(1, theirs, message.data(), message.size(), &sent);
    move(outbox, inbox, 1);
    CHECK(receive.state == Receive::State::mismatched);
    CHECK(receive.its_heading == theirs);
    CHECK_EQUAL(receive.its_bytes, message.size());
    CHECK(move(outbox, inbox) == Inbox::Taken::whole_message);
    CHECK_EQUAL(target, std::string(bytes, '-'));
  }
}

TEST(nothing_is_written_after_a_receive_was_given_up) {
  const std::string message = "ten bytes.";
  Outbox outbox;
  Inbox inbox;
  bool sent = false;
  std::string target(message.size(), '-');
  Receive amid = receive_of(1, target), unclaimed = receive_of(1, target);
  inbox.post(amid);
  inbox.post(unclaimed);
  outbox.post(1, heading, message.data(), message.size(), &sent);
  move(outbox, inbox, 1);
  inbox.cancel(amid);
  inbox.cancel(unclaimed);
  CHECK(!inbox.waits());
  move(outbox, inbox);
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
