#include "deploy/agent/kubernetes/resource_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

namespace xpud::agent::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kUid[] = "0f6c0a3e-1111-2222-3333-444455556666";
constexpr char kNode[] = "node-1";

Json Result(const char* device = "xpud-0", const char* share = "30", const char* memory = "4Gi",
            const char* request = "gpu") {
  return {{"request", request},
          {"driver", "xpud.dev"},
          {"pool", kNode},
          {"device", device},
          {"shareID", "a671734a-e8e5-11e4-8fde-42010af09327"},
          {"consumedCapacity", {{"share", share}, {"memory", memory}, {"claims", "1"}}}};
}

Json ParametersOf(Json values) {
  values["apiVersion"] = "xpud.dev/v1";
  values["kind"] = "ClaimParameters";
  return values;
}

Json Config(const Json& parameters, const char* source = "FromClaim", const Json& requests = Json::array()) {
  return {{"source", source},
          {"requests", requests},
          {"opaque", {{"driver", "xpud.dev"}, {"parameters", ParametersOf(parameters)}}}};
}

Json Claim(const Json& results = Json::array({Result()}), const Json& config = Json::array()) {
  return {
      {"apiVersion", "resource.k8s.io/v1"},
      {"kind", "ResourceClaim"},
      {"metadata", {{"namespace", "team"}, {"name", "embed"}, {"uid", kUid}}},
      {"status",
       {{"allocation", {{"devices", {{"results", results}, {"config", config}}}}},
        {"reservedFor", Json::array({{{"resource", "pods"}, {"name", "embed-0"}, {"uid", "pod-uid"}}})}}}};
}

// As it would arrive: numbers that are written here are signed, those of a text are not.
absl::StatusOr<Allocation> Read(const Json& claim) {
  return ReadAllocation(*ParseJson(JsonText(claim)), kUid, kNode);
}

void ExpectRefused(const Json& claim, const char* reason,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto read = Read(claim);
  ASSERT_FALSE(read.ok()) << JsonText(claim);
  EXPECT_EQ(read.status().code(), code) << read.status();
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(reason));
}

TEST(ResourceClaim, AnAllocationIsRead) {
  const auto read = Read(Claim());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name_space, "team");
  EXPECT_EQ(read->name, "embed");
  EXPECT_EQ(read->share, 30U);
  EXPECT_EQ(read->memory, uint64_t{4} << 30);
  EXPECT_EQ(read->class_name, "");
  EXPECT_EQ(read->most_time, 0U);
  EXPECT_FALSE(read->sessions.has_value());
  ASSERT_EQ(read->results.size(), 1U);
  EXPECT_EQ(read->results[0].index, 0U);
  EXPECT_EQ(read->results[0].share_id, "a671734a-e8e5-11e4-8fde-42010af09327");
  ASSERT_EQ(read->pods.size(), 1U);
  EXPECT_EQ(read->pods[0].name, "embed-0");
}

TEST(ResourceClaim, BecomesAClaimOfTheDaemon) {
  const auto read =
      Read(Claim(Json::array({Result("xpud-2"), Result("xpud-0")}),
                 Json::array({Config({{"class", "realtime"}, {"mostTime", "50%"}, {"sessions", 8}})})));
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::Claim claim = ClaimOf(*read);
  EXPECT_EQ(claim.key(), std::string("k8s-") + kUid);
  EXPECT_THAT(claim.devices(), ElementsAre(2, 0));
  EXPECT_EQ(claim.class_(), "realtime");
  EXPECT_EQ(claim.weight(), 30U);
  EXPECT_EQ(claim.time_least(), 2850U);
  EXPECT_EQ(claim.time_most(), 5000U);
  EXPECT_EQ(claim.memory_least_bytes(), uint64_t{4} << 30);
  EXPECT_EQ(claim.memory_most_bytes(), uint64_t{4} << 30);
  EXPECT_EQ(claim.sessions_most(), 8U);
  EXPECT_EQ(claim.labels().at("engine"), "kubernetes");
  EXPECT_EQ(claim.labels().at("namespace"), "team");
  EXPECT_EQ(claim.labels().at("claim"), "embed");
  EXPECT_EQ(claim.labels().at("claim_uid"), kUid);
  EXPECT_EQ(claim.labels().at("pod"), "embed-0");
}

TEST(ResourceClaim, TheLabelOfManyPodsIsCut) {
  Json claim = Claim();
  Json& pods = claim["status"]["reservedFor"];
  for (int i = 0; i < 50; ++i)
    pods.push_back({{"resource", "pods"}, {"name", "a-long-name-of-a-pod"}, {"uid", "u"}});
  pods.push_back({{"apiGroup", "example.org"}, {"resource", "pods"}, {"name", "no-pod"}, {"uid", "u"}});
  const auto read = Read(claim);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->pods.size(), 51U);
  EXPECT_EQ(ClaimOf(*read).labels().at("pod").size(), 253U);
  EXPECT_EQ(ClaimOf(*Read(Claim())).labels().count("pod"), 1U);
}

TEST(ResourceClaim, NoPodIsNoLabel) {
  Json claim = Claim();
  claim["status"].erase("reservedFor");
  EXPECT_EQ(ClaimOf(*Read(claim)).labels().count("pod"), 0U);
}

TEST(ResourceClaim, ResultsOfOneDeviceAddUp) {
  const auto read =
      Read(Claim(Json::array({Result("xpud-1", "30", "4Gi", "a"), Result("xpud-1", "20", "1Gi", "b")})));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->share, 50U);
  EXPECT_EQ(read->memory, uint64_t{5} << 30);
  EXPECT_THAT(ClaimOf(*read).devices(), ElementsAre(1));
  ExpectRefused(Claim(Json::array({Result("xpud-1", "60"), Result("xpud-1", "50")})), "add up to 110");
}

TEST(ResourceClaim, DevicesMustHaveEqualParts) {
  ExpectRefused(Claim(Json::array({Result("xpud-0", "30"), Result("xpud-1", "40")})), "unequal parts");
  ExpectRefused(Claim(Json::array({Result("xpud-0", "30", "1Gi"), Result("xpud-1", "30", "2Gi")})),
                "unequal parts");
  EXPECT_TRUE(
      Read(Claim(Json::array({Result("xpud-0", "30", "1024Mi"), Result("xpud-1", "30", "1Gi")}))).ok());
}

TEST(ResourceClaim, OtherDriversAreIgnored) {
  Json other = Result();
  other["driver"] = "gpu.example.org";
  other["pool"] = "elsewhere";
  other.erase("consumedCapacity");
  Json config = Config({});
  config["opaque"] = {{"driver", "gpu.example.org"}, {"parameters", {{"anything", 1}}}};
  const auto read = Read(Claim(Json::array({other, Result()}), Json::array({config})));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->results.size(), 1U);
  ExpectRefused(Claim(Json::array({other})), "no device of the driver xpud.dev",
                absl::StatusCode::kFailedPrecondition);
}

TEST(ResourceClaim, AnotherUidOrNoAllocationIsRefused) {
  Json claim = Claim();
  claim["metadata"]["uid"] = "9f6c0a3e-1111-2222-3333-444455556666";
  ExpectRefused(claim, "deleted and created anew", absl::StatusCode::kFailedPrecondition);
  claim = Claim();
  claim["status"].erase("allocation");
  ExpectRefused(claim, "is not allocated", absl::StatusCode::kFailedPrecondition);
  claim.erase("status");
  ExpectRefused(claim, "is not allocated", absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(ReadAllocation(Claim(), "../../etc", kNode).ok());
  EXPECT_FALSE(ReadAllocation(Claim(), "", kNode).ok());
}

TEST(ResourceClaim, WhatIsWrongWithAResultIsNamed) {
  using Change = std::function<void(Json&)>;
  const std::vector<std::pair<Change, const char*>> cases = {
      {[](Json& r) { r["pool"] = "node-2"; }, "in the pool \"node-2\"; this node's is \"node-1\""},
      {[](Json& r) { r.erase("pool"); }, "results.pool is missing"},
      {[](Json& r) { r["pool"] = 3; }, "results.pool is missing"},
      {[](Json& r) { r["request"] = std::string(254, 'a'); }, "it may have 253"},
      {[](Json& r) { r["device"] = "gpu-0"; }, "device \"gpu-0\""},
      {[](Json& r) { r["device"] = "xpud-"; }, "device \"xpud-\""},
      {[](Json& r) { r["device"] = "xpud-01"; }, "device \"xpud-01\""},
      {[](Json& r) { r["device"] = "xpud--1"; }, "device \"xpud--1\""},
      {[](Json& r) { r["device"] = "xpud-99999999999"; }, "device"},
      {[](Json& r) { r["adminAccess"] = true; }, "adminAccess"},
      {[](Json& r) { r.erase("shareID"); }, "DRAConsumableCapacity"},
      {[](Json& r) { r["shareID"] = 7; }, "shareID is missing or no text"},
      {[](Json& r) { r.erase("consumedCapacity"); }, "consumedCapacity has no share"},
      {[](Json& r) { r["consumedCapacity"].erase("memory"); }, "consumedCapacity has no memory"},
      {[](Json& r) { r["consumedCapacity"]["share"] = "0"; }, "share 0; it may be 1 to 100"},
      {[](Json& r) { r["consumedCapacity"]["share"] = "101"; }, "share 101"},
      {[](Json& r) { r["consumedCapacity"]["share"] = "1500m"; }, "is not a whole number"},
      {[](Json& r) { r["consumedCapacity"]["share"] = -1; }, "is no quantity"},
      {[](Json& r) { r["consumedCapacity"]["memory"] = "0"; }, "memory 0"},
      {[](Json& r) { r["consumedCapacity"]["memory"] = "lots"; },
       "consumedCapacity.memory: quantity \"lots\""},
      {[](Json& r) { r["consumedCapacity"]["memory"] = "99Ei"; }, "is above"},
      {[](Json& r) { r["consumedCapacity"]["memory"] = Json::array(); }, "is no quantity"}};
  for (const auto& [change, reason] : cases) {
    Json result = Result();
    change(result);
    ExpectRefused(Claim(Json::array({result})), reason);
  }
}

TEST(ResourceClaim, QuantitiesMayBeNumbersAndAdminAccessFalse) {
  Json result = Result();
  result["adminAccess"] = false;
  result["consumedCapacity"] = {{"share", 25}, {"memory", 1048576}};
  const auto read = Read(Claim(Json::array({result})));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->share, 25U);
}

TEST(ResourceClaim, HostileShapesAreRefused) {
  for (const Json& claim : {Json(), Json(3), Json::array(), Json("claim"), Json::object()})
    EXPECT_FALSE(Read(claim).ok());
  Json claim = Claim();
  claim["status"]["allocation"]["devices"]["results"] = "all";
  ExpectRefused(claim, "results is not a list");
  claim = Claim();
  for (int i = 0; i < 40; ++i) claim["status"]["allocation"]["devices"]["results"].push_back(Result());
  ExpectRefused(claim, "it may have 32");
  claim = Claim();
  for (int i = 0; i < 300; ++i) claim["status"]["reservedFor"].push_back({{"resource", "pods"}});
  ExpectRefused(claim, "it may have 256");
  claim = Claim();
  claim["metadata"]["namespace"] = "../..";
  ExpectRefused(claim, "no claim is called");
  claim["metadata"]["namespace"] = "a\x1b[31m";
  ExpectRefused(claim, "no claim is called");
}

TEST(ResourceClaim, ParametersAreRead) {
  const std::vector<std::pair<Json, uint32_t>> times = {
      {50, 5000}, {12.5, 1250}, {"50%", 5000}, {"33.33%", 3333}, {100, 10000}, {"100%", 10000}, {28.5, 2850}};
  for (const auto& [value, hundredths] : times) {
    const auto read =
        Read(Claim(Json::array({Result("xpud-0", "10")}), Json::array({Config({{"mostTime", value}})})));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->most_time, hundredths);
  }
  for (const char* name : {"realtime", "interactive", "batch"}) {
    const auto read = Read(Claim(Json::array({Result()}), Json::array({Config({{"class", name}})})));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->class_name, name);
  }
}

TEST(ResourceClaim, WhatIsWrongWithParametersIsNamed) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {{{"clas", "batch"}},
       "unknown parameter \"clas\"; allowed are apiVersion, kind, class, mostTime, sessions"},
      {{{"class", "fast"}}, "class \"fast\"; it may be realtime, interactive, batch"},
      {{{"class", 1}}, "class 1"},
      {{{"class", nullptr}}, "class null"},
      {{{"mostTime", 0}}, "mostTime 0; it may be 0.01 to 100 per cent"},
      {{{"mostTime", 100.5}}, "mostTime 100.5"},
      {{{"mostTime", -3}}, "mostTime -3"},
      {{{"mostTime", 33.333}}, "mostTime 33.333"},
      {{{"mostTime", "50"}}, "mostTime \"50\""},
      {{{"mostTime", "%"}}, "mostTime \"%\""},
      {{{"mostTime", "nan%"}}, "mostTime \"nan%\""},
      {{{"mostTime", " 50%"}}, "mostTime \" 50%\""},
      {{{"mostTime", "1e999%"}}, "mostTime"},
      {{{"mostTime", true}}, "mostTime true"},
      {{{"mostTime", 20}}, "is below 2850, which a share of 30 has at least"},
      {{{"sessions", 0}}, "sessions 0; it may be a whole number from 1 to 1024"},
      {{{"sessions", 1025}}, "sessions 1025"},
      {{{"sessions", "8"}}, "sessions \"8\""},
      {{{"sessions", 1.5}}, "sessions 1.5"},
      {{{"sessions", -1}}, "sessions -1"}};
  for (const auto& [parameters, reason] : cases)
    ExpectRefused(Claim(Json::array({Result()}), Json::array({Config(parameters)})), reason);
  Json config = Config({});
  config["opaque"]["parameters"]["apiVersion"] = "xpud.dev/v2";
  ExpectRefused(Claim(Json::array({Result()}), Json::array({config})), "it must be \"xpud.dev/v1\"");
  config["opaque"]["parameters"] = "batch";
  ExpectRefused(Claim(Json::array({Result()}), Json::array({config})), "they must be an object");
  config = Config({}, "FromNowhere");
  ExpectRefused(Claim(Json::array({Result()}), Json::array({config})), "parameters from \"FromNowhere\"");
}

TEST(ResourceClaim, AClaimsParametersOverrideThoseOfItsClassFieldByField) {
  const auto read = Read(Claim(Json::array({Result()}),
                               Json::array({Config({{"class", "batch"}}),
                                            Config({{"class", "realtime"}, {"sessions", 4}}, "FromClass")})));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->class_name, "batch");
  EXPECT_EQ(read->sessions, 4U);
}

TEST(ResourceClaim, ParametersApplyToTheRequestsThatTheyName) {
  const Json results =
      Json::array({Result("xpud-0", "30", "4Gi", "main/small"), Result("xpud-1", "30", "4Gi", "more")});
  const auto class_of = [&](const Json& config) {
    return Read(Claim(results, Json::array({config})))->class_name;
  };
  EXPECT_EQ(class_of(Config({{"class", "batch"}}, "FromClaim", {"main"})), "batch");
  EXPECT_EQ(class_of(Config({{"class", "batch"}}, "FromClaim", {"main/small"})), "batch");
  EXPECT_EQ(class_of(Config({{"class", "batch"}}, "FromClaim", {"main/large", "mai", "small"})), "");
  ExpectRefused(Claim(results, Json::array({Config({{"class", "batch"}}, "FromClaim", {"main"}),
                                            Config({{"class", "realtime"}}, "FromClaim", {"more"})})),
                "different class: batch and realtime");
  EXPECT_TRUE(Read(Claim(results, Json::array({Config({{"class", "batch"}}, "FromClaim", {"main"}),
                                               Config({{"class", "batch"}}, "FromClaim", {"more"})})))
                  .ok());
}

}  // namespace
}  // namespace xpud::agent::kubernetes
