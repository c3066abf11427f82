#include "deploy/agent/core/library_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "proto/base/text.h"

namespace xpud::agent {
namespace {

constexpr int64_t kPeriodNs = 1'000'000'000;

std::atomic<int64_t> next_ns{0};
std::atomic<uint64_t> left_out{0};

void Log(const char* library, const std::string& text) {
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t next = next_ns.load();
  if (now < next || !next_ns.compare_exchange_strong(next, now + kPeriodNs)) {
    left_out.fetch_add(1);
    return;
  }
  spdlog::warn("library_log library={} left_out={} text=\"{}\"", library, left_out.exchange(0),
               PrintableText(text, 300));
}

void LogOfGrpc(gpr_log_func_args* args) { Log("grpc", args->message); }

void LogOfProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& text) {
  Log("protobuf", text);
}

}  // namespace

void LimitLibraryLogs() {
  gpr_set_log_function(LogOfGrpc);
  google::protobuf::SetLogHandler(LogOfProtobuf);
}

}  // namespace xpud::agent
