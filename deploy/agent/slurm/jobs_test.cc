#include "deploy/agent/slurm/jobs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::agent::slurm {
namespace {

using ::testing::HasSubstr;

// A record as `scontrol show job -d -o` prints it, shortened.
std::string RecordOf(const std::string& name, const std::string& parts, const std::string& ids = "JobId=17") {
  return absl::StrCat(
      ids, " JobName=", name,
      " UserId=nobody(65534) JobState=RUNNING NodeList=a[1-2] TRES=cpu=2,node=2 JOB_GRES=xpud:50 ", parts,
      " MinCPUsNode=1 Features=(null) Command=/tmp/x WorkDir=/ Comment=y\n");
}
std::string PartOf(const std::string& nodes, const std::string& gres) {
  return absl::StrCat("Nodes=", nodes, " CPU_IDs=0-1 Mem=0 GRES=", gres);
}

TEST(SlurmJobs, HaveTheShareThatTheControllerAllocatedOnThisNode) {
  const std::string parts =
      PartOf("a1", "xpud:20") + " " + PartOf("b[02-04]", "gpu:1(IDX:0-1,3),xpud(CNT:30)");
  EXPECT_EQ(ParseJob(RecordOf("x", parts), 17, "a1")->share, 20u);
  EXPECT_EQ(ParseJob(RecordOf("x", parts), 17, "b03")->share, 30u);
  EXPECT_EQ(ParseJob(RecordOf("x", PartOf("a1", "")), 17, "a1")->share, 0u);
  EXPECT_EQ(ParseJob(RecordOf("x", PartOf("a1", "gpu:xpud:3")), 17, "a1")->share, 0u);
  EXPECT_EQ(ParseJob(RecordOf("x", PartOf("a1", "xpud:h100:7,xpud:l4:5")), 17, "a1")->share, 12u);
  EXPECT_TRUE(absl::IsFailedPrecondition(ParseJob(RecordOf("x", parts), 17, "c").status()));
  EXPECT_TRUE(absl::IsNotFound(ParseJob(RecordOf("x", parts), 18, "a1").status()));
}

TEST(SlurmJobs, AreFoundAmongTheTasksOfAnArray) {
  const std::string text = RecordOf("x", PartOf("a1", "xpud:5"), "JobId=19 ArrayJobId=17 ArrayTaskId=3") +
                           RecordOf("x", PartOf("a1", "xpud:6"), "JobId=17 ArrayJobId=17 ArrayTaskId=4");
  EXPECT_EQ(*ParseJob(text, 17, "a1"), (Job{6, "17_4"}));
  EXPECT_EQ(*ParseJob(text, 19, "a1"), (Job{5, "17_3"}));
}

TEST(SlurmJobs, WithARecordThatCanBeReadInSeveralWaysAreRefused) {
  const std::string part = PartOf("a1", "xpud:100"), own = PartOf("a[1-2]", "xpud:1");
  for (const std::string& name : {"x " + part, "x" + part + " ", "x\nJobId=17 " + part,
                                  std::string("x\nJobId=17 y"), std::string("x\ny"), "x\n" + part}) {
    EXPECT_EQ(ParseJob(RecordOf(name, own), 17, "a1").status().code(), absl::StatusCode::kFailedPrecondition)
        << name;
  }
}

TEST(SlurmJobs, WithACountThatIsNoShareAreRefused) {
  for (const char* gres :
       {"xpud:0", "xpud:101", "xpud", "xpud:", "xpud:x", "xpud(CNT:-1)", "xpud:60,xpud:60", "xpud(CNT:"}) {
    const auto job = ParseJob(RecordOf("x", PartOf("a1", gres)), 17, "a1");
    EXPECT_THAT(std::string(job.status().message()), HasSubstr("a share is from 1 to 100")) << gres;
  }
}

TEST(SlurmHostLists, HaveTheirHosts) {
  for (const auto& [list, host] : {std::pair("a", "a"),
                                   {"b,a", "a"},
                                   {"a[1-3]", "a2"},
                                   {"a[01-12]", "a09"},
                                   {"a[8-12]", "a10"},
                                   {"a[1,7]-x", "a7-x"},
                                   {"b[1-2],a[1-2]c[3-4]", "a2c3"},
                                   {"a[1-2]", "a1"},
                                   {"n10a[5]", "n10a5"}})
    EXPECT_TRUE(HostListHas(list, host)) << list << " " << host;
  for (const auto& [list, host] : {std::pair("a", "b"),
                                   {"", ""},
                                   {"a[1-3]", "a4"},
                                   {"a[01-12]", "a9"},
                                   {"a[1-3]", "a02"},
                                   {"a[1-3]", "a"},
                                   {"a[1-3", "a1"},
                                   {"a[1-3]", "a2x"},
                                   {"a[x-y]", "ax"},
                                   {"a[1-2-3]", "a1"},
                                   {"a]1[", "a1"},
                                   {"ab", "a"},
                                   {"a[]", "a"}})
    EXPECT_FALSE(HostListHas(list, host)) << list << " " << host;
}

// With as many ways to read it as there are ways to cut the host's digits.
TEST(SlurmHostLists, OfAUserCannotTakeLong) {
  const std::string host(64, '1');
  std::string list;
  for (int i = 0; i < 32; ++i) list += "[1-99999999999]";
  EXPECT_TRUE(HostListHas(list, host));
  EXPECT_FALSE(HostListHas(list + "x", host));
}

TEST(SlurmList, SaysWhichJobsHoldThisNode) {
  const auto jobs = ParseList("17 RUNNING 1000\n18 COMPLETING 0\n19 COMPLETED 7\n20 SUSPENDED 8\n");
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(jobs->at(17), (ListedJob{1000, true, true}));
  EXPECT_EQ(jobs->at(18), (ListedJob{0, false, true}));
  EXPECT_EQ(jobs->at(19), (ListedJob{7, false, false}));
  EXPECT_EQ(jobs->at(20), (ListedJob{8, true, true}));
  EXPECT_TRUE(ParseList("")->empty());
  for (const char* text : {"17", "x RUNNING 1", "17 RUNNING x", "17 RUNNING 1 2", "-1 RUNNING 1"})
    EXPECT_EQ(ParseList(text).status().code(), absl::StatusCode::kInternal) << text;
}

}  // namespace
}  // namespace xpud::agent::slurm
