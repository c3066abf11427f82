// Does something as another user of this machine. REQUIRES: root, and no other thread that needs its rights.
#pragma once

#include <unistd.h>

#include "gtest/gtest.h"

namespace xpud::e2e {

template <typename Task>
auto As(uid_t user, Task task) {
  EXPECT_EQ(seteuid(user), 0);
  auto result = task();
  EXPECT_EQ(seteuid(0), 0);
  return result;
}

}  // namespace xpud::e2e
