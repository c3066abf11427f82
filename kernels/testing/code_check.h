// The tools that check emitted code, where they are installed. Used by one thread.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace xpud::kernels {

inline constexpr char kSpirvValidator[] = "spirv-val --target-env spv1.2";
inline constexpr char kPtxAssembler[] = "ptxas -arch=sm_90 -o /dev/null";

// `tool`: with its arguments.
inline bool IsInstalled(const std::string& tool) {
  static std::map<std::string, bool> known;
  const auto [found, is_new] = known.try_emplace(tool.substr(0, tool.find(' ')));
  if (is_new)
    found->second = std::system(absl::StrCat("command -v ", found->first, " > /dev/null").c_str()) == 0;
  return found->second;
}

// Whether the tool takes the bytes, or is not installed. Its output goes to the test's log.
inline bool IsAccepted(const std::string& tool, const std::string& bytes) {
  if (!IsInstalled(tool)) return true;
  const std::string path = ::testing::TempDir() + absl::StrCat("xpud_code_", ::getpid());
  std::ofstream(path, std::ios::binary) << bytes;
  const bool ok = std::system(absl::StrCat(tool, " ", path).c_str()) == 0;
  std::remove(path.c_str());
  return ok;
}

}  // namespace xpud::kernels
