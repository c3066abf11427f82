// The loop kernels that a client has defined on one device. Ids come from the client: an id is free or in
// use. A definition that is refused is in use too, so that its calls are refused for the same reason.
// REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/loops/definition.h"
#include "proto/wire/commands.h"

namespace xpud::handles {

class KernelTable {
 public:
  // Of all definitions, as they came. Decoded ones take up to 20 times as much memory.
  static constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

  // What an id stands for.
  struct Kernel {
    std::unique_ptr<loops::CallCache> calls;  // null: the definition was refused, for this reason:
    absl::Status refusal;
    std::string name;         // its client's, printable
    ops::KernelOfCall named;  // as a call that is refused is described
    uint64_t bytes = 0;
  };

  // Returns InvalidArgument, a breach of protocol, unless the id is free.
  absl::Status Admit(uint32_t id) const;
  // Returns the kernel; see Kernel for one that is refused. REQUIRES: Admit(id) returned OK.
  const Kernel& Define(uint32_t id, std::string_view bytes, std::string_view name);
  // Returns null if the id is not in use. The kernel lives until it is forgotten.
  Kernel* Find(int64_t id) const {
    return id >= 1 && id <= static_cast<int64_t>(kernels_.size())
               ? kernels_[static_cast<size_t>(id - 1)].get()
               : nullptr;
  }
  // Returns InvalidArgument, a breach of protocol, if the id is not in use.
  absl::Status Forget(uint32_t id);

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;  // by id - 1
  uint64_t bytes_ = 0;                            // of the definitions that were not refused
};

}  // namespace xpud::handles
