// One HTTP connection: a request, its answer, the end. Owned by the server, whose thread alone calls it. It
// never blocks, and what it keeps is bounded: a request of kMaxRequestBytes, and an answer that others
// share.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/telemetry/request.h"
#include "proto/base/unique_fd.h"

namespace xpud::telemetry {

class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  using Body = std::shared_ptr<const std::string>;
  // The metrics in a format.
  using Metrics = std::function<Body(Format)>;

  Connection(UniqueFd socket, Clock::time_point deadline) : socket_(std::move(socket)), deadline_(deadline) {}

  // Goes on as far as it goes without waiting; false at its end. Call it again once the socket is ready for
  // `events`.
  bool Advance(const Metrics& metrics);
  uint32_t events() const;  // of epoll
  int socket() const { return socket_.get(); }
  Clock::time_point deadline() const { return deadline_; }

 private:
  enum class State { kReading, kWriting, kDraining };
  enum class Step { kGoesOn, kWaits, kEnds };

  Step Read(const Metrics& metrics);
  Step Write();
  // What lies unread when a socket closes would take the answer from the other side.
  Step Drain();
  void Answer(const absl::StatusOr<std::optional<Request>>& request, const Metrics& metrics);
  void Respond(std::string_view status, std::string_view type, Body body, bool send_body = true);
  void Refuse(std::string_view status, std::string_view why);
  Step After(ssize_t result) const;  // of a system call that moved no byte

  UniqueFd socket_;
  const Clock::time_point deadline_;
  State state_ = State::kReading;
  std::string request_, head_;
  Body body_;
  size_t sent_ = 0;  // of head_ and body_ together
};

}  // namespace xpud::telemetry
