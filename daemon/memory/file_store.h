// Slots of a file, for what has left a device and has no room in host memory. Threads of its own write and
// read them. A slot is read only after it was written for the same chunk, so nobody gets what another tenant
// had in it. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/mover.h"
#include "daemon/memory/moved_out_file.h"

namespace xpud::memory {

// Where they begin in the file, in the order of a chunk's bytes.
using FileSlots = std::vector<uint64_t>;

class FileStore {
 public:
  // A part of a file, which several devices may have together.
  struct Space {
    std::shared_ptr<const MovedOutFile> file;
    uint64_t offset = 0, bytes = 0;
  };
  using Done = std::function<void(const absl::Status&)>;

  // `wake` is called on any thread when Poll has something to do.
  FileStore(Space space, uint64_t slot_bytes, const std::function<void()>& wake);
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Returns `count` slots, or nullopt: there are too few.
  std::optional<FileSlots> Take(size_t count);
  // REQUIRES: nothing reads or writes them.
  void Return(FileSlots slots);
  // Copy all parts, each to or from its slot, and then call `done` once, from Poll. The parts outlive that
  // call. REQUIRES: as many slots as parts.
  void Write(const executor::HostParts& from, const FileSlots& to, Done done);
  void Read(const FileSlots& from, const executor::HostParts& to, Done done);
  // Call often.
  void Poll();

  uint64_t limit() const { return limit_; }
  uint64_t used_bytes() const { return limit_ - free_.size() * slot_bytes_; }
  bool is_busy() const { return copying_ != 0; }

 private:
  using CopyPart = absl::Status (*)(const MovedOutFile&, const executor::HostPart&, uint64_t offset);
  void Copy(const executor::HostParts& parts, const FileSlots& slots, CopyPart copy, Done done);

  const Space space_;
  const uint64_t slot_bytes_, limit_;
  FileSlots free_;
  size_t next_ = 0;  // the thread that gets the next part
  int copying_ = 0;  // calls of Write and Read
  std::vector<std::unique_ptr<executor::Background>> threads_;
};

}  // namespace xpud::memory
