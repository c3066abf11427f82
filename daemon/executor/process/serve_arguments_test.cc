#include "daemon/executor/process/serve_arguments.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace xpud::executor::process {
namespace {

std::optional<ServeArguments> Parsed(std::vector<std::string> argv) {
  std::vector<char*> pointers(argv.size());
  std::ranges::transform(argv, pointers.begin(), [](std::string& argument) { return argument.data(); });
  return ServeArguments::FromArgv(pointers);
}

TEST(ServeArguments, ArriveAsTheyWereSent) {
  const ServeArguments sent = {
      .back_end = "cuda", .device = 3, .driver_library = "/a b/lib=1.so", .rings = 4, .confine = "log"};
  const auto got = Parsed(sent.ToArgv());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->back_end, sent.back_end);
  EXPECT_EQ(got->device, sent.device);
  EXPECT_EQ(got->driver_library, sent.driver_library);
  EXPECT_EQ(got->rings, sent.rings);
  EXPECT_EQ(got->confine, sent.confine);
}

TEST(ServeArguments, ADaemonsArgumentsAreNoExecutors) {
  EXPECT_FALSE(Parsed({"xpud"}).has_value());
  EXPECT_FALSE(Parsed({"xpud", "--device", "cpu"}).has_value());
}

TEST(ServeArguments, EachIsNeeded) {
  const std::vector<std::string> argv = ServeArguments{.back_end = "cpu"}.ToArgv();
  for (size_t i = 1; i < argv.size(); ++i) {
    std::vector<std::string> fewer = argv;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_FALSE(Parsed(fewer).has_value()) << argv[i];
  }
}

}  // namespace
}  // namespace xpud::executor::process
