#include "deploy/agent/kubernetes/api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/testing/test_server.h"

namespace xpud::agent::kubernetes {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json SliceFor(const char* name) {
  return {{"apiVersion", kApiVersion},
          {"kind", "ResourceSlice"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"driver", kDriver},
            {"nodeName", "node-1"},
            {"pool", {{"name", "node-1"}, {"generation", 1}, {"resourceSliceCount", 1}}}}}};
}

std::string PathOf(const char* name) { return std::string(kSlicesPath) + "/" + name; }

class Api : public ::testing::Test {
 protected:
  Api() {
    api_ = *ApiServer::Create(server_.options, counters_, conditions_);
    server_.Call(
        "put",
        {{"resource", "resourceclaims"},
         {"item", {{"metadata", {{"namespace", "team"}, {"name", "embed"}}}, {"spec", Json::object()}}}});
  }
  absl::StatusOr<Json> GetClaim() { return api_->Get(ClaimPath("team", "embed")); }
  void ExpectStatus(const absl::Status& status, absl::StatusCode code, const char* text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_THAT(status.ToString(), Not(HasSubstr(Token())));
  }
  std::string Token() const {
    std::string token;
    std::ifstream(server_.options.token_file) >> token;
    return token;
  }
  uint64_t Requests(int code) const { return counters_.Read().requests[{"kubernetes", code}]; }
  std::string Condition() const {
    const auto failing = conditions_.Failing();
    const auto found = failing.find("api-server");
    return found == failing.end() ? "" : found->second;
  }

  TestServer server_;
  Counters counters_;
  Conditions conditions_;
  std::unique_ptr<ApiServer> api_;
};

TEST_F(Api, ObjectsAreReadAndWritten) {
  const auto claim = GetClaim();
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ((*claim)["metadata"]["name"], "embed");
  auto slice = api_->Post(kSlicesPath, SliceFor("a"));
  ASSERT_TRUE(slice.ok()) << slice.status();
  (*slice)["spec"]["pool"]["generation"] = 2;
  ASSERT_TRUE(api_->Put(PathOf("a"), *slice).ok());
  EXPECT_EQ((*api_->Get(PathOf("a")))["spec"]["pool"]["generation"], 2);
  ASSERT_TRUE(api_->Delete(PathOf("a")).ok());
  EXPECT_EQ(Requests(200), 4U);
  EXPECT_EQ(Requests(201), 1U);
  EXPECT_EQ(server_.Call("asked"),
            *ParseJson(R"([["get", "resourceclaims", "embed"], ["create", "resourceslices", "a"],
      ["update", "resourceslices", "a"], ["get", "resourceslices", "a"], ["delete", "resourceslices", "a"]])"));
}

TEST_F(Api, ErrorsHaveACodeAndTheServersReason) {
  ExpectStatus(api_->Get(PathOf("a")).status(), absl::StatusCode::kNotFound, "404: resourceslices");
  const auto slice = api_->Post(kSlicesPath, SliceFor("a"));
  ExpectStatus(api_->Post(kSlicesPath, SliceFor("a")).status(), absl::StatusCode::kAlreadyExists,
               "already exists");
  Json changed = *slice;
  changed["spec"]["pool"]["generation"] = 2;
  ASSERT_TRUE(api_->Put(PathOf("a"), changed).ok());
  ExpectStatus(api_->Put(PathOf("a"), changed).status(), absl::StatusCode::kAborted, "has been modified");
  changed["metadata"].erase("resourceVersion");
  changed["spec"]["nodeName"] = "node-2";
  ExpectStatus(api_->Put(PathOf("a"), changed).status(), absl::StatusCode::kInvalidArgument,
               "spec.nodeName cannot be changed");
  EXPECT_EQ(Condition(), "");
  for (const auto& [code, status] :
       std::vector<std::pair<int, absl::StatusCode>>{{410, absl::StatusCode::kOutOfRange},
                                                     {429, absl::StatusCode::kUnavailable},
                                                     {500, absl::StatusCode::kUnavailable},
                                                     {503, absl::StatusCode::kUnavailable}}) {
    server_.Call("fail", {{"code", code}});
    ExpectStatus(GetClaim().status(), status, "as the test wants it");
    EXPECT_EQ(Requests(code), 1U);
    EXPECT_EQ(Condition().empty(), code == 410);
  }
  EXPECT_TRUE(GetClaim().ok());
  EXPECT_EQ(Condition(), "");
}

TEST_F(Api, ARoleThatLacksARightIsNamed) {
  server_.Call("allow", {{"role", Json::array({{"get", "resourceclaims"}})}});
  EXPECT_TRUE(GetClaim().ok());
  ExpectStatus(api_->Post(kSlicesPath, SliceFor("a")).status(), absl::StatusCode::kPermissionDenied,
               "cannot create");
}

TEST_F(Api, TheTokenIsReadAnewWhenItRotates) {
  ASSERT_TRUE(GetClaim().ok());
  server_.Call("rotate");
  EXPECT_TRUE(GetClaim().ok());
  server_.Call("rotate", {{"write", false}});
  ExpectStatus(GetClaim().status(), absl::StatusCode::kUnauthenticated, "401: Unauthorized");
  EXPECT_THAT(Condition(), HasSubstr("has expired or is wrong"));
  EXPECT_THAT(Condition(), Not(HasSubstr(Token())));
  server_.Call("rotate");
  EXPECT_TRUE(GetClaim().ok());
  EXPECT_EQ(Condition(), "");
}

TEST_F(Api, AFileWithoutATokenIsNamed) {
  for (const char* text : {"", "two words", "a\r\nX-Injected: 1", "\x01"}) {
    std::ofstream(server_.options.token_file) << text;
    const absl::Status status = GetClaim().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no token"));
  }
  std::filesystem::remove(server_.options.token_file);
  const absl::Status status = GetClaim().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot open the token file"));
  EXPECT_THAT(Condition(), HasSubstr("cannot open the token file"));
}

TEST_F(Api, ACertificateOfAnotherAuthorityOrHostIsRefused) {
  const TestServer other;
  ApiServer::Options options = server_.options;
  options.ca_file = other.options.ca_file;
  api_ = *ApiServer::Create(options, counters_, conditions_);
  ExpectStatus(GetClaim().status(), absl::StatusCode::kUnavailable,
               "is not for this host or is not signed by");
  EXPECT_THAT(Condition(), HasSubstr(options.ca_file));
  EXPECT_EQ(Requests(0), 1U);

  options = server_.options;
  options.url.replace(options.url.find("127.0.0.1"), 9,
                      "localhost");  // the certificate is for the address alone
  api_ = *ApiServer::Create(options, counters_, conditions_);
  ExpectStatus(GetClaim().status(), absl::StatusCode::kUnavailable, "is not for this host");

  options = server_.options;
  options.ca_file = "/nowhere/ca.crt";
  api_ = *ApiServer::Create(options, counters_, conditions_);
  ExpectStatus(GetClaim().status(), absl::StatusCode::kUnavailable, "/nowhere/ca.crt");
}

TEST_F(Api, OnlyHttpsIsSpoken) {
  ApiServer::Options options = server_.options;
  options.url = "http://127.0.0.1:1";
  EXPECT_TRUE(absl::IsInvalidArgument(ApiServer::Create(options, counters_, conditions_).status()));
}

TEST(InCluster, TheServerIsTheOneOfThePod) {
  unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_TRUE(absl::IsFailedPrecondition(ApiServer::UrlInCluster().status()));
  setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  EXPECT_EQ(*ApiServer::UrlInCluster(), "https://[fd00::1]:443");
  setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  EXPECT_EQ(*ApiServer::UrlInCluster(), "https://10.0.0.1:443");
  unsetenv("KUBERNETES_SERVICE_HOST");
  unsetenv("KUBERNETES_SERVICE_PORT");
}

TEST_F(Api, ProxiesOfTheEnvironmentAreNotUsed) {
  setenv("https_proxy", "http://127.0.0.1:1", 1);
  EXPECT_TRUE(GetClaim().ok());
  unsetenv("https_proxy");
}

TEST_F(Api, AServerThatIsAwayIsReportedAndFoundAgain) {
  ASSERT_TRUE(GetClaim().ok());
  server_.Call("stop");
  ExpectStatus(GetClaim().status(), absl::StatusCode::kUnavailable, "no answer from https://127.0.0.1");
  EXPECT_THAT(Condition(), HasSubstr("no answer"));
  server_.Call("start");
  EXPECT_TRUE(GetClaim().ok());
  server_.Call("fail", {{"code", 0}, {"count", 5}});  // closes connections
  EXPECT_TRUE(absl::IsUnavailable(GetClaim().status()));
}

TEST_F(Api, AnswersAreBounded) {
  server_.Call("set_fault", {{"name", "body"}, {"value", std::string((4 << 20) + 1, ' ')}});
  ExpectStatus(GetClaim().status(), absl::StatusCode::kResourceExhausted, "more than 4194304 bytes");
  server_.Call("set_fault", {{"name", "body"}, {"value", "{"}});
  ExpectStatus(GetClaim().status(), absl::StatusCode::kInternal, "not JSON");
  server_.Call("set_fault", {{"name", "body"}, {"value", std::string(100'000, '[')}});
  ExpectStatus(GetClaim().status(), absl::StatusCode::kInternal, "nests 100000 deep");
}

TEST_F(Api, RequestsOfManyThreadsShareConnections) {
  constexpr int kThreads = 8, kEach = 40;
  std::vector<std::thread> threads;
  std::vector<std::vector<double>> took(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kEach; ++j) {
        const auto began = std::chrono::steady_clock::now();
        EXPECT_TRUE(GetClaim().ok());
        took[i].push_back(
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& one : took) all.insert(all.end(), one.begin(), one.end());
  std::ranges::sort(all);
  std::printf("[ figures  ] GET, 8 at once: p50 %.1f ms, p99 %.1f ms\n", all[all.size() / 2],
              all[all.size() * 99 / 100]);
  EXPECT_EQ(Requests(200), static_cast<uint64_t>(kThreads * kEach));
}

class Watching : public Api {
 protected:
  std::string From(const std::string& version) const {
    return std::string(kSlicesPath) + "?watch=1&resourceVersion=" + version;
  }
  std::string Version() {
    return std::string(TextMember((*api_->Get(kSlicesPath))["metadata"], "resourceVersion"));
  }
  // Runs `body` once the watch has begun.
  absl::Status Watch(const std::string& path, absl::FunctionRef<bool(const Json&)> on_event,
                     const std::function<void()>& body) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      body();
    });
    absl::Status status = api_->Watch(path, on_event, interrupt_);
    other.join();
    return status;
  }

  const Interrupt interrupt_ = *Interrupt::Create();
};

TEST_F(Watching, EventsArriveAsTheyHappen) {
  std::vector<std::string> types;
  const absl::Status status = Watch(
      From(Version()),
      [&](const Json& event) {
        types.emplace_back(TextMember(event, "type"));
        return types.size() < 3;
      },
      [&] {
        Json slice = *api_->Post(kSlicesPath, SliceFor("a"));
        slice["spec"]["pool"]["generation"] = 2;
        EXPECT_TRUE(api_->Put(PathOf("a"), slice).ok());
        EXPECT_TRUE(api_->Delete(PathOf("a")).ok());
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(types, (std::vector<std::string>{"ADDED", "MODIFIED", "DELETED"}));
}

TEST_F(Watching, AnInterruptEndsItAtOnce) {
  std::chrono::steady_clock::time_point raised;
  const auto never = [](const Json&) { return true; };
  const absl::Status status = Watch(From(Version()), never, [&] {
    raised = std::chrono::steady_clock::now();
    interrupt_.Raise();
  });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - raised, std::chrono::milliseconds(500));
  EXPECT_TRUE(absl::IsCancelled(api_->Watch(From(Version()), never, interrupt_))) << "until it is cleared";
}

TEST_F(Watching, AVersionThatIsTooOldIsOutOfRangeEitherWay) {
  const std::string old = Version();
  server_.Call("forget");
  const auto never = [](const Json&) { return true; };
  EXPECT_TRUE(absl::IsOutOfRange(api_->Watch(From(old), never, interrupt_)));
  EXPECT_EQ(Condition(), "");
  server_.Call("set_fault", {{"name", "gone_in_stream"}, {"value", false}});
  EXPECT_TRUE(absl::IsOutOfRange(api_->Watch(From(old), never, interrupt_)));
  EXPECT_EQ(Requests(410), 1U);
}

TEST_F(Watching, TheServersEndAndALostConnectionAreToldApart) {
  const auto never = [](const Json&) { return true; };
  EXPECT_TRUE(api_->Watch(From(Version()) + "&timeoutSeconds=0.1", never, interrupt_).ok());
  ASSERT_TRUE(absl::IsUnavailable(Watch(From(Version()), never, [&] { server_.Call("cut"); })));
  server_.Call("stop");
  EXPECT_TRUE(absl::IsUnavailable(api_->Watch(From("1"), never, interrupt_)));
}

}  // namespace
}  // namespace xpud::agent::kubernetes
