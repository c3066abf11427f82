#include "deploy/agent/slurm/job_claim.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::agent::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Made {
  v1::Claim claim;
  std::vector<std::string> warnings;
};

Made Make(const Job& job, const std::string& memory, const std::string& class_name,
          const Limits& limits = {}) {
  xpud::slurm::v1::BeginRequest request;
  request.set_job_id(17);
  request.set_uid(1000);
  request.set_memory(memory);
  request.set_class_(class_name);
  Made made;
  made.claim = ClaimOf(job, request, limits, made.warnings);
  return made;
}

TEST(SlurmClaims, HaveTheShareOfTheirJob) {
  const Made made = Make({30, "15_2"}, "4GiB", "batch");
  EXPECT_THAT(made.warnings, IsEmpty());
  EXPECT_EQ(made.claim.key(), "slurm-17");
  EXPECT_EQ(made.claim.weight(), 30u);
  EXPECT_EQ(made.claim.time_least(), 2850u);
  EXPECT_EQ(made.claim.class_(), "batch");
  EXPECT_EQ(made.claim.memory_least_bytes(), uint64_t{4} << 30);
  EXPECT_EQ(made.claim.memory_most_bytes(), uint64_t{4} << 30);
  EXPECT_EQ(made.claim.labels().at("engine"), "slurm");
  EXPECT_EQ(made.claim.labels().at("job"), "17");
  EXPECT_EQ(made.claim.labels().at("user"), "1000");
  EXPECT_EQ(made.claim.labels().at("array"), "15_2");
}

TEST(SlurmClaims, WithoutOptionsHaveTheDefaults) {
  const Made made = Make({30}, "", "");
  EXPECT_THAT(made.warnings, IsEmpty());
  EXPECT_EQ(made.claim.class_(), "interactive");
  EXPECT_FALSE(made.claim.has_memory_most_bytes());
  const Made limited = Make({30}, "", "", {.best_class = "batch"});
  EXPECT_THAT(limited.warnings, IsEmpty());
  EXPECT_EQ(limited.claim.class_(), "batch");
}

TEST(SlurmClaims, AreLimitedWhereOptionsAskForTooMuch) {
  const Made made =
      Make({10}, "1GiB", "realtime", {.best_class = "interactive", .memory_per_share = 1 << 20});
  EXPECT_THAT(made.warnings, ElementsAre(HasSubstr("realtime is limited to interactive"),
                                         HasSubstr("is limited to 1048576")));
  EXPECT_EQ(made.claim.class_(), "interactive");
  EXPECT_EQ(made.claim.memory_most_bytes(), uint64_t{10} << 20);
  EXPECT_THAT(Make({10}, "10MiB", "", {.memory_per_share = 1 << 20}).warnings, IsEmpty());
}

TEST(SlurmClaims, IgnoreOptionsThatAreNone) {
  for (const char* memory : {"lots", "0", "-1", "1GiB;reboot", "\x1b[2J"}) {
    const Made made = Make({10}, memory, "urgent");
    EXPECT_THAT(made.warnings, ElementsAre(HasSubstr("is none of"), HasSubstr("is no size"))) << memory;
    EXPECT_EQ(made.claim.class_(), "interactive");
    EXPECT_FALSE(made.claim.has_memory_most_bytes());
  }
}

TEST(SlurmClaims, HaveKeysThatNameTheirJob) {
  EXPECT_EQ(JobOf(KeyOf(17)), 17u);
  for (const char* key :
       {"slurm-", "slurm-x", "slurm-017", "slurm--1", "k8s-17", "slurm-99999999999", "slurm-1 "})
    EXPECT_EQ(JobOf(key), std::nullopt) << key;
}

}  // namespace
}  // namespace xpud::agent::slurm
