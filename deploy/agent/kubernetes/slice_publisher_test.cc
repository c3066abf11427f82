#include "deploy/agent/kubernetes/slice_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/testing/test_server.h"

namespace xpud::agent::kubernetes {
namespace {

using ::testing::HasSubstr;

constexpr char kNode[] = "node-1";
constexpr char kName[] = "node-1-xpud.dev";

class Publisher : public ::testing::Test {
 protected:
  Publisher() {
    inventory_.devices = {{.index = 0,
                           .model = "CPU",
                           .kind = "cpu",
                           .vendor = "cpu",
                           .driver = "ze_xpud 1",
                           .compute_units = 8,
                           .memory_bytes = uint64_t{4} << 30,
                           .share = 100}};
    inventory_.claims = 1024;
    api_ = *ApiServer::Create(server_.options, counters_, conditions_);
    Restart();
  }
  void Restart() {
    publisher_.reset();
    publisher_ = *SlicePublisher::Start(*api_, kNode, counters_, conditions_);
  }
  static bool Within(std::chrono::seconds time, const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return done();
  }
  // Publishes and waits until the server has it.
  void PublishAndWait() {
    publisher_->Publish(inventory_);
    const Json wanted = SliceDevices(inventory_, {}, "");
    EXPECT_TRUE(Within(std::chrono::seconds(5), [&] {
      Json devices = Devices();
      for (Json& device : devices) device.erase("taints");
      Json expected = wanted;
      for (Json& device : expected) device.erase("taints");
      return !devices.is_null() && devices == expected;
    })) << JsonText(server_.Slice());
  }
  Json Devices() { return Member(Member(server_.Slice(), "spec"), "devices"); }
  int64_t Generation() {
    const Json slice = server_.Slice();
    return slice.is_null() ? -1 : slice["spec"]["pool"]["generation"].get<int64_t>();
  }
  // Waits until the publisher watches, so that what follows is an event.
  void WaitUntilWatched() {
    EXPECT_TRUE(Within(std::chrono::seconds(5), [&] {
      for (const Json& asked : server_.Call("asked"))
        if (asked[0] == "watch") return true;
      return false;
    }));
  }
  std::string Condition(const char* name = "resource-slice") const {
    const auto failing = conditions_.Failing();
    const auto found = failing.find(name);
    return found == failing.end() ? "" : found->second;
  }
  uint64_t Corrections() const { return counters_.Read().corrections[{"kubernetes", "slice_written"}]; }

  TestServer server_;
  Counters counters_;
  Conditions conditions_;
  Inventory inventory_;
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<SlicePublisher> publisher_;
};

TEST_F(Publisher, PublishesNothingBeforeItIsTold) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(server_.Slice().is_null());
}

TEST_F(Publisher, ASliceIsCreatedAndFollowsTheInventory) {
  PublishAndWait();
  EXPECT_EQ(server_.Slice()["metadata"]["name"], kName);
  const int64_t first = Generation();
  inventory_.devices[0].share = 60;
  PublishAndWait();
  EXPECT_GT(Generation(), first);
  inventory_.drained = true;
  inventory_.devices[0].unhealthy = "device lost";
  publisher_->Publish(inventory_);
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return Devices()[0].contains("taints"); }));
  const Json taints = Devices()[0]["taints"];
  EXPECT_EQ(taints.size(), 2U);
  inventory_.devices[0].share = 50;
  PublishAndWait();
  EXPECT_EQ(Devices()[0]["taints"], taints) << "with their times";
  inventory_.drained = false;
  inventory_.devices[0].unhealthy = "";
  publisher_->Publish(inventory_);
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return !Devices()[0].contains("taints"); }));
  EXPECT_EQ(Corrections(), 0U);
  EXPECT_EQ(Condition(), "");
}

TEST_F(Publisher, TheRightsThatItNeedsAreOfSlicesAlone) {
  PublishAndWait();
  inventory_.devices[0].share = 60;
  PublishAndWait();
  std::set<std::string> verbs;
  for (const Json& asked : server_.Call("asked")) {
    verbs.insert(asked[0]);
    EXPECT_EQ(asked[1], "resourceslices");
    EXPECT_EQ(asked[2], kName) << asked[0];
  }
  verbs.erase("watch");  // it may not have begun
  EXPECT_EQ(verbs, (std::set<std::string>{"create", "list", "update"}));
}

TEST_F(Publisher, ADeletedSliceIsBackAtOnce) {
  PublishAndWait();
  WaitUntilWatched();
  server_.Call("remove", {{"resource", "resourceslices"}, {"name", kName}});
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return !server_.Slice().is_null(); }));
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return Corrections() == 1; }));
}

TEST_F(Publisher, AForeignChangeIsMended) {
  PublishAndWait();
  WaitUntilWatched();
  const Json devices = Devices();
  Json changed = server_.Slice();
  changed["spec"]["devices"][0]["capacity"]["share"]["value"] = "200";
  changed["spec"]["pool"]["generation"] = std::numeric_limits<int64_t>::max();
  server_.Call("put", {{"resource", "resourceslices"}, {"item", changed}});
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return Devices() == devices; }));
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return Corrections() == 1; }));
}

TEST_F(Publisher, WhatOthersAddToTheMetadataStays) {
  PublishAndWait();
  WaitUntilWatched();
  Json changed = server_.Slice();
  changed["metadata"]["labels"] = {{"team", "a"}};
  server_.Call("put", {{"resource", "resourceslices"}, {"item", changed}});
  WaitUntilWatched();
  inventory_.devices[0].share = 60;
  PublishAndWait();
  EXPECT_EQ(server_.Slice()["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(Corrections(), 0U);
}

TEST_F(Publisher, ASliceOfAnotherNodeOrDriverIsReplaced) {
  server_.Call("put", {{"resource", "resourceslices"},
                       {"item",
                        {{"metadata", {{"name", kName}}},
                         {"spec",
                          {{"driver", "gpu.example.org"},
                           {"nodeName", "node-2"},
                           {"pool", {{"name", "node-2"}, {"generation", 9}, {"resourceSliceCount", 1}}}}}}}});
  PublishAndWait();
  EXPECT_EQ(server_.Slice()["spec"]["driver"], "xpud.dev");
}

TEST_F(Publisher, ItsEndDeletesNothingAndTheNextOneWritesNothing) {
  PublishAndWait();
  publisher_.reset();
  const Json slice = server_.Slice();
  EXPECT_FALSE(slice.is_null());
  server_.Call("asked");
  Restart();
  PublishAndWait();
  WaitUntilWatched();
  EXPECT_EQ(server_.Slice(), slice);
}

TEST_F(Publisher, WhatTheServerNormalizesIsNotWrittenAgain) {
  inventory_.drained = true;
  server_.Call("set_fault", {{"name", "drop_taints"}, {"value", true}});
  PublishAndWait();
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return !Condition().empty(); }));
  EXPECT_THAT(Condition(), HasSubstr("DRADeviceTaints"));
  WaitUntilWatched();
  EXPECT_EQ(Generation(), 1);
  server_.Call("set_fault", {{"name", "drop_consumable"}, {"value", true}});
  inventory_.devices[0].share = 50;
  publisher_->Publish(inventory_);
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] {
    return Condition().find("DRAConsumableCapacity") != std::string::npos;
  })) << Condition();
}

TEST_F(Publisher, SurvivesForgottenVersionsAndLostConnections) {
  PublishAndWait();
  WaitUntilWatched();
  server_.Call("forget");
  WaitUntilWatched();
  server_.Call("cut");
  WaitUntilWatched();
  server_.Call("end_watches");
  WaitUntilWatched();
  server_.Call("remove", {{"resource", "resourceslices"}, {"name", kName}});
  EXPECT_TRUE(Within(std::chrono::seconds(3), [&] { return !server_.Slice().is_null(); }));
}

TEST_F(Publisher, SaysWhyItCannotWriteAndGoesOn) {
  server_.Call("stop");
  publisher_->Publish(inventory_);
  EXPECT_TRUE(Within(std::chrono::seconds(3), [&] { return !Condition().empty(); }));
  EXPECT_THAT(Condition(), HasSubstr("no answer"));
  EXPECT_THAT(Condition("api-server"), HasSubstr("no answer"));
  server_.Call("allow", {{"role", Json::array({{"list", "resourceslices"}})}});
  server_.Call("start");
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] {
    return Condition().find("cannot create resource") != std::string::npos;
  })) << Condition();
  server_.Call("allow", {{"role", nullptr}});
  PublishAndWait();
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return Condition().empty(); }));
}

TEST_F(Publisher, ItEndsWithinASecondWhateverItWaitsFor) {
  PublishAndWait();
  WaitUntilWatched();
  auto began = std::chrono::steady_clock::now();
  publisher_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1)) << "a watch";
  Restart();
  began = std::chrono::steady_clock::now();
  publisher_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1)) << "nothing to publish";
  server_.Call("stop");
  Restart();
  publisher_->Publish(inventory_);
  EXPECT_TRUE(Within(std::chrono::seconds(3), [&] { return !Condition().empty(); }));
  began = std::chrono::steady_clock::now();
  publisher_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1)) << "its back-off";
}

TEST_F(Publisher, NoNodeHasSuchAName) {
  EXPECT_TRUE(
      absl::IsInvalidArgument(SlicePublisher::Start(*api_, "Node/1", counters_, conditions_).status()));
}

}  // namespace
}  // namespace xpud::agent::kubernetes
