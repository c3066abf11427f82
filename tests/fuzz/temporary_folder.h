// A folder that goes with the object. In /tmp, as the path of a socket must be short.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace xpud::fuzz {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/xpud-fuzz-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace xpud::fuzz
