// Kernels that misbehave are refused unless asked for. Those that run, run in a child process.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include "gtest/gtest.h"
#include "kernels/testing/device.h"
#include "kernels/testing/gpu_memory.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

class Misbehaving : public ::testing::TestWithParam<const char*> {
 protected:
  Misbehaving() : operand_(tensor_.operand()), groups_(ops::Number::Integer(3)) {
    call_.row = &ops::RowOf(GetParam());
    call_.outputs = {&operand_, 1};
    call_.inputs = {&operand_, 1};
    if (Endless()) call_.attributes = {&groups_, 1};
  }

  static bool Endless() { return std::string_view(GetParam()) == "xpud::test_endless"; }
  static KernelLibrary::Options OptionsFor(Target target) {
    KernelLibrary::Options options;
    options.target = target;
    options.test_kernels = true;
    return options;
  }
  absl::StatusOr<Readiness> Plan(KernelLibrary& library, LaunchList& launches) {
    const auto none = [](size_t) -> absl::StatusOr<void*> { return absl::InternalError("workspace"); };
    absl::StatusOr<Readiness> readiness = library.Plan(call_, none, launches);
    for (; readiness.ok() && *readiness == Readiness::kCompiling;
         readiness = library.Plan(call_, none, launches))
      library.WaitForCompiles();
    return readiness;
  }

  const TestTensor tensor_{ops::DType::kFloat32, {4}};
  const Operand operand_;
  const ops::Number groups_;
  OpCall call_;
};

TEST_P(Misbehaving, IsRefusedByDefault) {
  for (const Target target : {Target::kHost, Target::kNvptx}) {
    KernelLibrary::Options options = OptionsFor(target);
    options.test_kernels = false;
    const auto library = *KernelLibrary::Create(options);
    LaunchList launches;
    const absl::Status status = Plan(*library, launches).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(),
              std::string(GetParam()) + " is a test's; start the daemon with --test-kernels");
    EXPECT_EQ(launches.size(), 0u);
  }
}

TEST_P(Misbehaving, IsPlannedForEachDeviceWhenAskedFor) {
  for (const Target target : {Target::kHost, Target::kNvptx}) {
    const auto library = *KernelLibrary::Create(OptionsFor(target));
    LaunchList launches;
    const absl::StatusOr<Readiness> readiness = Plan(*library, launches);
    ASSERT_TRUE(readiness.ok()) << readiness.status();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ("xpud::" + launches[0].kernel().entry, GetParam());
    EXPECT_EQ(launches[0].groups()[0], Endless() ? 3u : 1u);
  }
}

// How a child ends that runs the kernel, within two seconds; SIGALRM: not at all.
TEST_P(Misbehaving, MisbehavesOnTheCpu) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    TestDevice device;
    const auto library = *KernelLibrary::Create(OptionsFor(Target::kHost));
    LaunchList launches;
    if (!Plan(*library, launches).ok()) ::_exit(1);
    ::alarm(2);
    device.Execute(launches);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), Endless() ? SIGALRM : SIGSEGV);
}

INSTANTIATE_TEST_SUITE_P(Ops, Misbehaving, ::testing::Values("xpud::test_fault", "xpud::test_endless"),
                         [](const auto& param) { return std::string(param.param).substr(6); });

}  // namespace
}  // namespace xpud::kernels
