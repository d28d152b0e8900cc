#include "trireme/transport/tcp/inbox.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace trireme::transport::tcp {
namespace {

Failure misuse(int peer, const char* what) {
  return {ErrorCode::internal, cat("what rank ", peer, " sends is not understood: ", what)};
}

}  // namespace

void Inbox::deliver(Completion done, Status status, uint64_t received) {
  --receives_;
  deliveries_.push_back({std::move(done), std::move(status), 0, static_cast<int64_t>(received)});
}

void Inbox::post(MessageId id, std::span<std::byte> into, Completion done) {
  const uint64_t tag = to_tag(peer_, id);
  Expected expected{peer_, id, into, std::move(done)};
  ++receives_;
  if (const auto number = unexpected_.pop(tag)) {
    join(messages_.find(*number), std::move(expected));
  } else if (ended_) {
    deliver(std::move(expected.done), *ended_);
  } else {
    posted_.push(tag, std::move(expected));
  }
}

Result<Inbox::Messages::iterator> Inbox::open(const Frame& frame) {
  const auto [message, is_new] = messages_.try_emplace(frame.number);
  if (is_new) message->second.total = frame.total;
  if (message->second.total != frame.total) return misuse(peer_, "a message of two lengths");
  return message;
}

Status Inbox::begin(const Frame& frame) {
  auto opened = open(frame);
  if (!opened) return opened.failure();
  const auto message = opened.value();
  if (std::exchange(message->second.begun, true)) return misuse(peer_, "a message that begins twice");
  if (auto expected = posted_.pop(frame.tag)) {
    join(message, std::move(*expected));
  } else if (message->second.unwanted) {
    settle(message);
  } else {
    unexpected_.push(frame.tag, frame.number);
  }
  return ok_status();
}

Status Inbox::begin_piece(const Frame& frame) {
  auto opened = open(frame);
  if (!opened) return opened.failure();
  const Incoming& message = opened.value()->second;
  if (frame.length > message.total - message.received) return misuse(peer_, "more pieces than a message has");
  return ok_status();
}

void Inbox::join(Messages::iterator at, Expected expected) {
  Incoming& message = at->second;
  if (message.total != expected.into.size()) {
    deliver(std::move(expected.done), size_mismatch(peer_, expected.id, message.total, expected.into.size()));
    message.unwanted = true;
    message.own.reset();
  } else {
    // Gaps are copied too; their pieces overwrite them.
    if (message.own) std::memcpy(expected.into.data(), message.own.get(), message.filled);
    message.own.reset();
    message.expected = std::move(expected);
  }
  settle(at);
}

void Inbox::settle(Messages::iterator at) {
  Incoming& message = at->second;
  if (message.received < message.total || !message.begun) return;
  if (message.expected) {
    deliver(std::move(message.expected->done), ok_status(), message.total);
  } else if (!message.unwanted) {
    return;  // waits for its receive
  }
  messages_.erase(at);
}

std::byte* Inbox::place(uint32_t number, uint64_t offset) {
  Incoming& message = messages_.at(number);
  if (message.unwanted) return nullptr;
  if (message.expected) return message.expected->into.data() + offset;
  if (!message.own) message.own.reset(new std::byte[message.total]);  // not cleared: it is about to be filled
  return message.own.get() + offset;
}

void Inbox::arrived(uint32_t number, uint64_t offset, uint64_t count) {
  const auto at = messages_.find(number);
  at->second.received += count;
  at->second.filled = std::max(at->second.filled, offset + count);
  settle(at);
}

void Inbox::end(const Failure& why) {
  ended_ = why;
  for (auto& e : posted_.extract([](const Expected&) { return true; })) deliver(std::move(e.done), why);
  for (auto& [number, message] : messages_) {
    if (message.expected) deliver(std::move(message.expected->done), why);
  }
  std::erase_if(messages_, [](const auto& entry) {
    return entry.second.received < entry.second.total || !entry.second.begun;
  });
  unexpected_.extract([&](uint32_t number) { return !messages_.contains(number); });
}

void Inbox::abandon(const Failure& why) {
  for (auto& e : posted_.extract([](const Expected&) { return true; })) deliver(std::move(e.done), why);
  unexpected_.extract([](uint32_t) { return true; });
  for (auto at = messages_.begin(); at != messages_.end();) {
    const auto message = at++;  // settling may erase it
    if (message->second.expected) deliver(std::move(message->second.expected->done), why);
    message->second.expected.reset();
    message->second.own.reset();
    message->second.unwanted = true;
    settle(message);
  }
}

}  // namespace trireme::transport::tcp
