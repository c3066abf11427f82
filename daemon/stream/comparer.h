// Computes digests of device memory, and compares it, one piece after another. A seam: device_comparer.h has
// kernels do it. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace xpud::stream {

class Comparer {
 public:
  using Words = std::array<uint64_t, 2>;

  virtual ~Comparer() = default;  // the device does nothing more for it afterwards
  // The most bytes of a piece. Constant.
  virtual uint64_t piece_bytes() const = 0;
  // Has made what takes long to make: there may soon be something to compare.
  virtual void WarmUp() {}
  // Starts one piece, of a multiple of 8 bytes. Returns false if that is not possible now; an error: never.
  // The memory stays there until Poll has the result. REQUIRES: nothing is under way.
  virtual absl::StatusOr<bool> StartDigest(const std::byte* memory, uint64_t bytes) = 0;
  virtual absl::StatusOr<bool> StartCompare(const std::byte* a, const std::byte* b, uint64_t bytes) = 0;
  struct Result {
    Words words;           // the digest; or how many words of 8 bytes differ, and 0
    uint64_t took_ns = 0;  // of the device's time
  };
  // Returns nullopt while the device works, also after a part has failed. An error: the work is lost.
  virtual absl::StatusOr<std::optional<Result>> Poll() = 0;
  // After an error, or if what is under way is lost: gives up what it has. On return the device does nothing
  // more for it.
  virtual void Reset() = 0;
};

}  // namespace xpud::stream
