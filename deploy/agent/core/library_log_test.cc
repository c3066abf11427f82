#include "deploy/agent/core/library_log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {
namespace {

TEST(LibraryLogs, AreLimited) {
  std::ostringstream text;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text)));
  LimitLibraryLogs();
  v1::DeleteClaimRequest request;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(request.ParseFromString("\x0a\x01\xff"));  // no UTF-8
  const std::string log = text.str();
  EXPECT_THAT(log, testing::HasSubstr("library=protobuf left_out=0 text=\"String field 'xpud.v1"));
  EXPECT_LE(std::ranges::count(log, '\n'), 3);
}

}  // namespace
}  // namespace xpud::agent
